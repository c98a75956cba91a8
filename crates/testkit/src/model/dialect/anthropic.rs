//! Anthropic's Messages API.

use axum::body::Bytes;
use serde_json::{Value, json};

use super::{Message, assistant, call, signature, tool, typed_event};
use crate::model::wire::{MAX_TEXT_CHUNKS, pieces, text};

pub(super) fn chat_form(body: &Value) -> Value {
    let mut messages = Vec::new();
    let system = text(&body["system"]);
    if !system.is_empty() {
        messages.push(json!({"role": "system", "content": system}));
    }
    for message in body["messages"].as_array().into_iter().flatten() {
        let blocks = message["content"].as_array().map_or(&[][..], Vec::as_slice);
        if message["role"] == "assistant" {
            let calls = blocks.iter().filter(|block| block["type"] == "tool_use").map(|block| {
                let id = block["id"].as_str().unwrap_or_default();
                call(id, &block["name"], block["input"].to_string())
            });
            messages.push(assistant(&text(&message["content"]), calls.collect()));
            continue;
        }
        let (results, said): (Vec<&Value>, Vec<&Value>) =
            blocks.iter().partition(|block| block["type"] == "tool_result");
        messages.extend(results.into_iter().map(|block| {
            let content = text(&block["content"]);
            json!({"role": "tool", "tool_call_id": block["tool_use_id"], "content": content})
        }));
        if !said.is_empty() {
            messages.push(json!({"role": "user", "content": said}));
        }
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    let tools: Vec<Value> = tools.map(|one| tool(&one["name"], &one["input_schema"])).collect();
    json!({"stream": true, "messages": messages, "tools": tools})
}

pub(super) fn events(message: &Message<'_>) -> Vec<Bytes> {
    let usage = message.usage;
    let fresh = usage.prompt.saturating_sub(usage.cached);
    let mut events = vec![json!({"type": "message_start", "message": {
        "id": format!("msg_{}", message.number), "type": "message", "role": "assistant",
        "content": [], "stop_reason": null, "usage": {
            "input_tokens": fresh, "cache_read_input_tokens": usage.cached,
            "cache_creation_input_tokens": 0, "output_tokens": 1},
    }})];
    let mut index = 0;
    let mut block = |start: Value, deltas: Vec<Value>| {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        events.extend(
            deltas.into_iter().map(
                |delta| json!({"type": "content_block_delta", "index": index, "delta": delta}),
            ),
        );
        events.push(json!({"type": "content_block_stop", "index": index}));
        index += 1;
    };
    if !message.reasoning.is_empty() {
        block(
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            vec![
                json!({"type": "thinking_delta", "thinking": message.reasoning}),
                json!({"type": "signature_delta", "signature": signature(message.reasoning)}),
            ],
        );
    }
    if !message.text.is_empty() {
        let delta = |piece| json!({"type": "text_delta", "text": piece});
        let deltas = pieces(message.text, message.pieces).into_iter().map(delta).collect();
        block(json!({"type": "text", "text": ""}), deltas);
    }
    for call in message.calls {
        let delta = |piece| json!({"type": "input_json_delta", "partial_json": piece});
        let deltas = pieces(&call.arguments, MAX_TEXT_CHUNKS).into_iter().map(delta).collect();
        let start = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
        block(start, deltas);
    }
    let own = if message.calls.is_empty() { "end_turn" } else { "tool_use" };
    events.push(json!({
        "type": "message_delta", "usage": {"output_tokens": usage.completion},
        "delta": {"stop_reason": message.finish.unwrap_or(own), "stop_sequence": null},
    }));
    events.push(json!({"type": "message_stop"}));
    events.iter().map(typed_event).collect()
}
