//! What a model is.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use holdfast_types::{Chat, ModelId, Reply, Thinking};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Card, Catalogue, Error};

/// Something that answers a chat. The runner keeps many, so it is made for `dyn`.
pub trait Model: fmt::Debug + Send + Sync {
    /// Answers: calls `on_delta` with each piece as it comes, and returns the whole.
    ///
    /// The whole is what counts; the pieces are for people who watch. It ends
    /// with [`Error::Timeout`] at the request's deadline and with
    /// [`Error::Cancelled`] when `cancelled` is.
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> Replying<'a>;
}

/// A reply on its way.
pub type Replying<'a> = BoxFuture<'a, Result<Reply, Error>>;

/// What is called with each piece of a reply. It must not block.
pub type OnDelta<'a> = &'a mut (dyn FnMut(Delta) + Send);

/// What a model is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Which model.
    pub model: ModelId,
    /// What it is told.
    pub chat: Chat,
    /// The most tokens it may write; `None` leaves it to the provider, or to the catalogue where
    /// the provider insists on a number.
    pub max_output: Option<u32>,
    /// How much it is to think.
    pub thinking: Thinking,
    /// Whether what it thinks is to be shown, as far as its provider shows it.
    pub shows_thinking: bool,
    /// What requests that begin alike have in common, for providers that keep what they have read:
    /// an agent's or a session's id. It says nothing about what is asked.
    pub cache_key: Option<String>,
    /// What is known of the model; `None` looks it up in the built-in catalogue.
    pub card: Option<Arc<Card>>,
    /// When an answer is no longer wanted, retries included.
    pub deadline: Instant,
}

impl Request {
    /// Asks a model, leaving all else to it.
    #[must_use]
    pub const fn new(model: ModelId, chat: Chat, deadline: Instant) -> Self {
        Self {
            model,
            chat,
            max_output: None,
            thinking: Thinking::Off,
            shows_thinking: false,
            cache_key: None,
            card: None,
            deadline,
        }
    }

    /// What is known of the model.
    pub(crate) fn card(&self) -> &Card {
        match &self.card {
            Some(card) => card,
            None => Catalogue::built_in().card(&self.model),
        }
    }
}

/// A piece of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// It goes on with this.
    Text(String),
    /// It goes on thinking with this.
    Thought(String),
    /// It begins to ask for a tool.
    ToolCallStarted {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// What came before is void: the reply begins anew.
    Restarted,
}

/// Says a whole reply piece by piece: what it thought, words, then calls.
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
