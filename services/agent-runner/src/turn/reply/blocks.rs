//! Blocks: a long answer is sent in several messages, with pauses as a person makes them (GWP-017).
//!
//! Blocks are cut from the finished answer, so a repeated step never contradicts what was sent. Each
//! is a delivery of its own, stored with the end of the turn and sent in order.

use std::time::Duration;

use holdfast_session::NewDelivery;
use holdfast_types::{BlockBoundary, BlockSettings, RunId};

use crate::tools::mesh;

/// Cuts the delivery of an answer into blocks. The first keeps the delivery's id.
pub(crate) fn blocks_of(
    answer: NewDelivery,
    run: RunId,
    settings: &BlockSettings,
) -> Vec<NewDelivery> {
    let mut pause = Duration::ZERO;
    let texts = cut(&answer.text, settings);
    let block = |(number, text): (usize, String)| {
        let id = match number {
            0 => answer.id,
            _ => mesh::delivery_id(&format!("{run}:block:{number}")),
        };
        if number > 0 {
            let [shortest, longest] = settings.delay_ms;
            pause += Duration::from_millis(u64::from(rand::random_range(shortest..=longest)));
        }
        let mut target = answer.target.clone();
        // Only the first quotes the message that is answered.
        target.reply_to = target.reply_to.filter(|_| number == 0);
        NewDelivery { target, text, act: None, id, delay: pause }
    };
    texts.into_iter().enumerate().map(block).collect()
}

/// Cuts a text into blocks. No text is lost except whitespace at a cut; a code fence is kept whole.
fn cut(text: &str, settings: &BlockSettings) -> Vec<String> {
    let (shortest, longest) = (settings.min_chars as usize, settings.max_chars as usize);
    let (mut blocks, mut block) = (Vec::new(), String::new());
    for piece in pieces(text, settings.by, longest) {
        let (have, more) = (block.trim_end().chars().count(), piece.trim_end().chars().count());
        // With the space between them, which stays where both are one block.
        let is_full = have > 0 && block.chars().count() + more > longest;
        let may_end = have >= shortest && settings.by != BlockBoundary::Length;
        // Without this, a short piece would be a block of its own.
        let is_long_enough = may_end && (have + more > longest.midpoint(shortest));
        if is_full || is_long_enough {
            push(&mut blocks, &block);
            block.clear();
        }
        block.push_str(piece);
    }
    push(&mut blocks, &block);
    blocks
}

fn push(blocks: &mut Vec<String>, block: &str) {
    let block = block.trim_end().trim_start_matches('\n');
    if !block.trim().is_empty() {
        blocks.push(block.to_owned());
    }
}

/// Pieces of a text that are not cut, with the whitespace behind them. All together are the text.
fn pieces(text: &str, by: BlockBoundary, longest: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    for (part, is_fence) in paragraphs(text) {
        if is_fence
            || (by == BlockBoundary::Paragraph && part.trim_end().chars().count() <= longest)
        {
            pieces.push(part);
            continue;
        }
        for sentence in split_after(part, ends_sentence) {
            let is_short = sentence.trim_end().chars().count() <= longest;
            match by {
                BlockBoundary::Paragraph | BlockBoundary::Sentence if is_short => {
                    pieces.push(sentence);
                }
                _ => words(sentence, longest, &mut pieces),
            }
        }
    }
    pieces
}

fn words<'t>(text: &'t str, longest: usize, pieces: &mut Vec<&'t str>) {
    for mut word in split_after(text, |_, next| next.is_some_and(|c| !c.is_whitespace())) {
        // A language without spaces, or a very long word.
        while let Some((end, _)) = word.char_indices().nth(longest) {
            pieces.push(&word[..end]);
            word = &word[end..];
        }
        pieces.push(word);
    }
}

