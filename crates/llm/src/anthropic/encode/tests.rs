//! Request bodies for Anthropic.

use std::sync::Arc;

use holdfast_types::{Chat, ToolSpec};

use super::*;
use crate::{
    ThinkingControl,
    scripted_model::{ScriptedModel, tests::request},
};

fn asked(model: &str, messages: Vec<ChatMessage>) -> Request {
    let chat = Chat {
        stable: "You are coach.\n".into(),
        dynamic: "It is noon.".into(),
        messages,
        tools: vec![],
    };
    Request { model: model.parse().unwrap(), chat, ..request() }
}

fn result(call: &str, output: &str, failed: bool) -> ChatMessage {
    ChatMessage::Tool { call: call.into(), output: output.into(), failed }
}

fn calls(ids: &[&str]) -> Vec<ToolCall> {
    let calls: Vec<_> = ids.iter().map(|id| (*id, "recall", r#"{"q":1}"#)).collect();
    ScriptedModel::calls(&calls).calls
}

const OLD: &str = "anthropic:claude-haiku-4-5";

#[test]
fn a_chat_becomes_blocks_and_what_is_worth_keeping_is_marked() {
    let mut request = asked(
        OLD,
        vec![
            ChatMessage::user("hi"),
            ChatMessage::assistant("Let me see.", calls(&["a", "b"])),
            result("a", "green", false),
            result("b", "no luck", true),
            ChatMessage::user("hurry"),
        ],
    );
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: "Search.".into(),
        input: json!({ "type": "object" }),
    };
    request.chat.tools = vec![tool("message"), tool("recall")];

    let tool_use =
        |id: &str| json!({ "type": "tool_use", "id": id, "name": "recall", "input": { "q": 1 } });
    assert_eq!(
        encode(&request),
        json!({
            "model": "claude-haiku-4-5",
            "max_tokens": 32_000,
            "stream": true,
            "system": [
                { "type": "text", "text": "You are coach.", "cache_control": { "type": "ephemeral" } },
                { "type": "text", "text": "It is noon." },
            ],
            "tools": [
                { "name": "message", "description": "Search.", "input_schema": { "type": "object" } },
                {
                    "name": "recall",
                    "description": "Search.",
                    "input_schema": { "type": "object" },
                    "cache_control": { "type": "ephemeral" },
                },
            ],
            "messages": [
                { "role": "user", "content": [{ "type": "text", "text": "hi" }] },
                { "role": "assistant", "content": [
                    { "type": "text", "text": "Let me see." }, tool_use("a"), tool_use("b"),
                ] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "a", "content": "green" },
                    { "type": "tool_result", "tool_use_id": "b", "content": "no luck", "is_error": true },
                    { "type": "text", "text": "hurry" },
                ] },
            ],
        })
    );
}

#[test]
fn what_was_carried_goes_back_where_it_stood_to_the_model_that_thought_it() {
    let thought = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
    let sealed = json!({ "type": "redacted_thinking", "data": "d" });
    let model = "anthropic:claude-opus-5-5";
    let items = vec![
        thought.clone(),
        json!({ "text": 4 }),
        json!({ "call": "a" }),
        sealed.clone(),
        json!({ "call": "b" }),
    ];
    let spoken = ChatMessage::Assistant {
        text: "one two".into(),
        calls: calls(&["a", "b"]),
        carry: carry::pack(API_NAME, model, items),
    };
    let messages =
        vec![ChatMessage::user("hi"), spoken, result("a", "", false), result("b", "", false)];

    let content = |model: &str| {
        let encoded = encode(&asked(model, messages.clone()));
        let blocks = encoded["messages"][1]["content"].as_array().unwrap().clone();
        let short = |block: &Value| match block["type"].as_str().unwrap() {
            "text" => block["text"].as_str().unwrap().to_owned(),
            "tool_use" => block["id"].as_str().unwrap().to_owned(),
            kind => kind.to_owned(),
        };
        (blocks.iter().map(short).collect::<Vec<_>>(), blocks)
    };
    let (order, blocks) = content(model);
    assert_eq!(order, ["thinking", "one ", "a", "redacted_thinking", "b", "two"]);
    assert_eq!((&blocks[0], &blocks[3]), (&thought, &sealed));
    assert_eq!(content("anthropic:claude-opus-5").0, ["one two", "a", "b"]);
}

#[test]
fn a_temperature_is_sent_to_a_model_that_accepts_one() {
    let told = |model: &str, thinking| {
        let request = Request { temperature: Some(0.3), thinking, ..asked(model, vec![]) };
        encode(&request)["temperature"].clone()
    };

    assert_eq!(told("anthropic:claude-haiku-4-5", Thinking::Off), 0.3);
    assert_eq!(told("anthropic:claude-haiku-4-5", Thinking::Low), Value::Null);
    assert_eq!(told("anthropic:claude-opus-5", Thinking::Off), Value::Null);
}

