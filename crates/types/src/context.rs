//! What may be chosen about a prompt (spec CTX-001, CTX-002).

use serde::{Deserialize, Serialize};

/// How much a prompt holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Identity, bootstrap files, tools, skills, memory, runtime, time and session.
    #[default]
    Full,
    /// Identity, time and session: for a short question to a small model.
    Lite,
    /// What [`Self::Full`] holds, as far as the options say.
    Custom,
}

impl Strategy {
    /// The word in settings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Lite => "lite",
            Self::Custom => "custom",
        }
    }

    /// The strategy that a word of the settings means.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        [Self::Full, Self::Lite, Self::Custom].into_iter().find(|known| known.as_str() == word)
    }
}

/// What to put into a prompt. Absent means that the strategy decides; what is said is done, under
/// every strategy (C-33).
///
/// An absent list is all, and an empty one is none (C-56). Where an API of its own says that an
/// empty list is all, its edge calls [`Self::with_empty_as_all`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextOptions {
    /// How much.
    pub strategy: Strategy,
    /// The only tools to offer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_tools: Option<Vec<String>>,
    /// Tools not to offer, whatever else is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_tools: Option<Vec<String>>,
    /// The only skills to tell of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_skills: Option<Vec<String>>,
    /// Skills not to tell of, whatever else is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_skills: Option<Vec<String>>,
    /// That skills are recommended for each message; absent is not (CTX-013).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recommend_skills: Option<RecommendSkills>,
    /// Whether the memory block is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_memory: Option<bool>,
    /// Whether the runtime block is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_runtime: Option<bool>,
}

/// How skills are recommended for a message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecommendSkills {
    /// The model that chooses where several could fit, by id or alias; absent asks none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What channel, keywords, history and recency weigh, in hundredths; absent is 40, 30, 20, 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<[u8; 4]>,
}

impl ContextOptions {
    /// The same, where an empty list meant all: as PicoClaw's lists do (CTX-007).
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
        assert_eq!((read.strategy, read.include_memory), (Strategy::Lite, Some(true)));
    }

    #[test]
    fn a_strategy_is_known_by_its_word_and_full_is_usual() {
        for strategy in [Strategy::Full, Strategy::Lite, Strategy::Custom] {
            assert_eq!(Strategy::named(strategy.as_str()), Some(strategy));
        }
        assert_eq!(Strategy::named("Full"), None);
        assert_eq!(ContextOptions::default().strategy, Strategy::Full);
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
