//! Encoder of Converse's request body.
//!
//! | request | body |
//! |---|---|
//! | stable part, tools | end with a cache point, for models that have a cache |
//! | results and the user messages after them | one `user` message: results first |
//! | carried reasoning | the unchanged blocks at their positions, if they are signed and the model thinks |
//! | thinking level | `additionalModelRequestFields`, in the form of Anthropic's models |
//! | calls in a request without tools | texts: such blocks are refused then |
//!
//! Models other than Claude and Nova refuse a turn with calls or results beside anything else
//! (<https://github.com/strands-agents/harness-sdk/issues/1223>): it becomes several turns.

use holdfast_types::{ChatMessage, Image, ImageData, Thinking, ToolCall, ToolChoice, ToolSpec};
use serde_json::{Value, json};

use super::API_NAME;
use crate::{
    Request,
    carry::{self, ReplyPart, reply_parts},
    catalogue::{ModelCard, ThinkingForm},
    model::OptionNames,
    plain_history,
    wire_text::{
        EMPTY_TEXT, RESULTS_SEEN, UniqueCallIds, image_placeholder, object, system_prompt,
        tool_name, tool_schema,
    },
};

/// Output limit of a request that thinks and has none, in tokens.
const DEFAULT_MAX_OUTPUT: u32 = 32_000;

/// Minimum thinking budget, in tokens.
const MIN_THINKING_BUDGET: u32 = 1_024;

/// Parts of the ids of models whose requests may have cache points.
/// <https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html>
const CACHING_MODELS: [&str; 8] = [
    "claude-fable",
    "claude-opus",
    "claude-sonnet",
    "claude-haiku",
    "claude-3-7-sonnet",
    "claude-3-5-haiku",
    "claude-3-5-sonnet-20241022",
    "claude-mythos",
];

/// Names of what a client may ask for.
pub(super) const OPTIONS: OptionNames = OptionNames {
    top_p: Some("topP"),
    stop: Some("stopSequences"),
    seed: None,
    frequency_penalty: None,
    presence_penalty: None,
    has_effort: false,
    has_tool_choice: true,
};

/// Parts of the ids of models that take calls or results beside other blocks of a turn.
const MIXED_TURN_MODELS: [&str; 2] = ["anthropic.", "amazon.nova"];

/// Parts of the ids of models that take no demand of a call
/// (<https://github.com/maximhq/bifrost/pull/3196>).
const MODELS_WITHOUT_DEMANDS: [&str; 1] = ["llama"];

/// Returns the names of what a model takes.
pub(super) fn options(model: &str) -> OptionNames {
    let has_tool_choice = !MODELS_WITHOUT_DEMANDS.iter().any(|part| model.contains(part));
    OptionNames { has_tool_choice, ..OPTIONS }
}

pub(super) fn encode(request: &Request) -> Value {
    // Blocks of calls and results are refused without tools
    // (<https://github.com/langgenius/dify/issues/17545>).
    let has_calls = request.chat.messages.iter().any(|message| match message {
        ChatMessage::Assistant { calls, .. } => !calls.is_empty(),
        ChatMessage::Tool { .. } => true,
        ChatMessage::User { .. } => false,
    });
    match has_calls && request.chat.tools.is_empty() {
        true => encode_with_tools(&plain_history::without_details(request)),
        false => encode_with_tools(request),
    }
}

fn encode_with_tools(request: &Request) -> Value {
    let (chat, card) = (&request.chat, request.card());
    let thinking = thinking(request, card);
    let mut body = json!({ "messages": messages(request, card, thinking.is_some()) });
    let has_cache = CACHING_MODELS.iter().any(|part| request.model.id().contains(part));
    let system = system(&chat.stable, &chat.dynamic, has_cache);
    if !system.is_empty() {
        body["system"] = system.into();
    }
    if !chat.tools.is_empty() {
        let mut tools: Vec<Value> = chat.tools.iter().map(tool).collect();
        if has_cache {
            tools.push(cache_point());
        }
        body["toolConfig"] = json!({ "tools": tools });
        match request.forced_call() {
            Some(ToolChoice::Function(name)) => {
                body["toolConfig"]["toolChoice"] = json!({ "tool": { "name": tool_name(name) } });
            }
            Some(_) => body["toolConfig"]["toolChoice"] = json!({ "any": {} }),
            None => {}
        }
    }
    let most = request.max_output.or(thinking.is_some().then_some(DEFAULT_MAX_OUTPUT));
    if let Some(most) = most {
        body["inferenceConfig"]["maxTokens"] = most.into();
    }
    if let Some(temperature) = request.accepted_temperature() {
        body["inferenceConfig"]["temperature"] = temperature.into();
    }
    let mut asked = serde_json::Map::new();
    request.write_options(&OPTIONS, &mut asked);
    for (name, value) in asked {
        body["inferenceConfig"][name] = value;
    }
    if let Some(fields) = thinking {
        body["additionalModelRequestFields"] = fields;
    }
    body
}

