//! The journal of a session, which is its transcript too.
//!
//! Whatever happens is appended before anyone acts on it; what to do next is a
//! function of the entries. Stored as JSON: fields are only ever added, with a
//! default, so that any version of a runner reads what any other wrote.

use serde::{Deserialize, Serialize};

use crate::{Body, Effect, Media};

/// A call that the model asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// What the model calls this call; unique within one reply.
    pub id: String,
    /// The tool's name, as the model said it.
    pub tool: String,
    /// The tool's input, as the model wrote it: JSON if all went well.
    pub input: String,
}

/// Tokens, as the provider counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens read.
    pub input: u64,
    /// Of those, tokens that came from the provider's cache.
    pub cached: u64,
    /// Tokens written.
    pub output: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input += other.input;
        self.cached += other.cached;
        self.output += other.output;
    }
}

/// Why a note stands in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// The turn was ended by newer input.
    Interrupted,
    /// The turn was cancelled by its user.
    Cancelled,
    /// The turn was given up; the text says why.
    Failed,
    /// A wait ran past its deadline.
    DeadlinePassed,
    /// A summary that stands for what came before it, the entries that it keeps apart.
    Summary,
    /// The model begins to write down what should outlive a compaction; the text is what it is told.
    /// What it thinks and calls from here on is no part of the conversation. Like a summary's,
    /// `keeps` says how many of the entries right before it are not looked at.
    Flush,
    /// It has written it down, and the conversation goes on.
    Flushed,
    /// A command was answered, and the turn ends with it; the text is the answer. Neither is part
    /// of the conversation.
    Command,
    /// The conversation begins anew, and the turn ends with it; the text is what its user was told.
    Reset,
    /// A call waits for a person's word; the text is the call's id.
    Asked,
    /// A person allowed a call; the text is the call's id.
    Allowed,
    /// Who answers the turn was chosen; the text is the choice, see [`Choice`](crate::Choice).
    Routed,
    /// The turn was told of system events; the text is what they are, see
    /// [`SystemEvent`](crate::SystemEvent).
    Told,
    /// Another conversation is told something with its next turn; the text is what, see
    /// [`Posted`](crate::Posted).
    Posted,
    /// The turn's message is a command that goes to a tool as it was typed: the thought that follows
    /// is no model's, and what comes of its call is the answer. The text is the skill's name.
    Dispatched,
}

/// Something that happened in a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Entry {
    /// Someone spoke to the agent.
    Heard {
        /// The message's place in the inbox.
        seq: i64,
        /// What was said.
        body: Body,
    },
    /// The model spoke, and may have asked for tools.
    Thought {
        /// What it said.
        text: String,
        /// What it asked for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
        /// What it cost.
        #[serde(default)]
        usage: Usage,
        /// Which model, as `provider:id`.
        #[serde(default)]
        model: String,
        /// What the model's provider wants back with the results; see [`Reply::carry`].
        ///
        /// [`Reply::carry`]: crate::Reply::carry
        #[serde(default, skip_serializing_if = "Option::is_none")]
        carry: Option<serde_json::Value>,
    },
    /// A call was begun.
    Called {
        /// Which.
        call: String,
        /// What it may change.
        effect: Effect,
    },
    /// A call ended.
    Returned {
        /// Which.
        call: String,
        /// What the model is told.
        output: String,
        /// Whether it failed, so far as the model is concerned.
        #[serde(default)]
        failed: bool,
        /// Files that came of it.
        #[serde(default, skip_serializing_if = "Media::is_empty")]
        media: Media,
    },
    /// Something that only the record needs.
    Noted {
        /// What kind.
        note: Note,
        /// In words; of `Asked` and `Allowed`, the id of the call.
        text: String,
        /// How many of the entries right before it a summary does not stand for: the newest ones,
        /// which are still seen as they were said. Counted back from the note, so that it holds in
        /// any stretch of a journal. 0 in other notes but [`Note::Flush`].
        #[serde(default, skip_serializing_if = "is_zero")]
        keeps: u32,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Entry {
    /// A call that ended, with no more than a text.
    #[must_use]
    pub fn returned(call: impl Into<String>, output: impl Into<String>, failed: bool) -> Self {
        Self::Returned { call: call.into(), output: output.into(), failed, media: Media::default() }
    }

    /// A note.
    #[must_use]
    pub fn noted(note: Note, text: impl Into<String>) -> Self {
        Self::Noted { note, text: text.into(), keeps: 0 }
    }

    /// A summary that stands for all that came before it but the `keeps` entries right before it.
    #[must_use]
    pub fn summary(text: impl Into<String>, keeps: u32) -> Self {
        Self::Noted { note: Note::Summary, text: text.into(), keeps }
    }

    /// The word that the database's `kind` column stores.
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

    /// Whether the journal got further by it: such an entry clears the count of attempts.
    #[must_use]
    pub const fn is_progress(&self) -> bool {
        matches!(self, Self::Thought { .. } | Self::Returned { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_an_older_version_wrote_keeps_nothing() {
        let old = r#"{"kind":"noted","note":"summary","text":"t"}"#;

        assert_eq!(serde_json::from_str::<Entry>(old).unwrap(), Entry::summary("t", 0));
        assert_eq!(serde_json::to_string(&Entry::noted(Note::Summary, "t")).unwrap(), old);
    }

    #[test]
    fn a_summary_says_what_it_keeps_when_it_is_stored() {
        let summary = Entry::summary("t", 4);

        let stored = serde_json::to_string(&summary).unwrap();

        assert!(stored.ends_with(r#""keeps":4}"#), "{stored}");
        assert_eq!(serde_json::from_str::<Entry>(&stored).unwrap(), summary);
    }
}
