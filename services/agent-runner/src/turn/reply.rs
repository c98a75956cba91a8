//! Ends of a turn, and what is sent of it.
//!
//! | file | contents |
//! |---|---|
//! | `completion.rs` | ends of a turn, each in one transaction |
//! | `replies.rs` | replies and their targets; causes of failures; pure |
//! | `failure_texts.rs`, `end_notes.rs` | what people read about a failure, and about an answer that ended early |
//! | `language.rs` | the language of these texts |
//! | `blocks.rs` | long answers in several messages; pure |
//! | `quotes.rs` | the message that an answer quotes |
//! | `progress_messages.rs` | verbose and reasoning messages |
//! | `deltas.rs` | stream of the reply as it is written |

pub(crate) mod blocks;
pub(crate) mod completion;
pub(crate) mod deltas;
pub(crate) mod end_notes;
mod failure_texts;
pub(crate) mod language;
pub(crate) mod progress_messages;
pub(crate) mod quotes;
pub(crate) mod replies;
