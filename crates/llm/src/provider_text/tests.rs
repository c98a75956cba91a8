//! What is left of providers' words, and what never is.

use holdfast_types::{Chat, ToolCall, ToolSpec};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::scripted_model::tests::request;

fn with_messages(messages: Vec<ChatMessage>) -> Request {
    let chat = Chat { stable: "".into(), dynamic: String::new(), messages, tools: vec![] };
    Request { model: "openai:gpt-5-turbo-preview".parse().unwrap(), chat, ..request() }
}

fn saying(text: &str) -> Request {
    with_messages(vec![ChatMessage::user(text)])
}

fn cleaned(text: &str) -> String {
    clean(text, Some("hunter2-key"), &saying("my sister Anna lives in Chur"))
}

#[test]
fn the_message_of_each_vendors_error_is_found() {
    let nested = json!({"error": {"message": "prompt is too long"}}).to_string();
    for (body, expected) in [
        (json!({"error": {"message": "field X is wrong", "code": "bad"}}), "field X is wrong"),
        (json!([{"error": {"message": "no quota"}}]), "no quota"),
        (json!({"error": "model not loaded"}), "model not loaded"),
        (json!({"error": &nested}), "prompt is too long"),
        (
            json!({"error": {"message": "Provider returned error", "metadata": {"raw": nested}}}),
            "Provider returned error: prompt is too long",
        ),
        (json!({"detail": [{"loc": ["body"], "msg": "field required"}]}), "field required"),
        (json!({"message": "not found", "object": "error"}), "not found"),
        (json!({"reason": "other"}), r#"{"reason":"other"}"#),
    ] {
        assert_eq!(text_of_body(body.to_string().as_bytes()), expected);
    }
    assert_eq!(text_of_body(b"upstream gone"), "upstream gone");
    let page = b"<html><head><Title>502 Bad Gateway</Title></head></html>";
    assert_eq!(text_of_body(page), "a web page: 502 Bad Gateway");
}

#[test]
fn a_part_of_an_answer_without_an_error_is_not_repeated() {
    assert_eq!(text_of_part(br#"{"choices":[{"delta":{"content":"hello"}}]}"#), None);
}

#[test]
fn the_code_is_a_single_word() {
    let code_of = |body: Value| code(body.to_string().as_bytes());

    assert_eq!(code_of(json!({"error": {"code": "bad_model", "type": "x"}})).unwrap(), "bad_model");
    assert_eq!(
        code_of(json!({"type": "error", "error": {"type": "overloaded_error"}})).unwrap(),
        "overloaded_error"
    );
    assert_eq!(code_of(json!({"error": {"code": "my key is wrong"}})), None);
}

#[test]
fn secrets_are_removed_wherever_they_stand() {
    for (text, expected) in [
        (
            "Incorrect API key provided: sk-proj-abcd****wxyz. See docs",
            "Incorrect API key provided: […] See docs",
        ),
        ("key hunter2-key is wrong", "key […] is wrong"),
        ("Authorization: Bearer abc123def", "Authorization: Bearer […]"),
        ("missing bearer token", "missing bearer token"),
        ("got api_key=qwerty, want another", "got api_key=[…], want another"),
        (
            "call https://u:p@api.example.com/v1/chat?key=abc#x now",
            "call https://[…]api.example.com/v1/chat[…] now",
        ),
        ("account anna@example.com is closed", "account […] is closed"),
        ("request 9f8e7d6c5b4a39281706f5e4d3c2b1a0 failed", "request […] failed"),
        (
            "max_tokens: 8192 is above 4096 of gpt-5-turbo-preview",
            "max_tokens: 8192 is above 4096 of gpt-5-turbo-preview",
        ),
        ("messages.0.content.1.tool_use.id: wrong", "messages.0.content.1.tool_use.id: wrong"),
        ("use claude-3-5-sonnet-20241022 instead", "use claude-3-5-sonnet-20241022 instead"),
    ] {
        assert_eq!(cleaned(text), expected);
    }
}

#[test]
fn the_conversation_is_removed_however_it_is_quoted() {
    assert_eq!(cleaned("bad: 'My sister  Anna lives in Chur' (400)"), "bad: '[…]' (400)");
    let calls = vec![ToolCall {
        id: "1".into(),
        tool: "t".into(),
        input: r#"{"to":"Z\u00fcrich Hauptbahnhof"}"#.into(),
    }];
    let asked = with_messages(vec![
        ChatMessage::user("line one\nline two"),
        ChatMessage::assistant("", calls),
        ChatMessage::Tool {
            call: "1".into(), output: "我妹妹住在库尔".into(), failed: false
        },
    ]);
    let shown = |text: &str| clean(text, None, &asked);

    assert_eq!(shown(r#"bad: "line one\nline two""#), r#"bad: "[…]""#);
    assert_eq!(shown("wrong city Zürich Hauptbahnhof!"), "wrong city […]!");
    assert_eq!(shown("bad: 我妹妹住在库尔。"), "bad: […]。");
}

#[test]
fn names_of_the_model_and_of_tools_are_kept() {
    let mut asked = saying("use memory_search_all with gpt-5-turbo-preview");
    asked.chat.tools = vec![ToolSpec {
        name: "memory_search_all".into(),
        description: String::new(),
        input: json!({}),
    }];

    let text = "function memory_search_all of gpt-5-turbo-preview is wrong";
    assert_eq!(clean(text, None, &asked), text);
}

#[test]
fn a_text_is_one_short_line() {
    let text = clean(&format!("a\n\u{202e}b\u{7}{}", " word".repeat(400)), None, &saying("x"));

    assert_eq!(text.chars().count(), MAX_TEXT_CHARS);
    assert!(text.starts_with("a b word") && text.ends_with('…'), "{text}");
}

proptest! {
    #[test]
    fn no_run_of_the_conversation_is_repeated(
        said in "[^\\\\\\p{C}]{20,120}", from in 0_usize..100, length in 20_usize..80, case in any::<bool>(),
    ) {
        let quoted: String = said.chars().skip(from).take(length).collect();
        let quoted = if case { quoted.to_ascii_uppercase() } else { quoted };
        let text = clean(&format!("refused: {quoted} (400)"), None, &saying(&said));

        let flat = |text: &str| -> String {
            text.chars().filter(|char| !char.is_whitespace() && !"\"'`".contains(*char)).collect()
        };
        let (said, shown) = (flat(&said).to_lowercase(), flat(&text).to_lowercase());
        let shown: Vec<char> = shown.chars().collect();
        for run in shown.windows(20) {
            let run: String = run.iter().collect();
            prop_assert!(!said.contains(&run), "{run:?} of {text:?}");
        }
    }

    #[test]
    fn no_key_is_repeated(key in "[A-Za-z0-9_-]{8,64}", before in ".{0,40}", after in ".{0,40}") {
        let text = clean(&format!("{before}{key}{after}"), Some(&key), &saying("x"));
        prop_assert!(!text.contains(&key), "{text}");
    }

    #[test]
    fn no_long_random_word_is_repeated(word in "[a-z]{1,9}[0-9][a-zA-Z0-9]{20,40}") {
        let text = clean(&format!("the token '{word}' is wrong"), None, &saying("x"));
        prop_assert!(!text.contains(&word), "{text}");
    }

    #[test]
    fn any_text_and_any_body_can_be_cleaned(body in prop::collection::vec(any::<u8>(), 0..300), said in ".{0,200}") {
        let text = clean(&text_of_body(&body), Some("k"), &saying(&said));
        prop_assert!(text.chars().count() <= MAX_TEXT_CHARS && !text.chars().any(char::is_control));
    }
}
