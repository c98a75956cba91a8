//! From a request to the body that is sent.
//!
//! Results are told apart by their order and their tools' names: Ollama has no ids.

use std::collections::BTreeMap;

use holdfast_types::{ChatMessage, Image, ImageData, Thinking, ToolCall};
use serde_json::{Value, json};

use super::API;
use crate::{
    Request, carry,
    catalogue::{By, Card},
    words::{name, object, outcome, told, unseen},
};

/// Builds the body of a request.
pub(super) fn encode(request: &Request) -> Value {
    let (chat, card) = (&request.chat, request.card());
    let mut body = json!({
        "model": request.model.id(),
        "messages": messages(request, card),
        "stream": true,
        // Else what does not fit is left out, and nobody is told.
        "truncate": false,
    });
    if !chat.tools.is_empty() {
        let tool = |tool: &holdfast_types::ToolSpec| {
            json!({
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.input,
                },
            })
        };
        body["tools"] = chat.tools.iter().map(tool).collect();
    }
    if let Some(think) = think(request.thinking, card) {
        body["think"] = think;
    }
    if let Some(most) = request.max_output {
        body["options"]["num_predict"] = most.into();
    }
    // How much is read takes memory. Only who runs the server knows how much that may be.
    if let Some(card) = &request.card {
        body["options"]["num_ctx"] = card.context.into();
    }
    body
}

/// How much to think, in the way that this model takes; others refuse to be told.
fn think(level: Thinking, card: &Card) -> Option<Value> {
    match (card.thinking.by, level) {
        (By::Switch, level) => Some((level != Thinking::Off).into()),
        (By::Effort, Thinking::Off) => card.thinking.off.as_deref().map(Value::from),
        (By::Effort, level) => Some(level.as_str().into()),
        (By::No | By::Budget | By::Adaptive | By::Marks, _) => None,
    }
}

fn messages(request: &Request, card: &Card) -> Vec<Value> {
    let chat = &request.chat;
    let mut messages = Vec::with_capacity(chat.messages.len() + 1);
    let told = told(&chat.stable, &chat.dynamic);
    if !told.is_empty() {
        messages.push(json!({ "role": "system", "content": told }));
    }
    // What the newest reply's calls are of.
    let mut tools: BTreeMap<&str, &str> = BTreeMap::new();
    for message in &chat.messages {
        messages.push(match message {
            ChatMessage::User { text, images } => said(text, images, card),
            ChatMessage::Tool { call, output, failed } => {
                let tool = tools.get(call.as_str()).copied().unwrap_or_default();
                json!({
                    "role": "tool",
                    "tool_name": name(tool),
                    "content": outcome(output, *failed),
                })
            }
            ChatMessage::Assistant { text, calls, carry } => {
                tools = calls.iter().map(|call| (call.id.as_str(), call.tool.as_str())).collect();
                let carried = carry::unpack(carry.as_ref(), API, &request.model);
                spoken(text, calls, carried.unwrap_or_default())
            }
        });
    }
    messages
}

/// Pictures must be here: the server fetches none.
fn said(text: &str, images: &[Image], card: &Card) -> Value {
    let mut message = json!({ "role": "user", "content": text });
    let shown: Vec<&str> = images
        .iter()
        .filter(|_| card.images)
        .filter_map(|image| match &image.data {
            ImageData::Base64(data) => Some(data.as_str()),
            ImageData::Url(_) => None,
        })
        .collect();
    let hidden = images.len() - shown.len();
    if hidden > 0 {
        message["content"] = format!("{text}\n{}", unseen(hidden)).trim_start().into();
    }
    if !shown.is_empty() {
        message["images"] = shown.into();
    }
    message
}

fn spoken(text: &str, calls: &[ToolCall], carried: &[Value]) -> Value {
    let mut message = json!({ "role": "assistant", "content": text });
    if let Some(thinking) = carried.iter().find_map(|item| item["thinking"].as_str()) {
        message["thinking"] = thinking.into();
    }
    if !calls.is_empty() {
        let call = |call: &ToolCall| json!({ "function": { "name": name(&call.tool), "arguments": object(&call.input) } });
        message["tool_calls"] = calls.iter().map(call).collect();
    }
    message
}

#[cfg(test)]
mod tests;
