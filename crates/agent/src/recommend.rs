//! Which skills are worth a look for a message.
//!
//! ```text
//! skills ─▶ shortlist: score ≥ 30 ─┬─ none     ─▶ nothing
//!                                  ├─ one      ─▶ it
//!                                  └─ several  ─▶ ask a model ─▶ selected: damped, best first
//!                                                      └─ no answer of use ─▶ the shortlist
//! ```
//!
//! What comes of it goes into the dynamic part of the prompt, under the strategies Full and Custom
//! alike (C-33): the stable part lists all skills, so that it can be cached.
//!
//! | module | question |
//! |---|---|
//! | `channel` | does a skill go with the channel? |
//! | `keyword` | does it go with what was said? |
//! | `score` | how well does it go in all? |
//! | `select` | which of several does a model choose? |

mod channel;
mod keyword;
mod score;
mod select;

pub use channel::{Channels, UNKNOWN_CHANNEL};
pub use score::{
    BASE_CONFIDENCE, Candidate, InvalidWeights, RECENCY_HORIZON, Scoring, Skill, THRESHOLD, USED,
    Use, Weights, shortlist,
};
pub(crate) use select::object;
pub use select::{
    Recommendation, SELECTION_OUTPUT_TOKENS, SELECTION_TEMPERATURE, Shortlist, Unusable,
    prompt_block, selected, selection_chat,
};
