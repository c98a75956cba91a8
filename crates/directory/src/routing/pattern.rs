//! Patterns of rules: regular expressions that are matched in linear time.

use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};
use tracing::warn;

use crate::Error;

const MAX_PATTERN_CHARS: usize = 1_000;
/// Maximum size of a compiled pattern and of its search cache, in bytes: enough for long lists of
/// words.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// A regular expression that is matched in linear time and compiled at the first use.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    regex: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// Wraps a stored pattern, which was checked before.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), regex: OnceLock::new() }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the pattern occurs in a text. A pattern that cannot be compiled matches nothing.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let regex = self.regex.get_or_init(|| {
            let compiled = compile(&self.text);
            if compiled.is_err() {
                warn!("a stored rule's pattern cannot be compiled, so it matches nothing: set it again");
            }
            compiled.ok()
        });
        regex.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

pub(crate) fn compile(pattern: &str) -> Result<Regex, Error> {
    if pattern.contains('\0') {
        return Err(Error::Invalid(
            "a pattern has a NUL character in it: write `\\x00`".to_owned(),
        ));
    }
    let length = pattern.chars().count();
    if length > MAX_PATTERN_CHARS {
        return Err(Error::Invalid(format!(
            "a pattern has {MAX_PATTERN_CHARS} characters at most, and this one {length}"
        )));
    }
    let regex = RegexBuilder::new(pattern)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_COMPILED_BYTES)
        .build();
    regex.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => Error::Invalid(
            "a pattern is too large once compiled: use fewer or smaller repetitions".to_owned(),
        ),
        error => Error::Invalid(format!("a pattern is not a regular expression: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_searched_for_anywhere() {
        let pattern = Pattern::new("(?i)remind|提醒");

        assert!(pattern.matches("Please REMIND me"));
        assert!(pattern.matches("明天提醒我"));
        assert!(!pattern.matches("hello"));
    }

    #[test]
    fn a_pattern_that_could_hurt_is_refused() {
        for pattern in ["(", "a\0", "a{1000}{1000}", r"(\w{200}){200}", &"x".repeat(1_001)] {
            assert!(matches!(compile(pattern), Err(Error::Invalid(_))), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_is_wrong_all_the_same_matches_nothing() {
        assert!(!Pattern::new("(").matches("("));
    }
}
