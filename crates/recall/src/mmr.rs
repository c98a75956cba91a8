//! Maximal marginal relevance (Carbonell and Goldstein, 1998): selects hits that do not repeat each
//! other.
//!
//! For single messages, a relevance of 0.7 to 0.9 changed recall by less than 0.01 in the
//! measurement, and 0.5 lost 0.03. It pays where chunks overlap or a note was copied.

use crate::fuse::RankedUnit;

/// Selects `k` hits, each by its score minus its similarity to those already selected.
///
/// `likeness` is a cosine. `relevance` 1 keeps the order, 0 considers only difference. Scores are
/// scaled to 0…1 first. Cost: `k` times the number of candidates.
#[must_use]
pub fn spread<T: Copy>(
    ranked: &[RankedUnit<T>],
    k: usize,
    relevance: f32,
    likeness: impl Fn(T, T) -> f32,
) -> Vec<RankedUnit<T>> {
    let relevance = relevance.clamp(0.0, 1.0);
    let low = ranked.iter().map(|r| r.score).fold(f32::INFINITY, f32::min);
    let high = ranked.iter().map(|r| r.score).fold(f32::NEG_INFINITY, f32::max);
    let width = (high - low).max(f32::EPSILON);
    // Each remaining candidate with its similarity to the closest one selected so far.
    let mut left: Vec<(RankedUnit<T>, f32)> = ranked.iter().map(|r| (*r, 0.0)).collect();
    let mut chosen = Vec::with_capacity(k.min(ranked.len()));
    while chosen.len() < k {
        let worth = |(r, like): &(RankedUnit<T>, f32)| {
            relevance * (r.score - low) / width - (1.0 - relevance) * like
        };
        let mut best = None;
        for (at, candidate) in left.iter().enumerate() {
            // The earlier of equals; `max_by` would return the later.
            if best.is_none_or(|(_, most)| worth(candidate) > most) {
                best = Some((at, worth(candidate)));
            }
        }
        let Some((at, _)) = best else { break };
        let (next, _) = left.remove(at);
        for (other, like) in &mut left {
            *like = like.max(likeness(next.id, other.id));
        }
        chosen.push(next);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::spread;
    use crate::fuse::{RankCandidate, RankedUnit, Weights, rank};

    fn ranked() -> Vec<RankedUnit<u32>> {
        let found: Vec<_> = [(1, 0.9), (2, 0.88), (3, 0.5), (4, 0.1)]
            .map(|(id, meaning)| RankCandidate {
                id,
                words: 0.0,
                meaning,
                author: false,
                terms: 9,
                decay: 1.0,
            })
            .into();
        rank(&found, &Weights::default())
    }

    /// Units 1 and 2 have the same content.
    fn likeness(a: u32, b: u32) -> f32 {
        if a.min(b) == 1 && a.max(b) == 2 { 0.95 } else { 0.1 }
    }

    fn ids(ranked: &[RankedUnit<u32>]) -> Vec<u32> {
        ranked.iter().map(|r| r.id).collect()
    }

    #[test]
    fn a_repetition_gives_way_to_something_else() {
        assert_eq!(ids(&spread(&ranked(), 2, 0.5, likeness)), [1, 3]);
    }

    #[test]
    fn relevance_alone_keeps_the_order() {
        assert_eq!(ids(&spread(&ranked(), 3, 1.0, likeness)), [1, 2, 3]);
    }

    #[test]
    fn there_are_never_more_than_there_were_and_none_twice() {
        let mut all = ids(&spread(&ranked(), 99, 0.3, likeness));
        all.sort_unstable();

        assert_eq!(all, [1, 2, 3, 4]);
        assert_eq!(ids(&spread(&[], 3, 0.5, likeness)), Vec::<u32>::new());
    }
}
