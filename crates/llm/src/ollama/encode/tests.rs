//! Request bodies for Ollama.

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

#[test]
fn a_chat_becomes_messages_and_results_name_their_tools() {
    let model = "ollama:gpt-oss:20b";
    let calls =
        ScriptedModel::calls(&[("call_1", "recall", "{\"q\":1}"), ("call_2", "status", "{")]).calls;
    let spoken = ChatMessage::Assistant {
        text: "Let me see.".into(),
        calls,
        carry: carry::pack(API_NAME, model, vec![json!({ "thinking": "hm" })]),
    };
    let mut request = asked(
        model,
        vec![
            ChatMessage::user("hi"),
            spoken,
            result("call_1", "green", false),
            result("call_2", "no luck", true),
        ],
    );
    request.chat.tools = vec![ToolSpec {
        name: "recall".into(),
        description: "Search.".into(),
        input: json!({ "type": "object" }),
    }];
    request.max_output = Some(99);
    request.thinking = Thinking::Medium;

    assert_eq!(
        encode(&request),
        json!({
            "model": "gpt-oss:20b",
            "stream": true,
            "truncate": false,
            "think": "medium",
            "options": { "num_predict": 99 },
            "tools": [{ "type": "function", "function": {
                "name": "recall",
                "description": "Search.",
                "parameters": { "type": "object" },
            } }],
            "messages": [
                { "role": "system", "content": "You are coach.\n\nIt is noon." },
                { "role": "user", "content": "hi" },
                {
                    "role": "assistant",
                    "content": "Let me see.",
                    "thinking": "hm",
                    "tool_calls": [
                        { "function": { "name": "recall", "arguments": { "q": 1 } } },
                        { "function": { "name": "status", "arguments": { "unreadable": "{" } } },
                    ],
                },
                { "role": "tool", "tool_name": "recall", "content": "green" },
                { "role": "tool", "tool_name": "status", "content": "error: no luck" },
            ],
        })
    );
}

#[test]
fn only_who_can_be_told_how_much_to_think_is_told() {
    let told = |model: &str, thinking| {
        let encoded = encode(&Request { thinking, ..asked(model, vec![]) });
        encoded.get("think").cloned()
    };

    assert_eq!(told("ollama:qwen3:4b", Thinking::Off), Some(false.into()));
    assert_eq!(told("ollama:qwen3:4b", Thinking::Low), Some(true.into()));
    assert_eq!(told("ollama:gpt-oss:20b", Thinking::Off), Some("low".into()));
    assert_eq!(told("ollama:nobody", Thinking::High), None);
}

#[test]
fn a_temperature_is_sent_to_a_model_that_accepts_one() {
    let told = |model: &str, thinking| {
        let request = Request { temperature: Some(0.3), thinking, ..asked(model, vec![]) };
        encode(&request)["options"]["temperature"].clone()
    };

    assert_eq!(told("ollama:qwen3:4b", Thinking::Off), 0.3);
    assert_eq!(told("ollama:qwen3:4b", Thinking::Low), Value::Null);
    assert_eq!(told("ollama:llava", Thinking::Off), Value::Null);
}

#[test]
fn how_much_is_read_is_set_by_who_runs_the_server() {
    let request = asked("ollama:qwen3:4b", vec![]);
    assert_eq!(encode(&request).get("options"), None);

    let card = ModelCard { context: 16_384, ..ModelCard::default() };
    let encoded = encode(&Request { card: Some(Arc::new(card)), ..request });
    assert_eq!(encoded["options"], json!({ "num_ctx": 16_384 }));
}

#[test]
fn a_picture_that_is_here_is_shown_and_one_that_is_elsewhere_is_not() {
    let image = |data| Image { media_type: "image/png".into(), data };
    let images = vec![
        image(ImageData::Base64("aGk=".into())),
        image(ImageData::Url("https://example.com/a.png".into())),
    ];
    let card =
        ModelCard { images: true, thinking: ThinkingControl::default(), ..ModelCard::default() };
    let request = Request {
        card: Some(Arc::new(card)),
        ..asked("ollama:llava", vec![ChatMessage::User { text: "look".into(), images }])
    };

    assert_eq!(
        encode(&request)["messages"][1],
        json!({
            "role": "user",
            "content": "look\n[a picture was shown here that this model cannot see]",
            "images": ["aGk="],
        })
    );
}

#[test]
fn what_a_client_asks_for_is_sent_and_a_form_where_there_are_no_tools() {
    let (options, schema) = crate::model::tests::options();
    let mut request = Request { options, ..asked("ollama:llava", vec![]) };

    let body = encode(&request);
    assert_eq!(body["options"]["temperature"], 0.25);
    assert_eq!((&body["options"]["top_p"], &body["options"]["seed"]), (&json!(0.5), &json!(7)));
    assert_eq!(body["options"]["stop"], json!(["END"]));
    assert_eq!(body["format"], schema);

    let tool =
        holdfast_types::ToolSpec { name: "t".into(), description: String::new(), input: json!({}) };
    request.chat.tools = vec![tool];
    assert_eq!(encode(&request).get("format"), None);
}
