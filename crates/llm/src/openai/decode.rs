//! Decoder of Chat Completions' stream.
//!
//! Compatible servers leave different things out. The decoder accepts everything unambiguous:
//!
//! | input | meaning |
//! |---|---|
//! | a call without `index` | the call with this id, else the last one |
//! | another id under a known index | another call |
//! | no ids, and a name after a whole input | another call |
//! | a call without an id, or with a duplicate or too long one | a new id is assigned |
//! | input as an object | its text |
//! | `content: null`, a list of parts | nothing; their texts |
//! | `reasoning_content`, `reasoning`, `<think>` in the text | thinking |
//! | no `[DONE]`, but a `finish_reason` | the end |
//! | neither | the stream broke off |

use holdfast_types::{ModelId, Reply, StopReason, Usage};
use serde_json::Value;

use super::{API_NAME, refusal};
use crate::{
    Delta, Error, Request, carry,
    reply_builder::{MAX_CARRY_BYTES, ReplyBuilder, count, parse},
    servers::ReasoningBack,
};

#[derive(Debug)]
pub(crate) struct Decoder {
    model: ModelId,
    gather: ReplyBuilder,
    /// One entry for each call that was started, in order.
    calls: Vec<CallIdentity>,
    /// What the server wants back of the reasoning.
    reasoning: ReasoningBack,
    /// Items of `reasoning_details`, in order.
    details: Vec<Value>,
    /// Bytes of their pieces.
    details_bytes: usize,
}

/// Identity of a call in the server's stream.
#[derive(Debug)]
struct CallIdentity {
    index: Option<u64>,
    /// Id from the server; empty if it sent none.
    given: String,
}

impl Decoder {
    pub(super) fn new(request: &Request, reasoning: ReasoningBack) -> Self {
        let (model, gather) = (request.model.clone(), ReplyBuilder::marked(request));
        Self { model, gather, calls: Vec::new(), reasoning, details: Vec::new(), details_bytes: 0 }
    }

    pub(super) const fn is_done(&self) -> bool {
        self.gather.done
    }

    pub(super) const fn has_stopped(&self) -> bool {
        self.gather.stop.is_some()
    }

    /// Decodes the data of one event.
    pub(super) fn push(&mut self, data: &[u8]) -> Result<Vec<Delta>, Error> {
        match data.trim_ascii() {
            b"" => return Ok(Vec::new()),
            b"[DONE]" => {
                self.gather.done = true;
                return Ok(Vec::new());
            }
            _ => {}
        }
        let event = parse(data)?;
        let mut deltas = Vec::new();
        self.take(&event, "delta", &mut deltas)?;
        Ok(deltas)
    }

    pub(super) fn whole(&mut self, body: &[u8]) -> Result<Vec<Delta>, Error> {
        let answer = parse(body)?;
        let mut deltas = Vec::new();
        self.take(&answer, "message", &mut deltas)?;
        if answer["choices"].is_array() {
            self.gather.done = true;
        }
        Ok(deltas)
    }

    pub(super) fn finish(mut self) -> Result<Reply, Error> {
        let items = match self.reasoning {
            ReasoningBack::No => Vec::new(),
            ReasoningBack::Content => vec![self.gather.thinking().into()],
            ReasoningBack::Details => self.details,
        };
        self.gather.carry(carry::pack(API_NAME, &self.model.to_string(), items));
        self.gather.finish()
    }

