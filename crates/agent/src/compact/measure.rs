//! Token budgets of compactions (CMP-001, CMP-004).

use holdfast_types::ChatMessage;

use crate::tokens::{Tokenizer, messages_tokens};

/// Share of the window for the newest messages, where messages are short.
pub const BASE_CHUNK_RATIO: f64 = 0.4;

/// Minimum share of the window for the newest messages.
pub const MIN_CHUNK_RATIO: f64 = 0.15;

/// Factor by which an estimate may be too small.
pub const SAFETY_MARGIN: f64 = 1.2;

/// Default context window, in tokens.
pub const DEFAULT_CONTEXT_TOKENS: usize = 128_000;

/// Reserve for the answer, in tokens.
pub const RESERVE_TOKENS: usize = 16_384;

/// Context window of a model and its parts that are not for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Input and output of one request, in tokens.
    pub window: usize,
    /// Reserve for the answer, in tokens.
    pub reserve: usize,
    /// Instructions and tools, in tokens.
    pub instructions: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { window: DEFAULT_CONTEXT_TOKENS, reserve: RESERVE_TOKENS, instructions: 0 }
    }
}

impl Budget {
    /// Whether a conversation of this size fits beside the instructions and the reserve.
    #[must_use]
    pub const fn fits(self, tokens: usize) -> bool {
        tokens.saturating_add(self.instructions) <= self.window.saturating_sub(self.reserve)
    }

    /// Maximum size of one piece for the summariser, in tokens: a quarter of the window.
    pub(crate) const fn max_chunk(self) -> usize {
        let quarter = self.window / 4;
        if quarter == 0 { 1 } else { quarter }
    }
}

/// Returns the share of the window for the newest messages: less where messages are long, so that
/// something is left to summarise.
///
/// With messages of `avg` tokens and `r = avg × 1.2 / window`: 0.4 up to `r` = 0.1, then 0.4 −
/// min(2r, 0.25), never under 0.15. A window of 0 counts as too small for anything.
#[must_use]
pub fn compute_adaptive_chunk_ratio(
    messages: &[ChatMessage],
    window: usize,
    tokenizer: &(impl Tokenizer + ?Sized),
) -> f64 {
    if messages.is_empty() {
        return BASE_CHUNK_RATIO;
    }
    let average = real(messages_tokens(tokenizer, messages)) / real(messages.len());
    let ratio = average * SAFETY_MARGIN / real(window);
    if ratio > 0.1 {
        let less = (ratio * 2.0).min(BASE_CHUNK_RATIO - MIN_CHUNK_RATIO);
        (BASE_CHUNK_RATIO - less).max(MIN_CHUNK_RATIO)
    } else {
        BASE_CHUNK_RATIO
    }
}

/// Returns a share of a window in whole tokens.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a window is not negative and not above it; a fraction of a token is none"
)]
pub(super) fn share(window: usize, ratio: f64) -> usize {
    (real(window) * ratio) as usize
}

#[expect(clippy::cast_precision_loss, reason = "no prompt has 2^53 tokens")]
const fn real(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{history::fixtures::user, tokens::QuarterOfChars};

    /// Messages of so many tokens each, as [`QuarterOfChars`] counts.
    fn messages(tokens: usize, count: usize) -> Vec<ChatMessage> {
        vec![user(&"x".repeat((tokens - 1) * 4)); count]
    }

    #[test]
    fn the_constants_are_those_of_the_specification() {
        assert_eq!((BASE_CHUNK_RATIO, MIN_CHUNK_RATIO, SAFETY_MARGIN), (0.4, 0.15, 1.2));
        assert_eq!((DEFAULT_CONTEXT_TOKENS, RESERVE_TOKENS), (128_000, 16_384));
        assert_eq!(Budget::default().max_chunk(), 32_000);
    }

    #[test]
    fn the_share_that_is_kept_shrinks_with_the_length_of_messages() {
        for (tokens, ratio) in [
            (1, 0.4),
            (83, 0.4),     // r = 0.0996
            (84, 0.1984),  // r = 0.1008
            (100, 0.16),   // r = 0.12
            (104, 0.1504), // r = 0.1248
            (105, 0.15),   // r = 0.126
            (1_000, 0.15),
        ] {
            let got = compute_adaptive_chunk_ratio(&messages(tokens, 3), 1_000, &QuarterOfChars);

            assert!((got - ratio).abs() < 1e-9, "{tokens}: {got}");
        }
        assert!((compute_adaptive_chunk_ratio(&[], 1_000, &QuarterOfChars) - 0.4).abs() < 1e-9);
        assert!(
            (compute_adaptive_chunk_ratio(&messages(9, 1), 0, &QuarterOfChars) - 0.15).abs() < 1e-9
        );
    }

    #[test]
    fn what_is_exactly_as_long_as_the_room_fits() {
        let budget = Budget { window: 100, reserve: 16, instructions: 4 };

        assert!(budget.fits(80));
        assert!(!budget.fits(81));
        assert!(!Budget { window: 10, ..budget }.fits(0));
    }

    #[test]
    fn a_share_is_in_whole_tokens() {
        assert_eq!(share(128_000, 0.4), 51_200);
        assert_eq!(share(999, 0.15), 149);
        assert_eq!(share(0, 0.4), 0);
    }
}
