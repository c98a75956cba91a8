//! Types of events with their fields. `docs/events.md` has the same tables, which a test compares.
//!
//! A field that is added keeps the version, and readers must ignore fields that they do not know. A
//! field that is removed, or changes its meaning, is a new version.

use holdfast_types::{
    AccountId, AgentId, ApprovalId, DeliveryId, JobId, MessageId, RunId, SessionId,
};
use jiff::Timestamp;
use serde::Serialize;

use super::Event;

/// Documented form of the `data` of one type of events.
#[derive(Debug, Clone, Copy)]
pub struct EventSchema {
    pub kind: &'static str,
    pub version: u32,
    pub fields: &'static [EventField],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventField {
    pub name: &'static str,
    /// `id`, `text`, `integer` or `boolean`.
    pub kind: &'static str,
    /// Whether the field may be absent.
    pub is_optional: bool,
}

trait FieldType {
    const KIND: &'static str;
    const IS_OPTIONAL: bool = false;
}

impl<T: FieldType> FieldType for Option<T> {
    const KIND: &'static str = T::KIND;
    const IS_OPTIONAL: bool = true;
}

macro_rules! field_types {
    ($($kind:literal: $($of:ty),+;)+) => {
        $($(impl FieldType for $of { const KIND: &'static str = $kind; })+)+
    };
}

field_types! {
    "id": AccountId, ApprovalId, DeliveryId, JobId, MessageId, RunId;
    "text": String;
    "integer": i64;
    "boolean": bool;
}

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident = $kind:literal v $version:literal {
        $($field:ident: $of:ty),* $(,)?
    })+) => {
        /// What an event tells, by its type.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        #[serde(untagged)]
        pub enum EventData {
            $($(#[$doc])* $variant {
                $(#[serde(skip_serializing_if = "is_absent")] $field: $of),*
            },)+
        }

        impl EventData {
            const fn kind_and_version(&self) -> (&'static str, u32) {
                match self {
                    $(Self::$variant { .. } => ($kind, $version),)+
                }
            }
        }

        /// All types of events that the outbox of sessions has.
        pub const EVENT_SCHEMAS: &[EventSchema] = &[
            $(EventSchema {
                kind: $kind,
                version: $version,
                fields: &[$(EventField {
                    name: stringify!($field),
                    kind: <$of as FieldType>::KIND,
                    is_optional: <$of as FieldType>::IS_OPTIONAL,
                }),*],
            },)+
        ];
    };
}

/// Whether a value is left out of the JSON: an absent optional one.
fn is_absent<T: Serialize>(value: &T) -> bool {
    serde_json::to_value(value).is_ok_and(|value| value.is_null())
}

events! {
    /// A message is stored and will be answered.
    MessageAccepted = "message.accepted" v 1 {
        seq: i64, message: Option<MessageId>, source: Option<String>,
    }
    /// A turn that completed has finished the message.
    MessageAnswered = "message.answered" v 1 { seq: i64, message: Option<MessageId>, run: RunId }
    /// A turn that did not complete has finished the message, or it became a dead letter.
    MessageFailed = "message.failed" v 1 {
        seq: i64, message: Option<MessageId>, run: RunId, outcome: String,
    }
    RunStarted = "run.started" v 1 { run: RunId }
    /// The model has asked for a tool.
    ToolCalled = "tool.called" v 1 { run: RunId, call: String, tool: String }
    RunEnded = "run.ended" v 1 {
        run: RunId, outcome: String, steps: i64, messages: i64, replied: bool,
    }
    UsageRecorded = "usage.recorded" v 1 {
        run: RunId, model: String, input_tokens: i64, cached_tokens: i64, output_tokens: i64,
        cost_micros: i64,
    }
    ApprovalRequested = "approval.requested" v 1 {
        approval: ApprovalId, run: RunId, call: String, tool: String,
    }
    ApprovalDecided = "approval.decided" v 1 {
        approval: ApprovalId, run: RunId, call: String, tool: String, state: String,
    }
    ApprovalExpired = "approval.expired" v 1 {
        approval: ApprovalId, run: RunId, call: String, tool: String,
    }
    DeliverySent = "delivery.sent" v 1 { delivery: DeliveryId, run: RunId, account: AccountId }
    DeliveryDead = "delivery.dead" v 1 { delivery: DeliveryId, run: RunId, account: AccountId }
    DeliveryUnknown = "delivery.unknown" v 1 {
        delivery: DeliveryId, run: RunId, account: AccountId,
    }
    JobFired = "job.fired" v 1 { job: JobId, slot: String }
    JobSucceeded = "job.succeeded" v 1 { job: JobId, slot: String }
    JobFailed = "job.failed" v 1 { job: JobId, slot: String, reason: String }
    JobSkipped = "job.skipped" v 1 { job: JobId, slot: String, reason: String }
    /// A person's accounts on two channels became those of one person, in the event's session.
    AccountsLinked = "accounts.linked" v 1 {}
    /// They are separate again.
    AccountsUnlinked = "accounts.unlinked" v 1 {}
    /// Todos of a session's list were changed.
    TodoChanged = "todo.changed" v 1 { todos: String, changes: i64, by: String }
    ReminderFailed = "reminder.failed" v 1 {
        job: String, slot: String, reason: String, again: bool,
    }
}

impl EventData {
    /// Makes the event that tells this.
    #[must_use]
    pub fn into_event(
        self,
        at: Timestamp,
        (agent, session): (Option<AgentId>, Option<SessionId>),
        channel: Option<String>,
    ) -> Event {
        let (kind, schema_version) = self.kind_and_version();
        let data = serde_json::to_value(&self).unwrap_or_default();
        Event { kind: kind.to_owned(), schema_version, at, agent, session, channel, data }
    }
}