/// Returns the fields that let the model think; `None` if it does not.
fn thinking(request: &Request, card: &ModelCard) -> Option<Value> {
    // A demanded call excludes thinking.
    if request.thinking == Thinking::Off || request.forced_call().is_some() {
        return None;
    }
    match card.thinking.by {
        ThinkingForm::Adaptive => Some(json!({
            "thinking": { "type": "adaptive" },
            "output_config": { "effort": request.thinking.as_str() },
        })),
        // Without a turn's reasoning a budget is refused while the turn's results are sent.
        ThinkingForm::Budget if !is_answering_without_reasoning(request) => {
            let most = request.max_output.unwrap_or(DEFAULT_MAX_OUTPUT);
            let budget = budget(request.thinking).min(most.saturating_sub(MIN_THINKING_BUDGET));
            (budget >= MIN_THINKING_BUDGET)
                .then(|| json!({ "thinking": { "type": "enabled", "budget_tokens": budget } }))
        }
        ThinkingForm::Budget
        | ThinkingForm::No
        | ThinkingForm::Effort
        | ThinkingForm::Switch
        | ThinkingForm::Marks => None,
    }
}

const fn budget(level: Thinking) -> u32 {
    match level {
        Thinking::Off => 0,
        Thinking::Low => 2_048,
        Thinking::Medium => 8_192,
        Thinking::High => 24_576,
    }
}

/// Whether the newest turn has results of calls that have no reasoning of this model. Words of the user
/// may follow the results.
fn is_answering_without_reasoning(request: &Request) -> bool {
    let last = request.chat.messages.iter().rev().find_map(|message| match message {
        ChatMessage::Assistant { calls, carry, .. } => Some((calls, carry)),
        ChatMessage::User { .. } | ChatMessage::Tool { .. } => None,
    });
    last.is_some_and(|(calls, carry)| {
        let carried = carry::unpack(carry.as_ref(), API_NAME, &request.model);
        !calls.is_empty() && carried.is_none()
    })
}

fn cache_point() -> Value {
    json!({ "cachePoint": { "type": "default" } })
}

fn text_block(text: &str) -> Value {
    json!({ "text": text })
}

fn system(stable: &str, dynamic: &str, has_cache: bool) -> Vec<Value> {
    let parts = [stable, dynamic].map(|part| system_prompt(part, ""));
    let [stable, dynamic] = &parts;
    let mut blocks = Vec::new();
    if !stable.trim().is_empty() {
        blocks.push(text_block(stable));
        if has_cache {
            blocks.push(cache_point());
        }
    }
    if !dynamic.trim().is_empty() {
        blocks.push(text_block(dynamic));
    }
    blocks
}

fn tool(tool: &ToolSpec) -> Value {
    let mut spec =
        json!({ "name": tool.name, "inputSchema": { "json": tool_schema(&tool.input) } });
    // An empty description is refused.
    if !tool.description.trim().is_empty() {
        spec["description"] = tool.description.as_str().into();
    }
    json!({ "toolSpec": spec })
}

