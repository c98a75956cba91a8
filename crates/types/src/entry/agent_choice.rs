//! Choice of an agent by a model.
//!
//! It is stored in the journal, so that no model is asked twice.

use serde::{Deserialize, Serialize};

use super::{Entry, Note};
use crate::AgentId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChoiceOrigin {
    Model,
    /// Reused from an earlier message of the conversation.
    Kept,
    /// No choice was made, so the session's own agent answers; the reason says why.
    Fallback,
}

impl ChoiceOrigin {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Kept => "kept",
            Self::Fallback => "fallback",
        }
    }
}

/// Agent chosen for a turn. Stored as JSON in a note: fields are only ever added, with a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentChoice {
    pub agent: AgentId,
    /// Agent's name at the time of the choice.
    pub name: String,
    pub by: ChoiceOrigin,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub task: String,
    /// `simple`, `moderate` or `complex`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub complexity: String,
    /// Additional instructions for this turn.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// The subset of the agent's tools for this turn; `None` is all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

impl AgentChoice {
    /// Returns the note that stores the choice.
    #[must_use]
    pub fn entry(&self) -> Entry {
        // A choice always converts to JSON.
        Entry::noted(Note::Routed, serde_json::to_string(self).unwrap_or_default())
    }

    /// Returns the choice that an entry stores, if any.
    #[must_use]
    pub fn from_entry(entry: &Entry) -> Option<Self> {
        match entry {
            Entry::Noted { note: Note::Routed, text, .. } => serde_json::from_str(text).ok(),
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
    fn a_choice_is_read_from_its_note_and_from_no_other() {
        let choice = AgentChoice {
            agent: AgentId::generate(),
            name: "coach".into(),
            by: ChoiceOrigin::Model,
            reason: "an exam".into(),
            task: "study".into(),
            complexity: String::new(),
            prompt: String::new(),
            tools: Some(Vec::new()),
        };

        let entry = choice.entry();

        assert_eq!(AgentChoice::from_entry(&entry), Some(choice));
        let Entry::Noted { text, .. } = entry else { panic!("no note") };
        assert_eq!(AgentChoice::from_entry(&Entry::noted(Note::Summary, text)), None);
        assert_eq!(AgentChoice::from_entry(&Entry::noted(Note::Routed, "of tomorrow")), None);
    }
}
