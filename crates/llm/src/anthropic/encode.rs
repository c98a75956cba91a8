//! Encoder of Anthropic's request body.
//!
//! | request | body |
//! |---|---|
//! | stable part | the first block of `system`, with a cache mark |
//! | dynamic part | the second block, without a mark: it always differs |
//! | tools | a cache mark on the last one, so that they stay cached when the stable part changes |
//! | results and the user messages after them | one `user` message: results first |
//! | carried thinking | the unchanged blocks at their positions |

use holdfast_types::{ChatMessage, Image, ImageData, Thinking, ToolCall, ToolChoice};
use serde_json::{Value, json};

use super::API_NAME;
use crate::{
    Request,
    carry::{self, ReplyPart, reply_parts},
    catalogue::{ModelCard, ThinkingForm},
    model::OptionNames,
    wire_text::{EMPTY_TEXT, UniqueCallIds, image_placeholder, object, tool_name, tool_schema},
};

/// Default output limit, in tokens; the API requires one.
const DEFAULT_MAX_OUTPUT: u32 = 32_000;

/// The `off` value of models whose thinking can be turned off.
const THINKING_DISABLED: &str = "disabled";

/// Minimum thinking budget, in tokens.
const MIN_THINKING_BUDGET: u32 = 1_024;

/// Names of what a client may ask for.
pub(super) const OPTIONS: OptionNames = OptionNames {
    top_p: Some("top_p"),
    stop: Some("stop_sequences"),
    seed: None,
    frequency_penalty: None,
    presence_penalty: None,
    has_effort: false,
    has_tool_choice: true,
};

pub(super) fn encode(request: &Request) -> Value {
    let (chat, card) = (&request.chat, request.card());
    let most = request.max_output.unwrap_or_else(|| card.max_output.min(DEFAULT_MAX_OUTPUT));
    let mut body = json!({
        "model": request.model.id(),
        "max_tokens": most,
        "stream": true,
        "messages": messages(request, card),
    });
    if let Some(temperature) = request.accepted_temperature() {
        body["temperature"] = temperature.into();
    }
    let system = system(&chat.stable, &chat.dynamic);
    if !system.is_empty() {
        body["system"] = system.into();
    }
    if !chat.tools.is_empty() {
        let mut tools: Vec<Value> = chat
            .tools
            .iter()
            .map(|tool| {
                json!({
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": tool_schema(&tool.input),
                })
            })
            .collect();
        if let Some(last) = tools.last_mut() {
            last["cache_control"] = cache_mark();
        }
        body["tools"] = tools.into();
    }
    let choice = match request.forced_call() {
        Some(ToolChoice::Function(name)) => Some(json!({ "type": "tool", "name": name })),
        Some(_) => Some(json!({ "type": "any" })),
        None => request.calls_singly().then(|| json!({ "type": "auto" })),
    };
    if let Some(mut choice) = choice {
        if request.calls_singly() {
            choice["disable_parallel_tool_use"] = true.into();
        }
        body["tool_choice"] = choice;
    }
    // A demanded call excludes thinking.
    if request.forced_call().is_none() {
        set_thinking(&mut body, request, card, most);
    }
    if let Some(named) = request.strict_schema() {
        let schema = named.schema.as_value();
        body["output_config"]["format"] = json!({ "type": "json_schema", "schema": schema });
    }
    if let Some(body) = body.as_object_mut() {
        request.write_options(&OPTIONS, body);
    }
    body
}

/// Cache mark: the provider caches the request up to this block.
fn cache_mark() -> Value {
    json!({ "type": "ephemeral" })
}

fn system(stable: &str, dynamic: &str) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !stable.trim().is_empty() {
        let text = stable.trim_end();
        blocks.push(json!({ "type": "text", "text": text, "cache_control": cache_mark() }));
    }
    if !dynamic.trim().is_empty() {
        blocks.push(json!({ "type": "text", "text": dynamic.trim_end() }));
    }
    blocks
}

/// Sets the thinking level in the form that the model takes.
fn set_thinking(body: &mut Value, request: &Request, card: &ModelCard, most: u32) {
    let off = card.thinking.off.as_deref();
    match (card.thinking.by, request.thinking) {
        (ThinkingForm::Adaptive, Thinking::Off) => match off {
            Some(THINKING_DISABLED) => body["thinking"] = json!({ "type": THINKING_DISABLED }),
            Some(effort) => body["output_config"] = json!({ "effort": effort }),
            None => {}
        },
        (ThinkingForm::Adaptive, level) => {
            body["thinking"] = json!({ "type": "adaptive" });
            body["output_config"] = json!({ "effort": level.as_str() });
        }
        (ThinkingForm::Budget, level) => {
            // The budget must be less than the output limit. Without a turn's thinking blocks a
            // budget is refused while the turn's tool results are sent.
            let budget = budget(level).min(most.saturating_sub(MIN_THINKING_BUDGET));
            if budget >= MIN_THINKING_BUDGET && !is_answering_without_thoughts(request) {
                body["thinking"] = json!({ "type": "enabled", "budget_tokens": budget });
            }
        }
        (
            ThinkingForm::No | ThinkingForm::Effort | ThinkingForm::Switch | ThinkingForm::Marks,
            _,
        ) => {}
    }
    // The system prompt contains the time, which changes within a turn. Let the provider drop the
    // older thinking blocks, where it would otherwise refuse the request.
    if card.thinking.is_bound && !is_disabled(request, card) {
        body["thinking"] = json!({
            "type": "adaptive",
            "block_binding": { "prefix_mismatch_behavior": "drop_block" },
        });
    }
    // Newer models show no thinking unless asked to.
    if request.shows_thinking && body["thinking"]["type"] == "adaptive" {
        body["thinking"]["display"] = "summarized".into();
    }
}

