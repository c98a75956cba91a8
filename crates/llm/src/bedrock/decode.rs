//! Decoder of Converse's events.
//!
//! | event | contents |
//! |---|---|
//! | `contentBlockStart` | a call's id and tool |
//! | `contentBlockDelta` | a piece of text, of a call's input, of reasoning or its signature |
//! | `messageStop` | why it stopped |
//! | `metadata` | usage; the end |
//! | `!…Exception` | the stream failed, and why |
//!
//! Source: <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html>.
//! Signed reasoning is carried, as it must go back within a turn.

use std::collections::BTreeMap;

use holdfast_types::{ModelId, Reply, StopReason};
use serde_json::{Value, json};

use super::{API_NAME, refusal};
use crate::{
    Delta, Error, Request, carry,
    http::Decode,
    reply_builder::{MAX_CARRY_BYTES, ReplyBuilder, count, parse},
};

const MAX_BLOCKS: usize = 1_000;

#[derive(Debug)]
pub(crate) struct Decoder {
    model: ModelId,
    gather: ReplyBuilder,
    /// Open and complete blocks, by index.
    blocks: BTreeMap<u64, Block>,
    /// Total size of the reasoning, in bytes.
    reasoning_bytes: usize,
    is_overflow: bool,
    is_garbled: bool,
}

/// Content block of a reply.
#[derive(Debug)]
enum Block {
    /// Length of the text, in bytes.
    Text(usize),
    /// Index of the call in the collected reply.
    Call(usize),
    Reasoning(Reasoning),
}

#[derive(Debug, Default)]
struct Reasoning {
    text: String,
    signature: String,
    /// Encrypted reasoning, in base64.
    redacted: String,
}

impl Decoder {
    pub(super) fn new(request: &Request) -> Self {
        Self {
            model: request.model.clone(),
            gather: ReplyBuilder::new(request),
            blocks: BTreeMap::new(),
            reasoning_bytes: 0,
            is_overflow: false,
            is_garbled: false,
        }
    }

    fn take(&mut self, event: &Value, deltas: &mut Vec<Delta>) -> Result<(), Error> {
        let Some((name, event)) = event.as_object().and_then(|event| event.iter().next()) else {
            return Ok(());
        };
        let index = event["contentBlockIndex"].as_u64().unwrap_or_default();
        match name.as_str() {
            "contentBlockStart" => self.begin_call(index, &event["start"]["toolUse"], deltas),
            "contentBlockDelta" => self.continue_block(index, &event["delta"], deltas),
            "messageStop" => {
                self.stop(event["stopReason"].as_str().unwrap_or_default());
                Ok(())
            }
            "metadata" => {
                self.usage(&event["usage"]);
                self.gather.done = self.gather.stop.is_some();
                Ok(())
            }
            name => match name.strip_prefix('!') {
                Some(exception) => Err(refusal::mid_stream(exception, event, &self.model)),
                None => Ok(()),
            },
        }
    }

