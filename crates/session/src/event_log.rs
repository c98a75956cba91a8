//! Log of a tenant's events, for integrators.
//!
//! Transactions write what happened to the outbox `session.events`. One writer, the runner with the
//! duty of upkeep, moves committed rows to the log in batches and gives each event its position in
//! its tenant's log. Positions are dense, and a reader that has read up to a position misses
//! nothing: an event becomes visible after all events before it.
//!
//! | file | contents |
//! |---|---|
//! | `schema.rs` | types of events with their fields and versions |
//! | `append.rs` | the writer: takes events from the outbox, appends them |
//! | `outbox.rs` | conversion of outbox rows to events |
//! | `read.rs` | pages of a tenant's log, and the texts of messages |
//! | `webhooks.rs` | progress of webhooks: cursors, retries, dead letters |
//! | `publish.rs` | ends of all logs, and events that JetStream does not have yet |
//!
//! ## What can go wrong
//!
//! Two runners may believe that they have the duty. An advisory lock lets one of them write at a
//! time, so that rows are taken in the order in which they were committed.

mod append;
mod outbox;
mod publish;
mod read;
mod schema;
mod webhooks;

use std::fmt;

use holdfast_pg::Pools;
use holdfast_types::{AgentId, SessionId, TenantId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use append::EventLogWriter;
pub use publish::{EventGauges, UnpublishedEvents};
pub use read::{EventPage, EventText, LogBounds};
pub use schema::{EVENT_SCHEMAS, EventData, EventField, EventSchema};
pub use webhooks::{HeldEvent, WebhookKey, WebhookProgress, WebhookResult};

use crate::Sessions;

/// An event that is to be logged.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    pub tenant: TenantId,
    pub event: Event,
}

/// An event, in ids and numbers; never contains message text. Stored as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Such as `message.accepted`. Readers may meet types of a later version.
    #[serde(rename = "type")]
    pub kind: String,
    /// Version of the fields of `data`.
    pub schema_version: u32,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Kind of channel, such as `telegram`, of a message or a delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub data: Value,
}

/// An event with its position in its tenant's log.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedEvent {
    pub position: i64,
    pub event: Event,
}

/// Place in a tenant's log, between two events; a text that only this type reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventCursor(pub i64);

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "evc1_{:x}", self.0)
    }
}

impl EventCursor {
    /// Returns `None` if the text is not a cursor.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("evc1_")?;
        i64::from_str_radix(digits, 16).ok().filter(|position| *position >= 0).map(Self)
    }
}

impl LoggedEvent {
    /// Cursor behind this event, which is also its id: the same wherever the event is sent.
    #[must_use]
    pub const fn cursor(&self) -> EventCursor {
        EventCursor(self.position)
    }

    /// The event as it is sent to webhooks and published to JetStream.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut json = serde_json::to_value(&self.event).unwrap_or_default();
        if let Some(fields) = json.as_object_mut() {
            fields.insert("id".to_owned(), self.cursor().to_string().into());
        }
        json
    }
}

/// Which events a reader wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Types or beginnings of types, such as `run.`; empty for all.
    pub types: Vec<String>,
    pub agent: Option<AgentId>,
    pub session: Option<SessionId>,
    pub channel: Option<String>,
}

impl EventFilter {
    #[must_use]
    pub fn includes(&self, event: &Event) -> bool {
        let is_wanted = |wanted: &String| event.kind.starts_with(wanted.as_str());
        (self.types.is_empty() || self.types.iter().any(is_wanted))
            && self.agent.is_none_or(|agent| event.agent == Some(agent))
            && self.session.is_none_or(|session| event.session == Some(session))
            && self
                .channel
                .as_deref()
                .is_none_or(|channel| event.channel.as_deref() == Some(channel))
    }
}

/// The log of tenants' events, from [`Sessions::event_log`].
#[derive(Debug, Clone, Copy)]
pub struct EventLog<'a> {
    pools: &'a Pools,
}

impl Sessions {
    #[must_use]
    pub const fn event_log(&self) -> EventLog<'_> {
        EventLog { pools: &self.pools }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is() {
        let cursor = EventCursor(4711);
        assert_eq!(EventCursor::parse(&cursor.to_string()), Some(cursor));
        for text in ["", "4711", "evc1_", "evc1_-1", "evc1_x", "evc2_1", "evc1_ffffffffffffffff"] {
            assert_eq!(EventCursor::parse(text), None, "{text}");
        }
    }
}
