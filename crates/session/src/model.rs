//! Parameters and results of the protocol's verbs.

mod step_effects;

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use holdfast_types::{
    AccountId, AgentId, ApprovalId, Body, ChannelAction, DeliveryId, Entry, Handover, MessageId,
    QueueMode, RunId, RunnerId, SessionId, SessionKey, SessionKind, SessionSettings, SessionState,
    SignedAuthor, Source, SystemEvent, Target, TenantId, Usage, Wait,
};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use uuid::Uuid;

pub use step_effects::{EffectFuture, StepEffects};

#[derive(Debug, Clone)]
pub struct NewMessage {
    /// Key of the session; the session is created if it does not exist.
    pub key: SessionKey,
    /// Agent of the session, if the session is created.
    pub agent: AgentId,
    /// Label of the session, if the session is created; see [`EPHEMERAL`](crate::EPHEMERAL_LABEL).
    pub label: Option<&'static str>,
    pub source: Source,
    /// Idempotency key of the sender, 1 to 256 bytes.
    pub idem_key: String,
    pub body: Body,
    /// Where the reply is sent; `None` if only the caller asks for it.
    pub target: Option<Target>,
    /// Treatment of the message while a turn runs.
    pub mode: QueueMode,
    /// How long [`QueueMode::Collect`] waits for further messages.
    pub debounce: Duration,
    /// W3C traceparent of the request.
    pub trace: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acceptance {
    pub message: MessageId,
    pub session: SessionId,
    /// Position in the session's inbox.
    pub seq: i64,
    /// The same message was accepted before; nothing changed.
    pub duplicate: bool,
    /// Delay after which a wake-up should be sent; `None` if none is needed.
    pub wake: Option<Duration>,
    /// The runner that has the session and should read the inbox (`Interrupt`: at once).
    pub running: Option<SessionOwner>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionOwner {
    pub owner: RunnerId,
    pub epoch: i64,
}

/// A session that a runner has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub tenant: TenantId,
    pub session: SessionId,
    /// Runner that made the claim; every write carries it.
    pub runner: RunnerId,
    /// Epoch of the claim; every write carries it.
    pub epoch: i64,
    /// Claims since the journal last made progress, including this one.
    pub attempts: i32,
    pub class: TurnClass,
}

/// Class of a session's turns when slots are short; earlier ones run first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TurnClass {
    /// A conversation of people or programs.
    Interactive,
    Subagent,
    /// A job, a heartbeat, or a job's subagent.
    Job,
}

/// Free slots of a runner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FreeSlots {
    pub all: u32,
    /// How many of them sessions may take for which no person waits.
    pub background: u32,
    pub interactive: ClassSlots,
    pub subagents: ClassSlots,
    pub jobs: ClassSlots,
    pub tenants: TenantSlots,
}

/// Slots that a runner reserves for tenants with few turns. Where only one tenant of its pool has ever had
/// a session, it may take them too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantSlots {
    /// How many slots a tenant may only take while it has fewer than `share` turns.
    pub reserved: u32,
    pub share: u32,
    /// Number of turns that run, of each tenant that has any.
    pub running: Vec<(TenantId, u32)>,
}

impl TenantSlots {
    /// Whether sessions of a tenant may wait although slots are free.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.running.iter().any(|(tenant, _)| self.has_share(*tenant))
    }

    /// Whether a tenant has so many turns that it may take no reserved slot.
    #[must_use]
    pub fn has_share(&self, tenant: TenantId) -> bool {
        let has = |&(of, running): &(TenantId, u32)| of == tenant && running >= self.share;
        self.reserved > 0 && self.running.iter().any(has)
    }
}

/// Free slots of one class of turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassSlots {
    /// How many slots the class may take.
    pub free: u32,
    /// How many of them it takes before the other classes: those of its reserved share.
    pub first: u32,
}

impl From<u32> for FreeSlots {
    /// Slots that any session may take.
    fn from(slots: u32) -> Self {
        let class = ClassSlots { free: slots, first: 0 };
        Self {
            all: slots,
            background: slots,
            interactive: class,
            subagents: class,
            jobs: class,
            tenants: TenantSlots::default(),
        }
    }
}