fn messages(request: &Request, card: &ModelCard, thinks: bool) -> Vec<Value> {
    // The name of an inference profile need not name its model; only Claude's reasoning is sent.
    let mixes = thinks || MIXED_TURN_MODELS.iter().any(|part| request.model.id().contains(part));
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
                let carry = carry.as_ref().filter(|_| thinks);
                let carried = carry::unpack(carry, API_NAME, &request.model);
                ("assistant", assistant_blocks(text, calls, carried.unwrap_or_default(), &ids))
            }
        };
        let is_one = |a: &Value, b: &Value| mixes || is_of_tools(a) == is_of_tools(b);
        for group in blocks.chunk_by(is_one) {
            match all.last_mut() {
                Some((last, before)) if *last == role && is_one(&before[0], &group[0]) => {
                    before.extend_from_slice(group);
                }
                Some((last, _)) if *last == role => {
                    all.extend([filler(role), (role, group.to_vec())]);
                }
                Some(_) | None => all.push((role, group.to_vec())),
            }
        }
    }
    // A conversation must begin with the user.
    if all.first().is_none_or(|(role, _)| *role == "assistant") {
        all.insert(0, ("user", vec![text_block(EMPTY_TEXT)]));
    }
    all.into_iter().map(|(role, content)| json!({ "role": role, "content": content })).collect()
}

fn is_of_tools(block: &Value) -> bool {
    block["toolUse"].is_object() || block["toolResult"].is_object()
}

/// A turn that says nothing, between two of a side.
fn filler(side: &str) -> (&'static str, Vec<Value>) {
    match side == "user" {
        true => ("assistant", vec![text_block(RESULTS_SEEN)]),
        false => ("user", vec![text_block(EMPTY_TEXT)]),
    }
}

fn user_blocks(text: &str, images: &[Image], card: &ModelCard) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    if card.images {
        blocks.extend(images.iter().filter_map(image));
    }
    let unseen = images.len() - blocks.len();
    if unseen > 0 {
        blocks.push(text_block(&image_placeholder(unseen)));
    }
    // Blank text is refused.
    if !text.trim().is_empty() {
        blocks.push(text_block(text));
    } else if blocks.is_empty() {
        blocks.push(text_block(EMPTY_TEXT));
    }
    blocks
}

/// Returns an image; `None` for an address or a format that the API does not take.
fn image(image: &Image) -> Option<Value> {
    let format = match image.media_type.as_str() {
        "image/png" => "png",
        "image/jpeg" => "jpeg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        _ => return None,
    };
    match &image.data {
        ImageData::Base64(data) => {
            Some(json!({ "image": { "format": format, "source": { "bytes": data } } }))
        }
        ImageData::Url(_) => None,
    }
}

