//! Streams as Google sends them.

use holdfast_types::ToolCall;
use proptest::prelude::*;

use super::*;
use crate::{
    http::Frames,
    scripted_model::tests::request,
    streams::{broken_before, cut_everywhere, decode},
};

const TOOLS: &str = include_str!("../../../streams/gemini-tools.sse");

fn decoder() -> Decoder {
    Decoder::new(&Request { model: "gemini:gemini-3.8-flash".parse().unwrap(), ..request() })
}

fn events(values: &[Value]) -> Result<Reply, Error> {
    let stream: String = values.iter().map(|value| format!("data: {value}\r\n\r\n")).collect();
    decode(decoder(), Frames::Events, &[stream.as_bytes()]).1
}

fn piece(parts: &Value, reason: &str) -> Value {
    json!({ "candidates": [{ "content": { "parts": parts }, "finishReason": reason }] })
}

#[test]
fn a_recorded_stream_is_read_the_same_wherever_it_is_cut() {
    let (deltas, reply) = cut_everywhere(decoder, Frames::Events, TOOLS);

    let call = |id: &str, input: &str| ToolCall {
        id: id.into(),
        tool: "recall".into(),
        input: input.into(),
    };
    assert_eq!(
        reply.unwrap(),
        Reply {
            record: None,
            text: "Grüße, 語 there".into(),
            thinking: "They want tea.".into(),
            // One has an id, the other gets one.
            calls: vec![call("fc-1", r#"{"query":"tea"}"#), call("call_2", r#"{"query":"grün"}"#)],
            usage: Usage { input: 120, cached: 64, output: 37, reasoning: 20, ..Usage::default() },
            model: "gemini:gemini-3.8-flash".into(),
            stop: StopReason::ToolUse,
            carry: Some(json!({
                "api": "gemini",
                "model": "gemini:gemini-3.8-flash",
                "items": [
                    { "text": 18 },
                    { "call": "fc-1", "is_given": true, "signature": "CtQBAVSoXO5" },
                    { "call": "call_2", "is_given": false },
                ],
            })),
        }
    );
    assert_eq!(
        deltas,
        [
            Delta::Thought("They want tea.".into()),
            Delta::Text("Grüße, 語 ".into()),
            Delta::Text("there".into()),
            Delta::ToolCallStarted { id: "fc-1".into(), name: "recall".into() },
            Delta::ToolCallStarted { id: "call_2".into(), name: "recall".into() },
        ]
    );
}

#[test]
fn a_stream_that_ends_early_broke_off() {
    broken_before(decoder, Frames::Events, TOOLS, r#""responseId":"r1"}"#);
}

#[test]
fn an_error_in_the_midst_of_a_stream_is_one() {
    let error = |status: &str, code: u16| {
        let error = json!({ "error": { "code": code, "status": status, "message": "no" } });
        events(&[error]).unwrap_err().class()
    };

    assert_eq!(error("UNAVAILABLE", 503), "unavailable");
    assert_eq!(error("RESOURCE_EXHAUSTED", 429), "rate_limited");
    assert_eq!(error("INVALID_ARGUMENT", 400), "bad_request");
}

#[test]
fn why_it_stopped_is_told() {
    let text = json!([{ "text": "so" }]);
    for (reason, stop) in [
        ("STOP", StopReason::End),
        ("MAX_TOKENS", StopReason::MaxTokens),
        ("SAFETY", StopReason::Filtered),
        ("RECITATION", StopReason::Filtered),
        ("SOMETHING_NEW", StopReason::End),
    ] {
        assert_eq!(events(&[piece(&text, reason)]).unwrap().stop, stop, "{reason}");
    }
    for (reason, class) in [
        ("STOP", "empty"),
        ("SAFETY", "filtered"),
        ("MAX_TOKENS", "too_long"),
        ("MALFORMED_FUNCTION_CALL", "malformed"),
    ] {
        assert_eq!(events(&[piece(&json!([]), reason)]).unwrap_err().class(), class, "{reason}");
    }
    let blocked = json!({ "promptFeedback": { "blockReason": "SAFETY" } });
    assert_eq!(events(&[blocked]).unwrap_err().class(), "filtered");
}

#[test]
fn a_signature_belongs_to_what_was_said_up_to_it() {
    let reply = events(&[
        piece(
            &json!([{ "text": "one" }, { "text": "", "thoughtSignature": "s1" }, { "text": "two" }]),
            "STOP",
        ),
        json!({}),
    ]);
    assert_eq!(reply.unwrap().text, "onetwo");

    let mut decoder = decoder();
    let parts = json!([
        { "text": "one" },
        { "text": "", "thoughtSignature": "s1" },
        { "text": "two" },
        { "functionCall": { "name": "t", "args": {} } },
    ]);
    decoder.whole(json!([piece(&parts, "STOP")]).to_string().as_bytes()).unwrap();
    let carry = decoder.finish().unwrap().carry.unwrap();

    assert_eq!(
        carry["items"],
        json!([
            { "text": 3, "signature": "s1" },
            { "text": 3 },
            { "call": "call_1", "is_given": false },
        ])
    );
}

proptest! {
    #[test]
    fn no_bytes_break_it(data in prop::collection::vec("\\PC{0,60}|[\\{\\}\\[\\]\",:a-z0-9]{0,40}", 0..8)) {
        let mut decoder = decoder();
        for data in data {
            if decoder.push(data.as_bytes()).is_err() {
                return Ok(());
            }
        }
        let _ = decoder.finish();
    }
}
