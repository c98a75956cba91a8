//! Score of a skill for a message, without asking a model (CTX-009).
//!
//! | part | weight | score |
//! |---|---|---|
//! | channel | 0.4 | 1 for a word of the channel in the skill's name or description, 0 for none, 0.3 for an unknown channel |
//! | keyword | 0.3 | share of the description's keywords in the message |
//! | history | 0.2 | 0.8 if the skill was ever used here |
//! | recency | 0.1 | from 1 just after its last use to 0 after 7 days |
//!
//! The score is 100 times their weighted sum; a skill with 30 or more is a candidate. A use is an
//! event that the skill was read (CTX-012), not a call with its name.

use std::{cmp::Ordering, time::Duration};

use super::{channel::Channels, keyword::MessageKeywords};

/// Minimum score of a candidate (CTX-008).
pub const MIN_SCORE: f64 = 30.0;

/// Confidence of a score without a model's selection.
pub const BASE_CONFIDENCE: f64 = 0.5;

/// History score of a skill that was used.
pub const USED_SCORE: f64 = 0.8;

/// Period in which a use counts as recent.
pub const RECENCY_HORIZON: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Weights of the parts of a score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    channel: f64,
    keyword: f64,
    history: f64,
    recency: f64,
}

impl Default for Weights {
    fn default() -> Self {
        Self { channel: 0.4, keyword: 0.3, history: 0.2, recency: 0.1 }
    }
}

/// Weights that are not shares.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "the weights `{0}`, `{1}`, `{2}`, `{3}` make no score: write numbers from 0 to 1 that add up \
     to 1, as in 0.4, 0.3, 0.2, 0.1"
)]
pub struct InvalidWeights(f64, f64, f64, f64);

impl Weights {
    /// Creates weights for channel, keyword, history and recency.
    ///
    /// # Errors
    ///
    /// If one is not from 0 to 1, or if they do not add up to 1 (to a thousandth).
    pub fn new(
        channel: f64,
        keyword: f64,
        history: f64,
        recency: f64,
    ) -> Result<Self, InvalidWeights> {
        let all = [channel, keyword, history, recency];
        let are_shares = all.iter().all(|weight| (0.0..=1.0).contains(weight));
        if are_shares && (all.iter().sum::<f64>() - 1.0).abs() <= 0.001 {
            Ok(Self { channel, keyword, history, recency })
        } else {
            Err(InvalidWeights(channel, keyword, history, recency))
        }
    }
}

/// Skill that may be recommended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skill<'a> {
    pub name: &'a str,
    pub description: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkillUsage<'a> {
    pub skill: &'a str,
    pub age: Duration,
}

/// Skill with a sufficient score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate<'a> {
    pub skill: Skill<'a>,
    /// From 30 to 100.
    pub score: f64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scoring {
    pub weights: Weights,
    pub channels: Channels,
}

/// Returns the skills that match a message on a channel, best first, then by name.
#[must_use]
pub fn shortlist<'a>(
    skills: &[Skill<'a>],
    message: &str,
    channel: &str,
    uses: &[SkillUsage<'_>],
    scoring: &Scoring,
) -> Vec<Candidate<'a>> {
    let Scoring { weights, channels } = scoring;
    let said = MessageKeywords::new(message);
    let mut found: Vec<Candidate<'a>> = skills
        .iter()
        .map(|skill| {
            let text = format!("{} {}", skill.name, skill.description).to_lowercase();
            let newest = uses.iter().filter(|used| used.skill == skill.name).map(|u| u.age).min();
            let score = weights.channel * channels.score(channel, &text)
                + weights.keyword * said.share_of(skill.description)
                + weights.history * newest.map_or(0.0, |_| USED_SCORE)
                + weights.recency * newest.map_or(0.0, recency);
            Candidate { skill: *skill, score: score * 100.0 }
        })
        .filter(|candidate| candidate.score >= MIN_SCORE)
        .collect();
    found.sort_by(|a, b| by_score((a.score, a.skill.name), (b.score, b.skill.name)));
    found
}

/// Descending by score, then by name.
pub(super) fn by_score(a: (f64, &str), b: (f64, &str)) -> Ordering {
    b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1))
}

