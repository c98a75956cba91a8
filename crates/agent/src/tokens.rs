//! Token estimates without the model's own tokenizer.
//!
//! [`CjkAware`] estimates for budgets and compaction (C-23). An exact [`Tokenizer`] with the model's vocabulary would belong outside this crate: its tables
//! are megabytes. Charges use the provider's reported usage, never an estimate.

use std::fmt::Debug;

use holdfast_types::ChatMessage;

pub trait Tokenizer: Debug + Send + Sync {
    fn count(&self, text: &str) -> usize;
}

impl<T: Tokenizer + ?Sized> Tokenizer for &T {
    fn count(&self, text: &str) -> usize {
        (**self).count(text)
    }
}

/// Characters / 4 + 1: the estimate of the specification (CMP-002), with which the tests of
/// compaction count. Far too few for Chinese.
#[cfg(test)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QuarterOfChars;

#[cfg(test)]
impl Tokenizer for QuarterOfChars {
    fn count(&self, text: &str) -> usize {
        text.chars().count() / 4 + 1
    }
}

/// One token for each CJK character, one for four others, plus one: characters / 4 + 1 for texts
/// without CJK characters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CjkAware;

impl Tokenizer for CjkAware {
    fn count(&self, text: &str) -> usize {
        if text.is_ascii() {
            return text.len() / 4 + 1;
        }
        let wide = text.chars().filter(|c| is_cjk(*c)).count();
        let others = text.chars().count() - wide;
        wide + others / 4 + 1
    }
}

/// Whether a character is Chinese, Japanese or Korean, or punctuation or a wide form used with
/// them.
pub(crate) const fn is_cjk(c: char) -> bool {
    matches!(c,
        '\u{1100}'..='\u{11ff}'      // Hangul jamo
        | '\u{2e80}'..='\u{303f}'    // radicals, punctuation
        | '\u{3040}'..='\u{33ff}'    // kana, bopomofo, enclosed
        | '\u{3400}'..='\u{4dbf}'    // ideographs, extension A
        | '\u{4e00}'..='\u{9fff}'    // ideographs
        | '\u{a960}'..='\u{a97f}'    // Hangul jamo, extended A
        | '\u{ac00}'..='\u{d7ff}'    // Hangul
        | '\u{f900}'..='\u{faff}'    // compatibility ideographs
        | '\u{fe30}'..='\u{fe4f}'    // compatibility forms
        | '\u{ff00}'..='\u{ffef}'    // full and half width
        | '\u{20000}'..='\u{3ffff}') // ideographs, later extensions
}

/// Estimates the tokens of a text for a budget.
pub(crate) fn tokens(text: &str) -> usize {
    CjkAware.count(text)
}

/// Estimates the tokens of a message: its text, and the names and inputs of its calls. Images are
/// not counted (CMP-002).
pub fn message_tokens(tokenizer: &(impl Tokenizer + ?Sized), message: &ChatMessage) -> usize {
    match message {
        ChatMessage::User { text, .. } => tokenizer.count(text),
        ChatMessage::Tool { output, .. } => tokenizer.count(output),
        ChatMessage::Assistant { text, calls, .. } => {
            let calls =
                calls.iter().map(|call| tokenizer.count(&call.tool) + tokenizer.count(&call.input));
            tokenizer.count(text) + calls.sum::<usize>()
        }
    }
}

/// Estimates the tokens of several messages.
pub fn messages_tokens(tokenizer: &(impl Tokenizer + ?Sized), messages: &[ChatMessage]) -> usize {
    messages.iter().map(|message| message_tokens(tokenizer, message)).sum()
}

#[cfg(test)]
mod tests {
    use holdfast_types::ToolCall;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_estimator_counts_characters_and_not_bytes() {
        for (text, quarter, cjk) in [
            ("", 1, 1),
            ("abc", 1, 1),
            ("abcd", 2, 2),
            ("abcde", 2, 2),
            ("äöüß", 2, 2),
            ("你好世界", 2, 5),
            ("안녕하세요", 2, 6),
            ("こんにちは", 2, 6),
            ("你好, abcdef", 3, 5),
            ("𠮷", 1, 2),
        ] {
            assert_eq!(QuarterOfChars.count(text), quarter, "{text}");
            assert_eq!(CjkAware.count(text), cjk, "{text}");
        }
    }

    #[test]
    fn a_message_counts_the_calls_that_it_asks_for() {
        let call = ToolCall { id: "1".into(), tool: "read".into(), input: "{}".into() };
        let asks = ChatMessage::assistant("abcd", vec![call]);
        let said = ChatMessage::user("abcd");

        assert_eq!(message_tokens(&QuarterOfChars, &asks), 2 + 2 + 1);
        assert_eq!(messages_tokens(&QuarterOfChars, &[asks, said]), 7);
    }

    proptest! {
        #[test]
        fn a_budget_never_counts_less_than_the_specified_estimate(text in ".{0,200}|[一-龥a-z ]{0,200}") {
            prop_assert!(CjkAware.count(&text) >= QuarterOfChars.count(&text));
        }

        #[test]
        fn a_text_of_ascii_is_counted_alike_by_both(text in "[ -~]{0,200}") {
            prop_assert_eq!(CjkAware.count(&text), QuarterOfChars.count(&text));
        }
    }
}
