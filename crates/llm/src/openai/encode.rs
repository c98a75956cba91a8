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
    servers::{
        AnswerForms, CallDemands, HistoryRules, ReasoningBack, ServerFeatures, ThinkingSwitch,
    },
    wire_text::{
        CallIdForm, EMPTY_TEXT, RESULTS_SEEN, UniqueCallIds, arguments, cut_description,
        image_placeholder, image_url, outcome, system_prompt, tool_name, tool_schema,
    },
};

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
        let most = most_tools(request, takes);
        let tools = offered_tools(request, takes).take(most);
        body["tools"] = tools
            .map(|one| tool(one, request.is_strict(&one.name), takes.max_description))
            .collect();
    }
    match request.forced_call() {
        Some(ToolChoice::Function(name)) if takes.demands != CallDemands::ByWord => {
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
    if card.thinking.by == ThinkingForm::Switch {
        set_switch(&mut body, request, takes);
    }
    if let Some(format) = request
        .format()
        .filter(|_| takes.forms != AnswerForms::WithoutTools || chat.tools.is_empty())
    {
        body["response_format"] = match format {
            AnswerFormat::JsonSchema(named) if takes.forms != AnswerForms::Object => {
                json!({ "type": "json_schema", "json_schema": named })
            }
            AnswerFormat::JsonObject if takes.forms == AnswerForms::Schema => json!({
                "type": "json_schema",
                "json_schema": { "name": "object", "schema": { "type": "object" } },
            }),
            AnswerFormat::JsonObject | AnswerFormat::JsonSchema(_) => {
                json!({ "type": "json_object" })
            }
        };
    }
    if let Some(body) = body.as_object_mut() {
        request.write_options(&options(takes), body);
    }
    if let Some(key) = request.cache_key.as_ref().filter(|_| takes.cache_key) {
        body["prompt_cache_key"] = key.as_str().into();
    }
    body
}

/// Returns the names of what a server takes.
pub(super) const fn options(takes: ServerFeatures) -> OptionNames {
    OptionNames {
        seed: Some(if takes.random_seed { "random_seed" } else { "seed" }),
        has_tool_choice: !matches!(takes.demands, CallDemands::Never),
        ..OPTIONS
    }
}

/// Returns the tools that the model may call: the one that a client demands, where the server takes no
/// name of a tool.
fn offered_tools(request: &Request, takes: ServerFeatures) -> impl Iterator<Item = &ToolSpec> {
    let demanded = match request.forced_call() {
        Some(ToolChoice::Function(name)) if takes.demands == CallDemands::ByWord => Some(name),
        Some(_) | None => None,
    };
    let is_offered = move |tool: &&ToolSpec| demanded.is_none_or(|name| *name == tool.name);
    request.chat.tools.iter().filter(is_offered)
}

/// Returns how many tools are sent. More than the server takes would make it refuse every request.
fn most_tools(request: &Request, takes: ServerFeatures) -> usize {
    let count = request.chat.tools.len();
    let most = takes.max_tools.unwrap_or(usize::MAX);
    if count > most {
        tracing::warn!(
            model = %request.model, count, most,
            "the agent has more tools than the provider takes; the last ones are not offered"
        );
    }
    most
}

/// Switches the model's thinking on or off, in the server's form.
fn set_switch(body: &mut Value, request: &Request, takes: ServerFeatures) {
    let is_demanded =
        request.forced_call().is_some() && takes.demands == CallDemands::WithoutThinking;
    let thinks = request.thinking != Thinking::Off && !is_demanded;
    let on = match takes.switch {
        ThinkingSwitch::No => return,
        ThinkingSwitch::Flag => {
            body["enable_thinking"] = thinks.into();
            return;
        }
        ThinkingSwitch::Type => "enabled",
        ThinkingSwitch::Adaptive => "adaptive",
    };
    body["thinking"] = json!({ "type": if thinks { on } else { "disabled" } });
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
    let takes_turns = takes.history != HistoryRules::OpenAi;
    let mut ids = UniqueCallIds::of_form(CallIdForm::NineCharacters);
    let mut messages: Vec<Value> = Vec::with_capacity(request.chat.messages.len());
    if takes_turns && matches!(request.chat.messages.first(), Some(ChatMessage::Assistant { .. })) {
        messages.push(json!({ "role": "user", "content": EMPTY_TEXT }));
    }
    for said in &request.chat.messages {
        // Other servers get the ids as they are: Kimi's models read theirs.
        if let (true, ChatMessage::Assistant { calls, .. }) = (is_mistral, said) {
            ids.begin(calls);
        }
        let mut encoded = message(said, request.card(), &ids);
        if let ChatMessage::Assistant { calls, carry, .. } = said
            && !calls.is_empty()
        {
            let carried = carry::unpack(carry.as_ref(), API_NAME, &request.model);
            add_reasoning(&mut encoded, carried.unwrap_or_default(), takes.reasoning);
        }
        match messages.last_mut() {
            Some(last) if takes_turns && are_of_one_side(last, &encoded) => join(last, encoded),
            Some(last) if is_mistral && last["role"] == "tool" && encoded["role"] == "user" => {
                messages.push(filler("assistant"));
                messages.push(encoded);
            }
            Some(_) | None => {
                if takes_turns && !is_mistral {
                    messages.extend(missing_turn(&messages, &encoded));
                }
                messages.push(encoded);
            }
        }
    }
    messages
}

/// Whether a message is a turn of its side: calls and results are not.
fn is_turn(message: &Value) -> bool {
    let is_side = message["role"] == "user" || message["role"] == "assistant";
    is_side && message.get("tool_calls").is_none()
}

/// The turn of the other side that is missing before a message, if calls and results alone are between it
/// and the last turn of its own side.
fn missing_turn(before: &[Value], next: &Value) -> Option<Value> {
    let last = before.iter().rev().find(|message| is_turn(message))?;
    let is_missing = is_turn(next) && last["role"] == next["role"];
    is_missing.then(|| filler(if next["role"] == "user" { "assistant" } else { "user" }))
}

/// A message that says nothing.
fn filler(role: &str) -> Value {
    let text = if role == "assistant" { RESULTS_SEEN } else { EMPTY_TEXT };
    json!({ "role": role, "content": text })
}

/// Whether two messages are turns of the same side.
fn are_of_one_side(before: &Value, after: &Value) -> bool {
    is_turn(before) && is_turn(after) && before["role"] == after["role"]
}

/// Adds a message's content to the one before.
fn join(before: &mut Value, after: Value) {
    if let (Some(text), Some(more)) = (before["content"].as_str(), after["content"].as_str()) {
        before["content"] = format!("{text}\n\n{more}").into();
        return;
    }
    let parts = |content: Value| match content {
        Value::Array(parts) => parts,
        text => vec![json!({ "type": "text", "text": text })],
    };
    let mut all = parts(before["content"].take());
    all.extend(parts(after["content"].clone()));
    before["content"] = all.into();
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
            // Not all servers take none.
            "content": text,
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

fn tool(tool: &ToolSpec, strict: bool, max_description: Option<usize>) -> Value {
    let mut function = json!({
        "name": tool.name,
        "description": cut_description(&tool.description, max_description),
        "parameters": tool_schema(&tool.input),
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
        ..crate::servers::BASE_FEATURES
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
                        "content": "",
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
    fn thinking_is_switched_in_each_servers_form_and_off_where_a_call_is_demanded() {
        let body = |switch, demands, is_demanded| {
            let rules = ServerFeatures { switch, demands, ..OPENAI };
            let mut request = Request {
                model: "deepseek:deepseek-flash".parse().unwrap(),
                thinking: Thinking::High,
                ..asked(vec![])
            };
            request.chat.tools = vec![ToolSpec {
                name: "recall".into(),
                description: "Search.".into(),
                input: json!({ "type": "object" }),
            }];
            if is_demanded {
                let options = json!({ "tool_choice": "required" });
                request.options = Some(Box::new(serde_json::from_value(options).unwrap()));
            }
            encode(&request, rules)
        };
        use CallDemands::{Always, WithoutThinking};
        let flag = body(ThinkingSwitch::Flag, WithoutThinking, false);
        assert_eq!((&flag["enable_thinking"], &flag["thinking"]), (&json!(true), &Value::Null));
        let flag = body(ThinkingSwitch::Flag, WithoutThinking, true);
        assert_eq!(flag["enable_thinking"], json!(false));
        assert_eq!(body(ThinkingSwitch::Adaptive, Always, false)["thinking"]["type"], "adaptive");
        assert_eq!(body(ThinkingSwitch::Type, Always, true)["thinking"]["type"], "enabled");
        let typed = body(ThinkingSwitch::Type, WithoutThinking, true);
        assert_eq!(
            (&typed["thinking"]["type"], &typed["tool_choice"]),
            (&json!("disabled"), &json!("required"))
        );
    }

    #[test]
    fn where_roles_take_turns_neighbours_are_joined_and_results_are_answered() {
        let rules = ServerFeatures { history: HistoryRules::Turns, ..OPENAI };
        let calls = ScriptedModel::calls(&[("call_1", "recall", "{}")]).calls;
        let request = asked(vec![
            ChatMessage::assistant("hello", vec![]),
            ChatMessage::user("a"),
            ChatMessage::user("b"),
            ChatMessage::assistant("", calls),
            ChatMessage::Tool { call: "call_1".into(), output: "tea".into(), failed: false },
            ChatMessage::user("c"),
        ]);

        let encoded = encode(&request, rules);

        let messages = encoded["messages"].as_array().unwrap();
        let said = |message: &Value| format!("{}: {}", message["role"], message["content"]);
        let said: Vec<String> = messages[1..].iter().map(said).collect();
        let expected = json!([
            format!("\"user\": \"{EMPTY_TEXT}\""),
            "\"assistant\": \"hello\"",
            "\"user\": \"a\\n\\nb\"",
            "\"assistant\": \"\"",
            "\"tool\": \"tea\"",
            format!("\"assistant\": \"{RESULTS_SEEN}\""),
            "\"user\": \"c\"",
        ]);
        assert_eq!(json!(said), expected);
        assert_eq!(messages[4]["tool_calls"][0]["id"], "call_1");
    }

    #[test]
    fn forms_and_tools_are_cut_to_what_the_server_takes() {
        let (options, _) = crate::model::tests::options();
        let mut request = Request { options, ..asked(vec![]) };
        let form = |request: &Request, forms| {
            encode(request, ServerFeatures { forms, ..OPENAI })["response_format"]["type"].clone()
        };
        assert_eq!(form(&request, AnswerForms::All), "json_schema");
        assert_eq!(form(&request, AnswerForms::Object), "json_object");
        assert_eq!(form(&request, AnswerForms::WithoutTools), "json_schema");
        let tool = |n: usize| ToolSpec {
            name: format!("t{n}"),
            description: String::new(),
            input: json!({ "type": "object" }),
        };
        request.chat.tools = (0..130).map(tool).collect();
        assert_eq!(form(&request, AnswerForms::WithoutTools), Value::Null);
        let encoded = encode(&request, ServerFeatures { max_tools: Some(128), ..OPENAI });
        assert_eq!(encoded["tools"].as_array().unwrap().len(), 128);
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
