//! Language of the texts that no model writes.

use holdfast_types::Entry;

use crate::turn::state::TurnState;

/// A language that such texts exist in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    English,
    Chinese,
}

impl Language {
    /// Language of the turn's user: the one that they have chosen, else that of their newest message.
    pub(crate) fn of_turn(turn: &TurnState<'_>) -> Self {
        let newest = turn.journal.turn().iter().rev().find_map(|entry| match entry {
            Entry::Heard { body, .. } => Some(body.text_and_speech()),
            Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => None,
        });
        let chosen = turn.preferences.language.as_deref();
        chosen.map_or_else(|| Self::of_text(&newest.unwrap_or_default()), Self::of_tag)
    }

    /// Language of a tag such as `zh-CN`; English if there are no texts in it.
    fn of_tag(tag: &str) -> Self {
        let primary = tag.split(['-', '_']).next().unwrap_or_default();
        match primary.eq_ignore_ascii_case("zh") {
            true => Self::Chinese,
            false => Self::English,
        }
    }

    /// Chinese if most letters are Han and none is Japanese or Korean.
    fn of_text(text: &str) -> Self {
        let is_han =
            |char: &char| matches!(char, '\u{4e00}'..='\u{9fff}' | '\u{3400}'..='\u{4dbf}');
        let is_other =
            |char: char| matches!(char, '\u{3040}'..='\u{30ff}' | '\u{ac00}'..='\u{d7af}');
        let letters = text.chars().filter(|char| char.is_alphabetic());
        let (han, others): (Vec<char>, Vec<char>) = letters.partition(is_han);
        match !text.chars().any(is_other) && han.len() > others.len() / 2 {
            true => Self::Chinese,
            false => Self::English,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_language_or_that_of_the_message_is_used() {
        for (tag, language) in [
            ("zh", Language::Chinese),
            ("zh-Hant-TW", Language::Chinese),
            ("de", Language::English),
        ] {
            assert_eq!(Language::of_tag(tag), language, "{tag}");
        }
        for (text, language) in [
            ("", Language::English),
            ("你好，请总结这份文件", Language::Chinese),
            ("用 Rust 写一个 server", Language::English),
            ("日本語で書いてください", Language::English),
            ("please translate 你好", Language::English),
        ] {
            assert_eq!(Language::of_text(text), language, "{text}");
        }
    }
}
