//! Normalised names of agents and channel accounts (spec RTE-005).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

const MAX_NAME_BYTES: usize = 64;

/// Name of an agent: `[a-z0-9][a-z0-9_-]{0,63}`.
///
/// Any text can be converted: it is lower-cased, every run of other characters becomes a dash,
/// dashes at the ends are removed, and an empty result becomes `main`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct AgentName(String);

impl AgentName {
    /// Normalises any text to a name.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(normalise(text, "main"))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for AgentName {
    fn default() -> Self {
        Self::new("")
    }
}

impl From<String> for AgentName {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl FromStr for AgentName {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self::new(text))
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Normalises any text to a channel account's name; an empty result becomes `default`.
#[must_use]
pub fn account_name(text: &str) -> String {
    normalise(text, "default")
}

fn normalise(text: &str, empty: &str) -> String {
    let mut name = String::with_capacity(text.len().min(MAX_NAME_BYTES));
    for c in text.trim().chars().flat_map(char::to_lowercase) {
        match c {
            'a'..='z' | '0'..='9' | '_' => name.push(c),
            _ if name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    // The first character must be a letter or a digit, so leading underscores are removed too.
    let trimmed = name.trim_start_matches(['-', '_']);
    // Only ASCII is left, so any cut falls on a character boundary.
    let cut = &trimmed[..trimmed.len().min(MAX_NAME_BYTES)];
    match cut.trim_end_matches('-') {
        "" => empty.to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_characters_become_dashes_and_ends_are_trimmed() {
        assert_eq!(AgentName::new("  Study Coach!! ").as_str(), "study-coach");
        assert_eq!(AgentName::new("__x").as_str(), "x");
        assert_eq!(AgentName::new("语").as_str(), "main");
        assert_eq!(account_name(""), "default");
    }

    proptest! {
        #[test]
        fn any_text_makes_a_name_that_is_its_own_name(text in ".{0,200}") {
            let name = AgentName::new(&text);

            prop_assert!((1..=MAX_NAME_BYTES).contains(&name.as_str().len()));
            prop_assert!(name.as_str().starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()));
            prop_assert!(name.as_str().chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_' | '-')));
            prop_assert_eq!(AgentName::new(name.as_str()), name);
        }
    }
}
