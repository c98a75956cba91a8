//! What goes into the protocol's verbs and what comes out.

use std::time::Duration;

use holdfast_types::{
    AccountId, Act, AgentId, ApprovalId, Body, DeliveryId, Entry, MessageId, QueueMode, RunId,
    SessionId, SessionKey, SessionSettings, Source, State, SystemEvent, Target, TenantId, Usage,
    Wait,
};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use uuid::Uuid;

/// A message to accept.
#[derive(Debug, Clone)]
pub struct NewMessage {
    /// The session it belongs to; made if it is not there.
    pub key: SessionKey,
    /// The agent that a new session gets.
    pub agent: AgentId,
    /// The label that a new session gets; see [`EPHEMERAL`](crate::EPHEMERAL).
    pub label: Option<&'static str>,
    /// Where it came in.
    pub source: Source,
    /// What makes it the same message when it comes again, 1 to 256 bytes.
    pub idem_key: String,
    /// What was said.
    pub body: Body,
    /// Where the answer goes; `None` to whoever asks for it.
    pub target: Option<Target>,
    /// How it is taken while the session is busy.
    pub mode: QueueMode,
    /// How long [`QueueMode::Collect`] waits for more.
    pub debounce: Duration,
    /// The trace it came in on, as a W3C traceparent.
    pub trace: Option<String>,
}

/// That a message was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The message.
    pub message: MessageId,
    /// Its session.
    pub session: SessionId,
    /// Its place in the session's inbox.
    pub seq: i64,
    /// It had been accepted before; nothing changed.
    pub duplicate: bool,
    /// Somebody should be told to claim, after so long. `None` if nobody needs to.
    pub wake: Option<Duration>,
    /// A runner has the session now and should look at its inbox (`Interrupt`: at once).
    pub running: Option<Running>,
}

/// Who runs a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    /// The runner.
    pub owner: holdfast_types::RunnerId,
    /// The fence it holds.
    pub epoch: i64,
}

/// A session that a runner has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Whose it is.
    pub tenant: TenantId,
    /// Which.
    pub session: SessionId,
    /// The fence: every write carries it.
    pub epoch: i64,
    /// Claims since the journal last grew, this one included.
    pub attempts: i32,
}

/// A message in the inbox that is not finished.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// Its place.
    pub seq: i64,
    /// Its id.
    pub message: MessageId,
    /// What was said.
    pub body: Body,
    /// A turn has seen it already.
    pub seen: bool,
    /// How it is taken.
    pub mode: QueueMode,
    /// Where it came in, as stored: an account's id, a key's, or a word of the mesh's own.
    pub source: String,
    /// Where its answer goes.
    pub target: Option<Target>,
    /// The trace it came in on.
    pub trace: Option<String>,
    /// When it was accepted.
    pub accepted_at: Timestamp,
}

/// Everything a runner needs to know of a session to walk its journal.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Its key.
    pub key: String,
    /// Its agent.
    pub agent: AgentId,
    /// Unfinished messages, in order.
    pub waiting: Vec<Waiting>,
    /// The journal's newest entries, in order, with the run each belongs to.
    pub entries: Vec<(i64, RunId, Entry)>,
    /// The inbox's next place: a larger one later means that something came.
    pub next_in: i64,
    /// The journal's next place.
    pub next_entry: i64,
    /// It was held, and should stop at the next step.
    pub paused: bool,
    /// Its user wants nothing up to this place any more.
    pub cancel_upto: i64,
    /// Where it was last spoken to.
    pub last_target: Option<Target>,
    /// What was set for it.
    pub settings: SessionSettings,
    /// What it waits for since its deadline passed or it was woken; `Anything` is usual.
    pub wait: Wait,
    /// What its next turn is told of.
    pub events: Vec<SystemEvent>,
}

/// What one step writes.
#[derive(Debug, Clone, Default)]
pub struct Append {
    /// The turn.
    pub run: Option<RunId>,
    /// Where the journal ends as the writer knows it: if it does not, nothing is written. `None` is
    /// wherever it ends.
    pub at: Option<i64>,
    /// What happened.
    pub entries: Vec<Entry>,
    /// Places in the inbox that the turn has now seen.
    pub seen: Vec<i64>,
    /// Replies to send to a channel now.
    pub deliveries: Vec<NewDelivery>,
}

/// What the session's lease said when a step was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Stop at this step boundary: the session was held.
    pub pause: bool,
    /// Its user wants nothing up to this place any more.
    pub cancel_upto: i64,
    /// The inbox's next place: larger than what was loaded means that something came.
    pub next_in: i64,
    /// The journal's next place.
    pub next_entry: i64,
}

