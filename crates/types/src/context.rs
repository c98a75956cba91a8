//! Prompt options (spec AGT-023, CTX-001, CTX-002, SYS-023).

use serde::{Deserialize, Serialize};

use crate::known_or_default;

/// Set of sections that a prompt has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptStrategy {
    /// Identity, bootstrap files, tools, skills, memory, runtime, time and session.
    #[default]
    Full,
    /// Identity, time and session: for a short question to a small model.
    Lite,
    /// The sections of [`Self::Full`], changed by the options.
    Custom,
    /// The identity line only: for programs that bring instructions of their own.
    None,
}

impl PromptStrategy {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Lite => "lite",
            Self::Custom => "custom",
            Self::None => "none",
        }
    }
}

/// Kind of an agent: what its prompt is made of. The loop of requests and tool calls is the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentKind {
    /// The product's sections, with the agent's files and skills.
    #[default]
    Embedded,
    /// The agent's instructions and its memories, and nothing that the product adds to them but
    /// rules of safety, the time and the place.
    Simple,
}

/// How often an agent reacts to messages with an emoji, where the channel can.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reactions {
    /// The prompt does not mention reactions.
    Off,
    /// At most once in five to ten exchanges.
    #[default]
    Minimal,
    Extensive,
}

/// Options for the contents of a prompt. Absent means that the strategy decides; an option that is
/// set applies under every strategy (C-33).
///
/// An absent list means all and an empty one none (C-56).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextOptions {
    #[serde(deserialize_with = "known_or_default")]
    pub strategy: PromptStrategy,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_tools: Option<Vec<String>>,
    /// Tools that are left out even if another option includes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_tools: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_skills: Option<Vec<String>>,
    /// Skills that are left out even if another option includes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_skills: Option<Vec<String>>,
    /// Skill recommendations for each message; absent turns them off (CTX-013).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recommend_skills: Option<RecommendSkills>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_memory: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_runtime: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecommendSkills {
    /// Model that chooses between several candidates, by id or alias; absent asks none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Weights of channel, keywords, history and recency, in hundredths; absent is 40, 30, 20, 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<[u8; 4]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_short_and_what_another_version_wrote_is_read() {
        let stored = serde_json::to_string(&ContextOptions::default()).unwrap();
        assert_eq!(stored, r#"{"strategy":"full"}"#);

        let read: ContextOptions =
            serde_json::from_str(r#"{"strategy":"lite","include_memory":true,"x":1}"#).unwrap();
        assert_eq!((read.strategy, read.include_memory), (PromptStrategy::Lite, Some(true)));
    }
}
