//! Splitting of messages (CMP-003): anywhere but between a call and its results.

use holdfast_types::ChatMessage;

use crate::tokens::{Tokenizer, messages_tokens};

/// Splits messages into at most `parts` chunks of about the same number of tokens. The chunks are
/// complete and in order; none is empty.
#[must_use]
pub fn split_messages_by_token_share<'m>(
    messages: &'m [ChatMessage],
    parts: usize,
    tokenizer: &(impl Tokenizer + ?Sized),
) -> Vec<&'m [ChatMessage]> {
    let parts = parts.clamp(1, messages.len().max(1));
    let share = messages_tokens(tokenizer, messages) / parts;
    gather(messages, tokenizer, |done, tokens| done + 1 < parts && tokens > share)
}

/// Splits messages into chunks of at most `max_tokens` tokens.
///
/// Only a chunk of a single message with the results of its calls may be larger. The chunks are
/// complete and in order; none is empty.
#[must_use]
pub fn chunk_messages_by_max_tokens<'m>(
    messages: &'m [ChatMessage],
    max_tokens: usize,
    tokenizer: &(impl Tokenizer + ?Sized),
) -> Vec<&'m [ChatMessage]> {
    gather(messages, tokenizer, |_, tokens| tokens > max_tokens)
}

/// Returns each message with the results that belong to it.
pub(super) fn units(messages: &[ChatMessage]) -> impl Iterator<Item = &[ChatMessage]> {
    messages.chunk_by(|_, next| matches!(next, ChatMessage::Tool { .. }))
}

/// Collects units into chunks. `is_full` gets the number of finished chunks and the size of the
/// current one with the next unit.
fn gather<'m>(
    messages: &'m [ChatMessage],
    tokenizer: &(impl Tokenizer + ?Sized),
    is_full: impl Fn(usize, usize) -> bool,
) -> Vec<&'m [ChatMessage]> {
    let mut stretches = Vec::new();
    let (mut start, mut end, mut tokens) = (0, 0, 0_usize);
    for unit in units(messages) {
        let more = messages_tokens(tokenizer, unit);
        if end > start && is_full(stretches.len(), tokens + more) {
            stretches.push(&messages[start..end]);
            (start, tokens) = (end, 0);
        }
        (end, tokens) = (end + unit.len(), tokens + more);
    }
    if end > start {
        stretches.push(&messages[start..end]);
    }
    stretches
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        history::fixtures::{asks_for, conversation, is_valid, result, says, user},
        tokens::QuarterOfChars,
    };

    /// A message of so many tokens.
    fn long(tokens: usize) -> ChatMessage {
        user(&"x".repeat((tokens - 1) * 4))
    }

    fn lengths(stretches: &[&[ChatMessage]]) -> Vec<usize> {
        stretches.iter().map(|stretch| stretch.len()).collect()
    }

    #[test]
    fn messages_are_shared_out_by_their_tokens() {
        let even = vec![long(10); 6];
        let uneven = [vec![long(30)], vec![long(10); 3]].concat();

        assert_eq!(lengths(&split_messages_by_token_share(&even, 2, &QuarterOfChars)), [3, 3]);
        assert_eq!(lengths(&split_messages_by_token_share(&uneven, 2, &QuarterOfChars)), [1, 3]);
        assert_eq!(lengths(&split_messages_by_token_share(&even, 9, &QuarterOfChars)), [1; 6]);
        assert_eq!(lengths(&split_messages_by_token_share(&even, 1, &QuarterOfChars)), [6]);
        assert_eq!(lengths(&split_messages_by_token_share(&even, 0, &QuarterOfChars)), [6]);
        assert!(split_messages_by_token_share(&[], 2, &QuarterOfChars).is_empty());
    }

    #[test]
    fn chunks_are_at_most_so_long_unless_one_message_is() {
        let messages = [vec![long(10); 3], vec![long(50), long(10)]].concat();

        assert_eq!(
            lengths(&chunk_messages_by_max_tokens(&messages, 20, &QuarterOfChars)),
            [2, 1, 1, 1]
        );
        assert_eq!(lengths(&chunk_messages_by_max_tokens(&messages, 0, &QuarterOfChars)), [1; 5]);
    }

    #[test]
    fn a_call_and_its_results_stay_together() {
        let messages = [user("hi"), asks_for(&["a", "b"]), result("a"), result("b"), says("done")];

        assert_eq!(
            lengths(&chunk_messages_by_max_tokens(&messages, 1, &QuarterOfChars)),
            [1, 3, 1]
        );
    }

    proptest! {
        #[test]
        fn stretches_put_together_are_the_messages_and_each_is_whole(
            messages in conversation(),
            parts in 0_usize..6,
            max in 0_usize..12,
        ) {
            let by_share = split_messages_by_token_share(&messages, parts, &QuarterOfChars);
            let by_max = chunk_messages_by_max_tokens(&messages, max, &QuarterOfChars);

            prop_assert!(by_share.len() <= parts.max(1));
            for stretches in [&by_share, &by_max] {
                prop_assert_eq!(stretches.concat(), messages.clone());
                for stretch in stretches {
                    prop_assert!(!stretch.is_empty());
                    let begins_with_result = matches!(stretch[0], ChatMessage::Tool { .. });
                    prop_assert!(!begins_with_result);
                    let led = [&[user("u")], *stretch].concat();
                    prop_assert!(is_valid(&led));
                }
            }
            for stretch in by_max {
                let is_one = units(stretch).count() == 1;
                prop_assert!(is_one || messages_tokens(&QuarterOfChars, stretch) <= max);
            }
        }
    }
}