impl TurnClass {
    /// Returns the class of a session kind.
    #[must_use]
    pub const fn of(kind: SessionKind) -> Self {
        match kind {
            SessionKind::Main
            | SessionKind::Dm
            | SessionKind::Group
            | SessionKind::Topic
            | SessionKind::Work
            | SessionKind::Api
            | SessionKind::Global => Self::Interactive,
            SessionKind::Subagent => Self::Subagent,
            SessionKind::Cron | SessionKind::Heartbeat => Self::Job,
        }
    }

    /// Stored number; lower ones run first.
    pub(crate) const fn priority(self) -> i16 {
        match self {
            Self::Interactive => 0,
            Self::Subagent => 1,
            Self::Job => 2,
        }
    }

    pub(crate) const fn from_priority(priority: i16) -> Self {
        match priority {
            ..=0 => Self::Interactive,
            1 => Self::Subagent,
            2.. => Self::Job,
        }
    }
}

/// An unfinished message of the inbox.
#[derive(Debug, Clone)]
pub struct InboxMessage {
    pub seq: i64,
    pub message: MessageId,
    pub body: Body,
    /// A turn has seen the message already.
    pub seen: bool,
    /// Treatment of the message while a turn runs.
    pub mode: QueueMode,
    /// Stored form of [`Source`]: an account id, an API key id, or an internal kind.
    pub source: String,
    pub target: Option<Target>,
    /// W3C traceparent of the request.
    pub trace: Option<String>,
    pub accepted_at: Timestamp,
}

/// A text that waits for a session's next turn, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PendingEvent {
    #[serde(flatten)]
    pub event: SystemEvent,
    /// Set if a job says the text; the reader has to verify it.
    pub signed: Option<SignedAuthor>,
}

/// State of a session that a runner needs to continue its turn.
#[derive(Debug, Clone)]
pub struct LoadedSession {
    pub key: String,
    pub agent: AgentId,
    /// Unfinished messages, ordered by `seq`.
    pub waiting: Vec<InboxMessage>,
    /// Newest entries of the journal, oldest first, each with its `seq` and run.
    pub entries: Vec<(i64, RunId, Entry)>,
    /// Next `seq` of the inbox; a larger value later means that a message arrived.
    pub next_in: i64,
    /// Next `seq` of the journal.
    pub next_entry: i64,
    /// The session is paused: stop at the next step boundary.
    pub paused: bool,
    /// Messages up to this `seq` are cancelled.
    pub cancel_upto: i64,
    /// Target of the latest message that came by a channel.
    pub last_target: Option<Target>,
    pub settings: SessionSettings,
    /// The wait that ended by its deadline; [`Wait::Anything`] if there was none.
    pub wait: Wait,
    /// System events that the next turn is told of.
    pub events: Vec<PendingEvent>,
    /// Since its last reset, the session has read text from outside.
    pub outside: bool,
    /// Runner that holds state for the session, as recorded.
    pub holder: Option<RunnerId>,
    /// The session's local workspace.
    pub workspace: Option<String>,
}

/// The writes of one step.
#[derive(Debug, Clone, Default)]
pub struct StepWrite {
    /// Run of the turn; without it the other fields are ignored, and only the signals are read.
    pub run: Option<RunId>,
    /// Next `seq` of the journal as the writer knows it. If it differs, nothing is written and
    /// [`Error::JournalMoved`](crate::Error::JournalMoved) is returned. `None` skips the check.
    pub at: Option<i64>,
    /// Newest message of the inbox that the writer has read, with its `seq`. If the inbox has another
    /// message in its place, because a failover of the database lost it, nothing is written and
    /// [`Error::JournalMoved`](crate::Error::JournalMoved) is returned. `None` skips the check.
    pub newest: Option<(i64, MessageId)>,
    pub entries: Vec<Entry>,
    /// `seq` of the inbox messages that the turn has seen with this step.
    pub seen: Vec<i64>,
    /// Replies to send to a channel now.
    pub deliveries: Vec<NewDelivery>,
    /// The turn makes no progress, whatever the entries are: the attempts go on counting.
    pub no_progress: bool,
    /// What else the transaction writes.
    pub effects: Option<Arc<dyn StepEffects>>,
}

