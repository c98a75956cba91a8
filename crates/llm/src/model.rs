//! What a model is.

use std::fmt;

use futures::future::BoxFuture;
use holdfast_types::{Chat, ModelId, Reply};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Error;

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
    /// The most tokens it may write; `None` leaves it to the provider.
    pub max_output: Option<u32>,
    /// When an answer is no longer wanted, retries included.
    pub deadline: Instant,
}

/// A piece of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// It goes on with this.
    Text(String),
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

/// Says a whole reply piece by piece: words, then calls.
pub(crate) fn say(reply: &Reply, on_delta: OnDelta<'_>) {
    for word in reply.text.split_inclusive(char::is_whitespace) {
        on_delta(Delta::Text(word.to_owned()));
    }
    for call in &reply.calls {
        on_delta(Delta::ToolCallStarted { id: call.id.clone(), name: call.tool.clone() });
    }
}
