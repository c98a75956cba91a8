//! The OpenAI-compatible API: Chat Completions, Responses, Models.
//!
//! A model is an agent: `holdfast` is the tenant's default agent, `holdfast/<agent>` another one.
//! `chat` and `responses` are two formats of requests and answers for the same conversations.
//!
//! | the client sends | effect |
//! |---|---|
//! | `user`, without earlier answers | the session of that name continues with these messages |
//! | `user`, with the history that the session has | the session continues; only new messages are added |
//! | `user`, with another history | a new session for this request, which begins with all messages sent |
//! | `previous_response_id` of the newest response | the session of that response continues |
//! | `previous_response_id` of an older response | a new session, which begins with the conversation up to it |
//! | neither | a new session for this request, which begins with all messages sent |
//! | `Idempotency-Key` | a repeated request gets the stored answer; another request: 409 |
//!
//! A message is accepted before the first byte of an answer, so that an invalid one gets a proper
//! HTTP status. If the client disconnects, the turn goes on and its answer is stored.

mod body;
mod chat;
mod content;
mod conversation;
mod history;
mod models;
mod responses;
mod sent_text;
mod sse;

use std::sync::Arc;

use holdfast_kit::config::reload::Current;

pub use chat::chat;
pub use models::{model, models};
pub use responses::respond;

use crate::{Config, follow::Follower, ingest::Ingest};

/// Minimum size limit of a request, in bytes: pictures of 20 MiB, as over gRPC, in base64, and text.
const MIN_BODY_LIMIT_BYTES: usize = 28 * 1024 * 1024;

/// Dependencies of the handlers. Clones share them.
#[derive(Debug, Clone)]
pub struct OpenAi {
    ingest: Ingest,
    follower: Follower,
    settings: Current<Config>,
}

impl OpenAi {
    #[must_use]
    pub const fn new(ingest: Ingest, follower: Follower, settings: Current<Config>) -> Self {
        Self { ingest, follower, settings }
    }

    fn settings(&self) -> Arc<Config> {
        self.settings.get()
    }
}
