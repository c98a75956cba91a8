//! Amazon Bedrock's Converse API, streamed in frames of `application/vnd.amazon.eventstream`
//! (<https://smithy.io/2.0/aws/amazon-eventstream.html>).

use axum::body::Bytes;
use serde_json::{Value, json};

use super::{Message, assistant, call, signature, tool};
use crate::model::wire::{MAX_TEXT_CHUNKS, pieces, text};

/// Type of a header's value that is a text.
const STRING: u8 = 7;
/// Lengths and checksums of a frame, in bytes.
const PRELUDE_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 4;

pub(super) fn chat_form(body: &Value) -> Value {
    let mut messages = Vec::new();
    let system = text(&body["system"]);
    if !system.is_empty() {
        messages.push(json!({"role": "system", "content": system}));
    }
    for message in body["messages"].as_array().into_iter().flatten() {
        let blocks = message["content"].as_array().map_or(&[][..], Vec::as_slice);
        if message["role"] == "assistant" {
            let calls = blocks.iter().map(|block| &block["toolUse"]).filter(|one| one.is_object());
            let calls = calls.map(|one| {
                let id = one["toolUseId"].as_str().unwrap_or_default();
                call(id, &one["name"], one["input"].to_string())
            });
            messages.push(assistant(&text(&message["content"]), calls.collect()));
            continue;
        }
        let (results, said): (Vec<&Value>, Vec<&Value>) =
            blocks.iter().partition(|block| block["toolResult"].is_object());
        messages.extend(results.into_iter().map(|block| {
            let result = &block["toolResult"];
            let content = text(&result["content"]);
            json!({"role": "tool", "tool_call_id": result["toolUseId"], "content": content})
        }));
        if !said.is_empty() {
            messages.push(json!({"role": "user", "content": said}));
        }
    }
    let specs = body["toolConfig"]["tools"].as_array().into_iter().flatten();
    let specs = specs.map(|one| &one["toolSpec"]).filter(|spec| spec.is_object());
    let tools: Vec<Value> =
        specs.map(|spec| tool(&spec["name"], &spec["inputSchema"]["json"])).collect();
    json!({"stream": true, "messages": messages, "tools": tools})
}

pub(super) fn events(message: &Message<'_>) -> Vec<Bytes> {
    let mut events = vec![("messageStart", json!({"role": "assistant"}))];
    let mut index = 0;
    let mut block = |start: Option<Value>, deltas: Vec<Value>| {
        // Only calls have a beginning.
        events.extend(start.map(|start| {
            ("contentBlockStart", json!({"contentBlockIndex": index, "start": start}))
        }));
        events.extend(deltas.into_iter().map(|delta| {
            ("contentBlockDelta", json!({"contentBlockIndex": index, "delta": delta}))
        }));
        events.push(("contentBlockStop", json!({"contentBlockIndex": index})));
        index += 1;
    };
    if !message.reasoning.is_empty() {
        let signed = signature(message.reasoning);
        block(
            None,
            vec![
                json!({"reasoningContent": {"text": message.reasoning}}),
                json!({"reasoningContent": {"signature": signed}}),
            ],
        );
    }
    if !message.text.is_empty() {
        let deltas = pieces(message.text, message.pieces);
        block(None, deltas.into_iter().map(|piece| json!({"text": piece})).collect());
    }
    for call in message.calls {
        let start = json!({"toolUse": {"toolUseId": call.id, "name": call.name}});
        let deltas = pieces(&call.arguments, MAX_TEXT_CHUNKS);
        let delta = |piece| json!({"toolUse": {"input": piece}});
        block(Some(start), deltas.into_iter().map(delta).collect());
    }
    let own = if message.calls.is_empty() { "end_turn" } else { "tool_use" };
    let usage = message.usage;
    events.push(("messageStop", json!({"stopReason": message.finish.unwrap_or(own)})));
    events.push((
        "metadata",
        json!({"metrics": {"latencyMs": 5}, "usage": {
            "inputTokens": usage.prompt.saturating_sub(usage.cached),
            "outputTokens": usage.completion,
            "totalTokens": usage.prompt + usage.completion,
            "cacheReadInputTokens": usage.cached, "cacheWriteInputTokens": 0,
        }}),
    ));
    events.iter().map(|(name, payload)| frame(name, &payload.to_string())).collect()
}

/// A frame with an event.
fn frame(event: &str, payload: &str) -> Bytes {
    let mut headers = Vec::new();
    let texts =
        [(":event-type", event), (":content-type", "application/json"), (":message-type", "event")];
    for (name, value) in texts {
        headers.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        headers.extend_from_slice(name.as_bytes());
        headers.push(STRING);
        headers.extend_from_slice(&u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    let whole = PRELUDE_BYTES + headers.len() + payload.len() + CHECKSUM_BYTES;
    let mut frame = Vec::with_capacity(whole);
    frame.extend_from_slice(&length(whole));
    frame.extend_from_slice(&length(headers.len()));
    frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
    frame.extend_from_slice(&headers);
    frame.extend_from_slice(payload.as_bytes());
    frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
    frame.into()
}
