//! The journal of a session, which is also its transcript.
//!
//! An event is appended before anyone acts on it; the next step is a function of the entries.
//! Stored as JSON. Fields are only ever added, with a default, and a kind of entry or note that this
//! version does not know is kept as [`Note::Unknown`], so that any version of a runner reads the
//! entries of any other.

mod agent_choice;
mod system_event;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use agent_choice::{AgentChoice, ChoiceOrigin};
pub use system_event::{SessionPost, SystemEvent};

use crate::{Body, Effect, Media, ModelRecord, ProviderFailure, ToolCall, Usage};

/// Facts about a call that was made, for the ledger of tool calls. No model sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallRecord {
    /// In milliseconds since the Unix epoch; 0 if the call was not made.
    pub started_at_ms: i64,
    pub took_ms: u64,
    /// Usage of models and providers by the tool, in millionths of a US dollar.
    #[serde(skip_serializing_if = "is_default")]
    pub cost_micros: u64,
    /// Details from the tool, such as the exit code of a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<serde_json::Value>,
    /// The result has text from outside.
    #[serde(skip_serializing_if = "is_default")]
    pub outside: bool,
}

/// Kind of a note in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// Newer input ended the turn.
    Interrupted,
    /// The user cancelled the turn.
    Cancelled,
    /// The turn failed; the text says why.
    Failed,
    DeadlinePassed,
    /// A summary that replaces the entries before it, except those that it keeps.
    Summary,
    /// Start of a memory flush: the model saves what should outlive a compaction; the text is its
    /// instruction. Entries from here to [`Self::Flushed`] are not part of the conversation. As in
    /// a summary, `keeps` is the number of entries right before the note that are left out.
    Flush,
    /// End of a memory flush.
    Flushed,
    /// A command was answered, which ends the turn; the text is the answer. Neither is part of the
    /// conversation.
    Command,
    /// The conversation starts anew, which ends the turn; the text is the user's confirmation.
    Reset,
    /// A call waits for an approval; the text is the call's id.
    Asked,
    /// A call was approved; the text is the call's id.
    Allowed,
    /// An agent was chosen for the turn; the text is a [`AgentChoice`] as JSON.
    Routed,
    /// The turn was given system events; the text is a list of [`SystemEvent`] as JSON.
    Told,
    /// Text for the next turn of another session; the text is a [`SessionPost`] as JSON.
    Posted,
    /// The turn's message is a command that is passed unchanged to a tool: the thought that follows
    /// is not a model's, and the call's result is the answer. The text is the skill's name.
    Dispatched,
    /// The turn ends with calls of the client's tools; the text is a [`Handover`](crate::Handover)
    /// as JSON.
    HandedOver,
    /// An entry or note of a kind that only a newer version knows. It has no effect. The text is the
    /// whole entry as JSON, which is written again unchanged.
    #[serde(skip_deserializing)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", remote = "Self")]
pub enum Entry {
    /// A message to the agent.
    Heard {
        /// Position of the message in the inbox.
        seq: i64,
        body: Body,
    },
    /// A reply of the model.
    Thought {
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
        #[serde(default)]
        usage: Usage,
        #[serde(default)]
        model: String,
        /// Provider state to return with the results; see [`Reply::carry`].
        ///
        /// [`Reply::carry`]: crate::Reply::carry
        #[serde(default, skip_serializing_if = "Option::is_none")]
        carry: Option<serde_json::Value>,
        /// `None` if no model was asked, or in entries of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        record: Option<Box<ModelRecord>>,
    },
    /// A tool call was started.
    Called { call: String, effect: Effect },
    Returned {
        call: String,
        output: String,
        #[serde(default)]
        failed: bool,
        /// Files that the call produced.
        #[serde(default, skip_serializing_if = "Media::is_empty")]
        media: Media,
        #[serde(default, skip_serializing_if = "is_default")]
        record: CallRecord,
    },
    /// An entry for the record, not for the model.
    Noted {
        note: Note,
        /// Depends on the kind; of `Asked` and `Allowed`, the id of the call.
        text: String,
        /// Number of entries right before the note that a summary does not replace. Counted back
        /// from the note, so that it holds in any part of a journal. 0 in notes other than
        /// [`Note::Summary`] and [`Note::Flush`].
        #[serde(default, skip_serializing_if = "is_zero")]
        keeps: u32,
        /// Requests to models that failed, in [`Note::Failed`]; not for the user.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failures: Vec<ProviderFailure>,
    },
}

