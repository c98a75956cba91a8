//! Smallest parts of a block that chunks are made of.

use std::ops::Range;

use super::markdown::Block;
use super::{ChunkLimits, tokens};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub range: Range<usize>,
    pub tokens: usize,
}

/// Splits blocks into pieces, in order, each at most `limits.most` tokens long.
pub fn pieces(source: &str, blocks: &[Block], limits: ChunkLimits) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for block in blocks {
        let length = tokens(&source[block.range.clone()]);
        if block.fence && length <= limits.max_tokens {
            pieces.push(Piece { range: trimmed(source, block.range.clone()), tokens: length });
            continue;
        }
        let ends: fn(&str) -> usize = if block.fence { line_end } else { sentence_end };
        for part in parts(source, block.range.clone(), ends) {
            let part = trimmed(source, part);
            let length = tokens(&source[part.clone()]);
            if length > limits.max_tokens {
                cut(source, part, limits.overlap_tokens.max(8), &mut pieces);
            } else if !part.is_empty() {
                pieces.push(Piece { range: part, tokens: length });
            }
        }
    }
    pieces
}

fn parts(source: &str, range: Range<usize>, end: fn(&str) -> usize) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let next = at + end(&source[at..range.end]);
        parts.push(at..next);
        at = next;
    }
    parts
}

/// Trims blank space at both ends, but keeps the indent of the first line: in code it matters.
fn trimmed(source: &str, range: Range<usize>) -> Range<usize> {
    let text = &source[range.clone()];
    let start = range.start + (text.len() - text.trim_start_matches(['\n', '\r']).len());
    start..(range.start + text.trim_end().len()).max(start)
}

fn line_end(text: &str) -> usize {
    text.find('\n').map_or(text.len(), |at| at + 1)
}

/// Returns the position after the first sentence end: a Latin mark before a space, an ideographic
/// mark, or a line end.
fn sentence_end(text: &str) -> usize {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        let ends = match c {
            '\n' | '。' | '！' | '？' | '；' => true,
            '.' | '!' | '?' => next.is_none_or(char::is_whitespace),
            _ => false,
        };
        if ends {
            return at + c.len_utf8();
        }
    }
    text.len()
}

/// Cuts a text without sentence ends into pieces of at most `most` tokens, at a space if there is
/// one.
fn cut(source: &str, range: Range<usize>, most: usize, pieces: &mut Vec<Piece>) {
    let mut at = range.start;
    while at < range.end {
        let rest = &source[at..range.end];
        let mut fits = 0;
        let mut space = 0;
        for (i, c) in rest.char_indices() {
            let end = i + c.len_utf8();
            // A text has at least as many bytes as tokens: skip the count until it can matter.
            if end > most && tokens(&rest[..end]) > most {
                break;
            }
            fits = end;
            if c.is_whitespace() {
                space = end;
            }
        }
        let end = if fits == rest.len() || space == 0 { fits.max(1) } else { space };
        let part = trimmed(source, at..at + end);
        if !part.is_empty() {
            pieces.push(Piece { tokens: tokens(&source[part.clone()]), range: part });
        }
        at += end;
    }
}
