//! Splits a document into chunks of about 400 tokens that overlap by about 80 (spec MEM-009).
//!
//! A chunk never spans two sections and carries the headings above it. A code fence is split only
//! if it is too long for one chunk, and then between lines. Text is split after sentences,
//! including Chinese and Japanese ones; a sentence that is too long is split at a space or, without
//! spaces, between characters. Chunks are ranges of the source: nothing is rewritten, and all text
//! except blank space is in at least one chunk.

mod markdown;
mod pieces;

use std::ops::Range;

use markdown::sections;
use pieces::{Piece, pieces};

use crate::words::is_unspaced;

/// Chunk sizes, counted by [`tokens`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Maximum tokens per chunk.
    pub max_tokens: usize,
    /// Maximum tokens repeated from the previous chunk, in whole sentences.
    pub overlap_tokens: usize,
}

impl Default for ChunkLimits {
    fn default() -> Self {
        Self { max_tokens: 400, overlap_tokens: 80 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Byte range in the source.
    pub range: Range<usize>,
    /// Headings above the chunk, outermost first, without the `#` marks.
    pub headings: Vec<String>,
    /// Estimated length in tokens.
    pub tokens: usize,
}

/// Splits a Markdown or plain text into chunks, in document order.
#[must_use]
pub fn split(source: &str, limits: ChunkLimits) -> Vec<Chunk> {
    let limits = ChunkLimits {
        max_tokens: limits.max_tokens.max(8),
        overlap_tokens: limits.overlap_tokens.min(limits.max_tokens / 2),
    };
    let mut chunks = Vec::new();
    for section in sections(source) {
        let pieces = pieces(source, &section.blocks, limits);
        pack(&pieces, limits, |range, tokens| {
            chunks.push(Chunk { range, headings: section.headings.clone(), tokens });
        });
    }
    chunks
}

/// Estimates the number of tokens of a text: one per four bytes of a word, at least one; one per
/// character of a script without spaces; one per punctuation mark.
#[must_use]
pub fn tokens(text: &str) -> usize {
    let (mut count, mut word) = (0, 0usize);
    for c in text.chars() {
        if c.is_alphanumeric() && !is_unspaced(c) {
            word += c.len_utf8();
            continue;
        }
        count += word.div_ceil(4);
        word = 0;
        if !c.is_whitespace() {
            count += 1;
        }
    }
    count + word.div_ceil(4)
}

/// Packs pieces into chunks; each chunk begins with the last pieces of the one before.
fn pack(pieces: &[Piece], limits: ChunkLimits, mut chunk: impl FnMut(Range<usize>, usize)) {
    let mut first = 0;
    let mut fresh = 0;
    let mut held = 0;
    for (at, piece) in pieces.iter().enumerate() {
        if held + piece.tokens > limits.max_tokens && at > fresh {
            chunk(pieces[first].range.start..pieces[at - 1].range.end, held);
            (first, held) =
                overlap(pieces, at, limits.overlap_tokens.min(limits.max_tokens - piece.tokens));
            fresh = at;
        }
        held += piece.tokens;
    }
    if let Some(last) = pieces.last() {
        chunk(pieces[first].range.start..last.range.end, held);
    }
}

/// Returns the first of the pieces before `at` that fit into `room` together, and their total
/// tokens.
fn overlap(pieces: &[Piece], at: usize, room: usize) -> (usize, usize) {
    let (mut first, mut held) = (at, 0);
    while first > 0 && held + pieces[first - 1].tokens <= room {
        first -= 1;
        held += pieces[first].tokens;
    }
    (first, held)
}

#[cfg(test)]
mod tests;
