//! History of a test: what its clients, fake models and receivers did and saw.
//!
//! Events are only appended. They hold what was observable from outside of the product; nothing is
//! read from its tables. [`judge`] decides afterwards whether the product kept its promises.

mod judge;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

pub use judge::{Verdict, judge};

use crate::script::{self, MessageKind};

/// A message of a client; its text begins with this id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    pub tenant: u16,
    pub number: u32,
}

impl MessageId {
    /// The ids in a text, each once.
    #[must_use]
    pub fn all_in(text: &str) -> BTreeSet<Self> {
        script::ids(text).iter().filter_map(|id| Self::parse(id)).collect()
    }

    /// Parses an id, as in `t0m000012`.
    #[must_use]
    pub fn parse(id: &str) -> Option<Self> {
        let (tenant, number) = id.strip_prefix('t')?.split_once('m')?;
        Some(Self { tenant: tenant.parse().ok()?, number: number.parse().ok()? })
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}m{:06}", self.tenant, self.number)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A conversation of one client, who sends one message after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    pub tenant: u16,
    pub number: u32,
    pub link: Link,
}

/// How a client is connected, as far as promises differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Link {
    /// Replies are asked for.
    Grpc,
    /// Replies come under an idempotency key.
    Keyed,
    /// Replies come without a key.
    Plain,
}

/// End of a message, as its client is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Completed,
    Interrupted,
    Cancelled,
    Failed,
    Dead,
}

#[derive(Debug, Clone, PartialEq)]
pub enum EventKind {
    /// A client begins to send a message; newer input of the same client may interrupt its turn.
    Sent { message: MessageId, wish: MessageKind, may_be_interrupted: bool },
    /// The message was accepted; `name` is what the product calls it, where the client is told.
    Acknowledged { message: MessageId, name: Option<String> },
    /// The message was refused: it was not accepted.
    Refused { message: MessageId },
    /// No answer came: the message may have been accepted.
    Unanswered { message: MessageId },
    /// Words reached the client, under this key if the channel has keys.
    Heard { text: String, key: Option<String> },
    /// The client was told how its message ended.
    Ended { message: MessageId, end: End, text: String },
    /// The product reports that it does not know whether so many replies arrived at the client.
    UnknownReplies { count: usize },
    /// The product reports a message about this one, which is not the message itself, as dead.
    ConsequenceDead { message: MessageId },
    /// The client begins to decide about the action that a message asked for.
    Deciding { message: MessageId, allow: bool },
    /// The client begins to ask for the end of its turn.
    Cancelling,
    /// The client was told that its session is paused.
    Paused,
    /// The client begins to ask for its session to go on.
    Resuming,
    /// The client begins to delete its session.
    Deleting,
    /// The client was told that its session is deleted.
    Deleted,
}

/// What a tenant's model or the outside world saw.
#[derive(Debug, Clone, PartialEq)]
pub enum WitnessKind {
    /// The tenant's model was shown these messages.
    Shown { tenant: u16, messages: Vec<MessageId> },
    /// The tenant's model gave its final answer in a turn.
    Answered { tenant: u16, text: String },
    /// The outside world was acted on.
    Acted { message: MessageId, key: String },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Observation {
    OfClient(Client, EventKind),
    OfWitness(WitnessKind),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub at: Instant,
    pub what: Observation,
}

/// Append-only log. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct History(Arc<Mutex<Vec<Event>>>);

impl History {
    /// Records what a client does or sees now.
    pub fn client(&self, client: Client, kind: EventKind) {
        self.client_at(Instant::now(), client, kind);
    }

    /// Records what a client saw at that time.
    pub fn client_at(&self, at: Instant, client: Client, kind: EventKind) {
        self.push(Event { at, what: Observation::OfClient(client, kind) });
    }

    /// Records what a model or the world sees now.
    pub fn witness(&self, kind: WitnessKind) {
        self.witness_at(Instant::now(), kind);
    }

    /// Records what a model or the world saw at that time.
    pub fn witness_at(&self, at: Instant, kind: WitnessKind) {
        self.push(Event { at, what: Observation::OfWitness(kind) });
    }

    /// All events in the order of their times.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        events.sort_by_key(|event| event.at);
        events
    }

    fn push(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}
