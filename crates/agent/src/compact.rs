//! Keeping a conversation within its model's window.
//!
//! ```text
//! after a turn     more than 20 messages, or 75 % of the window ─▶ Plan::gentle, in the background
//! before a thought does not fit ─▶ memory flush ─▶ Plan::compact
//! after a refusal  remedy(): memory flush ─▶ Plan::compact ─▶ drop_oldest ─▶ drop_oldest ─▶ give up
//! ```
//!
//! Nothing here asks a model. A [`Plan`] says what to ask, takes the answers, and in the end gives
//! the entry to append: a summary that says which of the newest entries it does not stand for. What
//! it stands for stays in the journal.
//!
//! | module | question |
//! |---|---|
//! | `measure` | how much is too much? |
//! | `split` | where may messages be parted? |
//! | `trigger` | is it time, and for what? |
//! | `prompt` | what is the summariser asked? |
//! | `plan` | what is kept, what is summarised? |
//! | `stages` | what is asked next, and what comes of it? |
//! | `flush` | what does the model read while it writes memory down? |

mod flush;
mod measure;
mod plan;
mod prompt;
mod split;
mod stages;
#[cfg(test)]
mod tests;
mod trigger;

pub use flush::{FLUSH_TOOLS, flush_begins, flush_messages, flush_rounds, flushes, is_flushing};
pub use measure::{
    BASE_CHUNK_RATIO, Budget, DEFAULT_CONTEXT_TOKENS, MIN_CHUNK_RATIO, RESERVE_TOKENS,
    SAFETY_MARGIN, compute_adaptive_chunk_ratio,
};
pub use plan::{Plan, Reason, drop_oldest};
pub use prompt::{SUMMARISER, SUMMARY_OUTPUT_TOKENS, SUMMARY_TIMEOUT_SECS, SummaryRequest};
pub use split::{chunk_messages_by_max_tokens, split_messages_by_token_share};
pub use stages::{Error, Progress, Summary};
pub use trigger::{
    Fill, Flush, KEPT_MESSAGES, MAX_DROPS, Overflow, Remedy, SOFT_THRESHOLD_TOKENS,
    SUMMARY_MESSAGES, flush_instruction, needs_memory_flush, needs_summary, remedy,
};
