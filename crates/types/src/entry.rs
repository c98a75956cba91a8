//! The journal of a session, which is its transcript too.
//!
//! Whatever happens is appended before anyone acts on it; what to do next is a
//! function of the entries. Stored as JSON: fields are only ever added, with a
//! default, so that any version of a runner reads what any other wrote.

use serde::{Deserialize, Serialize};

use crate::{Body, Effect};

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
    /// A summary that stands for what came before it.
    Summary,
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
    },
    /// Something that only the record needs.
    Noted {
        /// What kind.
        note: Note,
        /// In words.
        text: String,
    },
}

impl Entry {
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