/// Kinds of entries that this version knows.
const KNOWN_KINDS: [&str; 5] = ["heard", "thought", "called", "returned", "noted"];

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = serde_json::Value::deserialize(deserializer)?;
        let kind = json.get("kind").and_then(serde_json::Value::as_str);
        let is_unknown = match (kind, json.get("note")) {
            (Some("noted"), Some(note)) => note.is_string() && Note::deserialize(note).is_err(),
            (Some(kind), _) => !KNOWN_KINDS.contains(&kind),
            (None, _) => false,
        };
        if is_unknown {
            return Ok(Self::noted(Note::Unknown, json.to_string()));
        }
        Self::deserialize(json).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Noted { note: Note::Unknown, text, .. } => {
                serde_json::from_str::<serde_json::Value>(text)
                    .map_err(serde::ser::Error::custom)?
                    .serialize(serializer)
            }
            known => Self::serialize(known, serializer),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Entry {
    /// Returns a `Returned` entry without files and of a call that was not made.
    #[must_use]
    pub fn returned(call: impl Into<String>, output: impl Into<String>, failed: bool) -> Self {
        let (media, record) = (Media::default(), CallRecord::default());
        Self::Returned { call: call.into(), output: output.into(), failed, media, record }
    }

    #[must_use]
    pub fn noted(note: Note, text: impl Into<String>) -> Self {
        Self::Noted { note, text: text.into(), keeps: 0, failures: Vec::new() }
    }

    /// Returns a summary of all earlier entries except the `keeps` entries right before it.
    #[must_use]
    pub fn summary(text: impl Into<String>, keeps: u32) -> Self {
        Self::Noted { note: Note::Summary, text: text.into(), keeps, failures: Vec::new() }
    }

    /// Returns the end of a turn that failed; the text is for the user.
    #[must_use]
    pub fn failed(text: impl Into<String>, failures: Vec<ProviderFailure>) -> Self {
        Self::Noted { note: Note::Failed, text: text.into(), keeps: 0, failures }
    }

    /// Requests to models that failed before this entry.
    #[must_use]
    pub fn provider_failures(&self) -> &[ProviderFailure] {
        match self {
            Self::Noted { failures, .. } => failures,
            Self::Thought { record, .. } => {
                record.as_ref().map_or(&[], |record| record.failures.as_slice())
            }
            Self::Heard { .. } | Self::Called { .. } | Self::Returned { .. } => &[],
        }
    }

    /// Value of the database's `kind` column.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Heard { .. } => "heard",
            Self::Thought { .. } => "thought",
            Self::Called { .. } => "called",
            Self::Returned { .. } => "returned",
            Self::Noted { .. } => "noted",
        }
    }

    /// Whether the entry brings text from outside into the conversation.
    #[must_use]
    pub fn is_outside_text(&self) -> bool {
        match self {
            Self::Heard { body, .. } => body.is_outside_text(),
            Self::Returned { record, .. } => record.outside,
            Self::Noted { .. } => SystemEvent::from_entry(self).iter().any(|event| event.outside),
            Self::Thought { .. } | Self::Called { .. } => false,
        }
    }

    /// Whether the entry is progress: such an entry resets the count of attempts.
    #[must_use]
    pub const fn is_progress(&self) -> bool {
        matches!(self, Self::Thought { .. } | Self::Returned { .. })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_note_that_an_older_version_wrote_keeps_nothing() {
        let old = r#"{"kind":"noted","note":"summary","text":"t"}"#;

        assert_eq!(serde_json::from_str::<Entry>(old).unwrap(), Entry::summary("t", 0));
        assert_eq!(serde_json::to_string(&Entry::noted(Note::Summary, "t")).unwrap(), old);
    }

    #[test]
    fn an_entry_of_a_newer_version_is_kept_as_it_is() {
        let newer = [
            json!({"kind": "noted", "note": "from_the_future", "text": "t", "more": [1, null]}),
            json!({"kind": "sealed", "note": "summary", "seal": {"by": 7}}),
        ];
        for stored in newer {
            let entry: Entry = serde_json::from_value(stored.clone()).unwrap();

            assert!(matches!(entry, Entry::Noted { note: Note::Unknown, .. }), "{entry:?}");
            assert!(!entry.is_progress());
            assert_eq!(serde_json::to_value(&entry).unwrap(), stored);
        }
    }

    #[test]
    fn a_damaged_entry_of_a_known_kind_is_an_error() {
        let damaged = [
            json!({"kind": "called", "call": "c1"}),
            json!({"kind": "noted", "text": "t"}),
            json!({"kind": "noted", "note": 7, "text": "t"}),
            json!({"text": "t"}),
        ];
        for stored in damaged {
            assert!(serde_json::from_value::<Entry>(stored).is_err());
        }
    }

    #[test]
    fn a_summary_says_what_it_keeps_when_it_is_stored() {
        let summary = Entry::summary("t", 4);

        let stored = serde_json::to_string(&summary).unwrap();

        assert!(stored.ends_with(r#""keeps":4}"#), "{stored}");
        assert_eq!(serde_json::from_str::<Entry>(&stored).unwrap(), summary);
    }
}
