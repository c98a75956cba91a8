//! Reply under construction, shared by the decoders of all providers, with its size limits.

use std::collections::BTreeSet;

use holdfast_types::{Reply, StopReason, Thinking, ToolCall, Usage};
use serde_json::Value;

use crate::{
    Delta, Error, Request, ThinkingForm,
    marks::{AnswerMarking, Piece, ThinkingMarks},
};

/// Maximum length of the text, in bytes.
const MAX_TEXT_BYTES: usize = 1024 * 1024;
/// Maximum length of the visible thinking, in bytes.
const MAX_THINKING_BYTES: usize = 256 * 1024;
/// Maximum length of a call's input, in bytes.
const MAX_INPUT_BYTES: usize = 256 * 1024;
/// Maximum number of calls.
const MAX_CALLS: usize = 64;
/// Maximum length of a call id that providers accept, in bytes.
pub(crate) const MAX_CALL_ID_BYTES: usize = 40;
/// Maximum size of the carried state, in bytes.
pub(crate) const MAX_CARRY_BYTES: usize = 512 * 1024;

/// Builds a reply from pieces.
#[derive(Debug)]
pub(crate) struct ReplyBuilder {
    model: String,
    text: String,
    /// Bytes received as text, including thinking within it.
    received_bytes: usize,
    thinking: String,
    /// Set if the text may contain thinking marks.
    marks: Option<ThinkingMarks>,
    calls: Vec<Call>,
    pub(crate) usage: Usage,
    /// `None` until the provider has sent it.
    pub(crate) stop: Option<StopReason>,
    /// Whether the provider has ended the stream.
    pub(crate) done: bool,
    /// Output limit in tokens.
    limit: u32,
    carry: Option<Value>,
}

/// Tool call under construction.
#[derive(Debug)]
struct Call {
    id: String,
    name: String,
    input: String,
    announced: bool,
}

impl ReplyBuilder {
    pub(crate) fn new(request: &Request) -> Self {
        Self {
            model: request.model.to_string(),
            text: String::new(),
            received_bytes: 0,
            thinking: String::new(),
            marks: None,
            calls: Vec::new(),
            usage: Usage::default(),
            stop: None,
            done: false,
            limit: request.max_output.unwrap_or_else(|| request.card().max_output),
            carry: None,
        }
    }

    /// Creates a builder for a server whose models may write thinking into the text.
    pub(crate) fn marked(request: &Request) -> Self {
        let is_told =
            request.card().thinking.by == ThinkingForm::Marks && request.thinking != Thinking::Off;
        let told = if is_told { AnswerMarking::Yes } else { AnswerMarking::No };
        Self { marks: Some(ThinkingMarks::new(told)), ..Self::new(request) }
    }

    /// Length of the text so far, in bytes.
    pub(crate) const fn text_len(&self) -> usize {
        self.text.len()
    }

    /// Adds a piece of text.
    pub(crate) fn text(&mut self, text: &str, deltas: &mut Vec<Delta>) -> Result<(), Error> {
        if text.is_empty() {
            return Ok(());
        }
        self.received_bytes += text.len();
        if self.received_bytes > MAX_TEXT_BYTES {
            return Err(Error::TooLong { what: "text", limit: MAX_TEXT_BYTES });
        }
        match &mut self.marks {
            Some(marks) => {
                let pieces = marks.push(text);
                self.put(pieces, deltas);
            }
            None => self.say(text.to_owned(), deltas),
        }
        Ok(())
    }

    fn say(&mut self, text: String, deltas: &mut Vec<Delta>) {
        self.text.push_str(&text);
        deltas.push(Delta::Text(text));
    }

