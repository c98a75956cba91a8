//! The OpenAI-compatible API: Chat Completions, Responses, Models.
//!
//! A model is an agent: `holdfast` is the tenant's default agent, `holdfast/<agent>` another one.
//! `chat` and `responses` are two formats of requests and answers for the same conversations.
//!
//! | the client sends | effect |
//! |---|---|
//! | `user` | the session of that name continues; only messages it does not have are added |
//! | `previous_response_id` | the session of that response continues |
//! | neither | a new session for this request, which begins with all messages sent |
//! | `Idempotency-Key` | a repeated request gets the stored answer; another request: 409 |
//!
//! A message is accepted before the first byte of an answer, so that an invalid one gets a proper
//! HTTP status. If the client disconnects, the turn goes on and its answer is stored.

mod body;
mod chat;
mod content;
mod conversation;
mod models;
mod responses;
mod sent_text;
mod sse;

use std::time::Duration;

pub use chat::chat;
pub use models::{model, models};
pub use responses::respond;

use crate::{config, follow::Follower, ingest::Ingest};

/// Dependencies of the handlers. Clones share them.
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