/// How a message, and the turn that saw it, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered.
    Completed,
    /// A newer message ended it.
    Interrupted,
    /// Its user ended it.
    Cancelled,
    /// It could not be answered, and trying again would not help.
    Failed,
    /// It was given up after too many attempts.
    Dead,
}

/// A reply to send to a channel.
#[derive(Debug, Clone)]
pub struct NewDelivery {
    /// Where to.
    pub target: Target,
    /// The text, whole; the bridge cuts it to what the platform takes.
    pub text: String,
    /// What is to be done, if it is more than to say that; its text is then never cut.
    pub act: Option<Act>,
    /// Its id, which is also its idempotency key; a call that is repeated brings the same.
    pub id: DeliveryId,
}

/// The end of a turn.
#[derive(Debug, Clone)]
pub struct Completion {
    /// The turn.
    pub run: RunId,
    /// Where the journal ends as the writer knows it: if it does not, nothing is written. `None` is
    /// wherever it ends.
    pub at: Option<i64>,
    /// What happened last.
    pub entries: Vec<Entry>,
    /// The messages that it finishes, and which of them it had not marked as seen.
    pub done: Vec<i64>,
    /// How.
    pub outcome: Outcome,
    /// Why, where it is not obvious; for people.
    pub reason: Option<String>,
    /// Where among `entries` the answer is.
    pub reply: Option<usize>,
    /// Replies to send.
    pub deliveries: Vec<NewDelivery>,
    /// What the turn cost in all.
    pub usage: Usage,
    /// The model that answered last.
    pub model: String,
    /// Model calls and tool rounds in all.
    pub steps: i32,
    /// When the turn began.
    pub started_at: Timestamp,
    /// What the session waits for now.
    pub wait: Wait,
    /// Where it was last spoken to, if this turn's messages came by a channel.
    pub last_target: Option<Target>,
}

/// What completing a turn led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completed {
    /// The session, or another of the tenant, is ready now: somebody should claim.
    pub wake: bool,
    /// The session itself is ready again.
    pub again: bool,
}

/// What renewing told of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub session: SessionId,
    /// The fence that was renewed.
    pub epoch: i64,
    /// It was held.
    pub pause: bool,
    /// Its user wants nothing up to this place any more.
    pub cancel_upto: i64,
    /// The inbox's next place.
    pub next_in: i64,
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Sessions whose runner was lost.
    pub orphaned: u64,
    /// Waits that ran past their deadline.
    pub overdue: u64,
    /// Sessions that found room in their tenant's share.
    pub promoted: u64,
    /// Messages that were given up.
    pub dead: u64,
}

impl Swept {
    /// Whether somebody should claim.
    #[must_use]
    pub const fn wakes(&self) -> bool {
        self.orphaned + self.overdue + self.promoted + self.dead > 0
    }
}

/// How a message stands, and the answer if there is one.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The message.
    pub message: MessageId,
    /// Its session.
    pub session: SessionId,
    /// Its place.
    pub seq: i64,
    /// The turn that saw it.
    pub run: Option<RunId>,
    /// How it ended; `None` while it has not.
    pub outcome: Option<Outcome>,
    /// The answer.
    pub text: String,
    /// Why it ended so.
    pub reason: Option<String>,
    /// What the turn cost.
    pub usage: Usage,
    /// The model that answered.
    pub model: String,
    /// The calls of its turn that wait for a person's word.
    pub awaited: Vec<Awaited>,
}

/// A call that waits for a person's word, in short.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Awaited {
    /// Its approval.
    #[serde(deserialize_with = "bare")]
    pub approval: ApprovalId,
    /// The tool.
    pub tool: String,
    /// What it would do, in a line.
    pub summary: String,
    /// How long a word is waited for, in milliseconds from now.
    pub left_ms: u64,
}

fn bare<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ApprovalId, D::Error> {
    Uuid::deserialize(deserializer).map(ApprovalId::from)
}