    fn put(&mut self, pieces: Vec<Piece>, deltas: &mut Vec<Delta>) {
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.say(text, deltas),
                Piece::Thought(text) => self.thought(&text, deltas),
            }
        }
    }

    /// Adds a piece of thinking. It is only shown, so the excess is dropped.
    pub(crate) fn thought(&mut self, text: &str, deltas: &mut Vec<Delta>) {
        if text.is_empty() || self.thinking.len() + text.len() > MAX_THINKING_BYTES {
            return;
        }
        self.thinking.push_str(text);
        deltas.push(Delta::Thought(text.to_owned()));
    }

    /// Starts a call and returns its index. The provider's id is kept if it is valid and unique.
    pub(crate) fn begin_call(&mut self, given: &str) -> Result<usize, Error> {
        if self.calls.len() == MAX_CALLS {
            return Err(Error::TooLong { what: "calls", limit: MAX_CALLS });
        }
        let id = self.free_id(given);
        self.calls.push(Call { id, name: String::new(), input: String::new(), announced: false });
        Ok(self.calls.len() - 1)
    }

    /// Id of the call at an index.
    pub(crate) fn call_id(&self, at: usize) -> &str {
        self.calls.get(at).map_or("", |call| &call.id)
    }

    /// Sets the tool of a call, once.
    pub(crate) fn name_call(&mut self, at: usize, name: &str, deltas: &mut Vec<Delta>) {
        let Some(call) = self.calls.get_mut(at) else { return };
        if call.name.is_empty() {
            call.name = name.trim().to_owned();
        }
        if !call.announced && !call.name.is_empty() {
            call.announced = true;
            deltas.push(Delta::ToolCallStarted { id: call.id.clone(), name: call.name.clone() });
        }
    }

    /// Adds a piece of a call's input: text, or JSON that is converted to text.
    pub(crate) fn input(&mut self, at: usize, piece: &Value) -> Result<(), Error> {
        let Some(call) = self.calls.get_mut(at) else { return Ok(()) };
        match piece {
            Value::Null => {}
            Value::String(text) => call.input.push_str(text),
            value @ (Value::Object(_) | Value::Array(_) | Value::Bool(_) | Value::Number(_)) => {
                call.input.push_str(&value.to_string());
            }
        }
        if call.input.len() > MAX_INPUT_BYTES {
            return Err(Error::TooLong { what: "call's input", limit: MAX_INPUT_BYTES });
        }
        Ok(())
    }

    /// Whether a call's input is still empty.
    pub(crate) fn has_no_input(&self, at: usize) -> bool {
        self.calls.get(at).is_some_and(|call| call.input.is_empty())
    }

    /// Whether a call's input is whole: an object and nothing after it.
    pub(crate) fn has_whole_input(&self, at: usize) -> bool {
        let input = self.calls.get(at).map_or("", |call| call.input.as_str());
        serde_json::from_str::<serde_json::Map<String, Value>>(input).is_ok()
    }

    /// The visible thinking so far.
    pub(crate) fn thinking(&self) -> &str {
        &self.thinking
    }

    /// Sets the state to carry with the calls.
    pub(crate) fn carry(&mut self, carry: Option<Value>) {
        self.carry = carry;
    }

    pub(crate) fn finish(mut self) -> Result<Reply, Error> {
        if !self.done && self.stop.is_none() {
            return Err(Error::Interrupted);
        }
        if let Some(mut marks) = self.marks.take() {
            self.put(marks.end(), &mut Vec::new());
            if marks.is_marked() {
                self.text.truncate(self.text.trim_end().len());
            }
        }
        let calls: Vec<ToolCall> =
            self.calls.into_iter().filter(|call| !call.is_empty()).map(Call::finish).collect();
        let stop = match (self.stop.unwrap_or_default(), calls.is_empty()) {
            // Some servers confuse these two reasons.
            (StopReason::End, false) => StopReason::ToolUse,
            (StopReason::ToolUse, true) => StopReason::End,
            (stop, _) => stop,
        };
        if self.text.trim().is_empty() && calls.is_empty() {
            return Err(match stop {
                StopReason::Filtered | StopReason::Refusal => Error::Filtered,
                // All output was thinking; a retry would end the same way.
                StopReason::MaxTokens | StopReason::ContextWindow => {
                    let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
                    Error::TooLong { what: "thoughts and text, in tokens", limit }
                }
                StopReason::End | StopReason::ToolUse | StopReason::PauseTurn => Error::Empty,
            });
        }
        let carry = self.carry.filter(|_| !calls.is_empty());
        let thinking = self.thinking.trim().to_owned();
        Ok(Reply {
            text: self.text,
            thinking,
            calls,
            usage: self.usage,
            model: self.model,
            stop,
            carry,
            record: None,
        })
    }

    /// Returns the server's id if it is valid and unique, else a new one.
    fn free_id(&self, given: &str) -> String {
        let taken: BTreeSet<&str> = self.calls.iter().map(|call| call.id.as_str()).collect();
        let fits = |id: &str| {
            let printable = id.bytes().all(|byte| byte.is_ascii_graphic());
            (1..=MAX_CALL_ID_BYTES).contains(&id.len()) && printable && !taken.contains(id)
        };
        if fits(given) {
            return given.to_owned();
        }
        let mut n = self.calls.len() + 1;
        while taken.contains(format!("call_{n}").as_str()) {
            n += 1;
        }
        format!("call_{n}")
    }
}

