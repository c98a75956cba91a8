//! Skill recommendations for a message.
//!
//! ```text
//! skills ─▶ shortlist: score ≥ 30 ─┬─ none     ─▶ nothing
//!                                  ├─ one      ─▶ recommended
//!                                  └─ several  ─▶ ask a model ─▶ selected: damped, best first
//!                                                      └─ unusable answer ─▶ the shortlist
//! ```
//!
//! The result goes into the dynamic part of the prompt, under the strategies Full and Custom alike
//! (C-33): the stable part lists all skills, so that it can be cached.
//!
//! | module | contents |
//! |---|---|
//! | `channel` | match with the channel |
//! | `keyword` | match with the message |
//! | `score` | total score |
//! | `select` | selection by a model |

mod channel;
mod keyword;
mod score;
mod select;

pub use channel::{Channels, UNKNOWN_CHANNEL};
pub use score::{
    BASE_CONFIDENCE, Candidate, InvalidWeights, MIN_SCORE, RECENCY_HORIZON, Scoring, Skill,
    SkillUsage, USED_SCORE, Weights, shortlist,
};
pub(crate) use select::object;
pub use select::{
    Recommendation, SELECTION_OUTPUT_TOKENS, SELECTION_TEMPERATURE, Shortlist, UnusableAnswer,
    are_wanted, parse_selection, selection_chat,
};
