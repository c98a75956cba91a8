//! Texts for a session's next turn: system events, and posts of other sessions.

use serde::{Deserialize, Serialize};

use super::{Entry, Note};
use crate::SessionKey;

/// A short text that waits for a session's next turn (spec CRN-022).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemEvent {
    pub id: i64,
    pub text: String,
    /// Time of arrival, in seconds since 1970.
    #[serde(default)]
    pub at: i64,
    /// The text may repeat text from outside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
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
    /// The text may repeat text from outside.
    pub outside: bool,
}

#[derive(Serialize, Deserialize)]
struct StoredPost {
    key: String,
    text: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    outside: bool,
}

impl SessionPost {
    /// Returns the note; the transaction that stores it also posts the text.
    #[must_use]
    pub fn entry(&self) -> Entry {
        let Self { key, text, outside } = self;
        let stored = StoredPost { key: key.to_string(), text: text.clone(), outside: *outside };
        Entry::noted(Note::Posted, serde_json::to_string(&stored).unwrap_or_default())
    }

    /// Returns the posted text of an entry, if any.
    #[must_use]
    pub fn from_entry(entry: &Entry) -> Option<Self> {
        match entry {
            Entry::Noted { note: Note::Posted, text, .. } => {
                let stored: StoredPost = serde_json::from_str(text).ok()?;
                let StoredPost { key, text, outside } = stored;
                Some(Self { key: key.parse().ok()?, text, outside })
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

    #[test]
    fn what_was_told_is_read_from_its_note_and_from_no_other() {
        let events =
            vec![SystemEvent { id: 7, text: "tea \"is\" ready".into(), at: 1, outside: true }];

        assert_eq!(SystemEvent::from_entry(&SystemEvent::entry(&events)), events);
        assert_eq!(SystemEvent::from_entry(&Entry::noted(Note::Told, "of tomorrow")), []);
        assert_eq!(SystemEvent::from_entry(&Entry::noted(Note::Failed, "[]")), []);

        let key = "agent:main:main".parse().unwrap();
        let posted = SessionPost { key, text: "all is well".into(), outside: true };
        assert_eq!(SessionPost::from_entry(&posted.entry()), Some(posted));
        assert_eq!(SessionPost::from_entry(&Entry::noted(Note::Posted, "{}")), None);
    }
}
