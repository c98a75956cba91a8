//! Streams as OpenAI sends them.

use holdfast_types::ToolCall;
use proptest::prelude::*;

use super::*;
use crate::{
    http::Frames,
    scripted_model::tests::request,
    streams::{broken_before, cut_everywhere, decode},
};

const TOOLS: &str = include_str!("../../../streams/responses-tools.sse");
const FAILED: &str = include_str!("../../../streams/responses-failed.sse");

fn decoder() -> Decoder {
    Decoder::new(&Request { model: "openai:gpt-5".parse().unwrap(), ..request() })
}

fn events(values: &[Value]) -> Result<Reply, Error> {
    let stream: String = values.iter().map(|value| format!("data: {value}\n\n")).collect();
    decode(decoder(), Frames::Events, &[stream.as_bytes()]).1
}

/// Returns a stream with this text and this end.
fn ending(text: &str, kind: &str, reason: &Value) -> Result<Reply, Error> {
    events(&[
        json!({ "type": "response.output_item.added", "output_index": 0, "item": { "type": "message" } }),
        json!({ "type": "response.output_text.delta", "output_index": 0, "delta": text }),
        json!({ "type": kind, "response": { "incomplete_details": reason } }),
    ])
}

#[test]
fn a_recorded_stream_is_read_the_same_wherever_it_is_cut() {
    let (deltas, reply) = cut_everywhere(decoder, Frames::Events, TOOLS);

    let call = |id: &str, tool: &str, input: &str| ToolCall {
        id: id.into(),
        tool: tool.into(),
        input: input.into(),
    };
    assert_eq!(
        reply.unwrap(),
        Reply {
            record: None,
            text: "Grüße, 語 there".into(),
            thinking: String::new(),
            calls: vec![
                call("call_a", "recall", r#"{"query":"tea"}"#),
                call("call_b", "session_status", "{}"),
            ],
            usage: Usage { input: 120, cached: 64, output: 17, reasoning: 9, ..Usage::default() },
            model: "openai:gpt-5".into(),
            stop: StopReason::ToolUse,
            carry: Some(json!({
                "api": "openai-responses",
                "model": "openai:gpt-5",
                "items": [
                    { "id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAAABo0m" },
                    { "text": 18, "phase": "commentary" },
                    { "call": "call_a" },
                    { "call": "call_b" },
                ],
            })),
        }
    );
    assert_eq!(
        deltas,
        [
            Delta::Text("Grüße, 語 ".into()),
            Delta::Text("there".into()),
            Delta::ToolCallStarted { id: "call_a".into(), name: "recall".into() },
            Delta::ToolCallStarted { id: "call_b".into(), name: "session_status".into() },
        ]
    );
}

#[test]
fn a_stream_that_ends_early_broke_off() {
    broken_before(decoder, Frames::Events, TOOLS, r#""total_tokens":137}}}"#);
}

#[test]
fn a_failure_in_the_midst_of_a_stream_is_one() {
    let (deltas, reply) = cut_everywhere(decoder, Frames::Events, FAILED);
    assert_eq!(deltas, [Delta::Text("Hel".into())]);
    assert!(matches!(reply, Err(Error::Unavailable { status: None, .. })));

    let failed = |code: &str| {
        let failed =
            json!({ "type": "response.failed", "response": { "error": { "code": code } } });
        events(&[failed]).unwrap_err().class()
    };
    assert_eq!(failed("context_length_exceeded"), "context_overflow");
    assert_eq!(failed("rate_limit_exceeded"), "rate_limited");
    assert_eq!(failed("invalid_prompt"), "bad_request");
    let error = |error: Value| events(&[error]).unwrap_err().class();
    assert_eq!(error(json!({ "type": "error", "code": "insufficient_quota" })), "quota");
    let within = json!({ "type": "error", "error": { "type": "invalid_request_error", "code": "context_length_exceeded" } });
    assert_eq!(error(within), "context_overflow");
}

#[test]
fn why_it_stopped_is_told() {
    let done = "response.completed";
    let not = "response.incomplete";
    let for_ = |reason: &str| json!({ "reason": reason });
    assert_eq!(ending("so", done, &Value::Null).unwrap().stop, StopReason::End);
    assert_eq!(ending("so", not, &for_("max_output_tokens")).unwrap().stop, StopReason::MaxTokens);
    assert_eq!(ending("so", not, &for_("content_filter")).unwrap().stop, StopReason::Filtered);
    assert_eq!(ending("", done, &Value::Null).unwrap_err().class(), "empty");
    assert_eq!(ending("", not, &for_("content_filter")).unwrap_err().class(), "filtered");
    assert_eq!(ending("", not, &for_("max_output_tokens")).unwrap_err().class(), "too_long");

    let refused = events(&[
        json!({ "type": "response.refusal.delta", "output_index": 0, "delta": "I will not." }),
        json!({ "type": "response.completed", "response": {} }),
    ]);
    let refused = refused.unwrap();
    assert_eq!((refused.text.as_str(), refused.stop), ("I will not.", StopReason::Refusal));
}

#[test]
fn an_answer_that_comes_whole_is_read_too() {
    let body = json!({
        "output": [
            { "type": "reasoning", "id": "rs_1", "summary": [] },
            { "type": "message", "content": [{ "type": "output_text", "text": "so" }] },
            { "type": "function_call", "call_id": "a", "name": "t", "arguments": "{\"x\":1}" },
        ],
        "usage": { "input_tokens": 3, "output_tokens": 2 },
        "error": null,
    });
    let mut decoder = decoder();

    decoder.whole(body.to_string().as_bytes()).unwrap();
    let reply = decoder.finish().unwrap();

    assert_eq!((reply.text.as_str(), reply.calls[0].input.as_str()), ("so", "{\"x\":1}"));
    assert_eq!(reply.usage, Usage { input: 3, output: 2, ..Usage::default() });
    // Reasoning without encrypted content cannot be sent back.
    assert_eq!(reply.carry, None);
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

#[test]
fn what_it_says_of_its_reasoning_is_what_it_thinks_and_no_part_of_the_text() {
    let part =
        |at: u64| json!({ "type": "response.reasoning_summary_part.added", "summary_index": at });
    let said =
        |text: &str| json!({ "type": "response.reasoning_summary_text.delta", "delta": text });

    let reply = events(&[
        part(0),
        said("They want"),
        said(" tea."),
        part(1),
        said("Green tea."),
        json!({ "type": "response.output_item.added", "output_index": 1, "item": { "type": "message" } }),
        json!({ "type": "response.output_text.delta", "output_index": 1, "delta": "Yes." }),
        json!({ "type": "response.completed", "response": {} }),
    ])
    .unwrap();

    assert_eq!(reply.thinking, "They want tea.\n\nGreen tea.");
    assert_eq!(reply.text, "Yes.");
}