/// Splits a text behind whitespace where `is_end` says so of the word before it and the next
/// character.
fn split_after(text: &str, is_end: impl Fn(&str, Option<char>) -> bool) -> Vec<&str> {
    let (mut parts, mut start, mut word) = (Vec::new(), 0, 0);
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        let end = at + c.len_utf8();
        let is_wide_stop = matches!(c, '。' | '！' | '？');
        if c.is_whitespace() || is_wide_stop {
            let said = text[word..end].trim_end();
            if next.is_some_and(|next| !next.is_whitespace()) && is_end(said, next) {
                parts.push(&text[start..end]);
                start = end;
            }
            if next.is_some_and(|next| !next.is_whitespace()) {
                word = end;
            }
        }
    }
    parts.push(&text[start..]);
    parts
}

fn ends_sentence(word: &str, _: Option<char>) -> bool {
    let word = word.trim_end_matches(['"', '\'', ')', '”', '*', '_']);
    word.ends_with(['.', '!', '?', '…', '。', '！', '？', ':'])
}

/// Paragraphs with the blank lines behind them, and whether each has a code fence. A fence is one
/// paragraph, whatever is in it.
fn paragraphs(text: &str) -> Vec<(&str, bool)> {
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    let mut fence: Option<String> = None;
    let (mut has_fence, mut was_blank) = (false, false);
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        if fence.is_none() && was_blank && !trimmed.is_empty() && at > start {
            parts.push((&text[start..at], has_fence));
            (start, has_fence) = (at, false);
        }
        match &fence {
            Some(marker) if trimmed.starts_with(marker.as_str()) => fence = None,
            None if trimmed.starts_with("```") || trimmed.starts_with("~~~") => {
                fence = Some(trimmed[..3].to_owned());
                has_fence = true;
            }
            Some(_) | None => {}
        }
        was_blank = trimmed.is_empty();
        at += line.len();
    }
    parts.push((&text[start..], has_fence));
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings(by: BlockBoundary, min_chars: u32, max_chars: u32) -> BlockSettings {
        BlockSettings { by, min_chars, max_chars, ..BlockSettings::default() }
    }

    #[test]
    fn paragraphs_and_sentences_end_blocks_and_code_is_kept_whole() {
        let text = "One. Two is here. Three!\n\nA second paragraph.\n\n```\nlet a = 1;\n\nlet b;\n```\nEnd.";
        let by = |by, min, max| cut(text, &settings(by, min, max));

        assert_eq!(
            by(BlockBoundary::Paragraph, 10, 30),
            [
                "One. Two is here. Three!",
                "A second paragraph.",
                "```\nlet a = 1;\n\nlet b;\n```\nEnd."
            ]
        );
        assert_eq!(by(BlockBoundary::Sentence, 1, 19)[..3], ["One.", "Two is here.", "Three!"]);
        assert_eq!(by(BlockBoundary::Paragraph, 800, 1_200), [text]);
        let words = cut("one two three four", &settings(BlockBoundary::Length, 1, 9));
        assert_eq!(words, ["one two", "three", "four"]);
        let chinese =
            cut("今天很好。明天也好。后天不好。", &settings(BlockBoundary::Sentence, 3, 8));
        assert_eq!(chinese, ["今天很好。", "明天也好。", "后天不好。"]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_only_code_is_longer(
            text in "([a-zé一-龥.!? \n]|\n\n|\n```\n){0,600}",
            by in prop_oneof![
                Just(BlockBoundary::Length),
                Just(BlockBoundary::Paragraph),
                Just(BlockBoundary::Sentence)
            ],
            max in 20_u32..200,
        ) {
            let blocks = cut(&text, &settings(by, max / 2, max));

            let squeezed = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(squeezed(&blocks.concat()), squeezed(&text));
            for block in &blocks {
                prop_assert!(!block.trim().is_empty());
                let fits = block.chars().count() <= max as usize || block.contains("```");
                prop_assert!(fits, "{block:?}");
            }
        }
    }
}
