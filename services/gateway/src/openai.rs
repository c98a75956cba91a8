//! The OpenAI-compatible API: Chat Completions, Responses, Models, Embeddings, Audio.
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
//! | results of calls that wait for the client, in whatever history | the session of these calls continues |
//! | `Idempotency-Key` | a repeated request gets the stored answer; another request: 409 |
//!
//! `agui.rs` and `anthropic.rs`, beside this module, are further formats of the same.
//!
//! A message is accepted before the first byte of an answer, so that an invalid one gets a proper
//! HTTP status. If the client aborts a stream, its turn is
//! cancelled, unless the request has an `Idempotency-Key`, is in the background, or says so.

mod audio;
mod body;
mod chat;
mod content;
mod conversation;
mod conversations;
mod embeddings;
mod handover;
mod history;
mod housekeeping;
mod ignored_fields;
mod items;
mod models;
mod options;
mod responses;
mod sent_text;
mod sse;
mod tools;

use std::sync::Arc;

use holdfast_grpc::MemoryClient;
use holdfast_kit::config::reload::Current;

pub use audio::{AudioProviders, speak, transcribe};
pub use body::read_json;
pub use chat::chat;
pub use content::{ConversationMessage, Message, Role, join_calls};
pub use conversation::{AnswerRequest, MODEL_PREFIX, cancels_on_abort, idempotency_key_of};
pub use conversations::{
    conversation, conversation_items, create_conversation, delete_conversation,
};
pub use embeddings::embeddings;
pub use housekeeping::mark_housekeeping;
pub use ignored_fields::{IgnoredFields, OtherFields};
pub use models::{Model, find_model, list_models};
pub use options::{GivenOptions, Stop};
pub use responses::{cancel_response, delete_response, input_items, respond, response};
pub use sse::{EventBuffer, StreamFormat, StreamOptions, id_headers, stream_response};
pub use tools::GivenTools;

use crate::{Config, follow::Follower, ingest::Ingest};

/// Minimum size limit of a request, in bytes: pictures of 20 MiB, as over gRPC, in base64, and text.
const MIN_BODY_LIMIT_BYTES: usize = 28 * 1024 * 1024;

/// Dependencies of the handlers. Clones share them.
#[derive(Debug, Clone)]
pub struct OpenAi {
    ingest: Ingest,
    follower: Follower,
    settings: Current<Config>,
    /// `None` without a mesh secret to sign calls with.
    memory: Option<MemoryClient>,
    audio: AudioProviders,
}

impl OpenAi {
    #[must_use]
    pub const fn new(
        ingest: Ingest,
        follower: Follower,
        settings: Current<Config>,
        memory: Option<MemoryClient>,
        audio: AudioProviders,
    ) -> Self {
        Self { ingest, follower, settings, memory, audio }
    }

    pub const fn ingest(&self) -> &Ingest {
        &self.ingest
    }

    pub fn settings(&self) -> Arc<Config> {
        self.settings.get()
    }
}
