//! Encoder of Gemini's request body.
//!
//! | request | body |
//! |---|---|
//! | a call | a `functionCall` with its carried signature, or with a placeholder |
//! | results of one reply | one content right after the reply; later user messages in the next |
//!
//! Parts that seldom change come first. The provider decides what is cached.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_types::{AnswerFormat, ChatMessage, Image, ImageData, Thinking, ToolCall, ToolChoice};
use serde_json::{Map, Value, json};

use super::API_NAME;
use crate::{
    Request,
    carry::{self, ReplyPart, reply_parts},
    catalogue::{ModelCard, ThinkingForm},
    model::OptionNames,
    wire_text::{EMPTY_TEXT, image_placeholder, object, system_prompt, tool_name, tool_schema},
};

/// Placeholder for the signature of a call that another model made.
const SIGNATURE_PLACEHOLDER: &str = "skip_thought_signature_validator";

/// Names of what a client may ask for.
pub(super) const OPTIONS: OptionNames = OptionNames {
    top_p: Some("topP"),
    stop: Some("stopSequences"),
    seed: Some("seed"),
    frequency_penalty: Some("frequencyPenalty"),
    presence_penalty: Some("presencePenalty"),
    has_effort: false,
    has_tool_choice: true,
};

pub(super) fn encode(request: &Request) -> Value {
    let (chat, card) = (&request.chat, request.card());
    let mut body = json!({ "contents": contents(request, card) });
    let told = system_prompt(&chat.stable, &chat.dynamic);
    if !told.is_empty() {
        body["systemInstruction"] = json!({ "parts": [{ "text": told }] });
    }
    if !chat.tools.is_empty() {
        let tool = |tool: &holdfast_types::ToolSpec| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "parametersJsonSchema": tool_schema(&tool.input),
            })
        };
        let tools: Value = chat.tools.iter().map(tool).collect();
        body["tools"] = json!([{ "functionDeclarations": tools }]);
    }
    if let Some(choice) = request.forced_call() {
        let calling = &mut body["toolConfig"]["functionCallingConfig"];
        calling["mode"] = "ANY".into();
        if let ToolChoice::Function(name) = choice {
            calling["allowedFunctionNames"] = json!([name]);
        }
    }
    if let Some(most) = request.max_output {
        body["generationConfig"]["maxOutputTokens"] = most.into();
    }
    if let Some(temperature) = request.accepted_temperature() {
        body["generationConfig"]["temperature"] = temperature.into();
    }
    let mut asked = Map::new();
    request.write_options(&OPTIONS, &mut asked);
    for (name, value) in asked {
        body["generationConfig"][name] = value;
    }
    // Models whose thinking is a budget refuse a form beside tools.
    let takes_form = chat.tools.is_empty() || card.thinking.by == ThinkingForm::Effort;
    if let Some(format) = request.format().filter(|_| takes_form) {
        body["generationConfig"]["responseMimeType"] = "application/json".into();
        if let AnswerFormat::JsonSchema(named) = format {
            body["generationConfig"]["responseJsonSchema"] = named.schema.as_value().clone();
        }
    }
    if let Some(mut thinking) = thinking(request.thinking, card) {
        if request.shows_thinking && request.thinking != Thinking::Off {
            thinking["includeThoughts"] = true.into();
        }
        body["generationConfig"]["thinkingConfig"] = thinking;
    }
    body
}

/// Returns the thinking level in the form that the model takes.
fn thinking(level: Thinking, card: &ModelCard) -> Option<Value> {
    let off = card.thinking.off.as_deref();
    match (card.thinking.by, level) {
        (ThinkingForm::Effort, Thinking::Off) => off.map(|word| json!({ "thinkingLevel": word })),
        (ThinkingForm::Effort, level) => Some(json!({ "thinkingLevel": level.as_str() })),
        (ThinkingForm::Budget, Thinking::Off) => {
            let least: u32 = off?.parse().ok()?;
            Some(json!({ "thinkingBudget": least }))
        }
        (ThinkingForm::Budget, Thinking::Low) => Some(json!({ "thinkingBudget": 1_024 })),
        (ThinkingForm::Budget, Thinking::Medium) => Some(json!({ "thinkingBudget": 8_192 })),
        (ThinkingForm::Budget, Thinking::High) => Some(json!({ "thinkingBudget": 24_576 })),
        (
            ThinkingForm::No | ThinkingForm::Adaptive | ThinkingForm::Switch | ThinkingForm::Marks,
            _,
        ) => None,
    }
}

/// Calls of the newest reply: their tools, and the ids that the provider assigned.
#[derive(Default)]
struct NewestCalls<'c> {
    tools: BTreeMap<&'c str, &'c str>,
    given: BTreeSet<&'c str>,
}