/// A session as people see it.
#[derive(Debug, Clone)]
pub struct SessionView {
    /// Its id.
    pub id: SessionId,
    /// Its key.
    pub key: String,
    /// Its kind's word.
    pub kind: String,
    /// Its agent.
    pub agent: AgentId,
    /// The session it belongs to.
    pub parent: Option<SessionId>,
    /// Its label.
    pub label: String,
    /// What was said in it so far, in short; empty if nobody has summarised it.
    pub summary: String,
    /// Its state below any pause.
    pub state: State,
    /// Why it is held.
    pub paused: Option<String>,
    /// Messages accepted and not finished.
    pub waiting: i64,
    /// Calls of its turn that wait for a person's word.
    pub approvals: i64,
    /// Turns it has had.
    pub turns: i64,
    /// What it cost.
    pub usage: Usage,
    /// Where it was last spoken to.
    pub last_target: Option<Target>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// One entry of the journal as people see it.
#[derive(Debug, Clone)]
pub struct EntryView {
    /// Its place.
    pub seq: i64,
    /// Its turn.
    pub run: RunId,
    /// What happened.
    pub entry: Entry,
    /// When.
    pub created_at: Timestamp,
}

/// A turn as people see it.
#[derive(Debug, Clone)]
pub struct RunView {
    /// Its id.
    pub id: RunId,
    /// Its session.
    pub session: SessionId,
    /// Its agent.
    pub agent: AgentId,
    /// How it ended.
    pub outcome: Outcome,
    /// Why.
    pub reason: Option<String>,
    /// Model calls and tool rounds.
    pub steps: i32,
    /// The model that answered.
    pub model: String,
    /// What it cost.
    pub usage: Usage,
    /// Its answer.
    pub text: String,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Timestamp,
}

/// A message that was given up.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// The message.
    pub message: MessageId,
    /// Its session.
    pub session: SessionId,
    /// Its place.
    pub seq: i64,
    /// Where it came in.
    pub source: String,
    /// Why it was given up.
    pub reason: String,
    /// What was said.
    pub body: Body,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it was given up.
    pub died_at: Timestamp,
}

/// A part of a reply that a bridge has taken to send.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Whose.
    pub tenant: TenantId,
    /// Its id, which is its idempotency key too.
    pub id: DeliveryId,
    /// Its session.
    pub session: SessionId,
    /// Its turn.
    pub run: RunId,
    /// Where to.
    pub target: Target,
    /// Its text.
    pub text: String,
    /// What is to be done, if it is more than to say that.
    pub act: Option<Act>,
    /// The call that it asks for a person's word on, if it does.
    pub approval: Option<ApprovalId>,
    /// The text is cut to size already.
    pub split: bool,
    /// Which reply of the session.
    pub out_seq: i64,
    /// Which part of it.
    pub part: i32,
    /// How often it was tried, this time included.
    pub attempt: i32,
    /// An earlier try may have reached the platform: the lease of one that was sending ran out.
    pub ambiguous: bool,
    /// The trace that it belongs to.
    pub trace: Option<String>,
}

/// How a delivery's try ended.
#[derive(Debug, Clone)]
pub enum Sent {
    /// The platform has it, and calls it so.
    Yes {
        /// The platform's id of the message.
        platform_id: String,
    },
    /// It surely has not: try again after so long.
    Again {
        /// After how long.
        after: Duration,
        /// Why.
        reason: String,
    },
    /// It refused: nobody tries again.
    Refused {
        /// Why.
        reason: String,
    },
    /// Nobody can know.
    Unknown {
        /// Why.
        reason: String,
    },
}

/// A delivery as people see it.
#[derive(Debug, Clone)]
pub struct DeliveryView {
    /// Its id.
    pub id: DeliveryId,
    /// Its session.
    pub session: SessionId,
    /// Its turn.
    pub run: RunId,
    /// The kind of channel.
    pub channel: String,
    /// The account.
    pub account: AccountId,
    /// The conversation on the platform.
    pub chat: String,
    /// Its state's word.
    pub state: String,
    /// How often it was tried.
    pub attempt: i32,
    /// Why it stands so.
    pub reason: Option<String>,
    /// What the platform calls it.
    pub platform_id: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// A tenant's state in numbers.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Sessions by state.
    pub sessions: Vec<(String, i64)>,
    /// Deliveries by state.
    pub deliveries: Vec<(String, i64)>,
    /// Messages accepted and not finished.
    pub waiting: i64,
    /// The age of the oldest of them.
    pub oldest_wait: Duration,
    /// Messages given up.
    pub dead: i64,
}

impl Outcome {
    /// The word that the database and the API use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Dead => "dead",
        }
    }

    /// The outcome that a word names; an unknown word is a failure.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        match word {
            "completed" => Self::Completed,
            "interrupted" => Self::Interrupted,
            "cancelled" => Self::Cancelled,
            "dead" => Self::Dead,
            _ => Self::Failed,
        }
    }
}
