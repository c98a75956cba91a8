//! Ranking: combines several signals into one score, with the share of each signal.
//!
//! ```text
//! score = ( words · (score of the words ÷ the best in the list)
//!         + meaning · cosine
//!         + author · (written by somebody whom the question names)
//!         + substance · min(1, log2(1 + terms) ÷ 5) ) · decay
//! ```
//!
//! A weighted sum was as good as reciprocal ranks or better wherever both were measured: a cosine
//! says how similar a unit is, a rank only that others are less so. The weights are not critical:
//! words from 0.3 to 0.5 and author from 0.15 to 0.3 change recall@10 by less than 0.015.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Weights {
    /// Weight of the keyword score; the best score in the list counts as 1.
    pub words: f32,
    /// Weight of the cosine between question and unit.
    pub meaning: f32,
    /// Weight of being written by an author whom the question names.
    pub author: f32,
    /// Weight of the unit's length, which grows up to 31 terms. Ranks `Thanks, Ann!` last.
    pub substance: f32,
}

impl Default for Weights {
    fn default() -> Self {
        Self { words: 0.4, meaning: 1.0, author: 0.2, substance: 0.15 }
    }
}

/// Unit found by keywords or by embedding, with its signals.
#[derive(Debug, Clone, PartialEq)]
pub struct RankCandidate<T> {
    /// Id of the unit; the smaller id comes first among equals, so that the order is deterministic.
    pub id: T,
    /// Keyword score on any scale; 0 if no term matches.
    pub words: f32,
    /// Cosine to the question, -1 to 1; 0 if the unit has no vector.
    pub meaning: f32,
    /// Whether the question names the unit's author.
    pub author: bool,
    /// Number of terms of the unit itself.
    pub terms: u32,
    /// Time decay factor, 1 for units that do not age; see [`decay`].
    pub decay: f32,
}

/// Share of each signal in a score; the score is their sum times `decay`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ScoreShares {
    pub words: f32,
    pub meaning: f32,
    pub author: f32,
    pub substance: f32,
    pub decay: f32,
}

impl ScoreShares {
    #[must_use]
    pub fn score(&self) -> f32 {
        let sum = self.words + self.meaning + self.author + self.substance;
        // Decay applies to positive scores only: it would raise a negative one.
        if sum > 0.0 { sum * self.decay } else { sum }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RankedUnit<T> {
    pub id: T,
    /// Score, comparable within one answer only.
    pub score: f32,
    pub why: ScoreShares,
}

/// Ranks units, best first.
///
/// `found` is the union of the best keyword hits and the best vector hits (30 of each lose nothing
/// against all). Each needs *both* signals: a keyword hit needs its cosine too. A signal that is
/// not finite counts as 0.
#[must_use]
pub fn rank<T: Ord + Copy>(found: &[RankCandidate<T>], weights: &Weights) -> Vec<RankedUnit<T>> {
    let best = found.iter().map(|f| finite(f.words)).fold(0.0, f32::max);
    let mut ranked: Vec<_> = found
        .iter()
        .map(|f| {
            let words = if best > 0.0 { finite(f.words) / best } else { 0.0 };
            let why = ScoreShares {
                words: weights.words * words,
                meaning: weights.meaning * finite(f.meaning),
                author: if f.author { weights.author } else { 0.0 },
                substance: weights.substance * substance(f.terms),
                decay: finite(f.decay).clamp(0.0, 1.0),
            };
            RankedUnit { id: f.id, score: why.score(), why }
        })
        .collect();
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.id.cmp(&b.id)));
    ranked
}

/// Returns the decay factor of a dated unit: halved after each `half_life`, never below `floor`.
///
/// The floor keeps old units findable where nothing newer answers. Ages are in days; dates in the
/// future count as now.
#[must_use]
pub fn decay(age: f32, half_life: f32, floor: f32) -> f32 {
    if half_life <= 0.0 || !age.is_finite() {
        return 1.0;
    }
    (-age.max(0.0) / half_life).exp2().max(floor.clamp(0.0, 1.0))
}

