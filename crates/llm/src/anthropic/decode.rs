//! Decoder of Anthropic's events.
//!
//! | event | contents |
//! |---|---|
//! | `message_start`, `message_delta` | usage; the stop reason |
//! | `content_block_start`, `_delta`, `_stop` | a piece of text, of a call's input, of thinking |
//! | `message_stop` | the end |
//! | `error` | the stream failed, and why |
//! | `ping` and others | ignored |
//!
//! Thinking blocks are not part of the text. They are carried unchanged, with their positions.

use std::collections::BTreeMap;

use holdfast_types::{ModelId, Reply, StopReason, Usage};
use serde_json::{Value, json};

use super::{API_NAME, refusal};
use crate::{
    Delta, Error, Request, carry,
    http::Decode,
    reply_builder::{MAX_CARRY_BYTES, ReplyBuilder, count, parse},
};

#[derive(Debug)]
pub(crate) struct Decoder {
    model: ModelId,
    gather: ReplyBuilder,
    /// Open and complete blocks, by index.
    blocks: BTreeMap<u64, Block>,
    /// Total size of the thinking blocks, in bytes.
    thoughts: usize,
    is_overflow: bool,
}

/// Content block of a reply.
#[derive(Debug)]
enum Block {
    /// Length of the text, in bytes.
    Text(usize),
    /// Index of the call in the collected reply.
    Call(usize),
    /// Block to carry unchanged.
    Thought(Value),
    Other,
}

impl Decoder {
    pub(super) fn new(request: &Request) -> Self {
        Self {
            model: request.model.clone(),
            gather: ReplyBuilder::new(request),
            blocks: BTreeMap::new(),
            thoughts: 0,
            is_overflow: false,
        }
    }