fn recency(age: Duration) -> f64 {
    1.0 - age.as_secs_f64().min(RECENCY_HORIZON.as_secs_f64()) / RECENCY_HORIZON.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    const POLLS: Skill<'static> = Skill { name: "polls", description: "telegram polls" };
    const WEATHER: Skill<'static> = Skill { name: "weather", description: "weather report" };

    fn scores(
        skills: &[Skill<'static>],
        message: &str,
        channel: &str,
        uses: &[SkillUsage<'_>],
    ) -> Vec<(&'static str, f64)> {
        shortlist(skills, message, channel, uses, &Scoring::default())
            .into_iter()
            .map(|candidate| (candidate.skill.name, (candidate.score * 1e6).round() / 1e6))
            .collect()
    }

    fn used(age: Duration) -> [SkillUsage<'static>; 1] {
        [SkillUsage { skill: "weather", age }]
    }

    #[test]
    fn each_part_has_its_weight() {
        for (message, channel, uses, score) in [
            ("weather report", "matrix", vec![], Some(12.0 + 30.0)),
            ("weather", "matrix", vec![], None), // 12 + 15
            ("weather report", "slack", vec![], Some(30.0)),
            ("weather report", "slack", used(Duration::ZERO).to_vec(), Some(30.0 + 16.0 + 10.0)),
            ("weather report", "slack", used(DAY * 7).to_vec(), Some(30.0 + 16.0)),
            ("", "matrix", used(DAY * 14).to_vec(), None), // 12 + 16
            ("", "matrix", used(Duration::ZERO).to_vec(), Some(12.0 + 16.0 + 10.0)),
        ] {
            let got = scores(&[WEATHER], message, channel, &uses);

            assert_eq!(got.first().map(|(_, score)| *score), score, "{message} {channel}");
        }
        assert_eq!(scores(&[POLLS], "", "telegram", &[]), [("polls", 40.0)]);
    }

    #[test]
    fn only_the_newest_use_counts_and_it_ages_evenly() {
        let twice = [SkillUsage { skill: "weather", age: DAY * 7 }, used(DAY * 7 / 2)[0]];

        assert_eq!(scores(&[WEATHER], "weather report", "slack", &twice), [("weather", 51.0)]);
    }

    #[test]
    fn the_best_come_first_and_the_worst_do_not_come() {
        let skills = [
            WEATHER,
            POLLS,
            Skill { name: "alike", ..POLLS },
            Skill { name: "plants", description: "water the plants" },
        ];

        let found = scores(&skills, "make polls", "telegram", &[]);

        assert_eq!(found, [("alike", 55.0), ("polls", 55.0)]);
    }

    #[test]
    fn a_skill_described_in_chinese_is_found() {
        let skill = Skill { name: "leave", description: "企业微信审批" };

        assert_eq!(scores(&[skill], "帮我提交审批", "wecom", &[]), [("leave", 46.0)]);
    }

    #[test]
    fn weights_that_do_not_add_up_are_refused() {
        assert_eq!(Weights::new(0.4, 0.3, 0.2, 0.1), Ok(Weights::default()));
        for (channel, recency) in [(0.5, 0.1), (-0.1, 0.6), (f64::NAN, 0.1), (1.4, -0.9)] {
            let error = Weights::new(channel, 0.3, 0.2, recency).unwrap_err().to_string();
            assert!(error.ends_with("as in 0.4, 0.3, 0.2, 0.1"), "{error}");
        }
    }

    #[test]
    fn weights_decide_what_counts() {
        let by_channel = Weights::new(1.0, 0.0, 0.0, 0.0).unwrap();

        let found = shortlist(
            &[WEATHER, POLLS],
            "weather report",
            "telegram",
            &[],
            &Scoring { weights: by_channel, ..Scoring::default() },
        );

        assert_eq!(found, [Candidate { skill: POLLS, score: 100.0 }]);
    }

    proptest! {
        #[test]
        fn every_score_is_from_the_threshold_to_100_and_they_fall(
            message in "[a-z ]{0,60}",
            age in 0_u64..10_000_000,
            channel in "(telegram|slack|matrix)",
        ) {
            let uses = [SkillUsage { skill: "weather", age: Duration::from_secs(age) }];
            let found = scores(&[WEATHER, POLLS], &message, &channel, &uses);

            prop_assert!(found.iter().all(|(_, score)| (MIN_SCORE..=100.0).contains(score)));
            prop_assert!(found.windows(2).all(|pair| pair[0].1 >= pair[1].1));
        }
    }
}