fn finite(value: f32) -> f32 {
    if value.is_finite() { value } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "at most 31 is looked at")]
fn substance(terms: u32) -> f32 {
    ((1 + terms.min(31)) as f32).log2() / 5.0
}

#[cfg(test)]
mod tests {
    use super::{RankCandidate, Weights, decay, rank};

    fn unit(id: u32) -> RankCandidate<u32> {
        RankCandidate { id, words: 0.0, meaning: 0.0, author: false, terms: 10, decay: 1.0 }
    }

    fn order(found: &[RankCandidate<u32>]) -> Vec<u32> {
        rank(found, &Weights::default()).iter().map(|r| r.id).collect()
    }

    #[test]
    fn what_both_words_and_meaning_found_comes_before_what_one_found() {
        let found = [
            RankCandidate { words: 9.0, ..unit(1) },
            RankCandidate { meaning: 0.6, ..unit(2) },
            RankCandidate { words: 8.0, meaning: 0.5, ..unit(3) },
        ];

        assert_eq!(order(&found), [3, 2, 1]);
    }

    #[test]
    fn words_count_alike_on_any_scale() {
        let small = [
            RankCandidate { words: 0.02, ..unit(1) },
            RankCandidate { words: 0.01, meaning: 0.1, ..unit(2) },
        ];
        let large: Vec<_> =
            small.iter().map(|f| RankCandidate { words: f.words * 1000.0, ..f.clone() }).collect();

        let weights = Weights::default();
        let score = |found| rank(found, &weights).iter().map(|r| r.score).collect::<Vec<_>>();
        for (a, b) in score(&small).iter().zip(score(&large)) {
            assert!((a - b).abs() < 1e-6);
        }
    }

    #[test]
    fn the_author_whom_the_question_names_comes_first_and_a_greeting_last() {
        let found = [
            RankCandidate { meaning: 0.5, ..unit(1) },
            RankCandidate { meaning: 0.4, author: true, ..unit(2) },
            RankCandidate { meaning: 0.5, terms: 1, ..unit(3) },
        ];

        assert_eq!(order(&found), [2, 1, 3]);
    }

    #[test]
    fn the_shares_add_up_to_the_score() {
        let found =
            [RankCandidate { words: 3.0, meaning: 0.5, author: true, decay: 0.5, ..unit(1) }];

        let [only] = rank(&found, &Weights::default())[..] else { panic!("one") };

        let why = only.why;
        let sum = why.words + why.meaning + why.author + why.substance;
        assert!((sum * 0.5 - only.score).abs() < 1e-6);
        assert!((why.words - 0.4).abs() < 1e-6, "the best by words has the whole weight");
    }

    #[test]
    fn equals_keep_one_order() {
        assert_eq!(order(&[unit(3), unit(1), unit(2)]), [1, 2, 3]);
    }

    #[test]
    fn what_is_no_number_counts_as_nothing_and_hides_nothing() {
        let found = [
            RankCandidate { words: f32::NAN, meaning: f32::INFINITY, ..unit(1) },
            RankCandidate { words: 1.0, ..unit(2) },
        ];

        assert_eq!(order(&found), [2, 1]);
    }

    #[test]
    fn a_note_is_half_after_its_half_life_and_never_below_the_floor() {
        assert!((decay(30.0, 30.0, 0.1) - 0.5).abs() < 1e-6);
        assert!((decay(9_000.0, 30.0, 0.1) - 0.1).abs() < 1e-6);
        assert!((decay(-5.0, 30.0, 0.1) - 1.0).abs() < 1e-6);
        assert!((decay(5.0, 0.0, 0.1) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn age_never_lifts_what_points_away_from_the_question() {
        let found = [
            RankCandidate { meaning: -0.9, decay: 0.1, ..unit(1) },
            RankCandidate { meaning: -0.5, ..unit(2) },
        ];

        assert_eq!(order(&found), [2, 1]);
    }
}
