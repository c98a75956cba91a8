//! Subscriptions to core NATS subjects.

use std::fmt;

use async_nats::Subscriber;
use bytes::Bytes;
use futures::StreamExt as _;
use holdfast_kit::trace;
use serde::de::DeserializeOwned;
use tracing::debug;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Subject, without the installation's prefix.
    pub subject: String,
    pub payload: Bytes,
    /// Trace context of the sender, for `holdfast_kit::trace::continue_from`.
    pub trace: Option<String>,
}

/// Messages on one subject, as they arrive. It survives a reconnect; messages sent in between are
/// lost.
pub struct Subscription {
    subscriber: Subscriber,
    prefix: usize,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

impl Subscription {
    /// Wraps a subscription to a subject below `prefix`, which may be empty.
    pub(crate) fn new(prefix: &str, subscriber: Subscriber) -> Self {
        let prefix = match prefix.len() {
            0 => 0,
            length => length + 1,
        };
        Self { subscriber, prefix }
    }

    /// Returns the next message; `None` once the connection is closed for good.
    pub async fn next(&mut self) -> Option<Message> {
        let message = self.subscriber.next().await?;
        let headers = message.headers.as_ref();
        let trace = headers.and_then(|headers| headers.get(trace::TRACEPARENT));
        Some(Message {
            subject: message.subject.as_str().get(self.prefix..).unwrap_or_default().to_owned(),
            trace: trace.map(|value| value.as_str().to_owned()),
            payload: message.payload,
        })
    }

    /// Returns the next message that can be parsed. Others come from another version and are
    /// skipped.
    pub(crate) async fn next_json<T: DeserializeOwned>(&mut self) -> Option<T> {
        loop {
            let message = self.next().await?;
            match serde_json::from_slice(&message.payload) {
                Ok(value) => return Some(value),
                Err(error) => {
                    let bytes = message.payload.len();
                    debug!(subject = message.subject, bytes, %error, "a message is not understood");
                }
            }
        }
    }
}
