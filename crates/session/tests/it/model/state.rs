//! States of the model: the database, the processes that use it, and the records of the checker.

use std::collections::BTreeSet;

/// A message, by its sender's idempotency key. `timeline` is the number of failovers before it was
/// stored: a message that a failover loses and its sender repeats is another message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageName {
    pub key: u8,
    pub timeline: u8,
}

/// A claim. Epochs grow within a timeline, so no two claims have the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimName {
    pub epoch: i64,
    pub owner: usize,
    pub timeline: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseState {
    Idle,
    Ready,
    Running,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageState {
    New,
    Seen,
    Done,
    Dead,
}

impl MessageState {
    pub const fn is_unfinished(self) -> bool {
        matches!(self, Self::New | Self::Seen)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Message {
    pub name: MessageName,
    pub state: MessageState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    Thought(ClaimName),
    GivenUp,
}

/// Id of a delivery: the reply of a turn is named after its first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeliveryName {
    Reply(MessageName),
    DeadLetter(MessageName),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeliveryState {
    Pending,
    Sending { owner: usize, expired: bool },
    Sent,
    Unknown,
}

impl DeliveryState {
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Sending { .. })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Delivery {
    pub name: DeliveryName,
    pub answers: BTreeSet<MessageName>,
    pub state: DeliveryState,
    pub attempt: i32,
}

/// The committed rows of one session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Database {
    pub state: LeaseState,
    pub epoch: i64,
    pub owner: Option<usize>,
    pub lease_expired: bool,
    pub attempts: i32,
    pub inbox: Vec<Message>,
    pub entries: Vec<Entry>,
    pub deliveries: Vec<Delivery>,
}

impl Database {
    pub const fn new() -> Self {
        Self {
            state: LeaseState::Idle,
            epoch: 0,
            owner: None,
            lease_expired: false,
            attempts: 0,
            inbox: Vec::new(),
            entries: Vec::new(),
            deliveries: Vec::new(),
        }
    }

    pub fn unfinished(&self) -> impl Iterator<Item = usize> {
        self.inbox.iter().enumerate().filter(|(_, m)| m.state.is_unfinished()).map(|(n, _)| n)
    }
}

/// What a runner knows of its session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Loaded {
    /// Unfinished messages by place in the inbox.
    pub waiting: Vec<(usize, MessageName)>,
    pub entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Runner {
    pub claim: ClaimName,
    /// `None` until the session is read, and again when the outcome of a write is unknown.
    pub loaded: Option<Loaded>,
}

/// A send that a bridge has begun.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bridge {
    pub name: DeliveryName,
    pub answers: BTreeSet<MessageName>,
    pub attempt: i32,
    pub called: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Violation {
    /// The database accepted a write of another runner's claim, or of an ended one.
    FencedWrite,
    /// A turn finished a message that it had not read.
    UnreadMessageFinished,
    /// A write was appended to a journal that its writer had not read.
    OtherJournal,
    /// Two replies to one message arrived.
    AnsweredTwice,
    /// A plain delivery was sent twice.
    PlainSentTwice,
}

/// Records of the checker, which no process can read.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Records {
    /// Messages that were stored, and that no failover lost.
    pub accepted: BTreeSet<MessageName>,
    /// Stored messages that the failover lost.
    pub lost: BTreeSet<MessageName>,
    /// Messages and deliveries whose newest commits the failover lost.
    pub reopened: BTreeSet<MessageName>,
    pub resent: BTreeSet<DeliveryName>,
    /// Deliveries that reached the platform.
    pub arrived: BTreeSet<DeliveryName>,
    /// Messages whose reply reached the platform.
    pub answered: BTreeSet<MessageName>,
    pub violation: Option<Violation>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub primary: Database,
    /// The primary as of the last commit that was replicated.
    pub standby: Database,
    pub replicated: bool,
    pub timeline: u8,
    pub runners: Vec<Option<Runner>>,
    pub bridges: Vec<Option<Bridge>>,
    pub records: Records,
}
