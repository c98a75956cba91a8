//! Google's generateContent, streamed.

use axum::body::Bytes;
use serde_json::{Value, json};

use super::{Message, OpenCalls, assistant, call, signature, tool};
use crate::model::wire::{pieces, text};

pub(super) fn chat_form(body: &Value) -> Value {
    let mut messages = Vec::new();
    let mut open = OpenCalls::default();
    let system = text(&body["systemInstruction"]["parts"]);
    if !system.is_empty() {
        messages.push(json!({"role": "system", "content": system}));
    }
    for content in body["contents"].as_array().into_iter().flatten() {
        let parts = content["parts"].as_array().map_or(&[][..], Vec::as_slice);
        let said = text(&content["parts"]);
        if content["role"] == "model" {
            let functions = parts.iter().map(|part| &part["functionCall"]);
            let calls = functions.filter(|function| function.is_object()).map(|function| {
                let name = function["name"].as_str().unwrap_or_default();
                let id = open.begin(name, function["id"].as_str());
                call(&id, &function["name"], function["args"].to_string())
            });
            messages.push(assistant(&said, calls.collect()));
            continue;
        }
        let results = parts.iter().map(|part| &part["functionResponse"]);
        for result in results.filter(|result| result.is_object()) {
            let name = result["name"].as_str().unwrap_or_default();
            let id = open.result_of(name, result["id"].as_str());
            let content = result["response"].to_string();
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
        }
        let own: Vec<&Value> =
            parts.iter().filter(|part| !part["functionResponse"].is_object()).collect();
        if !own.is_empty() {
            messages.push(json!({"role": "user", "content": own}));
        }
    }
    let declared = body["tools"].as_array().into_iter().flatten();
    let tools =
        declared.flat_map(|one| one["functionDeclarations"].as_array().into_iter().flatten());
    let tools: Vec<Value> =
        tools.map(|one| tool(&one["name"], &one["parametersJsonSchema"])).collect();
    json!({"stream": true, "messages": messages, "tools": tools})
}

/// The signature of a call, which covers what is called.
pub(in crate::model) fn call_signature(name: &str, arguments: &Value) -> String {
    signature(&format!("{name} {arguments}"))
}

/// Whether calls have ids.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CallIds {
    Given,
    /// Vertex AI gives none.
    None,
}

pub(super) fn events(message: &Message<'_>, ids: CallIds) -> Vec<Bytes> {
    let mut parts = Vec::new();
    if !message.reasoning.is_empty() {
        parts.push(json!({"text": message.reasoning, "thought": true}));
    }
    parts.extend(pieces(message.text, message.pieces).iter().map(|piece| json!({"text": piece})));
    for (at, call) in message.calls.iter().enumerate() {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
        let mut function = json!({"name": call.name, "args": arguments});
        if ids == CallIds::Given {
            function["id"] = call.id.as_str().into();
        }
        let mut part = json!({ "functionCall": function });
        // Of calls side by side the first is signed.
        if at == 0 {
            part["thoughtSignature"] = call_signature(&call.name, &arguments).into();
        }
        parts.push(part);
    }
    let mut events: Vec<Value> = parts
        .into_iter()
        .map(|part| json!({"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}]}))
        .collect();
    let usage = message.usage;
    events.push(json!({
        "candidates": [{
            "content": {"parts": [{"text": ""}], "role": "model"}, "index": 0,
            "finishReason": message.finish.unwrap_or("STOP"),
        }],
        "usageMetadata": {
            "promptTokenCount": usage.prompt, "cachedContentTokenCount": usage.cached,
            "candidatesTokenCount": usage.completion,
            "totalTokenCount": usage.prompt + usage.completion,
        },
        "responseId": format!("response-{}", message.number),
    }));
    events.iter().map(|event| Bytes::from(format!("data: {event}\n\n"))).collect()
}