    fn take(&mut self, event: &Value, part: &str, deltas: &mut Vec<Delta>) -> Result<(), Error> {
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            return Err(refusal::mid_stream(error, &self.model));
        }
        if let Some(error) = minimax_error(event, &self.model) {
            return Err(error);
        }
        if let Some(usage) = event.get("usage").filter(|usage| usage.is_object()) {
            self.gather.usage = read_usage(usage);
        }
        let choice = &event["choices"][0];
        let said = &choice[part];
        // Servers use one of these names, or both with the same text.
        let thought = [&said["reasoning_content"], &said["reasoning"]];
        let thought = thought.into_iter().filter_map(Value::as_str).find(|text| !text.is_empty());
        self.gather.thought(thought.unwrap_or_default(), deltas);
        if self.reasoning == ReasoningBack::Details {
            said["reasoning_details"].as_array().into_iter().flatten().for_each(|piece| {
                self.add_detail(piece);
            });
        }
        for text in [&said["content"], &said["refusal"]] {
            self.gather.text(&flat(text), deltas)?;
        }
        for call in said["tool_calls"].as_array().into_iter().flatten() {
            self.take_call(call, deltas)?;
        }
        if let Some(reason) = choice["finish_reason"].as_str().filter(|reason| !reason.is_empty()) {
            self.gather.stop = Some(stop(reason));
        }
        Ok(())
    }

    /// Adds a piece of `reasoning_details`: texts of pieces with the same type and index are joined. If
    /// there is more than can be stored, nothing of it is kept.
    fn add_detail(&mut self, piece: &Value) {
        let Some(fields) = piece.as_object() else { return };
        self.details_bytes = self.details_bytes.saturating_add(piece.to_string().len());
        if self.details_bytes > MAX_CARRY_BYTES {
            self.details.clear();
            return;
        }
        let is_same = |one: &Value| one["type"] == piece["type"] && one["index"] == piece["index"];
        let Some(known) = self.details.last_mut().filter(|last| is_same(last)) else {
            self.details.push(piece.clone());
            return;
        };
        for (name, value) in fields {
            match (name.as_str(), value, &mut known[name]) {
                ("text" | "summary" | "data", Value::String(more), Value::String(text)) => {
                    text.push_str(more);
                }
                (_, Value::Null, _) => {}
                (_, value, known) => *known = value.clone(),
            }
        }
    }

    fn take_call(&mut self, piece: &Value, deltas: &mut Vec<Delta>) -> Result<(), Error> {
        let function = &piece["function"];
        let at = self.call_index(piece)?;
        self.gather.input(at, &function["arguments"])?;
        self.gather.name_call(at, function["name"].as_str().unwrap_or_default(), deltas);
        Ok(())
    }

    /// Returns the index of the call that a piece belongs to, adding a call for its first piece.
    fn call_index(&mut self, piece: &Value) -> Result<usize, Error> {
        let index = piece["index"].as_u64();
        let given = piece["id"].as_str().unwrap_or_default();
        // Pieces of several calls may be interleaved, so search instead of using the last one.
        let known = match (index, given) {
            (Some(_), _) => self.calls.iter().rposition(|call| call.index == index),
            (None, "") if piece["function"]["name"].is_string() => None,
            (None, "") => self.calls.len().checked_sub(1),
            (None, id) => self.calls.iter().rposition(|call| call.given == id),
        };
        // A server without ids begins another call with a name, when the input of the last is whole.
        let begins_another = |at: usize| {
            given.is_empty()
                && self.calls[at].given.is_empty()
                && piece["function"]["name"].as_str().is_some_and(|name| !name.is_empty())
                && !matches!(&piece["function"]["arguments"], Value::Null)
                && piece["function"]["arguments"] != ""
                && self.gather.has_whole_input(at)
        };
        let is_same = |at: &usize| {
            let call = &self.calls[*at];
            (given.is_empty() || call.given.is_empty() || call.given == given)
                && !begins_another(*at)
        };
        if let Some(at) = known.filter(is_same) {
            return Ok(at);
        }
        let at = self.gather.begin_call(given)?;
        self.calls.push(CallIdentity { index, given: given.to_owned() });
        Ok(at)
    }
}

/// An error of MiniMax, which comes with status 200 and without choices
/// (<https://platform.minimax.io/docs/api-reference/errorcode>).
fn minimax_error(event: &Value, model: &ModelId) -> Option<Error> {
    let code = event["base_resp"]["status_code"].as_u64().filter(|code| *code != 0)?;
    let has_choices = event["choices"].as_array().is_some_and(|choices| !choices.is_empty());
    (!has_choices).then(|| match code {
        1002 | 1039 | 1041 => Error::RateLimited { retry_after: None },
        1004 | 2049 => Error::Auth,
        1008 => Error::Quota,
        1026 | 1027 => Error::Filtered,
        2013 => Error::BadRequest { status: 400, code: code.to_string() },
        _ => refusal::mid_stream(&Value::Null, model),
    })
}

fn stop(reason: &str) -> StopReason {
    match reason {
        "length" => StopReason::MaxTokens,
        "tool_calls" | "function_call" => StopReason::ToolUse,
        "content_filter" => StopReason::Filtered,
        _ => StopReason::End,
    }
}

