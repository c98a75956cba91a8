//! Events of an answer.
//!
//! | event | when |
//! |---|---|
//! | `message_start`, `ping` | at once |
//! | `content_block_start`, `_delta`, `_stop` | thinking, a text, or a call of the client's tools |
//! | `ping` | nothing to send for a while |
//! | `message_delta`, `message_stop` | the end: its reason, and what it used |
//! | `error` | an end without an answer |

use serde_json::{Value, json};

use super::{
    answer::{MessageHead, call_block, stop_reason, text_block, usage},
    error::error_object,
};
use crate::{
    api_error::ApiError,
    follow::TurnResult,
    openai::{EventBuffer, StreamFormat},
};

/// Kind of the block that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenBlock {
    Text,
    Thinking,
}

pub struct MessageStream {
    head: MessageHead,
    shows_thinking: bool,
    open: Option<OpenBlock>,
    /// Number of blocks that were begun.
    blocks: usize,
}

impl MessageStream {
    pub fn new(head: MessageHead, shows_thinking: bool) -> Self {
        Self { head, shows_thinking, open: None, blocks: 0 }
    }

    fn start(&mut self, block: Value, out: &mut EventBuffer) {
        event("content_block_start", json!({ "index": self.blocks, "content_block": block }), out);
        self.blocks += 1;
    }

    /// Index of the block that was begun last.
    fn index(&self) -> usize {
        self.blocks.saturating_sub(1)
    }

    fn delta(&self, delta: Value, out: &mut EventBuffer) {
        event("content_block_delta", json!({ "index": self.index(), "delta": delta }), out);
    }

    fn stop(&mut self, out: &mut EventBuffer) {
        if self.open.take().is_some() {
            event("content_block_stop", json!({ "index": self.index() }), out);
        }
    }

    /// Opens a block of a kind, unless one is open.
    fn continue_block(&mut self, kind: OpenBlock, out: &mut EventBuffer) {
        if self.open == Some(kind) {
            return;
        }
        self.stop(out);
        let block = match kind {
            OpenBlock::Text => text_block(""),
            OpenBlock::Thinking => {
                json!({ "type": "thinking", "thinking": "", "signature": "" })
            }
        };
        self.start(block, out);
        self.open = Some(kind);
    }
}

impl StreamFormat for MessageStream {
    fn begin(&mut self, out: &mut EventBuffer) {
        event("message_start", json!({ "message": self.head.object(Vec::new()) }), out);
        event("ping", json!({}), out);
    }

    fn text(&mut self, _: u32, part: bool, text: &str, out: &mut EventBuffer) {
        if part {
            self.stop(out);
        }
        self.continue_block(OpenBlock::Text, out);
        self.delta(json!({ "type": "text_delta", "text": text }), out);
    }

    fn thinking(&mut self, text: &str, out: &mut EventBuffer) {
        if self.shows_thinking {
            self.continue_block(OpenBlock::Thinking, out);
            self.delta(json!({ "type": "thinking_delta", "thinking": text }), out);
        }
    }

    fn heartbeat(&mut self, out: &mut EventBuffer) {
        event("ping", json!({}), out);
    }

    fn end(&mut self, finished: &TurnResult, out: &mut EventBuffer) {
        self.stop(out);
        for call in &finished.calls {
            self.start(call_block(call, json!({})), out);
            let arguments = super::answer::arguments(call).to_string();
            self.delta(json!({ "type": "input_json_delta", "partial_json": arguments }), out);
            event("content_block_stop", json!({ "index": self.index() }), out);
        }
        let delta = json!({ "stop_reason": stop_reason(finished), "stop_sequence": null });
        event("message_delta", json!({ "delta": delta, "usage": usage(finished.usage) }), out);
        event("message_stop", json!({}), out);
    }

    fn fail(&mut self, refusal: &ApiError, out: &mut EventBuffer) {
        out.named_event("error", &error_object(refusal, None));
    }
}

/// Writes an event, whose `type` is its name.
fn event(name: &str, mut fields: Value, out: &mut EventBuffer) {
    fields["type"] = name.into();
    out.named_event(name, &fields);
}
