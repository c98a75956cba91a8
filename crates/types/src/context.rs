//! Prompt options (spec CTX-001, CTX-002).

use serde::{Deserialize, Serialize};

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
}

impl PromptStrategy {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Lite => "lite",
            Self::Custom => "custom",
        }
    }

    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Full, Self::Lite, Self::Custom].into_iter().find(|known| known.as_str() == word)
    }
}

/// Options for the contents of a prompt. Absent means that the strategy decides; an option that is
/// set applies under every strategy (C-33).
///
/// An absent list means all and an empty one none (C-56). For an API whose empty lists mean all,
/// the edge calls [`Self::with_empty_as_all`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextOptions {
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

impl ContextOptions {
    /// Turns empty include lists into absent ones: PicoClaw's empty lists mean all (CTX-007).
    #[must_use]
    pub fn with_empty_as_all(mut self) -> Self {
        for list in [&mut self.include_tools, &mut self.include_skills] {
            if list.as_ref().is_some_and(Vec::is_empty) {
                *list = None;
            }
        }
        self
    }
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

    #[test]
    fn a_strategy_is_known_by_its_word_and_full_is_usual() {
        for strategy in [PromptStrategy::Full, PromptStrategy::Lite, PromptStrategy::Custom] {
            assert_eq!(PromptStrategy::parse(strategy.as_str()), Some(strategy));
        }
        assert_eq!(PromptStrategy::parse("Full"), None);
        assert_eq!(ContextOptions::default().strategy, PromptStrategy::Full);
    }

    #[test]
    fn an_empty_list_means_all_only_where_the_edge_says_so() {
        let options = ContextOptions {
            include_tools: Some(Vec::new()),
            include_skills: Some(vec!["a".into()]),
            exclude_tools: Some(Vec::new()),
            ..ContextOptions::default()
        };

        let relaxed = options.clone().with_empty_as_all();

        assert_eq!(options.include_tools, Some(Vec::new()));
        assert_eq!(relaxed.include_tools, None);
        assert_eq!(relaxed.include_skills, Some(vec!["a".into()]));
        assert_eq!(relaxed.exclude_tools, Some(Vec::new()));
    }
}
