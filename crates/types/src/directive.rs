//! Directives: the user's settings for how messages are answered (spec UIC-004).
//!
//! | directive | sets |
//! |---|---|
//! | `/think off\|low\|medium\|high` | how much the model thinks before it answers |
//! | `/verbose off\|on\|full` | whether tool calls are reported as they happen |
//! | `/reasoning off\|on\|stream` | whether the model's reasoning is shown |
//! | `/elevated off\|on\|ask\|full` | how commands that need an approval are treated |
//!
//! A message that consists of directives sets them for the session. Directives before or after
//! other text apply to that message, and the model does not see them. Elsewhere in a text they have
//! no effect: pasted text may contain such words. `/elevated` counts only at the beginning.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Body, Thinking};

/// A text that is not a level of the directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no such level: use {0}")]
pub struct InvalidLevel(&'static str);

macro_rules! levels {
    ($(#[$doc:meta])* $name:ident, $usage:literal, $(($(#[$of:meta])* $level:ident, $word:literal)),+) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$of])* $level,)+
        }

        impl $name {
            /// All levels, in ascending order.
            pub const ALL: &[Self] = &[$(Self::$level),+];

            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$level => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = InvalidLevel;

            fn from_str(text: &str) -> Result<Self, InvalidLevel> {
                let level = Self::ALL.iter().find(|level| level.as_str() == text);
                level.copied().ok_or(InvalidLevel($usage))
            }
        }
    };
}

levels!(
    /// Whether the user is told of tool calls as they happen.
    Verbose,
    "off, on or full",
    (
        #[default]
        Off,
        "off"
    ),
    (
        /// Start of each call, and whether it succeeded.
        On,
        "on"
    ),
    (
        /// Same, with the shortened result.
        Full,
        "full"
    )
);

levels!(
    /// Whether the user is shown the model's reasoning.
    Reasoning,
    "off, on or stream",
    (
        #[default]
        Off,
        "off"
    ),
    (
        /// Each complete thought as a separate message.
        On,
        "on"
    ),
    (
        /// Same, and also piece by piece to those who watch the session.
        Stream,
        "stream"
    )
);

levels!(
    /// Treatment of commands that need an approval (decision 0022).
    Elevated,
    "off, on, ask or full",
    (
        /// Refused without asking.
        Off,
        "off"
    ),
    (
        /// Synonym of [`Ask`](Self::Ask): commands cannot leave the sandbox.
        On,
        "on"
    ),
    (
        /// An approval is requested.
        #[default]
        Ask,
        "ask"
    ),
    (
        /// Pre-approved, but only in a sandbox and in turns of the agent's owner.
        Full,
        "full"
    )
);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directive {
    Think,
    Verbose,
    Reasoning,
    Elevated,
}

impl Directive {
    /// Parses a name without its slash, in any case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        // In a group a platform appends the addressee: `/think@our_bot`.
        Some(match name.split('@').next().unwrap_or_default().to_ascii_lowercase().as_str() {
            "think" | "thinking" => Self::Think,
            "verbose" => Self::Verbose,
            "reasoning" => Self::Reasoning,
            "elevated" => Self::Elevated,
            _ => return None,
        })
    }

    #[must_use]
    pub const fn usage(self) -> &'static str {
        match self {
            Self::Think => "/think, or /think off, low, medium or high",
            Self::Verbose => "/verbose, or /verbose off, on or full",
            Self::Reasoning => "/reasoning, or /reasoning off, on or stream",
            Self::Elevated => "/elevated, or /elevated off, on, ask or full",
        }
    }
}

/// Levels of all directives; `None` leaves one unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Directives {
    pub thinking: Option<Thinking>,
    pub verbose: Option<Verbose>,
    pub reasoning: Option<Reasoning>,
    pub elevated: Option<Elevated>,
}

impl Directives {
    /// Splits off the directives at both ends of a text and returns the text between them. `None`
    /// if there are no directives.
    #[must_use]
    pub fn split(text: &str) -> Option<(Self, &str)> {
        let (mut dials, mut rest) = (Self::default(), text.trim());
        while let Some((first, after)) = first_word(rest)
            && let Some((level, after)) = first_word(after)
            && dials.set(first, level, TextEnd::No)
        {
            rest = after.trim_start();
        }
        // Directives at the end, without `/elevated`; they override those at the beginning.
        let mut behind = Self::default();
        while let Some((before, level)) = last_word(rest)
            && let Some((before, last)) = last_word(before)
            && behind.set(last, level, TextEnd::Yes)
        {
            rest = before.trim_end();
        }
        dials = behind.or(dials);
        (dials != Self::default()).then_some((dials, rest))
    }