#[test]
fn each_model_is_told_how_much_to_think_in_its_own_way() {
    let told = |model: &str, thinking| {
        let encoded = encode(&Request { thinking, ..asked(model, vec![ChatMessage::user("hi")]) });
        (encoded["thinking"].clone(), encoded["output_config"]["effort"].clone())
    };
    let none = Value::Null;
    let bound = json!({
        "type": "adaptive",
        "block_binding": { "prefix_mismatch_behavior": "drop_block" },
    });

    let budget = |tokens: u32| json!({ "type": "enabled", "budget_tokens": tokens });
    assert_eq!(told("anthropic:claude-haiku-4-5", Thinking::Off), (none.clone(), none.clone()));
    assert_eq!(told("anthropic:claude-haiku-4-5", Thinking::Low), (budget(2_048), none.clone()));
    assert_eq!(told("anthropic:claude-haiku-4-5", Thinking::High), (budget(24_576), none.clone()));

    let adaptive = json!({ "type": "adaptive" });
    assert_eq!(told("anthropic:claude-opus-4-6", Thinking::Off), (none.clone(), none.clone()));
    assert_eq!(told("anthropic:claude-opus-4-6", Thinking::Medium), (adaptive, "medium".into()));
    let disabled = json!({ "type": "disabled" });
    assert_eq!(told("anthropic:claude-opus-5", Thinking::Off), (disabled.clone(), none.clone()));
    assert_eq!(told("anthropic:claude-haiku-5-5", Thinking::Off), (disabled, none.clone()));

    assert_eq!(told("anthropic:claude-opus-5-5", Thinking::Off), (bound.clone(), "low".into()));
    assert_eq!(told("anthropic:claude-opus-5-5", Thinking::High), (bound, "high".into()));
    assert_eq!(told("anthropic:nobody", Thinking::High), (none.clone(), none));
    let shown = |model: &str| {
        let asked = asked(model, vec![ChatMessage::user("hi")]);
        let asked = Request { thinking: Thinking::High, shows_thinking: true, ..asked };
        encode(&asked)["thinking"]["display"].clone()
    };
    assert_eq!(shown("anthropic:claude-opus-5-5"), "summarized");
    // Older models show their thinking without being asked.
    assert_eq!(shown("anthropic:claude-haiku-4-5"), Value::Null);
}

#[test]
fn a_budget_leaves_room_for_an_answer_and_is_not_asked_for_when_the_thoughts_are_lost() {
    let thinking = |request: Request| {
        let request = Request { thinking: Thinking::High, ..request };
        encode(&request)["thinking"]["budget_tokens"].clone()
    };
    let model = "anthropic:claude-haiku-4-5";
    let plain = || asked(model, vec![ChatMessage::user("hi")]);
    let answering = asked(
        model,
        vec![
            ChatMessage::user("hi"),
            ChatMessage::assistant("", calls(&["a"])),
            result("a", "", false),
        ],
    );

    assert_eq!(thinking(Request { max_output: Some(10_000), ..plain() }), 8_976);
    assert_eq!(thinking(Request { max_output: Some(2_000), ..plain() }), Value::Null);
    assert_eq!(thinking(answering), Value::Null);
}

#[test]
fn what_the_provider_would_refuse_is_not_sent() {
    let encoded = encode(&asked(
        OLD,
        vec![
            ChatMessage::assistant("  ", calls(&["call_1"])),
            result("call_1", "one", false),
            ChatMessage::assistant("", vec![]),
            ChatMessage::user(" "),
            ChatMessage::assistant("", calls(&["call_1"])),
            result("call_1", "two", false),
        ],
    ));

    // The conversation begins with the user and has neither blank texts nor duplicate ids.
    let messages = &encoded["messages"];
    let roles: Vec<&str> =
        messages.as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    assert_eq!(messages[0]["content"], json!([{ "type": "text", "text": EMPTY_TEXT }]));
    assert_eq!(messages[2]["content"][1], json!({ "type": "text", "text": EMPTY_TEXT }));
    assert_eq!(messages[3]["content"][0]["id"], "call_1-2");
    assert_eq!(messages[4]["content"][0]["tool_use_id"], "call_1-2");
}

#[test]
fn pictures_come_before_the_words_about_them() {
    let image = |data| Image { media_type: "image/png".into(), data };
    let images = vec![
        image(ImageData::Base64("aGk=".into())),
        image(ImageData::Url("https://example.com/a.png".into())),
    ];
    let request = asked(OLD, vec![ChatMessage::User { text: "look".into(), images }]);

    assert_eq!(
        encode(&request)["messages"][0]["content"],
        json!([
            { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "aGk=" } },
            { "type": "image", "source": { "type": "url", "url": "https://example.com/a.png" } },
            { "type": "text", "text": "look" },
        ])
    );
    let blind =
        ModelCard { images: false, thinking: ThinkingControl::default(), ..ModelCard::default() };
    let encoded = encode(&Request { card: Some(Arc::new(blind)), ..request });
    assert_eq!(
        encoded["messages"][0]["content"][0]["text"],
        "[2 pictures were shown here that this model cannot see]"
    );
}

#[test]
fn what_a_client_asks_for_is_sent_and_a_strict_schema_enforced() {
    let (options, schema) = crate::model::tests::options();
    let request = Request { thinking: Thinking::Off, options, ..asked(OLD, vec![]) };

    let body = encode(&request);

    assert_eq!((&body["temperature"], &body["top_p"]), (&json!(0.25), &json!(0.5)));
    assert_eq!(body["stop_sequences"], json!(["END"]));
    assert_eq!(body["output_config"]["format"], json!({ "type": "json_schema", "schema": schema }));
}
