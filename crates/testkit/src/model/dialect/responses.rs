//! OpenAI's Responses API.

use axum::body::Bytes;
use serde_json::{Value, json};

use super::{Message, assistant, call, signature, tool, typed_event};
use crate::model::wire::{MAX_TEXT_CHUNKS, pieces, text};

pub(super) fn chat_form(body: &Value) -> Value {
    let mut messages = Vec::new();
    if let Some(told) = body["instructions"].as_str() {
        messages.push(json!({"role": "system", "content": told}));
    }
    let mut said = String::new();
    let mut calls = Vec::new();
    let mut is_open = false;
    for item in body["input"].as_array().into_iter().flatten() {
        let is_assistant = item["role"] == "assistant" || item["type"] == "function_call";
        if is_open && !is_assistant && item["type"] != "reasoning" {
            messages.push(assistant(&std::mem::take(&mut said), std::mem::take(&mut calls)));
            is_open = false;
        }
        match (item["type"].as_str(), item["role"].as_str()) {
            (Some("function_call"), _) => {
                let id = item["call_id"].as_str().unwrap_or_default();
                let arguments = item["arguments"].as_str().unwrap_or_default();
                calls.push(call(id, &item["name"], arguments.to_owned()));
            }
            (Some("function_call_output"), _) => messages.push(json!({
                "role": "tool", "tool_call_id": item["call_id"], "content": item["output"],
            })),
            (_, Some("assistant")) => said.push_str(&text(&item["content"])),
            (_, Some(role)) => messages.push(json!({"role": role, "content": item["content"]})),
            (_, None) => {}
        }
        is_open |= is_assistant;
    }
    if is_open {
        messages.push(assistant(&said, calls));
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    let tools: Vec<Value> = tools.map(|one| tool(&one["name"], &one["parameters"])).collect();
    json!({"stream": true, "messages": messages, "tools": tools})
}

pub(super) fn events(message: &Message<'_>) -> Vec<Bytes> {
    let number = message.number;
    let id = format!("resp_{number}");
    let mut events = vec![json!({
        "type": "response.created", "response": {"id": id, "status": "in_progress", "output": []},
    })];
    let mut output = 0;
    let mut item = |added: Value, deltas: Vec<Value>, done: Value| {
        events.push(json!({
            "type": "response.output_item.added", "output_index": output, "item": added,
        }));
        events.extend(deltas.into_iter().map(|mut delta| {
            delta["output_index"] = output.into();
            delta
        }));
        events.push(json!({
            "type": "response.output_item.done", "output_index": output, "item": done,
        }));
        output += 1;
    };
    if !message.reasoning.is_empty() {
        let id = format!("rs_{number}");
        let sealed = signature(&id);
        let done = json!({
            "type": "reasoning", "id": id, "summary": [], "encrypted_content": sealed,
        });
        item(json!({"type": "reasoning", "id": id, "summary": []}), Vec::new(), done);
    }
    if !message.text.is_empty() {
        let delta = |piece| json!({"type": "response.output_text.delta", "delta": piece});
        let content = json!([{"type": "output_text", "text": message.text, "annotations": []}]);
        item(
            json!({"type": "message", "id": format!("msg_{number}"), "role": "assistant", "content": []}),
            pieces(message.text, message.pieces).into_iter().map(delta).collect(),
            json!({"type": "message", "id": format!("msg_{number}"), "role": "assistant", "content": content}),
        );
    }
    for call in message.calls {
        let form = |arguments: &str| {
            json!({"type": "function_call", "id": format!("fc_{}", call.id), "call_id": call.id,
                   "name": call.name, "arguments": arguments})
        };
        let delta =
            |piece| json!({"type": "response.function_call_arguments.delta", "delta": piece});
        let deltas = pieces(&call.arguments, MAX_TEXT_CHUNKS).into_iter().map(delta).collect();
        item(form(""), deltas, form(&call.arguments));
    }
    let usage = message.usage;
    let mut response = json!({"id": id, "status": "completed", "usage": {
        "input_tokens": usage.prompt, "output_tokens": usage.completion,
        "input_tokens_details": {"cached_tokens": usage.cached},
    }});
    let kind = match message.finish {
        Some(reason) => {
            response["status"] = "incomplete".into();
            response["incomplete_details"] = json!({ "reason": reason });
            "response.incomplete"
        }
        None => "response.completed",
    };
    events.push(json!({ "type": kind, "response": response }));
    events.iter().map(typed_event).collect()
}
