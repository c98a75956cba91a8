//! Encoder of the Chat Completions request body.
//!
//! The stable and the dynamic part are one system message at the beginning: some servers accept no
//! other.

use holdfast_types::{
    AnswerFormat, ChatMessage, Effort, Image, Thinking, ToolCall, ToolChoice, ToolSpec,
};
use serde_json::{Value, json};

use crate::{
    Request, carry,
    catalogue::{ModelCard, ThinkingForm},
    model::OptionNames,
    openai::API_NAME,
    servers::{HistoryRules, ReasoningBack, ServerFeatures, ThinkingSwitch},
    wire_text::{
        CallIdForm, EMPTY_TEXT, UniqueCallIds, arguments, image_placeholder, image_url, outcome,
        system_prompt, tool_name,
    },
};

/// Message of the assistant between results and a message of the user, where a server wants one.
const RESULTS_SEEN: &str = "(results received)";

/// Names of what a client may ask for.
pub(super) const OPTIONS: OptionNames = OptionNames {
    top_p: Some("top_p"),
    stop: Some("stop"),
    seed: Some("seed"),
    frequency_penalty: Some("frequency_penalty"),
    presence_penalty: Some("presence_penalty"),
    has_effort: true,
    has_tool_choice: true,
};

pub(super) fn encode(request: &Request, takes: ServerFeatures) -> Value {
    let (chat, card) = (&request.chat, request.card());
    let told = system_prompt(&chat.stable, &chat.dynamic);
    let mut messages = Vec::with_capacity(chat.messages.len() + 1);
    if !told.is_empty() {
        messages.push(json!({ "role": "system", "content": told }));
    }
    messages.extend(history(request, takes));
    let mut body = json!({
        "model": request.model.id(),
        "messages": messages,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    if !chat.tools.is_empty() {
        let tools = chat.tools.iter().map(|one| tool(one, request.is_strict(&one.name)));
        body["tools"] = tools.collect();
    }
    match request.forced_call() {
        Some(ToolChoice::Function(name)) => {
            body["tool_choice"] = json!({ "type": "function", "function": { "name": name } });
        }
        Some(_) => body["tool_choice"] = "required".into(),
        None => {}
    }
    if request.calls_singly() {
        body["parallel_tool_calls"] = false.into();
    }
    if let Some(most) = request.max_output {
        let word = if takes.completion_limit { "max_completion_tokens" } else { "max_tokens" };
        body[word] = most.into();
    }
    if let Some(temperature) = request.accepted_temperature() {
        body["temperature"] = temperature.into();
    }
    // Thinking between marks is asked for in the instructions.
    let asked = request.asked_effort().filter(|_| card.thinking.by != ThinkingForm::Marks);
    let own = effort(request.thinking, card).filter(|_| takes.effort);
    if let Some(effort) = asked.map(Effort::as_str).or(own) {
        body["reasoning_effort"] = effort.into();
    }
    if card.thinking.by == ThinkingForm::Switch && takes.switch == ThinkingSwitch::Type {
        let word = if request.thinking == Thinking::Off { "disabled" } else { "enabled" };
        body["thinking"] = json!({ "type": word });
    }
    if let Some(format) = request.format() {
        body["response_format"] = match format {
            AnswerFormat::JsonObject => json!({ "type": "json_object" }),
            AnswerFormat::JsonSchema(named) => {
                json!({ "type": "json_schema", "json_schema": named })
            }
        };
    }
    if let Some(body) = body.as_object_mut() {
        request.write_options(&OPTIONS, body);
    }
    if let Some(key) = request.cache_key.as_ref().filter(|_| takes.cache_key) {
        body["prompt_cache_key"] = key.as_str().into();
    }
    body
}

/// Returns the effort word; `None` for a model without effort levels.
pub(crate) fn effort(thinking: Thinking, card: &ModelCard) -> Option<&str> {
    match (card.thinking.by, thinking) {
        (ThinkingForm::Effort, Thinking::Off) => card.thinking.off.as_deref(),
        (ThinkingForm::Effort, level) => Some(level.as_str()),
        (
            ThinkingForm::No
            | ThinkingForm::Budget
            | ThinkingForm::Adaptive
            | ThinkingForm::Switch
            | ThinkingForm::Marks,
            _,
        ) => None,
    }
}

/// The messages, as the server's rules want them.
fn history(request: &Request, takes: ServerFeatures) -> Vec<Value> {
    let is_mistral = takes.history == HistoryRules::Mistral;
    let mut ids = UniqueCallIds::of_form(CallIdForm::NineCharacters);
    let mut messages: Vec<Value> = Vec::with_capacity(request.chat.messages.len());
    let mut after_result = false;
    for said in &request.chat.messages {
        // Other servers get the ids as they are: Kimi's models read theirs.
        if let (true, ChatMessage::Assistant { calls, .. }) = (is_mistral, said) {
            ids.begin(calls);
        }
        if is_mistral && after_result && matches!(said, ChatMessage::User { .. }) {
            messages.push(json!({ "role": "assistant", "content": RESULTS_SEEN }));
        }
        after_result = matches!(said, ChatMessage::Tool { .. });
        let mut encoded = message(said, request.card(), &ids);
        if let ChatMessage::Assistant { calls, carry, .. } = said
            && !calls.is_empty()
        {
            let carried = carry::unpack(carry.as_ref(), API_NAME, &request.model);
            add_reasoning(&mut encoded, carried.unwrap_or_default(), takes.reasoning);
        }
        messages.push(encoded);
    }
    messages
}

/// Adds what a server wants back of the reasoning for a reply with calls.
fn add_reasoning(reply: &mut Value, carried: &[Value], wanted: ReasoningBack) {
    match wanted {
        ReasoningBack::No => {}
        ReasoningBack::Content => {
            // Another model's reply, or one that was too long to keep, has none.
            let text = carried.first().and_then(Value::as_str).unwrap_or_default();
            reply["reasoning_content"] = text.into();
        }
        ReasoningBack::Details if carried.is_empty() => {}
        ReasoningBack::Details => reply["reasoning_details"] = carried.into(),
    }
}

fn message(message: &ChatMessage, card: &ModelCard, ids: &UniqueCallIds) -> Value {
    match message {
        ChatMessage::User { text, images } if images.is_empty() => {
            json!({ "role": "user", "content": text })
        }
        ChatMessage::User { text, images } if card.images => {
            json!({ "role": "user", "content": parts(text, images) })
        }
        ChatMessage::User { text, images } => {
            let unseen = image_placeholder(images.len());
            json!({ "role": "user", "content": format!("{text}\n{unseen}").trim_start() })
        }
        ChatMessage::Assistant { text, calls, .. } if calls.is_empty() => {
            let text = if text.trim().is_empty() { EMPTY_TEXT } else { text };
            json!({ "role": "assistant", "content": text })
        }
        ChatMessage::Assistant { text, calls, .. } => json!({
            "role": "assistant",
            "content": (!text.is_empty()).then_some(text),
            "tool_calls": calls.iter().map(|one| call(one, ids)).collect::<Value>(),
        }),
        ChatMessage::Tool { call, output, failed } => {
            let content = outcome(output, *failed);
            json!({ "role": "tool", "tool_call_id": ids.of(call), "content": content })
        }
    }
}

fn parts(text: &str, images: &[Image]) -> Value {
    let image = |image| json!({ "type": "image_url", "image_url": { "url": image_url(image) } });
    let text = (!text.is_empty()).then(|| json!({ "type": "text", "text": text }));
    text.into_iter().chain(images.iter().map(image)).collect()
}

fn call(call: &ToolCall, ids: &UniqueCallIds) -> Value {
    json!({
        "id": ids.of(&call.id),
        "type": "function",
        "function": { "name": tool_name(&call.tool), "arguments": arguments(&call.input) },
    })
}

fn tool(tool: &ToolSpec, strict: bool) -> Value {
    let mut function = json!({
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input,
    });
    if strict {
        function["strict"] = true.into();
    }
    json!({ "type": "function", "function": function })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_types::{Chat, ImageData};

    use super::*;
    use crate::{
        Catalogue,
        scripted_model::{ScriptedModel, tests::request},
    };

    const OPENAI: ServerFeatures = ServerFeatures {
        completion_limit: true,
        effort: true,
        cache_key: true,
        reasoning: ReasoningBack::No,
        history: HistoryRules::OpenAi,
        switch: ThinkingSwitch::No,
    };

    fn asked(messages: Vec<ChatMessage>) -> Request {
        let chat = Chat {
            stable: "You are coach.\n".into(),
            dynamic: "It is noon.".into(),
            messages,
            tools: vec![],
        };
        Request { model: "openai:gpt-5".parse().unwrap(), chat, ..request() }
    }

    #[test]
    fn a_chat_becomes_the_messages_that_servers_take() {
        let calls = ScriptedModel::calls(&[("1", "recall", r#"{"query":"tea"}"#)]).calls;
        let request = asked(vec![
            ChatMessage::user("hi"),
            ChatMessage::assistant("", calls),
            ChatMessage::Tool { call: "1".into(), output: "green".into(), failed: false },
            ChatMessage::assistant("green", vec![]),
        ]);

        assert_eq!(
            encode(&request, OPENAI),
            json!({
                "model": "gpt-5",
                "reasoning_effort": "minimal",
                "stream": true,
                "stream_options": { "include_usage": true },
                "messages": [
                    { "role": "system", "content": "You are coach.\n\nIt is noon." },
                    { "role": "user", "content": "hi" },
                    {
                        "role": "assistant",
                        "content": null,
                        "tool_calls": [{
                            "id": "1",
                            "type": "function",
                            "function": { "name": "recall", "arguments": "{\"query\":\"tea\"}" },
                        }],
                    },
                    { "role": "tool", "tool_call_id": "1", "content": "green" },
                    { "role": "assistant", "content": "green" },
                ],
            })
        );
    }

    /// Two turns with calls, of which the first had reasoning of this model.
    fn with_calls(carried: &[Value]) -> Request {
        let calls = ScriptedModel::calls(&[("call_1", "recall", "{}")]).calls;
        let thought =
            |carry| ChatMessage::Assistant { text: String::new(), calls: calls.clone(), carry };
        let result =
            || ChatMessage::Tool { call: "call_1".into(), output: "tea".into(), failed: false };
        asked(vec![
            ChatMessage::user("hi"),
            thought(carry::pack(API_NAME, "openai:gpt-5", carried.to_vec())),
            result(),
            ChatMessage::user("and?"),
            thought(carry::pack(API_NAME, "openai:other", vec![json!("not yours")])),
            result(),
        ])
    }

    #[test]
    fn reasoning_goes_back_to_those_who_want_it_and_empty_where_it_was_lost() {
        let request = with_calls(&[json!("hm")]);
        let content = ServerFeatures { reasoning: ReasoningBack::Content, ..OPENAI };
        let encoded = encode(&request, content);
        assert_eq!(encoded["messages"][2]["reasoning_content"], "hm");
        assert_eq!(encoded["messages"][5]["reasoning_content"], "");

        let details = ServerFeatures { reasoning: ReasoningBack::Details, ..OPENAI };
        let encoded = encode(&with_calls(&[json!({ "type": "reasoning.text" })]), details);
        assert_eq!(encoded["messages"][2]["reasoning_details"][0]["type"], "reasoning.text");
        assert_eq!(encoded["messages"][5].get("reasoning_details"), None);

        let encoded = encode(&request, OPENAI);
        assert_eq!(encoded["messages"][2]["tool_calls"][0]["id"], "call_1");
        assert_eq!(encoded["messages"][5]["tool_calls"][0]["id"], "call_1");
        let plain = encoded.to_string();
        assert!(!plain.contains("reasoning_content") && !plain.contains("not yours"), "{plain}");
    }

    #[test]
    fn mistral_gets_ids_of_nine_characters_and_an_answer_after_each_result() {
        let rules = ServerFeatures { history: HistoryRules::Mistral, ..OPENAI };

        let encoded = encode(&with_calls(&[]), rules);

        let messages = encoded["messages"].as_array().unwrap();
        let roles: Vec<&str> = messages.iter().filter_map(|one| one["role"].as_str()).collect();
        assert_eq!(
            roles,
            ["system", "user", "assistant", "tool", "assistant", "user", "assistant", "tool"]
        );
        let call = messages[2]["tool_calls"][0]["id"].as_str().unwrap();
        assert_eq!((call.len(), &messages[3]["tool_call_id"]), (9, &json!(call)));
        let later = messages[6]["tool_calls"][0]["id"].as_str().unwrap();
        assert!(call != later && messages[7]["tool_call_id"] == later, "{call} {later}");
    }

    #[test]
    fn a_model_with_a_switch_thinks_when_it_should() {
        let rules = ServerFeatures { switch: ThinkingSwitch::Type, ..OPENAI };
        let thinks = |model: &str, thinking| {
            let model = model.parse().unwrap();
            encode(&Request { model, thinking, ..asked(vec![]) }, rules)["thinking"].clone()
        };

        assert_eq!(thinks("deepseek:deepseek-flash", Thinking::Off)["type"], "disabled");
        assert_eq!(thinks("deepseek:deepseek-flash", Thinking::High)["type"], "enabled");
        assert_eq!(thinks("deepseek:other", Thinking::High), Value::Null);
    }

    #[test]
    fn an_assistant_never_says_nothing() {
        let empty = asked(vec![ChatMessage::user("a"), ChatMessage::assistant(" ", vec![])]);

        assert_eq!(encode(&empty, OPENAI)["messages"][2]["content"], EMPTY_TEXT);
    }

    #[test]
    fn what_a_model_made_up_cannot_make_later_requests_fail() {
        let long = "x".repeat(100);
        let calls = ScriptedModel::calls(&[
            ("1", "no such/töol", "{\"a"),
            ("2", "", ""),
            ("3", &long, "{}"),
        ]);
        let encoded = encode(&asked(vec![ChatMessage::assistant("so", calls.calls)]), OPENAI);

        let function = |at: usize| &encoded["messages"][1]["tool_calls"][at]["function"];
        assert_eq!(function(0)["name"], "no_such_t_ol");
        assert_eq!(function(0)["arguments"], "{\"unreadable\":\"{\\\"a\"}");
        assert_eq!(function(1)["name"], "unknown");
        assert_eq!(function(2)["name"], "x".repeat(64));
    }

    #[test]
    fn a_failed_result_says_so_and_tools_are_functions() {
        let mut request = asked(vec![ChatMessage::Tool {
            call: "1".into(),
            output: "no luck".into(),
            failed: true,
        }]);
        request.chat.tools = vec![ToolSpec {
            name: "recall".into(),
            description: "Search.".into(),
            input: json!({ "type": "object", "properties": {} }),
        }];

        let encoded = encode(&request, ServerFeatures::default());

        assert_eq!(encoded["messages"][1]["content"], "error: no luck");
        assert_eq!(encoded["tools"][0]["function"]["parameters"]["type"], "object");
    }

    #[test]
    fn the_most_that_may_be_written_is_named_as_the_server_names_it() {
        let request = Request { max_output: Some(9), ..asked(vec![]) };

        let openai = encode(&request, OPENAI);
        let other = encode(&request, ServerFeatures::default());

        assert_eq!((&openai["max_completion_tokens"], openai.get("max_tokens")), (&json!(9), None));
        assert_eq!((&other["max_tokens"], other.get("max_completion_tokens")), (&json!(9), None));
    }

    #[test]
    fn a_temperature_is_sent_to_a_model_that_accepts_one() {
        let told = |model: &str| {
            let model = model.parse().unwrap();
            let request = Request { model, temperature: Some(0.3), ..asked(vec![]) };
            encode(&request, OPENAI)["temperature"].clone()
        };

        assert_eq!(told("openai:gpt-4o"), 0.3);
        assert_eq!(told("openai:gpt-5"), Value::Null);
        assert_eq!(told("openai:something-new"), Value::Null);
    }

    #[test]
    fn what_not_every_server_takes_is_sent_to_those_that_do() {
        let request = Request {
            model: "openai:gpt-5".parse().unwrap(),
            thinking: Thinking::High,
            cache_key: Some("agt_1".into()),
            ..asked(vec![])
        };

        let openai = encode(&request, OPENAI);
        assert_eq!(
            (&openai["reasoning_effort"], &openai["prompt_cache_key"]),
            (&json!("high"), &json!("agt_1"))
        );
        let other = encode(&request, ServerFeatures::default());
        assert_eq!((other.get("reasoning_effort"), other.get("prompt_cache_key")), (None, None));
        let unknown = Request { model: "openai:nobody".parse().unwrap(), ..request };
        assert_eq!(encode(&unknown, OPENAI).get("reasoning_effort"), None);
    }

    #[test]
    fn a_picture_is_shown_to_those_who_see() {
        let image =
            Image { media_type: "image/png".into(), data: ImageData::Base64("aGk=".into()) };
        let asked = asked(vec![ChatMessage::User { text: "look".into(), images: vec![image] }]);
        let blind = ModelCard { images: false, ..Catalogue::built_in().card(&asked.model).clone() };

        let seen = &encode(&asked, OPENAI)["messages"][1]["content"];
        assert_eq!(
            *seen,
            json!([
                { "type": "text", "text": "look" },
                { "type": "image_url", "image_url": { "url": "data:image/png;base64,aGk=" } },
            ])
        );
        let asked = Request { card: Some(Arc::new(blind)), ..asked };
        assert_eq!(
            encode(&asked, OPENAI)["messages"][1]["content"],
            "look\n[a picture was shown here that this model cannot see]"
        );
    }
}
