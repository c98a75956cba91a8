//! Waits of idle sessions, and the messages that end them.
//!
//! Only [`wakes`] decides. Ingest, complete and resume call it under the session's row lock, so
//! they cannot disagree.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Body, Command};

/// Event that ends the wait for an approval.
pub const APPROVAL_RESOLVED: &str = "approval.resolved";

/// State of a session (spec STM-001; `PAUSE` is an overlay and `SLEEP` is derived).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SessionState {
    /// Idle; any message wakes the session.
    Wait,
    /// Idle until a matching message or a deadline.
    WaitForMsg,
    /// Idle until a matching event or a deadline.
    WaitForEvent,
    /// Has work and waits for a runner.
    Ready,
    Running,
}

impl SessionState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wait => "WAIT",
            Self::WaitForMsg => "WAIT_FOR_MSG",
            Self::WaitForEvent => "WAIT_FOR_EVENT",
            Self::Ready => "READY",
            Self::Running => "RUNNING",
        }
    }

    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "WAIT" => Self::Wait,
            "WAIT_FOR_MSG" => Self::WaitForMsg,
            "WAIT_FOR_EVENT" => Self::WaitForEvent,
            "READY" => Self::Ready,
            "RUNNING" => Self::Running,
            _ => return None,
        })
    }
}

/// Conditions for the message that ends a wait. Every field that is set must match.
///
/// | field | matches |
/// |---|---|
/// | `sender` | the sender's id, exactly |
/// | `event` | the event's name: exactly, or by prefix if it ends in `*` |
/// | `contains` | a part of the text, in any case |
/// | `reply_to` | the platform's id of the message that is answered |
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageFilter {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
}

/// Condition under which an idle session continues.
///
/// A wait that only a newer version knows is read as [`Self::Anything`]: this version cannot tell
/// what ends it, and a session that goes on too early only asks again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "snake_case", remote = "Self")]
pub enum Wait {
    Anything,
    Message {
        #[serde(default)]
        filter: MessageFilter,
        /// Timeout in milliseconds; `None` waits forever.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_ms: Option<u64>,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        note: String,
    },
    Event {
        #[serde(default)]
        filter: MessageFilter,
        /// Timeout in milliseconds; `None` waits forever.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_ms: Option<u64>,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        note: String,
    },
}

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = serde_json::Value::deserialize(deserializer)?;
        Ok(Self::deserialize(stored).unwrap_or(Self::Anything))
    }
}

impl Serialize for Wait {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl Wait {
    /// Returns the wait for an approval decision.
    #[must_use]
    pub fn for_approval(deadline_ms: u64) -> Self {
        let filter =
            MessageFilter { event: Some(APPROVAL_RESOLVED.to_owned()), ..MessageFilter::default() };
        let note = "a person's word on a call".to_owned();
        Self::Event { filter, deadline_ms: Some(deadline_ms), note }
    }

    #[must_use]
    pub fn is_for_approval(&self) -> bool {
        matches!(self, Self::Event { filter, .. }
            if filter.event.as_deref() == Some(APPROVAL_RESOLVED))
    }

    /// State of a session with this wait.
    #[must_use]
    pub const fn state(&self) -> SessionState {
        match self {
            Self::Anything => SessionState::Wait,
            Self::Message { .. } => SessionState::WaitForMsg,
            Self::Event { .. } => SessionState::WaitForEvent,
        }
    }

    /// Timeout in milliseconds; `None` waits forever.
    #[must_use]
    pub const fn deadline_ms(&self) -> Option<u64> {
        match self {
            Self::Anything => None,
            Self::Message { deadline_ms, .. } | Self::Event { deadline_ms, .. } => *deadline_ms,
        }
    }
}

/// Whether a message ends a wait.
///
/// A silent message ends none; the next turn sees it in the record. A silent event ends only a wait
/// for a matching event, so timers do not disturb other sessions. `/stop` ends every wait;
/// `/approve` and `/deny` end a wait for an approval.
#[must_use]
pub fn wakes(wait: &Wait, message: &Body) -> bool {
    if message.silent && !(message.event.is_some() && matches!(wait, Wait::Event { .. })) {
        return false;
    }
    if command_ends_wait(wait, message.command().as_ref()) {
        return true;
    }
    match wait {
        Wait::Anything => true,
        Wait::Message { filter, .. } => message.event.is_none() && filter.matches(message),
        Wait::Event { filter, .. } => message.event.is_some() && filter.matches(message),
    }
}

fn command_ends_wait(wait: &Wait, command: Option<&Command>) -> bool {
    match command {
        Some(Command::Stop) => true,
        Some(Command::Decide(_)) => wait.is_for_approval(),
        Some(_) | None => false,
    }
}

impl MessageFilter {
    /// Whether it may match an event of this name.
    #[must_use]
    pub fn is_for_event(&self, name: &str) -> bool {
        self.event.as_deref().is_none_or(|wanted| matches_event_name(wanted, name))
    }