/// Signals for the running turn, read when a step was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepSignals {
    /// The session is paused: stop at this step boundary.
    pub pause: bool,
    /// Messages up to this `seq` are cancelled.
    pub cancel_upto: i64,
    /// Next `seq` of the inbox; larger than the loaded value means that a message arrived.
    pub next_in: i64,
    /// Next `seq` of the journal.
    pub next_entry: i64,
}

/// Outcome of a message and of the turn that handled it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnOutcome {
    Completed,
    /// A newer message interrupted the turn.
    Interrupted,
    /// The user cancelled the turn.
    Cancelled,
    /// The message could not be answered, and a retry would not help.
    Failed,
    /// The message became a dead letter after too many attempts.
    Dead,
}

/// A reply to send to a channel.
#[derive(Debug, Clone)]
pub struct NewDelivery {
    pub target: Target,
    /// The whole text; the bridge splits it to the platform's size limit.
    pub text: String,
    /// An action other than sending text. The text is then never split.
    pub act: Option<ChannelAction>,
    /// Id and idempotency key of the delivery. A repeated tool call passes the same id.
    pub id: DeliveryId,
    /// Time before it may be sent; usually none.
    pub delay: Duration,
}

#[derive(Debug, Clone)]
pub struct Completion {
    pub run: RunId,
    /// Next `seq` of the journal as the writer knows it. If it differs, nothing is written and
    /// [`Error::JournalMoved`](crate::Error::JournalMoved) is returned. `None` skips the check.
    pub at: Option<i64>,
    /// Newest message of the inbox that the writer has read, with its `seq`. If the inbox has another
    /// message in its place, because a failover of the database lost it, nothing is written and
    /// [`Error::JournalMoved`](crate::Error::JournalMoved) is returned. `None` skips the check.
    pub newest: Option<(i64, MessageId)>,
    pub entries: Vec<Entry>,
    /// `seq` of the messages that the turn finishes, whether or not they were marked as seen.
    pub done: Vec<i64>,
    /// Outcome for these messages and the run.
    pub outcome: TurnOutcome,
    /// Explanation for people, where the outcome alone is not enough.
    pub reason: Option<String>,
    /// Index of the reply in `entries`.
    pub reply: Option<usize>,
    pub deliveries: Vec<NewDelivery>,
    /// Token usage of the whole turn.
    pub usage: Usage,
    /// Model of the last reply.
    pub model: String,
    /// Number of model calls and tool rounds in the whole turn.
    pub steps: i32,
    /// Id and tool of each tool call of the whole turn.
    pub tools: Vec<(String, String)>,
    pub started_at: Timestamp,
    /// Wait of the session after the turn, if no stored message wakes it.
    pub wait: Wait,
    /// Target of this turn's messages, if they came by a channel.
    pub last_target: Option<Target>,
    /// What else the transaction writes.
    pub effects: Option<Arc<dyn StepEffects>>,
}

/// Result of completing a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionResult {
    /// The session, or another one of the tenant, is ready: send a wake-up.
    pub wake: bool,
    /// The session itself is ready again.
    pub again: bool,
}

/// Result of renewing leases. A claim that is in neither list is lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RenewalResult {
    pub renewed: Vec<RenewedLease>,
    /// Sessions whose lease another transaction has locked: try again.
    pub locked: Vec<SessionId>,
}

/// One renewed lease, with the signals for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenewedLease {
    pub tenant: TenantId,
    pub session: SessionId,
    /// Epoch of the renewed claim.
    pub epoch: i64,
    /// The session is paused: stop at the next step boundary.
    pub pause: bool,
    /// Messages up to this `seq` are cancelled.
    pub cancel_upto: i64,
    /// Next `seq` of the inbox.
    pub next_in: i64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepCounts {
    /// Sessions whose lease expired.
    pub orphaned: u64,
    /// Waits that passed their deadline.
    pub overdue: u64,
    /// Queued sessions that were admitted, because their tenant was below its cap.
    pub promoted: u64,
    /// Messages that became dead letters.
    pub dead: u64,
}

impl SweepCounts {
    /// Whether a wake-up should be sent.
    #[must_use]
    pub const fn needs_wake_up(&self) -> bool {
        self.orphaned + self.overdue + self.promoted + self.dead > 0
    }
}

