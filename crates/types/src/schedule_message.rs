//! Messages from schedules: firings, system events, and texts for other sessions.

use serde::{Deserialize, Serialize};

use crate::{Entry, JobId, Note, SessionKey};

/// Source of messages that are firings of jobs.
pub const SCHEDULE_SOURCE: &str = "schedule";

/// Firing that a message carries.
///
/// Only the mesh creates one; no edge accepts one from outside. Stored as JSON: fields are only
/// ever added, with a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFiring {
    pub job: JobId,
    /// Slot, in milliseconds since 1970.
    pub at_ms: i64,
    /// The text is sent as the answer, without asking a model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_is: bool,
    /// Owner of the reminder; `None` if the job is not a reminder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Number of consecutive reminders that led to this one without a message from their owner.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chain: u32,
    /// Set if the answer is also posted to the agent's main session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post: Option<MainSessionPost>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl JobFiring {
    #[must_use]
    pub const fn new(job: JobId, at_ms: i64) -> Self {
        Self { job, at_ms, as_is: false, owner: None, chain: 0, post: None }
    }
}

/// How the answer of an isolated turn is posted to the agent's main session, where the next turn
/// sees it (spec CRN-009).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MainSessionPost {
    pub prefix: String,
    /// Posts the whole answer instead of its first paragraph.
    pub full: bool,
    /// Maximum length of the posted text, in characters.
    pub max_chars: usize,
}

/// A short text that waits for a session's next turn (spec CRN-022).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemEvent {
    pub id: i64,
    pub text: String,
    /// Time of arrival, in seconds since 1970.
    #[serde(default)]
    pub at: i64,
}

impl SystemEvent {
    /// Returns the note that records the events a turn was given.
    #[must_use]
    pub fn entry(events: &[Self]) -> Entry {
        // Events always convert to JSON.
        Entry::noted(Note::Told, serde_json::to_string(events).unwrap_or_default())
    }

    /// Returns the events that an entry records.
    #[must_use]
    pub fn from_entry(entry: &Entry) -> Vec<Self> {
        match entry {
            Entry::Noted { note: Note::Told, text, .. } => {
                serde_json::from_str(text).unwrap_or_default()
            }
            Entry::Heard { .. }
            | Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => Vec::new(),
        }
    }
}

/// A text for the next turn of another session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPost {
    /// Session that gets the text.
    pub key: SessionKey,
    pub text: String,
}

#[derive(Serialize, Deserialize)]
struct StoredPost {
    key: String,
    text: String,
}

impl SessionPost {
    /// Returns the note; the transaction that stores it also posts the text.
    #[must_use]
    pub fn entry(&self) -> Entry {
        let stored = StoredPost { key: self.key.to_string(), text: self.text.clone() };
        Entry::noted(Note::Posted, serde_json::to_string(&stored).unwrap_or_default())
    }

    /// Returns the posted text of an entry, if any.
    #[must_use]
    pub fn from_entry(entry: &Entry) -> Option<Self> {
        match entry {
            Entry::Noted { note: Note::Posted, text, .. } => {
                let stored: StoredPost = serde_json::from_str(text).ok()?;
                Some(Self { key: stored.key.parse().ok()?, text: stored.text })
            }
            Entry::Heard { .. }
            | Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Body;

    #[test]
    fn what_was_told_is_read_from_its_note_and_from_no_other() {
        let events = vec![SystemEvent { id: 7, text: "tea \"is\" ready".into(), at: 1 }];

        assert_eq!(SystemEvent::from_entry(&SystemEvent::entry(&events)), events);
        assert_eq!(SystemEvent::from_entry(&Entry::noted(Note::Told, "of tomorrow")), []);
        assert_eq!(SystemEvent::from_entry(&Entry::noted(Note::Failed, "[]")), []);

        let key = "agent:main:main".parse().unwrap();
        let posted = SessionPost { key, text: "all is well".into() };
        assert_eq!(SessionPost::from_entry(&posted.entry()), Some(posted));
        assert_eq!(SessionPost::from_entry(&Entry::noted(Note::Posted, "{}")), None);
    }

    #[test]
    fn a_firing_that_another_version_wrote_is_read_and_most_messages_are_none() {
        let job = JobId::generate();
        let stored = format!(r#"{{"job":"{job}","at_ms":5,"of_tomorrow":1}}"#);

        assert_eq!(serde_json::from_str::<JobFiring>(&stored).unwrap(), JobFiring::new(job, 5));
        assert_eq!(serde_json::to_string(&Body::text("a")).unwrap(), r#"{"text":"a"}"#);
    }
}
