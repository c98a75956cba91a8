//! Ollama's own chat API.

use axum::body::Bytes;
use serde_json::{Value, json};

use super::{Message, OpenCalls, assistant, call, tool};
use crate::model::wire::pieces;

pub(super) fn chat_form(body: &Value) -> Value {
    let mut open = OpenCalls::default();
    let messages = body["messages"].as_array().into_iter().flatten().map(|message| {
        let said = message["content"].as_str().unwrap_or_default();
        match message["role"].as_str() {
            Some("assistant") => {
                let calls = message["tool_calls"].as_array().into_iter().flatten().map(|one| {
                    let function = &one["function"];
                    let id = open.begin(function["name"].as_str().unwrap_or_default(), None);
                    call(&id, &function["name"], function["arguments"].to_string())
                });
                assistant(said, calls.collect())
            }
            Some("tool") => {
                let id = open.result_of(message["tool_name"].as_str().unwrap_or_default(), None);
                json!({"role": "tool", "tool_call_id": id, "content": said})
            }
            Some(_) | None => json!({"role": message["role"], "content": said}),
        }
    });
    let messages: Vec<Value> = messages.collect();
    let tools = body["tools"].as_array().into_iter().flatten();
    let tools: Vec<Value> =
        tools.map(|one| tool(&one["function"]["name"], &one["function"]["parameters"])).collect();
    json!({"stream": true, "messages": messages, "tools": tools})
}

pub(super) fn events(message: &Message<'_>) -> Vec<Bytes> {
    let line = |message: Value| json!({"model": "fake", "message": message, "done": false});
    let mut lines = Vec::new();
    if !message.reasoning.is_empty() {
        let thought = message.reasoning;
        lines.push(line(json!({"role": "assistant", "content": "", "thinking": thought})));
    }
    for piece in pieces(message.text, message.pieces) {
        lines.push(line(json!({"role": "assistant", "content": piece})));
    }
    let call = |call: &crate::model::ToolCall| {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
        json!({"function": {"name": call.name, "arguments": arguments}})
    };
    if !message.calls.is_empty() {
        let calls: Vec<Value> = message.calls.iter().map(call).collect();
        lines.push(line(json!({"role": "assistant", "content": "", "tool_calls": calls})));
    }
    lines.push(json!({
        "model": "fake", "message": {"role": "assistant", "content": ""}, "done": true,
        "done_reason": message.finish.unwrap_or("stop"),
        "prompt_eval_count": message.usage.prompt, "eval_count": message.usage.completion,
    }));
    lines.iter().map(|line| Bytes::from(format!("{line}\n"))).collect()
}
