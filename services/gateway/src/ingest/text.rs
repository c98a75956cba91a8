//! Validation and cleaning of texts from outside.
//!
//! Control characters mean nothing to a model and something to a terminal, so they are removed. A
//! NUL cannot be stored at all, so it is an error.

use std::borrow::Cow;

use crate::Error;

/// Validates and cleans a message's text; `limit` is in bytes.
///
/// # Errors
///
/// If the text is blank, too long, or contains a NUL.
pub fn message_text(text: &str, limit: usize) -> Result<String, Error> {
    if text.len() > limit {
        return Err(Error::TooLong { got: text.len(), limit });
    }
    if text.contains('\0') {
        return Err(Error::NulCharacter("text"));
    }
    match clean(text) {
        text if text.trim().is_empty() => Err(Error::Empty),
        text => Ok(text.into_owned()),
    }
}

/// Removes control characters other than line breaks and tabs.
pub fn clean(text: &str) -> Cow<'_, str> {
    let unwanted = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(unwanted) {
        Cow::Owned(text.chars().filter(|c| !unwanted(*c)).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// As [`clean`], cut to `limit` bytes: for names and quotations from a platform.
pub fn clean_and_cut(text: &str, limit: usize) -> String {
    let cleaned = clean(text);
    let end = (0..=limit.min(cleaned.len())).rev().find(|at| cleaned.is_char_boundary(*at));
    cleaned[..end.unwrap_or(0)].to_owned()
}

/// Cleans and cuts a text; `None` if nothing is left.
pub fn non_empty(text: &str, limit: usize) -> Option<String> {
    Some(clean_and_cut(text, limit)).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_characters_go_and_line_breaks_and_tabs_stay() {
        assert_eq!(message_text("a\u{1b}[31m\tb\r\nc\u{85}", 99).unwrap(), "a[31m\tb\nc");
    }

    #[test]
    fn what_says_nothing_is_refused() {
        for text in ["", " \n\t ", "\u{1b}\u{7}", "\r"] {
            assert!(matches!(message_text(text, 99), Err(Error::Empty)), "{text:?}");
        }
        assert!(matches!(message_text("a\0b", 99), Err(Error::NulCharacter("text"))));
    }

    #[test]
    fn a_long_text_is_refused_and_a_long_word_is_not() {
        assert!(matches!(message_text("abcd", 3), Err(Error::TooLong { got: 4, limit: 3 })));
        let word = "x".repeat(10_000);
        assert_eq!(message_text(&word, 10_000).unwrap(), word);
    }

    proptest! {
        #[test]
        fn nothing_unfit_is_left_and_nothing_else_is_lost(text in any::<String>()) {
            let cleaned = clean(&text);

            prop_assert!(!cleaned.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
            prop_assert!(text.chars().filter(|c| !c.is_control()).eq(
                cleaned.chars().filter(|c| !c.is_control())));
        }

        #[test]
        fn a_cut_is_short_and_whole(text in any::<String>(), limit in 0_usize..50) {
            let cut = clean_and_cut(&text, limit);

            prop_assert!(cut.len() <= limit);
            prop_assert!(clean(&text).starts_with(&cut));
        }
    }
}
