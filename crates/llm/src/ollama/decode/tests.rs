//! Streams as Ollama sends them.

use holdfast_types::{ToolCall, Usage};
use proptest::prelude::*;

use super::*;
use crate::{
    http::Frames,
    scripted_model::tests::request,
    streams::{broken_before, cut_everywhere, decode},
};

const TOOLS: &str = include_str!("../../../streams/ollama-tools.ndjson");

fn decoder() -> Decoder {
    Decoder::new(&Request { model: "ollama:gpt-oss:20b".parse().unwrap(), ..request() })
}

fn lines(values: &[Value]) -> Result<Reply, Error> {
    let stream: String = values.iter().map(|value| format!("{value}\n")).collect();
    decode(decoder(), Frames::Lines, &[stream.as_bytes()]).1
}

fn last(text: &str, reason: &str) -> Result<Reply, Error> {
    lines(&[json!({ "message": { "content": text }, "done": true, "done_reason": reason })])
}

#[test]
fn a_recorded_stream_is_read_the_same_wherever_it_is_cut() {
    let (deltas, reply) = cut_everywhere(decoder, Frames::Lines, TOOLS);

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
            thinking: "They want grünen tea.".into(),
            calls: vec![
                call("call_1", "recall", r#"{"query":"tea"}"#),
                call("call_2", "session_status", "{}"),
            ],
            usage: Usage { input: 120, output: 17, ..Usage::default() },
            model: "ollama:gpt-oss:20b".into(),
            stop: StopReason::ToolUse,
            carry: Some(json!({
                "api": "ollama",
                "model": "ollama:gpt-oss:20b",
                "items": [{ "thinking": "They want grünen tea." }],
            })),
        }
    );
    assert_eq!(
        deltas,
        [
            Delta::Thought("They want ".into()),
            Delta::Thought("grünen tea.".into()),
            Delta::Text("Grüße, 語 ".into()),
            Delta::Text("there".into()),
            Delta::ToolCallStarted { id: "call_1".into(), name: "recall".into() },
            Delta::ToolCallStarted { id: "call_2".into(), name: "session_status".into() },
        ]
    );
}

#[test]
fn a_stream_that_ends_early_broke_off() {
    broken_before(decoder, Frames::Lines, TOOLS, r#""eval_duration":2345678}"#);
}

#[test]
fn an_error_in_the_midst_of_a_stream_is_one() {
    let class = |error: &str| {
        let said = json!({ "message": { "content": "Hel" }, "done": false });
        lines(&[said, json!({ "error": error })]).unwrap_err().class()
    };

    assert_eq!(class("an error was encountered while running the model"), "unavailable");
    assert_eq!(class(r#"{"error":{"type":"exceed_context_size_error"}}"#), "context_overflow");
}

#[test]
fn why_it_stopped_is_told() {
    assert_eq!(last("so", "stop").unwrap().stop, StopReason::End);
    assert_eq!(last("so", "length").unwrap().stop, StopReason::MaxTokens);
    assert_eq!(last("", "stop").unwrap_err().class(), "empty");
    assert_eq!(last("", "length").unwrap_err().class(), "too_long");
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