/// Returns a text, or the joined texts of a list of parts.
fn flat(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

pub(crate) fn read_usage(usage: &Value) -> Usage {
    // Servers use one of these two names.
    let cached = count(usage, "/prompt_tokens_details/cached_tokens")
        .max(count(usage, "/prompt_cache_hit_tokens"));
    let input = count(usage, "/prompt_tokens");
    let completion = count(usage, "/completion_tokens");
    // xAI, and Gemini's OpenAI-compatible address, count reasoning in the total only. It is
    // billed as output.
    let unnamed = count(usage, "/total_tokens").saturating_sub(input.saturating_add(completion));
    let written = count(usage, "/prompt_tokens_details/cache_write_tokens");
    let written_long =
        count(usage, "/prompt_tokens_details/cache_write_tokens_details/ttl_12h_tokens");
    Usage {
        input,
        cached,
        output: completion.saturating_add(unnamed),
        written: written.saturating_sub(written_long),
        written_long,
        audio_input: count(usage, "/prompt_tokens_details/audio_tokens"),
        image_input: count(usage, "/prompt_tokens_details/image_tokens"),
        reasoning: count(usage, "/completion_tokens_details/reasoning_tokens").max(unnamed),
        audio_output: count(usage, "/completion_tokens_details/audio_tokens"),
        image_output: count(usage, "/completion_tokens_details/image_tokens"),
        searches: count_searches(usage),
    }
}

/// Searches that xAI made itself.
pub(crate) fn count_searches(usage: &Value) -> u64 {
    let calls = ["web_search_calls", "x_search_calls"];
    calls
        .iter()
        .map(|calls| count(&usage["server_side_tool_usage_details"], &format!("/{calls}")))
        .sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use holdfast_types::ToolCall;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{
        http::sse::Events, reply_builder::MAX_CALL_ID_BYTES, scripted_model::tests::request,
    };

    fn decoder() -> Decoder {
        decoder_of(ReasoningBack::No)
    }

    fn decoder_of(reasoning: ReasoningBack) -> Decoder {
        let request = Request { model: "openai:gpt-5".parse().unwrap(), ..request() };
        Decoder::new(&request, reasoning)
    }

    #[test]
    fn an_error_of_minimax_with_status_200_is_one() {
        let class = |code: u64| {
            let body = json!({ "base_resp": { "status_code": code, "status_msg": "why" } });
            decoder().whole(body.to_string().as_bytes()).map_err(|error| error.class())
        };

        for (code, expected) in [
            (1002, "rate_limited"),
            (1004, "auth"),
            (1008, "quota"),
            (1027, "filtered"),
            (2013, "bad_request"),
            (1000, "unavailable"),
        ] {
            assert_eq!(class(code), Err(expected), "{code}");
        }
        assert_eq!(class(0), Ok(vec![]));
    }

    #[test]
    fn reasoning_is_carried_as_the_server_wants_it_back() {
        let carried = |reasoning, deltas: &[Value]| {
            let mut decoder = decoder_of(reasoning);
            for one in deltas {
                decoder.push(delta(one).to_string().as_bytes()).unwrap();
            }
            let call = json!({ "tool_calls": [{ "id": "a", "function": { "name": "t" } }] });
            decoder.push(delta(&call).to_string().as_bytes()).unwrap();
            decoder.push(b"[DONE]").unwrap();
            decoder.finish().unwrap().carry.map(|carry| carry["items"].clone())
        };
        let content = [json!({ "reasoning_content": "h" }), json!({ "reasoning_content": "m" })];
        let detail = |text: &str, signature: Value| {
            json!({ "reasoning_details": [
                { "type": "reasoning.text", "index": 0, "text": text, "signature": signature },
            ] })
        };
        let details = [detail("h", Value::Null), detail("m", json!("s"))];

        assert_eq!(carried(ReasoningBack::No, &content), None);
        assert_eq!(carried(ReasoningBack::Content, &content), Some(json!(["hm"])));
        assert_eq!(
            carried(ReasoningBack::Details, &details),
            Some(json!([
                { "type": "reasoning.text", "index": 0, "text": "hm", "signature": "s" },
            ]))
        );
        let long = "x".repeat(MAX_CARRY_BYTES / 2);
        let too_much =
            [detail(&long, Value::Null), detail(&long, Value::Null), detail("m", Value::Null)];
        assert_eq!(carried(ReasoningBack::Details, &too_much), None);
    }

    /// Decodes a stream that comes in these chunks.
    fn decode(chunks: &[&[u8]]) -> (Vec<Delta>, Result<Reply, Error>) {
        let (mut events, mut decoder, mut deltas) = (Events::default(), decoder(), vec![]);
        for chunk in chunks {
            events.push(chunk).unwrap();
            while let Some(data) = events.pop() {
                match decoder.push(&data) {
                    Ok(more) => deltas.extend(more),
                    Err(error) => return (deltas, Err(error)),
                }
            }
        }
        (deltas, decoder.finish())
    }

    /// Decodes these values, each as an event, and the end of the stream.
    fn events(values: &[Value]) -> Result<Reply, Error> {
        let mut text = String::new();
        for value in values {
            text.push_str(&format!("data: {value}\n\n"));
        }
        text.push_str("data: [DONE]\n\n");
        decode(&[text.as_bytes()]).1
    }

    fn delta(delta: &Value) -> Value {
        json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
    }

    fn calls(pieces: &[Value]) -> Vec<(String, String, String)> {
        let events_: Vec<Value> =
            pieces.iter().map(|piece| delta(&json!({ "tool_calls": [piece] }))).collect();
        let reply = events(&events_).unwrap();
        reply.calls.into_iter().map(|call| (call.id, call.tool, call.input)).collect()
    }

    fn call(id: &str, tool: &str, input: &str) -> (String, String, String) {
        (id.into(), tool.into(), input.into())
    }

    /// As OpenAI sends it, with CRLF and a comment as a proxy adds them.
    const RECORDED: &str = concat!(
        r#"data: {"id":"c","object":"chat.completion.chunk","model":"gpt-5","choices":[{"index":0,"delta":{"role":"assistant","content":null,"refusal":null},"finish_reason":null}],"usage":null}"#,
        "\n\n: keep-alive\n\n",
        r#"data: {"choices":[{"index":0,"delta":{"content":"Grüße, 語 "},"finish_reason":null}]}"#,
        "\r\n\r\n",
        r#"data: {"choices":[{"index":0,"delta":{"content":"there"},"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"recall","arguments":""}}]},"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"session_status","arguments":""}}]},"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"query\":"}}]},"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"tea\"}"}}]},"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
        "\n\n",
        r#"data: {"choices":[],"usage":{"prompt_tokens":120,"completion_tokens":17,"total_tokens":137,"prompt_tokens_details":{"cached_tokens":64}}}"#,
        "\n\n",
        "data: [DONE]\n\n",
    );

    fn recorded() -> Reply {
        let call = |id: &str, tool: &str, input: &str| ToolCall {
            id: id.into(),
            tool: tool.into(),
            input: input.into(),
        };
        Reply {
            record: None,
            text: "Grüße, 語 there".into(),
            thinking: String::new(),
            calls: vec![
                call("call_a", "recall", r#"{"query":"tea"}"#),
                call("call_b", "session_status", "{}"),
            ],
            usage: Usage { input: 120, cached: 64, output: 17, ..Usage::default() },
            model: "openai:gpt-5".into(),
            stop: StopReason::ToolUse,
            carry: None,
        }
    }

    #[test]
    fn a_recorded_stream_is_read_the_same_wherever_it_is_cut() {
        let (deltas, reply) = decode(&[RECORDED.as_bytes()]);
        assert_eq!(reply.unwrap(), recorded());
        assert_eq!(
            deltas,
            [
                Delta::Text("Grüße, 語 ".into()),
                Delta::Text("there".into()),
                Delta::ToolCallStarted { id: "call_a".into(), name: "recall".into() },
                Delta::ToolCallStarted { id: "call_b".into(), name: "session_status".into() },
            ]
        );

        for at in 0..=RECORDED.len() {
            let (one, other) = RECORDED.as_bytes().split_at(at);
            let cut = decode(&[one, other]);
            assert_eq!((cut.0, cut.1.unwrap()), (deltas.clone(), recorded()), "cut at {at}");
        }
        let bytes: Vec<&[u8]> = RECORDED.as_bytes().chunks(1).collect();
        assert_eq!(decode(&bytes).1.unwrap(), recorded());
    }

    #[test]
    fn thinking_is_told_from_text_however_the_server_sends_it() {
        let said = |deltas: &[Value]| {
            let last = json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] });
            let chunks = deltas
                .iter()
                .map(|delta| json!({ "choices": [{ "index": 0, "delta": delta }] }))
                .chain([last]);
            let stream: String = chunks.map(|value| format!("data: {value}\n\n")).collect();
            let (deltas, reply) = decode(&[stream.as_bytes()]);
            let reply = reply.unwrap();
            (deltas, reply.thinking, reply.text)
        };
        let told = [Delta::Thought("hm".into()), Delta::Text("Yes.".into())];

        for field in ["reasoning_content", "reasoning"] {
            let (deltas, thinking, text) =
                said(&[json!({ field: "hm" }), json!({ "content": "Yes." })]);
            assert_eq!(
                (deltas.as_slice(), thinking.as_str(), text.as_str()),
                (&told[..], "hm", "Yes.")
            );
        }
        let pieces = ["<th", "ink>hm</thi", "nk>\n\n<final>Yes.", "</fin", "al>\n"];
        let (deltas, thinking, text) = said(&pieces.map(|text| json!({ "content": text })));
        assert_eq!(
            (deltas.as_slice(), thinking.as_str(), text.as_str()),
            (&told[..], "hm", "Yes.")
        );
    }

    #[test]
    fn a_stream_that_ends_early_broke_off_unless_the_reply_was_whole() {
        let finished = RECORDED.find(r#""finish_reason":"tool_calls""#).unwrap();
        let finished = finished + RECORDED[finished..].find("\n\n").unwrap() + 2;

        for at in 0..RECORDED.len() {
            let (_, reply) = decode(&[&RECORDED.as_bytes()[..at]]);
            match reply {
                Ok(reply) => {
                    assert!(at >= finished, "whole at {at}");
                    assert_eq!((reply.calls, reply.stop), (recorded().calls, StopReason::ToolUse));
                }
                Err(error) => {
                    assert!(at < finished, "broken at {at}");
                    assert!(matches!(error, Error::Interrupted), "{error}");
                }
            }
        }
    }

    #[test]
    fn calls_are_told_apart_as_well_as_the_server_lets_us() {
        let piece = |value: Value| value;
        let start = |id: Value, name: &str, input: &str| json!({ "id": id, "function": { "name": name, "arguments": input } });

        // No index: by id, else the last one.
        assert_eq!(
            calls(&[
                start(json!("a"), "t", "{\"x\""),
                piece(json!({ "function": { "arguments": ":1}" } })),
                start(json!("b"), "u", ""),
                piece(json!({ "id": "b", "function": { "arguments": "{}" } })),
            ]),
            [call("a", "t", "{\"x\":1}"), call("b", "u", "{}")]
        );
        // One index for all.
        let mut one = start(json!("a"), "t", "{}");
        let mut other = start(json!("b"), "t", "{}");
        (one["index"], other["index"]) = (json!(0), json!(0));
        assert_eq!(calls(&[one, other]), [call("a", "t", "{}"), call("b", "t", "{}")]);
        // One index for all, and no ids.
        let mut pieces = [start(json!(""), "t", "{}"), start(json!(""), "t", "{\"x\":1}")];
        pieces.iter_mut().for_each(|piece| piece["index"] = json!(0));
        assert_eq!(calls(&pieces), [call("call_1", "t", "{}"), call("call_2", "t", "{\"x\":1}")]);
        // No ids, empty ones, one twice, one too long.
        let long = "x".repeat(41);
        let given = [json!(null), json!(""), json!("call_1"), json!(long)];
        let pieces: Vec<Value> = given
            .into_iter()
            .zip(0..)
            .map(|(id, index): (Value, u64)| {
                let mut piece = start(id, "t", "{}");
                piece["index"] = json!(index);
                piece
            })
            .collect();
        assert_eq!(
            calls(&pieces),
            ["call_1", "call_2", "call_3", "call_4"].map(|id| call(id, "t", "{}"))
        );
        // An object as input; a repeated name; an empty call.
        let object =
            json!({ "index": 0, "id": "a", "function": { "name": "t", "arguments": { "x": 1 } } });
        let again = json!({ "index": 0, "id": "a", "function": { "name": "t" } });
        assert_eq!(calls(&[object, again, json!({ "index": 1 })]), [call("a", "t", "{\"x\":1}")]);
    }

    #[test]
    fn content_in_parts_is_text() {
        let parts = json!({ "content": [{ "type": "text", "text": "a" }, { "text": "b" }, {}] });

        assert_eq!(events(&[delta(&parts)]).unwrap().text, "ab");
    }

    #[test]
    fn an_answer_that_comes_whole_is_read_too() {
        let mut decoder = decoder();
        let body = json!({
            "choices": [{ "message": {
                "content": null,
                "tool_calls": [{ "id": "a", "function": { "name": "t", "arguments": "{}" } }],
            }, "finish_reason": "tool_calls" }],
            "usage": { "prompt_tokens": 3, "completion_tokens": 2, "prompt_cache_hit_tokens": 1 },
        });

        decoder.whole(body.to_string().as_bytes()).unwrap();
        let reply = decoder.finish().unwrap();

        assert_eq!(reply.calls.len(), 1);
        assert_eq!(reply.usage, Usage { input: 3, cached: 1, output: 2, ..Usage::default() });
    }

    #[test]
    fn an_answer_of_nothing_is_empty_or_was_kept_back() {
        let finish = |reason: &str| {
            events(&[json!({ "choices": [{ "delta": {}, "finish_reason": reason }] })])
        };

        assert!(matches!(finish("stop"), Err(Error::Empty)));
        assert!(matches!(finish("content_filter"), Err(Error::Filtered)));
        assert!(matches!(events(&[]), Err(Error::Empty)));
    }

    #[test]
    fn an_error_in_the_midst_of_a_stream_is_one() {
        let error = |error: Value| events(&[delta(&json!({ "content": "a" })), error]).unwrap_err();

        let overflow = json!({ "error": { "code": "context_length_exceeded", "message": "no" } });
        assert!(matches!(error(overflow), Error::ContextOverflow));
        assert!(matches!(
            error(json!({ "error": { "code": 502, "message": "bad gateway" } })),
            Error::Unavailable { status: Some(502), .. }
        ));
        assert!(matches!(
            error(json!({ "error": { "type": "server_error" } })),
            Error::Unavailable { status: None, .. }
        ));
    }

    #[test]
    fn what_is_no_json_is_malformed_and_not_repeated() {
        let (_, reply) = decode(&[b"data: {\"secret\n\n"]);

        assert_eq!(
            reply.unwrap_err().to_string(),
            "the model's answer cannot be read: a part of it is not json"
        );
    }

    #[test]
    fn a_reply_is_bounded_in_every_direction() {
        let long = "x".repeat(300 * 1024);
        let text = delta(&json!({ "content": long }));
        let input = delta(&json!({ "tool_calls": [
            { "index": 0, "function": { "name": "t", "arguments": long } }
        ] }));
        let many: Vec<Value> =
            (0..65).map(|n| json!({ "index": n, "function": { "name": "t" } })).collect();

        for (events_, limited) in [
            (vec![text; 4], "text"),
            (vec![input], "call's input"),
            (vec![delta(&json!({ "tool_calls": many }))], "calls"),
        ] {
            match events(&events_) {
                Err(Error::TooLong { what, .. }) => assert_eq!(what, limited),
                other => panic!("{other:?}"),
            }
        }
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

        #[test]
        fn ids_are_unique_whatever_the_server_calls_its_calls(
            ids in prop::collection::vec("(call_[0-9])?|.{0,50}", 0..20),
        ) {
            let calls: Vec<Value> = (0_u64..)
                .zip(&ids)
                .map(|(n, id)| json!({ "index": n, "id": id, "function": { "name": "t" } }))
                .collect();
            let mut decoder = decoder();
            decoder.push(delta(&json!({ "content": "a", "tool_calls": calls })).to_string().as_bytes()).unwrap();
            decoder.push(b"[DONE]").unwrap();
            let reply = decoder.finish().unwrap();

            let unique: BTreeSet<&str> = reply.calls.iter().map(|call| call.id.as_str()).collect();
            prop_assert_eq!(unique.len(), ids.len());
            prop_assert!(unique.iter().all(|id| (1..=MAX_CALL_ID_BYTES).contains(&id.len())));
        }
    }
}