    fn take(&mut self, event: &Value, deltas: &mut Vec<Delta>) -> Result<(), Error> {
        let index = event["index"].as_u64().unwrap_or_default();
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => self.usage(&event["message"]["usage"]),
            "content_block_start" => self.begin_block(index, &event["content_block"], deltas)?,
            "content_block_delta" => self.continue_block(index, &event["delta"], deltas)?,
            "message_delta" => {
                self.usage(&event["usage"]);
                self.stop(&event["delta"]);
            }
            "message_stop" => self.gather.done = true,
            "error" => return Err(refusal::mid_stream(&event["error"], &self.model)),
            _ => {}
        }
        Ok(())
    }

    /// Later usage replaces earlier usage: the numbers are cumulative.
    fn usage(&mut self, usage: &Value) {
        update_usage(usage, &mut self.gather.usage);
    }

    fn stop(&mut self, delta: &Value) {
        let Some(reason) = delta["stop_reason"].as_str() else { return };
        self.is_overflow = reason == "model_context_window_exceeded";
        self.gather.stop = Some(match reason {
            "max_tokens" => StopReason::MaxTokens,
            "model_context_window_exceeded" => StopReason::ContextWindow,
            "tool_use" => StopReason::ToolUse,
            "refusal" => StopReason::Refusal,
            "pause_turn" => StopReason::PauseTurn,
            _ => StopReason::End,
        });
    }

    fn begin_block(
        &mut self,
        index: u64,
        block: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Error> {
        let begun = match block["type"].as_str().unwrap_or_default() {
            "text" => {
                let text = block["text"].as_str().unwrap_or_default();
                self.gather.text(text, deltas)?;
                Block::Text(text.len())
            }
            "tool_use" => {
                let at = self.gather.begin_call(block["id"].as_str().unwrap_or_default())?;
                self.gather.name_call(at, block["name"].as_str().unwrap_or_default(), deltas);
                // In a stream the input is `{}` here and follows in pieces.
                if block["input"].as_object().is_some_and(|input| !input.is_empty()) {
                    self.gather.input(at, &block["input"])?;
                }
                Block::Call(at)
            }
            "thinking" | "redacted_thinking" => {
                self.thoughts += block.to_string().len();
                self.gather.thought(block["thinking"].as_str().unwrap_or_default(), deltas);
                Block::Thought(block.clone())
            }
            _ => Block::Other,
        };
        if self.blocks.len() > 1_000 {
            return Err(Error::TooLong { what: "blocks", limit: 1_000 });
        }
        self.blocks.insert(index, begun);
        Ok(())
    }

    fn continue_block(
        &mut self,
        index: u64,
        delta: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Error> {
        match self.blocks.get_mut(&index) {
            Some(Block::Text(length)) => {
                let text = delta["text"].as_str().unwrap_or_default();
                *length += text.len();
                self.gather.text(text, deltas)
            }
            Some(Block::Call(at)) => self.gather.input(*at, &delta["partial_json"]),
            Some(Block::Thought(thought)) => {
                self.gather.thought(delta["thinking"].as_str().unwrap_or_default(), deltas);
                for key in ["thinking", "signature"] {
                    let Some(piece) = delta[key].as_str() else { continue };
                    self.thoughts += piece.len();
                    // Thinking beyond the limit is not carried, so it need not be kept.
                    if self.thoughts <= MAX_CARRY_BYTES
                        && let Value::String(text) = &mut thought[key]
                    {
                        text.push_str(piece);
                    } else if self.thoughts <= MAX_CARRY_BYTES {
                        thought[key] = piece.into();
                    }
                }
                Ok(())
            }
            Some(Block::Other) | None => Ok(()),
        }
    }

    /// Returns the thinking blocks and their positions, to be carried.
    fn carried_blocks(&self) -> Option<Value> {
        let has_thoughts = self.blocks.values().any(|block| matches!(block, Block::Thought(_)));
        if !has_thoughts || self.thoughts > MAX_CARRY_BYTES {
            return None;
        }
        let items = self.blocks.values().filter_map(|block| match block {
            Block::Text(length) => Some(json!({ "text": length })),
            Block::Call(at) => Some(json!({ "call": self.gather.call_id(*at) })),
            Block::Thought(thought) => Some(thought.clone()),
            Block::Other => None,
        });
        carry::pack(API_NAME, &self.model.to_string(), items.collect())
    }
}

/// Takes over the counts that this event has.
pub(super) fn update_usage(reported: &Value, usage: &mut Usage) {
    let read = ["/input_tokens", "/cache_creation_input_tokens", "/cache_read_input_tokens"];
    if reported["input_tokens"].is_u64() {
        usage.input = read.iter().map(|path| count(reported, path)).sum();
        usage.cached = count(reported, "/cache_read_input_tokens");
        // Old servers do not name the lifetime, which is then five minutes.
        usage.written_long = count(reported, "/cache_creation/ephemeral_1h_input_tokens");
        let written = count(reported, "/cache_creation_input_tokens");
        usage.written = written.saturating_sub(usage.written_long);
    }
    if reported["server_tool_use"].is_object() {
        usage.searches = count(reported, "/server_tool_use/web_search_requests");
    }
    if reported["output_tokens_details"].is_object() {
        usage.reasoning = count(reported, "/output_tokens_details/thinking_tokens");
    }
    if reported["output_tokens"].is_u64() {
        usage.output = count(reported, "/output_tokens");
    }
}

impl Decode for Decoder {
    fn push(&mut self, data: &[u8]) -> Result<Vec<Delta>, Error> {
        let mut deltas = Vec::new();
        if !data.trim_ascii().is_empty() {
            self.take(&parse(data)?, &mut deltas)?;
        }
        Ok(deltas)
    }

    fn whole(&mut self, body: &[u8]) -> Result<Vec<Delta>, Error> {
        let answer = parse(body)?;
        let mut deltas = Vec::new();
        if answer["type"] == "error" {
            return Err(refusal::mid_stream(&answer["error"], &self.model));
        }
        for (index, block) in (0..).zip(answer["content"].as_array().into_iter().flatten()) {
            self.begin_block(index, block, &mut deltas)?;
        }
        self.usage(&answer["usage"]);
        self.stop(&answer);
        self.gather.done = answer["content"].is_array();
        Ok(deltas)
    }

    fn is_done(&self) -> bool {
        self.gather.done
    }

    fn finish(mut self) -> Result<Reply, Error> {
        let carried = self.carried_blocks();
        self.gather.carry(carried);
        let is_overflow = self.is_overflow;
        self.gather.finish().map_err(|error| match error {
            Error::TooLong { what: "thoughts and text, in tokens", .. } if is_overflow => {
                Error::ContextOverflow
            }
            other => other,
        })
    }
}

#[cfg(test)]
mod tests;