fn contents(request: &Request, card: &ModelCard) -> Vec<Value> {
    let mut contents: Vec<Value> = Vec::new();
    let mut asked = NewestCalls::default();
    let mut results: Vec<Value> = Vec::new();
    for message in &request.chat.messages {
        if let ChatMessage::Tool { call, output, failed } = message {
            results.push(result(call, output, *failed, &asked));
            continue;
        }
        flush(&mut results, &mut contents);
        match message {
            ChatMessage::User { text, images } => {
                contents.push(json!({ "role": "user", "parts": user_parts(text, images, card) }));
            }
            ChatMessage::Assistant { text, calls, carry } => {
                let carried = carry::unpack(carry.as_ref(), API_NAME, &request.model);
                let carried = carried.unwrap_or_default();
                asked = NewestCalls {
                    tools: calls
                        .iter()
                        .map(|call| (call.id.as_str(), call.tool.as_str()))
                        .collect(),
                    given: carried
                        .iter()
                        .filter(|item| item["is_given"] == true)
                        .filter_map(|item| item["call"].as_str())
                        .collect(),
                };
                let parts = assistant_parts(text, calls, carried, card, &asked);
                push_model_turn(&mut contents, parts);
            }
            ChatMessage::Tool { .. } => {}
        }
    }
    flush(&mut results, &mut contents);
    if contents.first().is_none_or(|first| first["role"] == "model") {
        contents.insert(0, json!({ "role": "user", "parts": [{ "text": EMPTY_TEXT }] }));
    }
    contents
}

/// Pushes a reply, or joins it with one right before it: a turn with calls must follow the user's side
/// (<https://github.com/google-gemini/gemini-cli/issues/11814>).
fn push_model_turn(contents: &mut Vec<Value>, parts: Vec<Value>) {
    let before = contents.last_mut().filter(|last| last["role"] == "model");
    match before.and_then(|before| before["parts"].as_array_mut()) {
        _ if parts.is_empty() => {}
        Some(before) => before.extend(parts),
        None => contents.push(json!({ "role": "model", "parts": parts })),
    }
}

fn flush(results: &mut Vec<Value>, contents: &mut Vec<Value>) {
    if !results.is_empty() {
        contents.push(json!({ "role": "user", "parts": std::mem::take(results) }));
    }
}

fn user_parts(text: &str, images: &[Image], card: &ModelCard) -> Vec<Value> {
    let mut parts = Vec::new();
    if card.images {
        parts.extend(images.iter().map(|image| match &image.data {
            ImageData::Base64(data) => {
                json!({ "inlineData": { "mimeType": image.media_type, "data": data } })
            }
            ImageData::Url(url) => {
                json!({ "fileData": { "mimeType": image.media_type, "fileUri": url } })
            }
        }));
    } else if !images.is_empty() {
        parts.push(json!({ "text": image_placeholder(images.len()) }));
    }
    if !text.is_empty() {
        parts.push(json!({ "text": text }));
    } else if parts.is_empty() {
        parts.push(json!({ "text": EMPTY_TEXT }));
    }
    parts
}

fn result(call: &str, output: &str, is_failed: bool, asked: &NewestCalls<'_>) -> Value {
    let key = if is_failed { "error" } else { "output" };
    let tool = asked.tools.get(call).copied().unwrap_or_default();
    let mut response = json!({ "name": tool_name(tool), "response": { key: output } });
    if asked.given.contains(call) {
        response["id"] = call.into();
    }
    json!({ "functionResponse": response })
}

/// Builds a reply's parts, each with its signature.
fn assistant_parts(
    text: &str,
    calls: &[ToolCall],
    carried: &[Value],
    card: &ModelCard,
    asked: &NewestCalls<'_>,
) -> Vec<Value> {
    let shown = reply_parts(text, calls, carried).into_iter().filter_map(|part| match part {
        ReplyPart::Text(text, item) => Some(signed(json!({ "text": text }), &item["signature"])),
        ReplyPart::Call(one, item) => Some(signed(call(one, asked), &item["signature"])),
        // Its reasoning is in the signatures.
        ReplyPart::Reasoning(_) => None,
    });
    let mut parts: Vec<Value> = shown.collect();
    // Newer models refuse a first call without a signature.
    if card.thinking.by == ThinkingForm::Effort
        && let Some(first) = parts.iter_mut().find(|part| part["functionCall"].is_object())
        && first["thoughtSignature"].is_null()
    {
        first["thoughtSignature"] = SIGNATURE_PLACEHOLDER.into();
    }
    parts
}

fn signed(mut part: Value, signature: &Value) -> Value {
    if signature.is_string() {
        part["thoughtSignature"] = signature.clone();
    }
    part
}

fn call(call: &ToolCall, asked: &NewestCalls<'_>) -> Value {
    let mut function = json!({ "name": tool_name(&call.tool), "args": object(&call.input) });
    if asked.given.contains(call.id.as_str()) {
        function["id"] = call.id.as_str().into();
    }
    json!({ "functionCall": function })
}

#[cfg(test)]
mod tests;