/// State of a message, and its answer if there is one.
#[derive(Debug, Clone)]
pub struct MessageStatus {
    pub message: MessageId,
    pub session: SessionId,
    pub seq: i64,
    /// Run that handled the message.
    pub run: Option<RunId>,
    /// `None` while the message is not finished.
    pub outcome: Option<TurnOutcome>,
    pub text: String,
    /// Explanation of the outcome, for people.
    pub reason: Option<String>,
    /// Token usage of the run.
    pub usage: Usage,
    /// Model of the last reply.
    pub model: String,
    /// Pending approvals of the message's run.
    pub awaited: Vec<PendingApproval>,
    /// Number of the last step of the run, from 0; `None` if the run has not ended, or used no model.
    pub last_step: Option<u32>,
    /// Set if the run ended with calls of the client's tools.
    pub handover: Option<Handover>,
    /// Stored form of the message's [`Source`].
    pub source: String,
    /// As in the message's body.
    pub response_fields: Option<Value>,
    /// No turn has seen the message.
    pub is_new: bool,
}

/// Summary of a pending approval.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PendingApproval {
    #[serde(deserialize_with = "bare")]
    pub approval: ApprovalId,
    pub tool: String,
    /// Effect of the call, in one line.
    pub summary: String,
    /// Exact text of what is approved.
    pub subject: String,
    /// Pattern that "always" would allow; empty allows this subject only.
    pub pattern: String,
    /// Time left for the decision, in milliseconds.
    pub left_ms: u64,
}

fn bare<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ApprovalId, D::Error> {
    Uuid::deserialize(deserializer).map(ApprovalId::from)
}

/// A session as users see it.
#[derive(Debug, Clone)]
pub struct SessionView {
    pub id: SessionId,
    pub key: String,
    /// Name of the session kind.
    pub kind: String,
    pub agent: AgentId,
    /// Parent session, for subagents.
    pub parent: Option<SessionId>,
    /// Label with which a program made it.
    pub label: String,
    /// Label that people gave it.
    pub given_label: Option<String>,
    /// Tags that people gave it, else those of its behaviours.
    pub tags: Vec<String>,
    pub pinned: bool,
    /// Id of the workspace that the session is bound to.
    pub workspace: Option<String>,
    /// The session that it is a branch of, and the last entry that both share.
    pub branch: Option<(SessionId, i64)>,
    /// Summary of the conversation; empty if there is none.
    pub summary: String,
    /// State, regardless of a pause.
    pub state: SessionState,
    /// Reason of the pause: `user`, `parent` or `system`; `None` if not paused.
    pub paused: Option<String>,
    /// Number of messages that are accepted and not finished.
    pub waiting: i64,
    pub approvals: i64,
    pub turns: i64,
    /// Token usage of all turns.
    pub usage: Usage,
    /// Target of the latest message that came by a channel.
    pub last_target: Option<Target>,
    pub created_at: Timestamp,
    /// End of the last turn; before the first one the creation.
    pub updated_at: Timestamp,
    /// Beginning of the hour of `updated_at`, by which lists are ordered first. `None`, or an earlier
    /// hour, if the last turn ended in a runner of a version that does not write it.
    pub used_hour: Option<Timestamp>,
}

/// A journal entry as users see it.
#[derive(Debug, Clone)]
pub struct EntryView {
    pub seq: i64,
    pub run: RunId,
    pub entry: Entry,
    pub created_at: Timestamp,
}

/// A finished run as users see it.
#[derive(Debug, Clone)]
pub struct RunView {
    pub id: RunId,
    pub session: SessionId,
    pub agent: AgentId,
    pub outcome: TurnOutcome,
    /// Explanation of the outcome, for people.
    pub reason: Option<String>,
    /// Number of model calls and tool rounds.
    pub steps: i32,
    pub model: String,
    /// Token usage of the run.
    pub usage: Usage,
    pub text: String,
    /// In millionths of a US dollar.
    pub cost_micros: u64,
    /// Kind of channel of the message that began it; `api` for programs.
    pub channel: Option<String>,
    /// Verified author of that message.
    pub person: Option<String>,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
}

/// A message that became a dead letter.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    pub message: MessageId,
    pub session: SessionId,
    pub seq: i64,
    pub source: String,
    /// Reason why the message was given up.
    pub reason: String,
    pub body: Body,
    pub accepted_at: Timestamp,
    /// Time at which the message became a dead letter.
    pub died_at: Timestamp,
}