fn result(id: &str, output: &str, is_failed: bool) -> Value {
    let text = if output.trim().is_empty() { EMPTY_TEXT } else { output };
    let status = if is_failed { "error" } else { "success" };
    json!({ "toolResult": {
        "toolUseId": id, "content": [{ "text": text }], "status": status,
    } })
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
    json!({ "toolUse": {
        "toolUseId": ids.of(&call.id),
        "name": tool_name(&call.tool),
        "input": object(&call.input),
    } })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_types::Chat;

    use super::*;
    use crate::{
        ThinkingControl,
        scripted_model::{ScriptedModel, tests::request},
    };

    const MODEL: &str = "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0";

    fn asked(messages: Vec<ChatMessage>, by: ThinkingForm) -> Request {
        let recall = ToolSpec {
            name: "recall".into(),
            description: "Looks it up.".into(),
            input: json!({ "type": "object" }),
        };
        let chat = Chat {
            stable: "You are coach.\n".into(),
            dynamic: "It is noon.".into(),
            messages,
            tools: vec![recall],
        };
        let thinking = ThinkingControl { by, ..ThinkingControl::default() };
        let card = ModelCard { images: true, thinking, ..ModelCard::default() };
        Request { model: MODEL.parse().unwrap(), chat, card: Some(Arc::new(card)), ..request() }
    }

    fn with_call(carry: Option<Value>) -> Vec<ChatMessage> {
        let calls = ScriptedModel::calls(&[("call/1", "recall", r#"{"query":"tea"}"#)]).calls;
        vec![
            ChatMessage::user("hi"),
            ChatMessage::Assistant { text: "Look.".into(), calls, carry },
            ChatMessage::Tool { call: "call/1".into(), output: "green".into(), failed: true },
            ChatMessage::user("and?"),
        ]
    }

    #[test]
    fn a_chat_becomes_messages_that_alternate() {
        let encoded = encode(&asked(with_call(None), ThinkingForm::No));

        assert_eq!(
            encoded,
            json!({
                "system": [
                    { "text": "You are coach." },
                    { "cachePoint": { "type": "default" } },
                    { "text": "It is noon." },
                ],
                "messages": [
                    { "role": "user", "content": [{ "text": "hi" }] },
                    { "role": "assistant", "content": [
                        { "text": "Look." },
                        { "toolUse": {
                            "toolUseId": "call_1", "name": "recall", "input": { "query": "tea" },
                        } },
                    ] },
                    { "role": "user", "content": [
                        { "toolResult": {
                            "toolUseId": "call_1",
                            "content": [{ "text": "green" }],
                            "status": "error",
                        } },
                        { "text": "and?" },
                    ] },
                ],
                "toolConfig": { "tools": [
                    { "toolSpec": {
                        "name": "recall",
                        "description": "Looks it up.",
                        "inputSchema": { "json": { "type": "object" } },
                    } },
                    { "cachePoint": { "type": "default" } },
                ] },
            })
        );
    }

    #[test]
    fn images_are_sent_as_bytes() {
        let picture = |media_type: &str, data| Image { media_type: media_type.into(), data };
        let images = vec![
            picture("image/png", ImageData::Base64("AAAA".into())),
            picture("image/png", ImageData::Url("https://example.com/x.png".into())),
        ];
        let chat = vec![ChatMessage::User { text: "see".into(), images }];
        let content = encode(&asked(chat, ThinkingForm::No))["messages"][0]["content"].clone();

        assert_eq!(
            content[0],
            json!({ "image": { "format": "png", "source": { "bytes": "AAAA" } } })
        );
        assert!(content[1]["text"].as_str().unwrap().contains("cannot see"));
        assert_eq!(content[2], json!({ "text": "see" }));
    }

    #[test]
    fn a_thinking_model_gets_its_reasoning_back_and_a_budget_below_its_limit() {
        let reasoning = json!({ "reasoningContent": { "reasoningText": { "text": "hm", "signature": "sig" } } });
        let items = vec![reasoning.clone(), json!({ "text": 5 }), json!({ "call": "call/1" })];
        let carried = carry::pack(API_NAME, MODEL, items);
        let mut request = asked(with_call(carried), ThinkingForm::Budget);
        request.thinking = Thinking::Medium;
        request.max_output = Some(4_096);

        let encoded = encode(&request);

        assert_eq!(
            encoded["additionalModelRequestFields"],
            json!({ "thinking": { "type": "enabled", "budget_tokens": 3_072 } })
        );
        assert_eq!(encoded["inferenceConfig"]["maxTokens"], 4_096);
        assert_eq!(encoded["messages"][1]["content"][0], reasoning);
        request.thinking = Thinking::Off;
        let encoded = encode(&request);
        assert_eq!(encoded["messages"][1]["content"][0], json!({ "text": "Look." }));
        assert!(encoded["additionalModelRequestFields"].is_null());
    }

    #[test]
    fn a_call_stays_behind_its_reasoning_where_a_profile_hides_the_model() {
        const PROFILE: &str =
            "bedrock:arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/abc";
        let reasoning = json!({ "reasoningContent": { "reasoningText": { "text": "hm", "signature": "sig" } } });
        let carried = carry::pack(API_NAME, PROFILE, vec![reasoning, json!({ "call": "call/1" })]);
        let mut request = asked(with_call(carried), ThinkingForm::Budget);
        request.model = PROFILE.parse().unwrap();
        request.thinking = Thinking::Medium;

        let encoded = encode(&request);

        let reply = encoded["messages"][1]["content"].as_array().unwrap();
        assert!(reply.iter().any(|block| block.get("reasoningContent").is_some()), "{encoded}");
        assert!(reply.iter().any(|block| block.get("toolUse").is_some()), "{encoded}");
    }

    #[test]
    fn results_without_the_turns_reasoning_are_answered_without_a_budget() {
        let mut messages = with_call(None);
        messages.pop();
        let mut request = asked(messages, ThinkingForm::Budget);
        request.thinking = Thinking::High;

        assert!(encode(&request)["additionalModelRequestFields"].is_null());
    }
}
