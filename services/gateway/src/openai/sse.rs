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
use tokio::{runtime::Handle, time::timeout};
use tracing::debug;
use uuid::Uuid;

use super::sent_text::{AnswerOutput, SentText};
use crate::{
    api_error::ApiError,
    follow::{FollowedMessage, TurnResult},
    ingest::Ingest,
};

pub trait StreamFormat: Send + 'static {
    /// Writes the events before the text.
    fn begin(&mut self, out: &mut EventBuffer);
    /// Writes text of a step; `part` tells that it begins a new part.
    fn text(&mut self, step: u32, part: bool, text: &str, out: &mut EventBuffer);
    /// Writes a piece of the model's thinking.
    fn thinking(&mut self, _text: &str, _out: &mut EventBuffer) {}
    /// Writes something that keeps the stream alive and that clients pass over.
    fn heartbeat(&mut self, out: &mut EventBuffer) {
        out.comment("waiting");
    }
    /// Writes that the agent calls a tool of its own.
    fn tool_started(&mut self, _call: &str, _tool: &str, _out: &mut EventBuffer) {}
    /// Writes the end of a call of the agent's own tools.
    fn tool_ended(&mut self, _call: &str, _failed: bool, _out: &mut EventBuffer) {}
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

    fn comment(&mut self, text: &str) {
        self.0.extend_from_slice(format!(": {text}\n\n").as_bytes());
    }

    /// Writes the event that ends a stream of Chat Completions.
    pub fn finish(&mut self) {
        self.0.extend_from_slice(b"data: [DONE]\n\n");
    }

    pub fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.0))
    }
}

/// How a stream is sent.
pub struct StreamOptions {
    /// See [`SentText::new`].
    pub is_final_only: bool,
    pub heartbeat: Duration,
    /// Cancels the turn if the client goes away before the end.
    pub cancel: Option<Ingest>,
    /// Deletes the session at the end, if it was made for this answer.
    pub forget: Option<Ingest>,
}

pub fn stream_response(
    follow: FollowedMessage,
    voice: impl StreamFormat,
    options: StreamOptions,
) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    let told = AnswerStream {
        follow,
        format: voice,
        heartbeat: options.heartbeat,
        cancel: options.cancel,
        forget: options.forget,
        sent_text: SentText::new(options.is_final_only),
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
    cancel: Option<Ingest>,
    forget: Option<Ingest>,
    follow: FollowedMessage,
    format: V,
    heartbeat: Duration,
    sent_text: SentText,
    outputs: VecDeque<AnswerOutput>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Start,
    Middle,
    Over,
}

impl<V> Drop for AnswerStream<V> {
    fn drop(&mut self) {
        let is_aborted = self.stage != Stage::Over && !self.follow.is_stopping();
        let Some(ingest) = self.cancel.take().filter(|_| is_aborted) else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let (tenant, session) = (self.follow.tenant(), self.follow.session());
        let seq = self.follow.seq();
        runtime.spawn(async move {
            if let Err(error) = ingest.cancel_message(tenant, session, seq).await {
                debug!(%error, "the turn of an aborted stream goes on");
            }
        });
    }
}

impl<V: StreamFormat> AnswerStream<V> {
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = EventBuffer::default();
        match self.stage {
            Stage::Over => return None,
            Stage::Start => {
                self.stage = Stage::Middle;
                self.format.begin(&mut out);
                if !out.0.is_empty() {
                    return Some(out.take());
                }
            }
            Stage::Middle => {}
        }
        loop {
            while let Some(say) = self.outputs.pop_front() {
                self.write(say, &mut out);
            }
            if let Some(ingest) = self.forget.take_if(|_| self.stage == Stage::Over) {
                ingest.forget_unstored(self.follow.tenant(), self.follow.session()).await;
            }
            if !out.0.is_empty() {
                return Some(out.take());
            }
            match timeout(self.heartbeat, self.follow.next()).await {
                Ok(Some(Ok(event))) => self.outputs.extend(self.sent_text.process(event)),
                Ok(Some(Err(error))) => self.outputs.push_back(AnswerOutput::Fail(error.into())),
                Ok(None) => {
                    self.stage = Stage::Over;
                    return None;
                }
                Err(_) => {
                    self.format.heartbeat(&mut out);
                    return Some(out.take());
                }
            }
        }
    }

    fn write(&mut self, say: AnswerOutput, out: &mut EventBuffer) {
        match say {
            AnswerOutput::Text { step, part, text } => self.format.text(step, part, &text, out),
            AnswerOutput::Thinking(text) => self.format.thinking(&text, out),
            AnswerOutput::ToolStarted { call, tool } => {
                self.format.tool_started(&call, &tool, out);
            }
            AnswerOutput::ToolEnded { call, failed } => self.format.tool_ended(&call, failed, out),
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
