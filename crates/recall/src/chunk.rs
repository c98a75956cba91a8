//! Cuts a document into chunks of about 400 tokens that overlap by about 80 (spec MEM-009).
//!
//! A chunk never spans two sections and carries the headings that it stands under. A code fence is
//! cut only if it alone is too long, and then between lines. Text is cut after sentences, Chinese
//! and Japanese ones too; where a sentence is too long, at a space, and where there is none, between
//! characters. Chunks are ranges of the source: nothing is rewritten, and everything but blank space
//! is in at least one of them.

mod markdown;
mod pieces;

use std::ops::Range;

use markdown::sections;
use pieces::{Piece, pieces};

use crate::words::is_unspaced;

/// How large chunks are, in [`tokens`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A chunk has at most so many.
    pub most: usize,
    /// A chunk begins with at most so many of the one before it, whole sentences of them.
    pub overlap: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { most: 400, overlap: 80 }
    }
}

/// A part of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Where it stands in the source, in bytes.
    pub range: Range<usize>,
    /// The headings above it, outermost first, without their marks.
    pub headings: Vec<String>,
    /// How long it is, about.
    pub tokens: usize,
}

/// Cuts a Markdown (or plain) text into chunks, in its order.
#[must_use]
pub fn split(source: &str, limits: Limits) -> Vec<Chunk> {
    let limits = Limits { most: limits.most.max(8), overlap: limits.overlap.min(limits.most / 2) };
    let mut chunks = Vec::new();
    for section in sections(source) {
        let pieces = pieces(source, &section.blocks, limits);
        pack(&pieces, limits, |range, tokens| {
            chunks.push(Chunk { range, headings: section.headings.clone(), tokens });
        });
    }
    chunks
}

/// About how many tokens a text is to a model: one for each four bytes of a word, at least one;
/// one for each character of a script without spaces; one for each mark.
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

/// Fills chunks with pieces, each beginning with the last few of the one before.
fn pack(pieces: &[Piece], limits: Limits, mut chunk: impl FnMut(Range<usize>, usize)) {
    let mut first = 0;
    let mut fresh = 0;
    let mut held = 0;
    for (at, piece) in pieces.iter().enumerate() {
        if held + piece.tokens > limits.most && at > fresh {
            chunk(pieces[first].range.start..pieces[at - 1].range.end, held);
            (first, held) = overlap(pieces, at, limits.overlap.min(limits.most - piece.tokens));
            fresh = at;
        }
        held += piece.tokens;
    }
    if let Some(last) = pieces.last() {
        chunk(pieces[first].range.start..last.range.end, held);
    }
}

/// The first of the pieces before `at` that fit into `room` together, and how long they are.
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
