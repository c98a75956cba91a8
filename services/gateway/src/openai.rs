//! The API that OpenAI's clients speak: Chat Completions, Responses, Models.
//!
//! A model is an agent: `holdfast` is the tenant's default one, `holdfast/<agent>`
//! another. What happens to a conversation is in `converse`; `chat` and
//! `responses` are two forms of asking and of answering.
//!
//! | the client sends | and then |
//! |---|---|
//! | `user` | the session of that name goes on; only what it does not know yet is taken in |
//! | `previous_response_id` | the session of that response goes on |
//! | neither | a session for this once, which begins with all that was sent |
//! | `Idempotency-Key` | again: the stored answer; with another request: 409 |
//!
//! A message is accepted before the first byte of an answer, so that what is
//! wrong with it is a proper HTTP status. A client that goes away takes nothing
//! with it: the turn ends, and its answer is kept.

mod chat;
mod content;
mod converse;
mod models;
mod refusal;
mod responses;
mod spoken;
mod sse;

use std::time::Duration;

pub use chat::chat;
pub use models::{model, models};
pub use refusal::Refusal;
pub use responses::respond;

use crate::{config, follow::Follower, ingest::Ingest};

/// What the handlers work with. Cloning shares it.
#[derive(Debug, Clone)]
pub struct OpenAi {
    ingest: Ingest,
    follower: Follower,
    body_limit: usize,
    body_timeout: Duration,
    answer_timeout: Duration,
    heartbeat: Duration,
}

impl OpenAi {
    /// Takes in and follows by these, within the doors' limits.
    #[must_use]
    pub const fn new(ingest: Ingest, follower: Follower, config: &config::Gateway) -> Self {
        Self {
            ingest,
            follower,
            body_limit: config.body_limit,
            body_timeout: config.body_timeout,
            answer_timeout: config.answer_timeout,
            heartbeat: config.heartbeat,
        }
    }
}