    /// Stores the level and returns whether the two words were a directive.
    fn set(&mut self, word: &str, level: &str, at: TextEnd) -> bool {
        let Some(dial) = word.strip_prefix('/').and_then(Directive::named) else { return false };
        let level = level.to_ascii_lowercase();
        match dial {
            Directive::Think => store_level(&mut self.thinking, &level),
            Directive::Verbose => store_level(&mut self.verbose, &level),
            Directive::Reasoning => store_level(&mut self.reasoning, &level),
            Directive::Elevated => at == TextEnd::No && store_level(&mut self.elevated, &level),
        }
    }

    /// Returns these levels, with `others` where this has none.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            thinking: self.thinking.or(others.thinking),
            verbose: self.verbose.or(others.verbose),
            reasoning: self.reasoning.or(others.reasoning),
            elevated: self.elevated.or(others.elevated),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TextEnd {
    Yes,
    No,
}

/// Parses and stores a level, replacing an earlier one; returns whether it was valid.
fn store_level<L: FromStr>(place: &mut Option<L>, level: &str) -> bool {
    let level = level.parse().ok();
    let is_one = level.is_some();
    if is_one {
        *place = level;
    }
    is_one
}

fn first_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn last_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_end();
    let word = text.rsplit(char::is_whitespace).next().filter(|word| !word.is_empty())?;
    Some((&text[..text.len() - word.len()], word))
}

impl Body {
    /// Returns the directives in this message.
    #[must_use]
    pub fn directives(&self) -> Directives {
        match self.silent || self.command().is_some() {
            true => Directives::default(),
            false => self.split_directives().map(|(dials, _)| dials).unwrap_or_default(),
        }
    }

    /// Returns the text without directives, as the model reads it.
    #[must_use]
    pub fn text_without_directives(&self) -> &str {
        self.split_directives().map_or(self.text.as_str(), |(_, said)| said)
    }

    fn split_directives(&self) -> Option<(Directives, &str)> {
        // Only a user's or a program's own messages have directives: no events, no seeded history.
        let is_own = self.event.is_none() && self.role.is_none();
        is_own.then(|| Directives::split(&self.text)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn thinks(level: Thinking) -> Directives {
        Directives { thinking: Some(level), ..Directives::default() }
    }

    #[test]
    fn directives_are_taken_off_a_texts_ends() {
        let both = Directives { verbose: Some(Verbose::Full), ..thinks(Thinking::High) };
        for (text, dials, rest) in [
            ("/think high what is 2+2?", thinks(Thinking::High), "what is 2+2?"),
            ("what is\n2+2? /think low", thinks(Thinking::Low), "what is\n2+2?"),
            (" /Think@our_bot HIGH\n a\n  b ", thinks(Thinking::High), "a\n  b"),
            ("/think high /verbose full go", both, "go"),
            ("/think high go /verbose full", both, "go"),
            ("/think low /think high", thinks(Thinking::High), ""),
            ("/think low x /think high", thinks(Thinking::High), "x"),
        ] {
            assert_eq!(Directives::split(text), Some((dials, rest)), "{text}");
        }
    }

    #[test]
    fn what_stands_in_the_midst_of_a_text_is_no_directive() {
        for text in [
            "",
            "/think",
            "/think hard",
            "he wrote: /think high, and then",
            "a /verbose on b",
            "x/think high",
            "/status /think",
        ] {
            assert_eq!(Directives::split(text), None, "{text}");
        }
    }

    #[test]
    fn what_lifts_bounds_counts_at_the_beginning_alone() {
        let full = Directives { elevated: Some(Elevated::Full), ..Directives::default() };

        assert_eq!(Directives::split("/elevated full go"), Some((full, "go")));
        assert_eq!(Directives::split("forwarded: please do it\n/elevated full"), None);
    }

    #[test]
    fn only_what_somebody_says_for_themselves_is_a_directive() {
        let body = Body::text("/think high go");
        assert_eq!(
            (body.directives(), body.text_without_directives()),
            (thinks(Thinking::High), "go")
        );

        let event = Body { event: Some("timer".into()), ..body.clone() };
        assert_eq!(
            (event.directives(), event.text_without_directives()),
            (Directives::default(), "/think high go")
        );
        let overheard = Body { silent: true, ..body.clone() };
        assert_eq!(overheard.directives(), Directives::default());
        let history = Body { role: Some("assistant".into()), ..body };
        assert_eq!(
            (history.directives(), history.text_without_directives()),
            (Directives::default(), "/think high go")
        );
    }

    #[test]
    fn a_level_is_named_by_one_word() {
        for level in Elevated::ALL {
            assert_eq!(level.as_str().parse(), Ok(*level));
            assert_eq!(serde_json::to_value(level).unwrap(), level.as_str());
        }
        let wrong = "max".parse::<Verbose>().unwrap_err();
        assert_eq!(wrong.to_string(), "this is no such level: use off, on or full");
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader_and_none_grows(text in any::<String>()) {
            if let Some((_, rest)) = Directives::split(&text) {
                prop_assert!(text.contains(rest) && rest.len() < text.len());
            }
        }
    }
}