impl Call {
    /// Whether the call has neither a name nor an input.
    fn is_empty(&self) -> bool {
        self.name.is_empty() && self.input.trim().is_empty()
    }

    fn finish(self) -> ToolCall {
        let input = if self.input.trim().is_empty() { "{}".to_owned() } else { self.input };
        ToolCall { id: self.id, tool: self.name, input }
    }
}

/// Parses a part of an answer.
pub(crate) fn parse(data: &[u8]) -> Result<Value, Error> {
    // The parser's message would quote the model's text.
    serde_json::from_slice(data)
        .or_else(|_| serde_json::from_slice(&without_lone_surrogates(data)))
        .map_err(|_| Error::Malformed("a part of it is not json"))
}

/// Replaces halves of a surrogate pair that stand alone: servers that cut texts by UTF-16 units send
/// them, and they are no characters.
fn without_lone_surrogates(data: &[u8]) -> Vec<u8> {
    let unit = |at: usize| -> Option<u16> {
        let digits = data.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let (mut cleaned, mut at) = (Vec::with_capacity(data.len()), 0);
    while at < data.len() {
        let length = match (data[at], unit(at)) {
            (b'\\', Some(0xd800..=0xdbff)) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => 12,
            (b'\\', Some(0xd800..=0xdfff)) => {
                cleaned.extend_from_slice("\u{fffd}".as_bytes());
                at += 6;
                continue;
            }
            // Another escape, whose second character is not the beginning of one.
            (b'\\', _) => 2,
            _ => 1,
        };
        cleaned.extend_from_slice(&data[at..(at + length).min(data.len())]);
        at += length;
    }
    cleaned
}

/// Returns the number at a path; 0 if there is none.
pub(crate) fn count(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted_model::tests::request;

    fn gather() -> ReplyBuilder {
        ReplyBuilder::new(&request())
    }

    #[test]
    fn half_a_surrogate_pair_costs_no_answer() {
        let text = |data: &str| parse(data.as_bytes()).unwrap()["t"].as_str().unwrap().to_owned();

        assert_eq!(text(r#"{"t":"a \ud83d"}"#), "a \u{fffd}");
        assert_eq!(text(r#"{"t":"\ude00 b"}"#), "\u{fffd} b");
        assert_eq!(text(r#"{"t":"\ud83d\ude00 \ud83d"}"#), "\u{1f600} \u{fffd}");
        assert_eq!(text(r#"{"t":"\\ud83d \ude00"}"#), "\\ud83d \u{fffd}");
        assert!(parse(br#"{"t":"\ud83d""#).is_err());
    }

    #[test]
    fn why_it_stopped_agrees_with_what_it_said() {
        let finish = |stop, calls: usize| {
            let mut gather = gather();
            gather.text("so", &mut vec![]).unwrap();
            for _ in 0..calls {
                let at = gather.begin_call("").unwrap();
                gather.name_call(at, "t", &mut vec![]);
            }
            gather.stop = Some(stop);
            gather.finish().unwrap().stop
        };

        assert_eq!(finish(StopReason::End, 1), StopReason::ToolUse);
        assert_eq!(finish(StopReason::ToolUse, 0), StopReason::End);
        assert_eq!(finish(StopReason::MaxTokens, 1), StopReason::MaxTokens);
        assert_eq!(finish(StopReason::Filtered, 0), StopReason::Filtered);
    }

    #[test]
    fn an_answer_of_nothing_says_why() {
        let class = |stop| {
            let gather = ReplyBuilder { stop: Some(stop), ..gather() };
            gather.finish().unwrap_err().class()
        };

        assert_eq!(class(StopReason::End), "empty");
        assert_eq!(class(StopReason::Filtered), "filtered");
        assert_eq!(class(StopReason::Refusal), "filtered");
        assert_eq!(class(StopReason::MaxTokens), "too_long");
        assert!(matches!(gather().finish(), Err(Error::Interrupted)));
    }

    #[test]
    fn nothing_is_carried_without_calls() {
        let finish = |calls: usize| {
            let mut gather = gather();
            gather.text("so", &mut vec![]).unwrap();
            for _ in 0..calls {
                let at = gather.begin_call("").unwrap();
                gather.name_call(at, "t", &mut vec![]);
            }
            gather.carry(Some(Value::from(1)));
            gather.done = true;
            gather.finish().unwrap().carry
        };

        assert_eq!(finish(0), None);
        assert_eq!(finish(1), Some(Value::from(1)));
    }
}
