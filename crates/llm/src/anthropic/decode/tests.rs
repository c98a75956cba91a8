//! Streams as Anthropic sends them.

use holdfast_types::{ToolCall, Usage};
use proptest::prelude::*;

use super::*;
use crate::{
    http::Frames,
    scripted_model::tests::request,
    streams::{broken_before, cut_everywhere, decode},
};

const TOOLS: &str = include_str!("../../../streams/anthropic-tools.sse");
const OVERLOADED: &str = include_str!("../../../streams/anthropic-overloaded.sse");

fn decoder() -> Decoder {
    let model = "anthropic:claude-opus-5-5".parse().unwrap();
    Decoder::new(&Request { model, ..request() })
}

fn events(values: &[Value]) -> Result<Reply, Error> {
    let stream: String = values.iter().map(|value| format!("data: {value}\n\n")).collect();
    decode(decoder(), Frames::Events, &[stream.as_bytes()]).1
}

/// Returns a stream with this text and this stop reason.
fn ending(text: &str, reason: &str) -> Result<Reply, Error> {
    events(&[
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": text } }),
        json!({ "type": "message_delta", "delta": { "stop_reason": reason } }),
        json!({ "type": "message_stop" }),
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
            thinking: "They want tea, grün.".into(),
            calls: vec![
                call("toolu_01T1x", "recall", r#"{"query": "tea"}"#),
                call("toolu_02T2x", "session_status", "{}"),
            ],
            usage: Usage {
                input: 1_925,
                cached: 1_800,
                output: 89,
                written: 100,
                ..Usage::default()
            },
            model: "anthropic:claude-opus-5-5".into(),
            stop: StopReason::ToolUse,
            carry: Some(json!({
                "api": "anthropic",
                "model": "anthropic:claude-opus-5-5",
                "items": [
                    {
                        "type": "thinking",
                        "thinking": "They want tea, grün.",
                        "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h",
                    },
                    { "text": 18 },
                    { "type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix" },
                    { "call": "toolu_01T1x" },
                    { "call": "toolu_02T2x" },
                ],
            })),
        }
    );
    assert_eq!(
        deltas,
        [
            Delta::Thought("They want tea".into()),
            Delta::Thought(", grün.".into()),
            Delta::Text("Grüße, 語 ".into()),
            Delta::Text("there".into()),
            Delta::ToolCallStarted { id: "toolu_01T1x".into(), name: "recall".into() },
            Delta::ToolCallStarted { id: "toolu_02T2x".into(), name: "session_status".into() },
        ]
    );
}

#[test]
fn a_stream_that_ends_early_broke_off_unless_it_was_said_why_it_stopped() {
    broken_before(decoder, Frames::Events, TOOLS, r#""usage":{"output_tokens":89}}"#);
}

#[test]
fn an_error_in_the_midst_of_a_stream_is_one() {
    let (deltas, reply) = cut_everywhere(decoder, Frames::Events, OVERLOADED);

    assert_eq!(deltas, [Delta::Text("Hel".into())]);
    assert!(matches!(reply, Err(Error::Unavailable { status: Some(529), .. })));
}

#[test]
fn why_it_stopped_is_told() {
    for (reason, stop) in [
        ("end_turn", StopReason::End),
        ("stop_sequence", StopReason::End),
        ("max_tokens", StopReason::MaxTokens),
        ("model_context_window_exceeded", StopReason::ContextWindow),
        ("pause_turn", StopReason::PauseTurn),
        ("refusal", StopReason::Refusal),
        ("something_new", StopReason::End),
    ] {
        assert_eq!(ending("so", reason).unwrap().stop, stop, "{reason}");
    }
}

#[test]
fn an_answer_of_nothing_says_why() {
    for (reason, class) in [
        ("end_turn", "empty"),
        ("refusal", "filtered"),
        ("max_tokens", "too_long"),
        ("model_context_window_exceeded", "context_overflow"),
    ] {
        assert_eq!(ending("", reason).unwrap_err().class(), class, "{reason}");
    }
}

#[test]
fn an_answer_that_comes_whole_is_read_too() {
    let body = json!({
        "type": "message",
        "content": [
            { "type": "thinking", "thinking": "hm", "signature": "s" },
            { "type": "text", "text": "so" },
            { "type": "tool_use", "id": "toolu_1", "name": "t", "input": { "a": 1 } },
        ],
        "stop_reason": "tool_use",
        "usage": { "input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 5 },
    });
    let mut decoder = decoder();

    decoder.whole(body.to_string().as_bytes()).unwrap();
    let reply = decoder.finish().unwrap();

    assert_eq!((reply.text.as_str(), reply.calls[0].input.as_str()), ("so", "{\"a\":1}"));
    assert_eq!(reply.usage, Usage { input: 7, cached: 4, output: 5, ..Usage::default() });
    assert_eq!(reply.carry.unwrap()["items"][0]["signature"], "s");
}

#[test]
fn thoughts_without_measure_are_not_carried_and_break_nothing() {
    let piece = "x".repeat(100 * 1024);
    let mut all = vec![
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "thinking", "thinking": "" } }),
        json!({ "type": "content_block_start", "index": 1, "content_block": { "type": "tool_use", "id": "t", "name": "t", "input": {} } }),
    ];
    all.extend((0..6).map(
        |_| json!({ "type": "content_block_delta", "index": 0, "delta": { "thinking": piece } }),
    ));
    all.push(json!({ "type": "message_stop" }));

    let reply = events(&all).unwrap();

    assert_eq!((reply.calls.len(), reply.carry), (1, None));
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
