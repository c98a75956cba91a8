//! The port to language models.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use holdfast_types::{Chat, ModelId, Reply, Thinking};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Catalogue, Error, ModelCard};

/// Language model. The runner keeps many, so the trait is made for `dyn`.
pub trait Model: fmt::Debug + Send + Sync {
    /// Answers: calls `on_delta` with each piece as it arrives, and returns the whole reply.
    ///
    /// The returned reply counts; the pieces are for people who watch. Fails with
    /// [`Error::Timeout`] at the request's deadline and with [`Error::Cancelled`] when `cancelled`
    /// is.
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> ReplyFuture<'a>;
}

pub type ReplyFuture<'a> = BoxFuture<'a, Result<Reply, Error>>;

/// Callback for each piece of a reply. It must not block.
pub type OnDelta<'a> = &'a mut (dyn FnMut(Delta) + Send);

#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub model: ModelId,
    pub chat: Chat,
    /// Output limit in tokens; `None` leaves it to the provider, or to the catalogue where the
    /// provider requires a number.
    pub max_output: Option<u32>,
    /// Randomness of the reply, from 0 to 1; `None` leaves it to the provider. Sent only if the
    /// model does not think and its catalogue entry says that it accepts one.
    pub temperature: Option<f64>,
    pub thinking: Thinking,
    /// Whether the reply should contain the model's thinking, if the provider shows it.
    pub shows_thinking: bool,
    /// Key shared by requests with the same beginning, for providers with a prompt cache: an
    /// agent's or a session's id.
    pub cache_key: Option<String>,
    /// `None` uses the built-in catalogue.
    pub card: Option<Arc<ModelCard>>,
    /// Time at which the answer is no longer wanted, retries included.
    pub deadline: Instant,
}

impl Request {
    /// Creates a request with the defaults.
    #[must_use]
    pub const fn new(model: ModelId, chat: Chat, deadline: Instant) -> Self {
        Self {
            model,
            chat,
            max_output: None,
            temperature: None,
            thinking: Thinking::Off,
            shows_thinking: false,
            cache_key: None,
            card: None,
            deadline,
        }
    }

    /// Temperature to send.
    pub(crate) fn accepted_temperature(&self) -> Option<f64> {
        self.temperature.filter(|_| self.card().temperature && self.thinking == Thinking::Off)
    }

    /// Catalogue entry of the model.
    pub(crate) fn card(&self) -> &ModelCard {
        match &self.card {
            Some(card) => card,
            None => Catalogue::built_in().card(&self.model),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    Text(String),
    Thought(String),
    ToolCallStarted {
        id: String,
        name: String,
    },
    /// The reply starts again: earlier pieces are void.
    Restarted,
}

/// Emits a whole reply as pieces: thinking, words, then calls.
pub(crate) fn say(reply: &Reply, on_delta: OnDelta<'_>) {
    if !reply.thinking.is_empty() {
        on_delta(Delta::Thought(reply.thinking.clone()));
    }
    for word in reply.text.split_inclusive(char::is_whitespace) {
        on_delta(Delta::Text(word.to_owned()));
    }
    for call in &reply.calls {
        on_delta(Delta::ToolCallStarted { id: call.id.clone(), name: call.tool.clone() });
    }
}
