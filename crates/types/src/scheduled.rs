//! What a schedule says to a conversation: the firing that a message is, and the system events that
//! a turn is told of.

use serde::{Deserialize, Serialize};

use crate::{Entry, JobId, Note, SessionKey};

/// The source of messages that are firings of jobs.
pub const SCHEDULE: &str = "schedule";

/// What a message is besides its text, if a job's firing is what it is.
///
/// Only the mesh makes one: no door takes it from outside. Stored as JSON: fields are only ever
/// added, with a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fired {
    /// The job.
    pub job: JobId,
    /// The time that it was due at, in milliseconds since 1970.
    pub at_ms: i64,
    /// The text is the answer: it is said as it is, and no model is asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_is: bool,
    /// Whose reminder it is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// How many reminders led to it, one after the other, without a word from their owner.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chain: u32,
    /// Whom else the answer is told to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post: Option<Post>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Fired {
    /// A firing of which nothing else is said.
    #[must_use]
    pub const fn new(job: JobId, at_ms: i64) -> Self {
        Self { job, at_ms, as_is: false, owner: None, chain: 0, post: None }
    }
}

/// That the answer of an isolated turn is told to its agent's main conversation, with that one's
/// next turn (spec CRN-009).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Post {
    /// What it begins with.
    pub prefix: String,
    /// All of it, and not its first paragraph only.
    pub full: bool,
    /// The most of it, in characters.
    pub max_chars: usize,
}

/// A short text that waits for a conversation's next turn (spec CRN-022).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemEvent {
    /// Its number; it grows.
    pub id: i64,
    /// What is told.
    pub text: String,
    /// When it came, in seconds since 1970.
    #[serde(default)]
    pub at: i64,
}

impl SystemEvent {
    /// The note that says that a turn was told of these.
    #[must_use]
    pub fn entry(events: &[Self]) -> Entry {
        // Nothing in them can fail to be written as JSON.
        Entry::noted(Note::Told, serde_json::to_string(events).unwrap_or_default())
    }

    /// The events that an entry says were told.
    #[must_use]
    pub fn of(entry: &Entry) -> Vec<Self> {
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

/// That another conversation is told something with its next turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    /// The conversation.
    pub key: SessionKey,
    /// What is told.
    pub text: String,
}

#[derive(Serialize, Deserialize)]
struct StoredPost {
    key: String,
    text: String,
}

impl Posted {
    /// The note that tells it: the transaction that stores the note does.
    #[must_use]
    pub fn entry(&self) -> Entry {
        let stored = StoredPost { key: self.key.to_string(), text: self.text.clone() };
        Entry::noted(Note::Posted, serde_json::to_string(&stored).unwrap_or_default())
    }

    /// What an entry tells another conversation, if it does.
    #[must_use]
    pub fn of(entry: &Entry) -> Option<Self> {
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

        assert_eq!(SystemEvent::of(&SystemEvent::entry(&events)), events);
        assert_eq!(SystemEvent::of(&Entry::noted(Note::Told, "of tomorrow")), []);
        assert_eq!(SystemEvent::of(&Entry::noted(Note::Failed, "[]")), []);

        let key = "agent:main:main".parse().unwrap();
        let posted = Posted { key, text: "all is well".into() };
        assert_eq!(Posted::of(&posted.entry()), Some(posted));
        assert_eq!(Posted::of(&Entry::noted(Note::Posted, "{}")), None);
    }

    #[test]
    fn a_firing_that_another_version_wrote_is_read_and_most_messages_are_none() {
        let job = JobId::generate();
        let stored = format!(r#"{{"job":"{job}","at_ms":5,"of_tomorrow":1}}"#);

        assert_eq!(serde_json::from_str::<Fired>(&stored).unwrap(), Fired::new(job, 5));
        assert_eq!(serde_json::to_string(&Body::text("a")).unwrap(), r#"{"text":"a"}"#);
    }
}
