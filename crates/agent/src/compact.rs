//! Compaction: keeps a conversation within its model's context window.
//!
//! ```text
//! after a turn     more than 20 messages, or 75 % of the window ─▶ Plan::gentle, in the background
//! before a thought does not fit ─▶ memory flush ─▶ Plan::compact
//! after a refusal  remedy(): memory flush ─▶ Plan::compact ─▶ drop_oldest ─▶ drop_oldest ─▶ give up
//! ```
//!
//! This module asks no model. A [`Plan`] holds the requests to send, takes the answers, and finally
//! returns the entry to append: a summary with the number of newest entries that it does not
//! replace. The replaced entries stay in the journal.
//!
//! | module | contents |
//! |---|---|
//! | `measure` | token budgets |
//! | `split` | places where messages may be split |
//! | `trigger` | conditions for a compaction |
//! | `prompt` | requests to the summariser |
//! | `plan` | choice of the messages to keep and to summarise |
//! | `stages` | merging of partial summaries |
//! | `flush` | the model's messages during a memory flush |

mod flush;
mod measure;
mod plan;
mod prompt;
mod split;
mod stages;
#[cfg(test)]
mod tests;
mod trigger;

pub use flush::{
    FLUSH_TOOLS, flush_counts, flush_entry, flush_messages, flush_rounds, is_flushing,
};
pub use measure::{
    BASE_CHUNK_RATIO, Budget, DEFAULT_CONTEXT_TOKENS, MIN_CHUNK_RATIO, RESERVE_TOKENS,
    SAFETY_MARGIN, compute_adaptive_chunk_ratio,
};
pub use plan::{Plan, Reason, drop_oldest};
pub use prompt::{SUMMARISER, SUMMARY_OUTPUT_TOKENS, SUMMARY_TIMEOUT_SECS, SummaryRequest};
pub use split::{chunk_messages_by_max_tokens, split_messages_by_token_share};
pub use stages::{Error, Progress, Summary};
pub use trigger::{
    ConversationSize, FlushConditions, KEPT_MESSAGES, MAX_DROPS, OverflowMeasures, Remedy,
    SOFT_THRESHOLD_TOKENS, SUMMARY_MESSAGES, flush_instruction, needs_memory_flush, needs_summary,
    remedy,
};
