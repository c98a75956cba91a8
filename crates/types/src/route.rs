//! That a model says who answers: what a tenant asks of it, and what came of it.
//!
//! What is asked for is stored with the message, so that whoever takes it up goes by what held when
//! it was accepted; what came of it stands in the journal, so that nobody asks twice.

use serde::{Deserialize, Serialize};

use crate::{AgentId, Entry, Note};

/// How long a choice holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteEach {
    /// For the turn of the message that it was made for.
    #[default]
    Message,
    /// Until the conversation begins anew.
    Session,
}

impl RouteEach {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Session => "session",
        }
    }
}

/// That a model chooses among agents. Stored as JSON: fields are only ever added, with a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelRoute {
    /// Who may be chosen, besides the session's own agent; empty is everybody.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub among: Vec<AgentId>,
    /// How long the choice holds.
    pub each: RouteEach,
    /// The model that chooses, as `provider:id`; `None` is that of the session's agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// Who made a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChosenBy {
    /// The model did.
    Model,
    /// It was made for an earlier message of the conversation.
    Kept,
    /// Nobody did, and the session's own agent answers; the reason says why.
    Fallback,
}

impl ChosenBy {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Kept => "kept",
            Self::Fallback => "fallback",
        }
    }
}

/// Who answers a turn, and why. Stored as JSON in a note: fields are only ever added, with a
/// default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Who answers.
    pub agent: AgentId,
    /// Its name, when it was chosen.
    pub name: String,
    /// Who chose it.
    pub by: ChosenBy,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What kind of task it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub task: String,
    /// How hard it seems: `simple`, `moderate` or `complex`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub complexity: String,
    /// What the agent is told besides, for this turn.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// The tools that it gets of those that it may use; `None` is all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

impl Choice {
    /// The note that it is stored as.
    #[must_use]
    pub fn entry(&self) -> Entry {
        // Nothing in it can fail to be written as JSON.
        Entry::noted(Note::Routed, serde_json::to_string(self).unwrap_or_default())
    }

    /// The choice that an entry stores, if it does.
    #[must_use]
    pub fn of(entry: &Entry) -> Option<Self> {
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
        let choice = Choice {
            agent: AgentId::generate(),
            name: "coach".into(),
            by: ChosenBy::Model,
            reason: "an exam".into(),
            task: "study".into(),
            complexity: String::new(),
            prompt: String::new(),
            tools: Some(Vec::new()),
        };

        let entry = choice.entry();

        assert_eq!(Choice::of(&entry), Some(choice));
        let Entry::Noted { text, .. } = entry else { panic!("no note") };
        assert_eq!(Choice::of(&Entry::noted(Note::Summary, text)), None);
        assert_eq!(Choice::of(&Entry::noted(Note::Routed, "of tomorrow")), None);
    }

    #[test]
    fn what_another_version_wrote_is_read() {
        let read = |text: &str| serde_json::from_str::<ModelRoute>(text).unwrap();

        assert_eq!(read("{}"), ModelRoute::default());
        assert_eq!(read(r#"{"each":"session","of_tomorrow":1}"#).each, RouteEach::Session);
        let written = serde_json::to_string(&ModelRoute::default()).unwrap();
        assert_eq!(written, r#"{"each":"message"}"#);
    }
}
