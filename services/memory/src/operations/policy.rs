//! Privacy policy of the knowledge base: masks or refuses private data (spec KBN-006).
//!
//! The patterns are deliberately few and narrow: they miss some private data, but what they match
//! is almost certainly private.

use std::collections::BTreeMap;

use regex::Regex;

use crate::Error;

/// Pattern of each kind of private data.
const PATTERNS: [(&str, &str); 4] = [
    (
        "secret",
        r"(?x)
        -----BEGIN\ [A-Z\ ]*PRIVATE\ KEY-----[\s\S]*?-----END\ [A-Z\ ]*PRIVATE\ KEY-----
        | \b(?:sk|pk|rk)[-_](?:live[-_]|test[-_]|proj-|ant-)?[A-Za-z0-9_-]{20,}
        | \bgh[pousr]_[A-Za-z0-9]{36,}
        | \bxox[abprs]-[A-Za-z0-9-]{10,}
        | \bAKIA[0-9A-Z]{16}\b
        | \bAIza[0-9A-Za-z_-]{35}
        | \bhfn?_[0-9a-f]{8,}_[A-Za-z0-9_-]{20,}
        | \beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    ),
    ("email", r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+\b"),
    ("card", r"\b[3-6]\d{3}(?:[ -]?\d{4}){2}[ -]?\d{1,7}\b"),
    ("phone", r"\+\d[\d ()/.-]{6,18}\d"),
];

#[derive(Debug)]
pub struct Policy {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    kind: &'static str,
    looks: Regex,
    refuses: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskedText {
    pub text: String,
    /// Number of masked places by kind.
    pub counts: BTreeMap<String, u64>,
}

impl Policy {
    /// Creates a policy that masks and refuses the given kinds.
    ///
    /// # Errors
    ///
    /// If a built-in pattern is invalid, which tests exclude.
    pub fn new(mask: &[String], refuse: &[String]) -> Result<Self, regex::Error> {
        let mut rules = Vec::new();
        for (kind, looks) in PATTERNS {
            let has = |kinds: &[String]| kinds.iter().any(|has| has == kind);
            if has(mask) || has(refuse) {
                rules.push(Rule { kind, looks: Regex::new(looks)?, refuses: has(refuse) });
            }
        }
        Ok(Self { rules })
    }

    /// Masks private data in a text.
    ///
    /// # Errors
    ///
    /// [`Error::Private`] if the text has data of a refused kind.
    pub fn apply(&self, text: &str) -> Result<MaskedText, Error> {
        let mut masked = MaskedText { text: text.to_owned(), counts: BTreeMap::new() };
        for rule in &self.rules {
            let mut found = 0;
            let text = rule.looks.replace_all(&masked.text, |at: &regex::Captures<'_>| {
                if rule.kind == "card" && !is_card(&at[0]) {
                    return at[0].to_owned();
                }
                found += 1;
                format!("[{}]", rule.kind)
            });
            if found == 0 {
                continue;
            }
            if rule.refuses {
                return Err(Error::Private(rule.kind.to_owned()));
            }
            masked.text = text.into_owned();
            masked.counts.insert(rule.kind.to_owned(), found);
        }
        Ok(masked)
    }
}

/// Returns whether the check digit is valid (Luhn), as it is for every payment card.
fn is_card(number: &str) -> bool {
    let digits: Vec<u32> = number.chars().filter_map(|c| c.to_digit(10)).collect();
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| match at % 2 {
            0 => *digit,
            _ if *digit > 4 => digit * 2 - 9,
            _ => digit * 2,
        })
        .sum();
    (13..=19).contains(&digits.len()) && sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masking(kinds: &[&str]) -> Policy {
        let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        Policy::new(&kinds, &[]).unwrap()
    }

    #[test]
    fn what_is_private_is_masked_and_counted() {
        let text = "Ask ann@example.com or bo@example.org, or call +49 30 1234567.";

        let masked = masking(&["email", "phone"]).apply(text).unwrap();

        assert_eq!(masked.text, "Ask [email] or [email], or call [phone].");
        assert_eq!(masked.counts["email"], 2);
    }

    #[test]
    fn keys_and_tokens_are_secrets_and_words_are_not() {
        let policy = masking(&["secret"]);
        let key = format!("sk-ant-{}", "a1B2".repeat(8));

        assert_eq!(policy.apply(&format!("use {key} here")).unwrap().text, "use [secret] here");
        let words = "a sky-high risk-averse task_force of 4111 people";
        assert_eq!(policy.apply(words).unwrap().text, words);
    }

    #[test]
    fn a_number_is_a_card_only_if_its_check_digit_is_right() {
        let policy = masking(&["card"]);

        assert_eq!(policy.apply("4111 1111 1111 1111").unwrap().text, "[card]");
        assert_eq!(policy.apply("4111 1111 1111 1112").unwrap().counts.len(), 0);
    }

    #[test]
    fn what_is_refused_never_enters_and_is_not_repeated() {
        let policy = Policy::new(&[], &["email".to_owned()]).unwrap();

        let refused = policy.apply("ann@example.com").unwrap_err().to_string();

        assert!(refused.contains("email") && !refused.contains("ann@"), "{refused}");
    }

    #[test]
    fn every_kind_has_its_pattern() {
        let all: Vec<String> =
            crate::config::PRIVATE_KINDS.iter().map(|kind| (*kind).to_owned()).collect();

        assert_eq!(Policy::new(&all, &[]).unwrap().rules.len(), all.len());
    }
}