/// One part of a reply, claimed by a bridge.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub tenant: TenantId,
    /// Id and idempotency key of the delivery.
    pub id: DeliveryId,
    pub session: SessionId,
    pub run: RunId,
    pub target: Target,
    pub text: String,
    /// An action other than sending text.
    pub act: Option<ChannelAction>,
    /// The approval that the message requests, if it requests one.
    pub approval: Option<ApprovalId>,
    /// The text is already split to the platform's size limit.
    pub split: bool,
    /// Position of the reply in its session.
    pub out_seq: i64,
    /// Position of this part in its reply, from 0.
    pub part: i32,
    /// Number of all attempts, including this one.
    pub attempt: i32,
    /// Number of attempts since the delivery was created or sent again by hand, including this one.
    pub tries: i32,
    /// Time since the first attempt began whose outcome is not known; `None` if there is none.
    pub unsure_for: Option<Duration>,
    /// W3C traceparent of the message that started the turn.
    pub trace: Option<String>,
}

/// Outcome of one attempt to send a delivery.
#[derive(Debug, Clone)]
pub enum SendResult {
    /// The platform accepted the message.
    Sent {
        /// Id of the message on the platform.
        platform_id: String,
    },
    /// The platform certainly has not received the message: retry after a delay.
    Retry { after: Duration, reason: String },
    /// The platform may have the message, and it is safe to try again after a delay.
    Unsure { after: Duration, reason: String },
    /// The platform rejected the message: it becomes a dead letter.
    Rejected { reason: String },
    /// The outcome cannot be determined.
    Unknown { reason: String },
}

/// A delivery as users see it.
#[derive(Debug, Clone)]
pub struct DeliveryView {
    pub id: DeliveryId,
    pub session: SessionId,
    pub run: RunId,
    pub channel: String,
    pub account: AccountId,
    /// Beginning of the text, at most 500 characters.
    pub text: String,
    /// Id of the chat on the platform.
    pub chat: String,
    /// Name of the delivery state.
    pub state: String,
    pub attempt: i32,
    /// Explanation of the state, for people.
    pub reason: Option<String>,
    /// Id of the message on the platform.
    pub platform_id: Option<String>,
    pub created_at: Timestamp,
    pub finished_at: Option<Timestamp>,
}

/// Counts of a tenant's sessions, deliveries and messages.
#[derive(Debug, Clone, Default)]
pub struct TenantCounts {
    pub sessions: Vec<(String, i64)>,
    pub deliveries: Vec<(String, i64)>,
    /// Number of messages that are accepted and not finished.
    pub waiting: i64,
    /// Age of the oldest unfinished message.
    pub oldest_wait: Duration,
    pub dead: i64,
}

impl TurnOutcome {
    /// Returns the name that the database and the API use.
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

    /// Parses a stored name; an unknown name is [`TurnOutcome::Failed`].
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

/// Maximum length of a pool's name, which is part of the names of Kubernetes objects.
const MAX_POOL_NAME_CHARS: usize = 40;

/// Name of a pool of runners.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunnerPool(String);

/// Error for a text that is not a pool's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a runner pool has 1 to {MAX_POOL_NAME_CHARS} characters a-z, 0-9 and `-`, and neither \
     begins nor ends with `-`"
)]
pub struct InvalidPoolName;

impl FromStr for RunnerPool {
    type Err = InvalidPoolName;

    fn from_str(name: &str) -> Result<Self, InvalidPoolName> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_name = (1..=MAX_POOL_NAME_CHARS).contains(&name.len())
            && name.chars().all(is_plain)
            && !name.starts_with('-')
            && !name.ends_with('-');
        is_name.then(|| Self(name.to_owned())).ok_or(InvalidPoolName)
    }
}

impl RunnerPool {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunnerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_be_part_of_the_name_of_an_object() {
        for name in ["a", "acme", "gpu-2", "9"] {
            assert_eq!(name.parse::<RunnerPool>().unwrap().as_str(), name);
        }
        for name in ["", "-a", "a-", "A", "a_b", "a b", "a.b", &"a".repeat(41)] {
            assert_eq!(name.parse::<RunnerPool>(), Err(InvalidPoolName), "{name}");
        }
    }
}