    fn matches(&self, message: &Body) -> bool {
        let sender = message.sender.as_ref().map(|sender| sender.id.as_str());
        let answered = message.reply_to.as_ref().map(|reply| reply.message_id.as_str());
        self.sender.as_deref().is_none_or(|wanted| sender == Some(wanted))
            && self.reply_to.as_deref().is_none_or(|wanted| answered == Some(wanted))
            && self.event.as_deref().is_none_or(|wanted| {
                message.event.as_deref().is_some_and(|event| matches_event_name(wanted, event))
            })
            && self
                .contains
                .as_deref()
                .is_none_or(|wanted| message.text.to_lowercase().contains(&wanted.to_lowercase()))
    }
}

fn matches_event_name(wanted: &str, event: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(prefix) => event.starts_with(prefix),
        None => event == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sender;

    fn message(filter: MessageFilter) -> Wait {
        Wait::Message { filter, deadline_ms: None, note: String::new() }
    }

    fn said(text: &str, by: &str) -> Body {
        let sender = Some(Sender { id: by.into(), name: String::new() });
        Body { sender, ..Body::text(text) }
    }

    #[test]
    fn a_session_at_rest_is_woken_by_anything_but_silence() {
        assert!(wakes(&Wait::Anything, &Body::text("hi")));
        assert!(!wakes(&Wait::Anything, &Body { silent: true, ..Body::text("hi") }));
    }

    #[test]
    fn a_silent_event_wakes_only_who_waits_for_it() {
        let event =
            |name: &str| Body { event: Some(name.to_owned()), silent: true, ..Body::default() };
        let filter =
            MessageFilter { event: Some("timer.*".to_owned()), ..MessageFilter::default() };
        let wait = Wait::Event { filter, deadline_ms: None, note: String::new() };

        assert!(wakes(&wait, &event("timer.tea")));
        assert!(!wakes(&wait, &event("approval.resolved")));
        assert!(!wakes(&Wait::Anything, &event("timer.tea")));
        assert!(!wakes(&wait, &Body { silent: true, ..Body::text("timer.tea") }));
    }

    #[test]
    fn every_given_field_must_match() {
        let wait = message(MessageFilter {
            sender: Some("7".into()),
            contains: Some("YES".into()),
            ..MessageFilter::default()
        });

        assert!(wakes(&wait, &said("yes, do it", "7")));
        assert!(!wakes(&wait, &said("yes, do it", "8")));
        assert!(!wakes(&wait, &said("no", "7")));
    }

    #[test]
    fn a_message_is_no_event_and_an_event_no_message() {
        let event = Body { event: Some("approval.resolved".into()), ..Body::default() };
        let waits = Wait::Event {
            filter: MessageFilter { event: Some("approval.*".into()), ..MessageFilter::default() },
            deadline_ms: Some(5),
            note: String::new(),
        };

        assert!(wakes(&waits, &event));
        assert!(!wakes(&waits, &Body::text("approval.resolved")));
        assert!(!wakes(&message(MessageFilter::default()), &event));
    }

    #[test]
    fn a_wait_for_a_word_is_ended_by_the_word_and_by_a_stop_and_by_nothing_else_that_is_said() {
        let waits = Wait::for_approval(5);
        let other =
            message(MessageFilter { contains: Some("yes".into()), ..MessageFilter::default() });

        for (text, wakes_it, wakes_other) in [
            ("/approve 1a2b3c4d", true, false),
            ("/deny", true, false),
            ("/stop", true, true),
            ("/status", false, false),
            ("yes", false, true),
        ] {
            assert_eq!(wakes(&waits, &Body::text(text)), wakes_it, "{text}");
            assert_eq!(wakes(&other, &Body::text(text)), wakes_other, "{text}");
        }
        assert!(!wakes(&waits, &Body { silent: true, ..Body::text("/approve") }));
        assert!(waits.is_for_approval() && !other.is_for_approval());
    }

    #[test]
    fn a_wait_survives_being_stored() {
        let wait =
            message(MessageFilter { reply_to: Some("12".into()), ..MessageFilter::default() });

        let stored = serde_json::to_string(&wait).unwrap();

        assert_eq!(serde_json::from_str::<Wait>(&stored).unwrap(), wait);
    }

    #[test]
    fn a_wait_of_a_newer_version_ends_with_any_message() {
        for newer in
            [r#"{"for": "tide", "level": 3}"#, r#"{"for": "message", "filter": {"mood": "calm"}}"#]
        {
            assert_eq!(serde_json::from_str::<Wait>(newer).unwrap(), Wait::Anything);
        }
    }
}
