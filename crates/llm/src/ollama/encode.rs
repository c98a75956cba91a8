//! Encoder of Ollama's request body.
//!
//! Ollama has no call ids: results are matched by order and tool name.

use std::collections::BTreeMap;

use holdfast_types::{AnswerFormat, ChatMessage, Image, ImageData, Thinking, ToolCall};
use serde_json::{Map, Value, json};

use super::API_NAME;
use crate::{
    Request, carry,
    catalogue::{ModelCard, ThinkingForm},
    model::OptionNames,
    wire_text::{image_placeholder, object, outcome, system_prompt, tool_name, tool_schema},
};

/// Names of what a client may ask for.
pub(super) const OPTIONS: OptionNames = OptionNames {
    top_p: Some("top_p"),
    stop: Some("stop"),
    seed: Some("seed"),
    frequency_penalty: Some("frequency_penalty"),
    presence_penalty: Some("presence_penalty"),
    has_effort: false,
    has_tool_choice: false,
};

pub(super) fn encode(request: &Request) -> Value {
    let (chat, card) = (&request.chat, request.card());
    let mut body = json!({
        "model": request.model.id(),
        "messages": messages(request, card),
        "stream": true,
        // The default truncates the conversation silently.
        "truncate": false,
    });
    if !chat.tools.is_empty() {
        let tool = |tool: &holdfast_types::ToolSpec| {
            json!({
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool_schema(&tool.input),
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
    if let Some(temperature) = request.accepted_temperature() {
        body["options"]["temperature"] = temperature.into();
    }
    let mut asked = Map::new();
    request.write_options(&OPTIONS, &mut asked);
    for (name, value) in asked {
        body["options"][name] = value;
    }
    // With a form the server lets the model write nothing else, so it could call no tool.
    if let Some(format) = request.format().filter(|_| chat.tools.is_empty()) {
        body["format"] = match format {
            AnswerFormat::JsonObject => "json".into(),
            AnswerFormat::JsonSchema(named) => named.schema.as_value().clone(),
        };
    }
    // The context window costs memory on the server, so it is set only if the tenant configured it.
    if let Some(card) = &request.card {
        body["options"]["num_ctx"] = card.context.into();
    }
    body
}

/// Returns the thinking level in the form that the model takes; other models refuse the field.
fn think(level: Thinking, card: &ModelCard) -> Option<Value> {
    match (card.thinking.by, level) {
        (ThinkingForm::Switch, level) => Some((level != Thinking::Off).into()),
        (ThinkingForm::Effort, Thinking::Off) => card.thinking.off.as_deref().map(Value::from),
        (ThinkingForm::Effort, level) => Some(level.as_str().into()),
        (
            ThinkingForm::No | ThinkingForm::Budget | ThinkingForm::Adaptive | ThinkingForm::Marks,
            _,
        ) => None,
    }
}

fn messages(request: &Request, card: &ModelCard) -> Vec<Value> {
    let chat = &request.chat;
    let mut messages = Vec::with_capacity(chat.messages.len() + 1);
    let told = system_prompt(&chat.stable, &chat.dynamic);
    if !told.is_empty() {
        messages.push(json!({ "role": "system", "content": told }));
    }
    // Tools of the newest reply's calls, by call id.
    let mut tools: BTreeMap<&str, &str> = BTreeMap::new();
    for message in &chat.messages {
        messages.push(match message {
            ChatMessage::User { text, images } => user_message(text, images, card),
            ChatMessage::Tool { call, output, failed } => {
                let tool = tools.get(call.as_str()).copied().unwrap_or_default();
                json!({
                    "role": "tool",
                    "tool_name": tool_name(tool),
                    "content": outcome(output, *failed),
                })
            }
            ChatMessage::Assistant { text, calls, carry } => {
                tools = calls.iter().map(|call| (call.id.as_str(), call.tool.as_str())).collect();
                let carried = carry::unpack(carry.as_ref(), API_NAME, &request.model);
                assistant_message(text, calls, carried.unwrap_or_default())
            }
        });
    }
    messages
}

/// Only inline images are sent: the server fetches no URLs.
fn user_message(text: &str, images: &[Image], card: &ModelCard) -> Value {
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
        message["content"] = format!("{text}\n{}", image_placeholder(hidden)).trim_start().into();
    }
    if !shown.is_empty() {
        message["images"] = shown.into();
    }
    message
}

fn assistant_message(text: &str, calls: &[ToolCall], carried: &[Value]) -> Value {
    let mut message = json!({ "role": "assistant", "content": text });
    if let Some(thinking) = carried.iter().find_map(|item| item["thinking"].as_str()) {
        message["thinking"] = thinking.into();
    }
    if !calls.is_empty() {
        let call = |call: &ToolCall| json!({ "function": { "name": tool_name(&call.tool), "arguments": object(&call.input) } });
        message["tool_calls"] = calls.iter().map(call).collect();
    }
    message
}

#[cfg(test)]
mod tests;
