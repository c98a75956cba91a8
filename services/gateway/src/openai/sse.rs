//! Answers as server-sent events.
//!
//! There is no task per connection: an event is made when the client has room for it. While there
//! is nothing to send, comments keep the stream alive; they also detect clients that have
//! disconnected.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures::stream;
use http::{
    HeaderName, HeaderValue,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use serde::Serialize;
use tokio::time::timeout;
use uuid::Uuid;

use super::sent_text::{AnswerOutput, SentText};
use crate::{
    api_error::ApiError,
    follow::{FollowedMessage, TurnResult},
};

pub trait StreamFormat: Send + 'static {
    /// Writes the events before the text.
    fn begin(&mut self, out: &mut EventBuffer);
    /// Writes text; `part` tells that it begins a new part.
    fn text(&mut self, part: bool, text: &str, out: &mut EventBuffer);
    /// Writes the events after the text.
    fn end(&mut self, finished: &TurnResult, out: &mut EventBuffer);
    /// Writes the events that end a stream without an answer.
    fn fail(&mut self, refusal: &ApiError, out: &mut EventBuffer);
}

#[derive(Debug, Default)]
pub struct EventBuffer(Vec<u8>);

impl EventBuffer {
    /// Writes an event without a name.
    pub fn data(&mut self, value: &impl Serialize) {
        self.0.extend_from_slice(b"data: ");
        // Our types can be serialized, and writing to a vector cannot fail.
        let _ = serde_json::to_writer(&mut self.0, value);
        self.0.extend_from_slice(b"\n\n");
    }

    /// Writes an event with a name.
    pub fn named_event(&mut self, name: &str, value: &impl Serialize) {
        self.0.extend_from_slice(b"event: ");
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'\n');
        self.data(value);
    }

    /// Writes the event that ends a stream of Chat Completions.
    pub fn finish(&mut self) {
        self.0.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.0))
    }
}

pub fn stream_response(
    follow: FollowedMessage,
    voice: impl StreamFormat,
    heartbeat: Duration,
) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    let told = AnswerStream {
        follow,
        format: voice,
        heartbeat,
        sent_text: SentText::default(),
        outputs: VecDeque::new(),
        stage: Stage::Start,
    };
    let events = stream::unfold(told, |mut told| async move {
        let bytes = told.next().await?;
        Some((Ok::<_, Infallible>(bytes), told))
    });
    (headers, Body::from_stream(events)).into_response()
}

struct AnswerStream<V> {
    follow: FollowedMessage,
    format: V,
    heartbeat: Duration,
    sent_text: SentText,
    outputs: VecDeque<AnswerOutput>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Start,
    Middle,
    Over,
}

impl<V: StreamFormat> AnswerStream<V> {
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = EventBuffer::default();
        match self.stage {
            Stage::Over => return None,
            Stage::Start => {
                self.stage = Stage::Middle;
                self.format.begin(&mut out);
                return Some(out.take());
            }
            Stage::Middle => {}
        }
        loop {
            while let Some(say) = self.outputs.pop_front() {
                self.write(say, &mut out);
            }
            if !out.0.is_empty() {
                return Some(out.take());
            }
            match timeout(self.heartbeat, self.follow.next()).await {
                Ok(Some(Ok(event))) => self.outputs.extend(self.sent_text.process(event)),
                Ok(Some(Err(error))) => self.outputs.push_back(AnswerOutput::Fail(error.into())),
                Ok(None) => return None,
                Err(_) => return Some(Bytes::from_static(b": waiting\n\n")),
            }
        }
    }

    fn write(&mut self, say: AnswerOutput, out: &mut EventBuffer) {
        match say {
            AnswerOutput::Text { part, text } => self.format.text(part, &text, out),
            AnswerOutput::End(finished) => {
                self.stage = Stage::Over;
                self.format.end(&finished, out);
            }
            AnswerOutput::Fail(refusal) => {
                self.stage = Stage::Over;
                self.format.fail(&refusal, out);
            }
        }
    }
}

/// Headers with the ids of the message and its session.
pub fn id_headers(follow: &FollowedMessage) -> [(HeaderName, String); 2] {
    [
        (HeaderName::from_static("x-holdfast-message"), follow.message().to_string()),
        (HeaderName::from_static("x-holdfast-session"), follow.session().to_string()),
    ]
}

/// Creation time in a UUIDv7, in Unix seconds; 0 if the id has none.
pub fn created_at(id: Uuid) -> u64 {
    id.get_timestamp().map_or(0, |at| at.to_unix().0)
}
