//! Request bodies for Google.

use holdfast_types::{Chat, ToolSpec};

use super::*;
use crate::scripted_model::{ScriptedModel, tests::request};

const OLD: &str = "gemini:gemini-2.5-flash-lite";
const NEW: &str = "gemini:gemini-3.8-flash";

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

fn calls() -> Vec<ToolCall> {
    ScriptedModel::calls(&[("a", "recall", "{\"q\":1}"), ("b", "status", "{}")]).calls
}

#[test]
fn a_chat_becomes_contents_and_results_stand_right_after_their_calls() {
    let mut request = asked(
        OLD,
        vec![
            ChatMessage::user("hi"),
            ChatMessage::assistant("Let me see.", calls()),
            result("a", "green", false),
            result("b", "no luck", true),
            ChatMessage::user("hurry"),
        ],
    );
    request.chat.tools = vec![ToolSpec {
        name: "recall".into(),
        description: "Search.".into(),
        input: json!({ "type": "object" }),
    }];
    request.max_output = Some(99);

    assert_eq!(
        encode(&request),
        json!({
            "systemInstruction": { "parts": [{ "text": "You are coach.\n\nIt is noon." }] },
            "tools": [{ "functionDeclarations": [{
                "name": "recall",
                "description": "Search.",
                "parametersJsonSchema": { "type": "object" },
            }] }],
            "generationConfig": { "maxOutputTokens": 99, "thinkingConfig": { "thinkingBudget": 0 } },
            "contents": [
                { "role": "user", "parts": [{ "text": "hi" }] },
                { "role": "model", "parts": [
                    { "text": "Let me see." },
                    { "functionCall": { "name": "recall", "args": { "q": 1 } } },
                    { "functionCall": { "name": "status", "args": {} } },
                ] },
                { "role": "user", "parts": [
                    { "functionResponse": { "name": "recall", "response": { "output": "green" } } },
                    { "functionResponse": { "name": "status", "response": { "error": "no luck" } } },
                ] },
                { "role": "user", "parts": [{ "text": "hurry" }] },
            ],
        })
    );
}

#[test]
fn a_signature_goes_back_with_its_part_and_the_first_call_has_one() {
    let items = vec![
        json!({ "text": 4, "signature": "s1" }),
        json!({ "call": "a", "is_given": true, "signature": "s2" }),
        json!({ "call": "b", "is_given": false }),
    ];
    let spoken = ChatMessage::Assistant {
        text: "so, ".into(),
        calls: calls(),
        carry: carry::pack(API_NAME, NEW, items),
    };
    let messages =
        vec![ChatMessage::user("hi"), spoken, result("a", "", false), result("b", "", false)];

    let encoded = encode(&asked(NEW, messages.clone()));
    assert_eq!(
        encoded["contents"][1]["parts"],
        json!([
            { "text": "so, ", "thoughtSignature": "s1" },
            {
                "functionCall": { "id": "a", "name": "recall", "args": { "q": 1 } },
                "thoughtSignature": "s2",
            },
            { "functionCall": { "name": "status", "args": {} } },
        ])
    );
    let results = &encoded["contents"][2]["parts"];
    assert_eq!(results[0]["functionResponse"]["id"], "a");
    assert_eq!(results[1]["functionResponse"].get("id"), None);

    let other = encode(&asked("gemini:gemini-3.5-flash", messages));
    let parts = &other["contents"][1]["parts"];
    assert_eq!(parts[1]["thoughtSignature"], SIGNATURE_PLACEHOLDER);
    assert_eq!((parts[0].get("thoughtSignature"), parts[2].get("thoughtSignature")), (None, None));
}

#[test]
fn a_temperature_is_sent_to_a_model_that_accepts_one() {
    let told = |model: &str, thinking| {
        let request = Request { temperature: Some(0.3), thinking, ..asked(model, vec![]) };
        encode(&request)["generationConfig"]["temperature"].clone()
    };

    assert_eq!(told("gemini:gemini-2.5-flash", Thinking::Off), 0.3);
    assert_eq!(told("gemini:gemini-2.5-flash", Thinking::Low), Value::Null);
    assert_eq!(told("gemini:gemini-3.5-flash", Thinking::Off), Value::Null);
}

#[test]
fn each_model_is_told_how_much_to_think_in_its_own_way() {
    let told = |model: &str, thinking| {
        let encoded = encode(&Request { thinking, ..asked(model, vec![]) });
        encoded["generationConfig"]["thinkingConfig"].clone()
    };

    assert_eq!(told(NEW, Thinking::Off), json!({ "thinkingLevel": "low" }));
    assert_eq!(told(NEW, Thinking::High), json!({ "thinkingLevel": "high" }));
    assert_eq!(told("gemini:gemini-2.5-flash", Thinking::Off), json!({ "thinkingBudget": 0 }));
    assert_eq!(told("gemini:gemini-2.5-pro", Thinking::Off), json!({ "thinkingBudget": 128 }));
    assert_eq!(told("gemini:gemini-2.5-pro", Thinking::Low), json!({ "thinkingBudget": 1_024 }));
    assert_eq!(told("gemini:of-tomorrow", Thinking::High), Value::Null);
    let shown = |thinking| {
        let encoded = encode(&Request { thinking, shows_thinking: true, ..asked(NEW, vec![]) });
        encoded["generationConfig"]["thinkingConfig"]["includeThoughts"].clone()
    };
    assert_eq!((shown(Thinking::Low), shown(Thinking::Off)), (true.into(), Value::Null));
}

#[test]
fn a_conversation_begins_with_its_user_and_pictures_are_shown() {
    let image = |data| Image { media_type: "image/png".into(), data };
    let images = vec![
        image(ImageData::Base64("aGk=".into())),
        image(ImageData::Url("https://example.com/a.png".into())),
    ];
    let request = asked(
        OLD,
        vec![
            ChatMessage::assistant("Good morning.", vec![]),
            ChatMessage::User { text: "look".into(), images },
        ],
    );

    let contents = &encode(&request)["contents"];
    assert_eq!(contents[0], json!({ "role": "user", "parts": [{ "text": EMPTY_TEXT }] }));
    assert_eq!(
        contents[2]["parts"],
        json!([
            { "inlineData": { "mimeType": "image/png", "data": "aGk=" } },
            { "fileData": { "mimeType": "image/png", "fileUri": "https://example.com/a.png" } },
            { "text": "look" },
        ])
    );
}

#[test]
fn what_a_client_asks_for_is_sent_and_a_form_where_the_model_takes_it_beside_tools() {
    let (options, schema) = crate::model::tests::options();
    let mut request = Request { options, ..asked(OLD, vec![]) };

    let config = encode(&request)["generationConfig"].clone();
    assert_eq!((&config["temperature"], &config["topP"]), (&json!(0.25), &json!(0.5)));
    assert_eq!((&config["stopSequences"], &config["seed"]), (&json!(["END"]), &json!(7)));
    assert_eq!(config["presencePenalty"], json!(1.5));
    assert_eq!(config["responseMimeType"], "application/json");
    assert_eq!(config["responseJsonSchema"], schema);

    let tool = ToolSpec { name: "t".into(), description: String::new(), input: json!({}) };
    request.chat.tools = vec![tool];
    assert_eq!(encode(&request)["generationConfig"].get("responseMimeType"), None);
    request.model = NEW.parse().unwrap();
    assert_eq!(encode(&request)["generationConfig"]["responseMimeType"], "application/json");
}