    fn begin_call(
        &mut self,
        index: u64,
        call: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Error> {
        if !call.is_object() {
            return Ok(());
        }
        let at = self.gather.begin_call(call["toolUseId"].as_str().unwrap_or_default())?;
        self.gather.name_call(at, call["name"].as_str().unwrap_or_default(), deltas);
        self.blocks.insert(index, Block::Call(at));
        Ok(())
    }

    fn continue_block(
        &mut self,
        index: u64,
        delta: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Error> {
        if self.blocks.len() > MAX_BLOCKS {
            return Err(Error::TooLong { what: "blocks", limit: MAX_BLOCKS });
        }
        if let Some(text) = delta["text"].as_str() {
            if let Block::Text(length) = self.blocks.entry(index).or_insert(Block::Text(0)) {
                *length += text.len();
            }
            return self.gather.text(text, deltas);
        }
        if delta["toolUse"].is_object() {
            if let Some(Block::Call(at)) = self.blocks.get(&index) {
                return self.gather.input(*at, &delta["toolUse"]["input"]);
            }
            return Ok(());
        }
        let piece = &delta["reasoningContent"];
        if piece.is_object() {
            let new = || Block::Reasoning(Reasoning::default());
            if let Block::Reasoning(reasoning) = self.blocks.entry(index).or_insert_with(new) {
                let kept = [
                    (&mut reasoning.text, &piece["text"]),
                    (&mut reasoning.signature, &piece["signature"]),
                    (&mut reasoning.redacted, &piece["redactedContent"]),
                ];
                for (kept, piece) in kept {
                    let piece = piece.as_str().unwrap_or_default();
                    self.reasoning_bytes += piece.len();
                    // Reasoning beyond the limit is not carried, so it need not be kept.
                    if self.reasoning_bytes <= MAX_CARRY_BYTES {
                        kept.push_str(piece);
                    }
                }
            }
            self.gather.thought(piece["text"].as_str().unwrap_or_default(), deltas);
        }
        Ok(())
    }

    fn stop(&mut self, reason: &str) {
        self.is_overflow = reason == "model_context_window_exceeded";
        self.is_garbled = matches!(reason, "malformed_model_output" | "malformed_tool_use");
        self.gather.stop = Some(match reason {
            "max_tokens" | "model_context_window_exceeded" => StopReason::MaxTokens,
            "tool_use" => StopReason::ToolUse,
            "guardrail_intervened" | "content_filtered" => StopReason::Filtered,
            _ => StopReason::End,
        });
    }

    /// The input is without what was read from and written to the cache.
    fn usage(&mut self, usage: &Value) {
        let cached = count(usage, "/cacheReadInputTokens");
        self.gather.usage.input =
            count(usage, "/inputTokens") + cached + count(usage, "/cacheWriteInputTokens");
        self.gather.usage.cached = cached;
        self.gather.usage.output = count(usage, "/outputTokens");
    }

    /// Returns the signed reasoning and its positions, to be carried.
    fn carried_blocks(&self) -> Option<Value> {
        let is_signed = |block: &Block| matches!(block, Block::Reasoning(part) if !part.signature.is_empty() || !part.redacted.is_empty());
        if !self.blocks.values().any(is_signed) || self.reasoning_bytes > MAX_CARRY_BYTES {
            return None;
        }
        let items = self.blocks.values().filter_map(|block| match block {
            Block::Text(length) => Some(json!({ "text": length })),
            Block::Call(at) => Some(json!({ "call": self.gather.call_id(*at) })),
            Block::Reasoning(part) if !part.redacted.is_empty() => {
                Some(json!({ "reasoningContent": { "redactedContent": part.redacted } }))
            }
            Block::Reasoning(part) if !part.signature.is_empty() => Some(json!({
                "reasoningContent": {
                    "reasoningText": { "text": part.text, "signature": part.signature },
                },
            })),
            Block::Reasoning(_) => None,
        });
        carry::pack(API_NAME, &self.model.to_string(), items.collect())
    }
}

impl Decode for Decoder {
    fn push(&mut self, data: &[u8]) -> Result<Vec<Delta>, Error> {
        let mut deltas = Vec::new();
        self.take(&parse(data)?, &mut deltas)?;
        Ok(deltas)
    }

    /// A proxy that does not stream answers with a whole message.
    fn whole(&mut self, body: &[u8]) -> Result<Vec<Delta>, Error> {
        let answer = parse(body)?;
        let mut deltas = Vec::new();
        let content = answer["output"]["message"]["content"].as_array();
        for (index, block) in (0..).zip(content.into_iter().flatten()) {
            self.begin_call(index, &block["toolUse"], &mut deltas)?;
            let reasoning = &block["reasoningContent"];
            let delta = match reasoning.get("reasoningText") {
                Some(text) => json!({ "reasoningContent": text }),
                None => block.clone(),
            };
            self.continue_block(index, &delta, &mut deltas)?;
        }
        if let Some(reason) = answer["stopReason"].as_str() {
            self.stop(reason);
        }
        self.usage(&answer["usage"]);
        self.gather.done = content.is_some();
        Ok(deltas)
    }

    fn is_done(&self) -> bool {
        self.gather.done
    }

    fn has_stopped(&self) -> bool {
        self.gather.stop.is_some()
    }

    fn finish(mut self) -> Result<Reply, Error> {
        if self.is_garbled {
            return Err(Error::Malformed("its call of a tool"));
        }
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
pub(super) mod tests {
    use super::*;
    use crate::scripted_model::tests::request;

    /// Events of a reply with reasoning, text and a call, in the form of AWS's documentation.
    pub(crate) const EVENTS: [(&str, &str); 12] = [
        ("messageStart", r#"{"role":"assistant"}"#),
        (
            "contentBlockDelta",
            r#"{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"Let me "}}}"#,
        ),
        (
            "contentBlockDelta",
            r#"{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"see"}}}"#,
        ),
        (
            "contentBlockDelta",
            r#"{"contentBlockIndex":0,"delta":{"reasoningContent":{"signature":"EqQB"}}}"#,
        ),
        ("contentBlockStop", r#"{"contentBlockIndex":0}"#),
        ("contentBlockDelta", r#"{"contentBlockIndex":1,"delta":{"text":"Grüße"}}"#),
        (
            "contentBlockStart",
            r#"{"contentBlockIndex":2,"start":{"toolUse":{"toolUseId":"tooluse_a","name":"recall"}}}"#,
        ),
        (
            "contentBlockDelta",
            r#"{"contentBlockIndex":2,"delta":{"toolUse":{"input":"{\"query\":"}}}"#,
        ),
        (
            "contentBlockDelta",
            r#"{"contentBlockIndex":2,"delta":{"toolUse":{"input":"\"tea\"}"}}}"#,
        ),
        ("contentBlockStop", r#"{"contentBlockIndex":2}"#),
        ("messageStop", r#"{"stopReason":"tool_use"}"#),
        (
            "metadata",
            r#"{"usage":{"inputTokens":20,"outputTokens":9,"totalTokens":159,"cacheReadInputTokens":100,"cacheWriteInputTokens":30},"metrics":{"latencyMs":5}}"#,
        ),
    ];

    fn decode(events: &[(&str, &str)]) -> Result<Reply, Error> {
        let mut decoder = Decoder::new(&request());
        for (name, event) in events {
            decoder.push(format!("{{\"{name}\":{event}}}").as_bytes())?;
        }
        decoder.finish()
    }

    #[test]
    fn a_reply_has_its_text_call_reasoning_and_usage() {
        let reply = decode(&EVENTS).unwrap();

        assert_eq!((reply.text.as_str(), reply.thinking.as_str()), ("Grüße", "Let me see"));
        assert_eq!(
            (reply.calls[0].id.as_str(), reply.calls[0].tool.as_str()),
            ("tooluse_a", "recall")
        );
        assert_eq!(reply.calls[0].input, r#"{"query":"tea"}"#);
        assert_eq!((reply.usage.input, reply.usage.cached, reply.usage.output), (150, 100, 9));
        assert_eq!(reply.stop, StopReason::ToolUse);
        assert_eq!(
            reply.carry.unwrap()["items"],
            json!([
                { "reasoningContent": { "reasoningText": { "text": "Let me see", "signature": "EqQB" } } },
                { "text": 7 },
                { "call": "tooluse_a" },
            ])
        );
    }

    #[test]
    fn an_exception_within_the_stream_says_who_can_do_something() {
        let class = |name: &str, message: &str| {
            let body = json!({ "message": message, "originalStatusCode": 500 }).to_string();
            let events = [EVENTS[5], (name, body.as_str())];
            decode(&events).unwrap_err().class()
        };

        assert_eq!(class("!throttlingException", "Too many requests"), "rate_limited");
        assert_eq!(class("!modelStreamErrorException", "no"), "unavailable");
        assert_eq!(class("!internalServerException", "no"), "unavailable");
        assert_eq!(class("!validationException", "no"), "bad_request");
        assert_eq!(
            class("!validationException", "Input is too long for requested model."),
            "context_overflow"
        );
    }

    #[test]
    fn a_stream_that_breaks_off_or_is_filtered_is_no_answer() {
        assert!(matches!(decode(&EVENTS[..6]), Err(Error::Interrupted)));
        let filtered = [("messageStop", r#"{"stopReason":"guardrail_intervened"}"#)];
        assert!(matches!(decode(&filtered), Err(Error::Filtered)));
    }

    #[test]
    fn a_whole_message_is_read_too() {
        let body = json!({
            "output": { "message": { "role": "assistant", "content": [
                { "reasoningContent": { "reasoningText": { "text": "hm", "signature": "s" } } },
                { "text": "hi" },
                { "toolUse": { "toolUseId": "t1", "name": "recall", "input": { "a": 1 } } },
            ] } },
            "stopReason": "tool_use",
            "usage": { "inputTokens": 3, "outputTokens": 4 },
        });
        let mut decoder = Decoder::new(&request());
        decoder.whole(body.to_string().as_bytes()).unwrap();
        let reply = decoder.finish().unwrap();

        assert_eq!((reply.text.as_str(), reply.thinking.as_str()), ("hi", "hm"));
        assert_eq!(reply.calls[0].input, r#"{"a":1}"#);
        assert_eq!(reply.usage.output, 4);
    }
}