/// Whether thinking is turned off. Earlier thinking blocks must then not be sent.
fn is_disabled(request: &Request, card: &ModelCard) -> bool {
    let is_adaptive = card.thinking.by == ThinkingForm::Adaptive;
    is_adaptive
        && request.thinking == Thinking::Off
        && card.thinking.off.as_deref() == Some(THINKING_DISABLED)
}

const fn budget(level: Thinking) -> u32 {
    match level {
        Thinking::Off => 0,
        Thinking::Low => 2_048,
        Thinking::Medium => 8_192,
        Thinking::High => 24_576,
    }
}

/// Whether the newest message has tool results whose calls have no thinking blocks for this model. Words of
/// the user may follow the results.
fn is_answering_without_thoughts(request: &Request) -> bool {
    let last = request.chat.messages.iter().rev().find_map(|message| match message {
        ChatMessage::Assistant { calls, carry, .. } => Some((calls, carry)),
        ChatMessage::User { .. } | ChatMessage::Tool { .. } => None,
    });
    last.is_some_and(|(calls, carry)| {
        let thoughts = carry::unpack(carry.as_ref(), API_NAME, &request.model);
        !calls.is_empty() && thoughts.is_none()
    })
}

fn messages(request: &Request, card: &ModelCard) -> Vec<Value> {
    let mut all: Vec<(&str, Vec<Value>)> = Vec::new();
    let mut ids = UniqueCallIds::default();
    for message in &request.chat.messages {
        let (role, blocks) = match message {
            ChatMessage::User { text, images } => ("user", user_blocks(text, images, card)),
            ChatMessage::Tool { call, output, failed } => {
                ("user", vec![result(ids.of(call), output, *failed)])
            }
            ChatMessage::Assistant { text, calls, carry } => {
                ids.begin(calls);
                let carry = carry.as_ref().filter(|_| !is_disabled(request, card));
                let thoughts = carry::unpack(carry, API_NAME, &request.model);
                ("assistant", assistant_blocks(text, calls, thoughts.unwrap_or_default(), &ids))
            }
        };
        match all.last_mut() {
            _ if blocks.is_empty() => {}
            Some((last, before)) if *last == role => before.extend(blocks),
            Some(_) | None => all.push((role, blocks)),
        }
    }
    // A conversation must begin with the user.
    if all.first().is_none_or(|(role, _)| *role == "assistant") {
        all.insert(0, ("user", vec![text_block(EMPTY_TEXT)]));
    }
    all.into_iter().map(|(role, content)| json!({ "role": role, "content": content })).collect()
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn user_blocks(text: &str, images: &[Image], card: &ModelCard) -> Vec<Value> {
    let mut blocks = Vec::new();
    if card.images {
        blocks.extend(images.iter().map(|image| {
            let source = match &image.data {
                ImageData::Base64(data) => {
                    json!({ "type": "base64", "media_type": image.media_type, "data": data })
                }
                ImageData::Url(url) => json!({ "type": "url", "url": url }),
            };
            json!({ "type": "image", "source": source })
        }));
    } else if !images.is_empty() {
        blocks.push(text_block(&image_placeholder(images.len())));
    }
    // Empty text blocks are refused.
    if !text.trim().is_empty() {
        blocks.push(text_block(text));
    } else if blocks.is_empty() {
        blocks.push(text_block(EMPTY_TEXT));
    }
    blocks
}

fn result(id: &str, output: &str, is_failed: bool) -> Value {
    let mut block = json!({ "type": "tool_result", "tool_use_id": id, "content": output });
    if is_failed {
        block["is_error"] = true.into();
    }
    block
}

/// Builds a reply's blocks, with the reasoning where it stood.
fn assistant_blocks(
    text: &str,
    calls: &[ToolCall],
    carried: &[Value],
    ids: &UniqueCallIds,
) -> Vec<Value> {
    let blocks = reply_parts(text, calls, carried).into_iter().filter_map(|part| match part {
        // Empty text blocks are refused.
        ReplyPart::Text(text, _) => (!text.trim().is_empty()).then(|| text_block(text)),
        ReplyPart::Call(one, _) => Some(call(one, ids)),
        ReplyPart::Reasoning(block) => Some(block.clone()),
    });
    blocks.collect()
}

fn call(call: &ToolCall, ids: &UniqueCallIds) -> Value {
    json!({
        "type": "tool_use",
        "id": ids.of(&call.id),
        "name": tool_name(&call.tool),
        "input": object(&call.input),
    })
}

#[cfg(test)]
mod tests;
