//! Reply under construction, shared by the decoders of all providers, with its size limits.

use std::collections::BTreeSet;

use holdfast_types::{Reply, Stop, Thinking, ToolCall, Usage};
use serde_json::Value;

use crate::{
    By, Delta, Error, Request,
    marks::{Marks, Piece, Told},
};

/// Maximum length of the text, in bytes.
const MOST_TEXT: usize = 1024 * 1024;
/// Maximum length of the visible thinking, in bytes.
const MOST_THINKING: usize = 256 * 1024;
/// Maximum length of a call's input, in bytes.
const MOST_INPUT: usize = 256 * 1024;
/// Maximum number of calls.
const MOST_CALLS: usize = 64;
/// Maximum length of a call id that providers accept, in bytes.
pub(crate) const LONGEST_ID: usize = 40;
/// Maximum size of the carried state, in bytes.
pub(crate) const MOST_CARRY: usize = 512 * 1024;

/// Builds a reply from pieces.
#[derive(Debug)]
pub(crate) struct Gather {
    model: String,
    text: String,
    /// Bytes received as text, including thinking within it.
    taken: usize,
    thinking: String,
    /// Set if the text may contain thinking marks.
    marks: Option<Marks>,
    calls: Vec<Call>,
    pub(crate) usage: Usage,
    /// `None` until the provider has sent it.
    pub(crate) stop: Option<Stop>,
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

impl Gather {
    pub(crate) fn new(request: &Request) -> Self {
        Self {
            model: request.model.to_string(),
            text: String::new(),
            taken: 0,
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
        let is_told = request.card().thinking.by == By::Marks && request.thinking != Thinking::Off;
        let told = if is_told { Told::Yes } else { Told::No };
        Self { marks: Some(Marks::new(told)), ..Self::new(request) }
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
        self.taken += text.len();
        if self.taken > MOST_TEXT {
            return Err(Error::TooLong { what: "text", limit: MOST_TEXT });
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
        if text.is_empty() || self.thinking.len() + text.len() > MOST_THINKING {
            return;
        }
        self.thinking.push_str(text);
        deltas.push(Delta::Thought(text.to_owned()));
    }

    /// Starts a call and returns its index. The provider's id is kept if it is valid and unique.
    pub(crate) fn begin_call(&mut self, given: &str) -> Result<usize, Error> {
        if self.calls.len() == MOST_CALLS {
            return Err(Error::TooLong { what: "calls", limit: MOST_CALLS });
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
        if call.input.len() > MOST_INPUT {
            return Err(Error::TooLong { what: "call's input", limit: MOST_INPUT });
        }
        Ok(())
    }

    /// Whether a call's input is still empty.
    pub(crate) fn has_no_input(&self, at: usize) -> bool {
        self.calls.get(at).is_some_and(|call| call.input.is_empty())
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
            self.calls.into_iter().filter(|call| !call.is_ghost()).map(Call::finish).collect();
        let stop = match (self.stop.unwrap_or_default(), calls.is_empty()) {
            // Some servers confuse these two reasons.
            (Stop::End, false) => Stop::ToolUse,
            (Stop::ToolUse, true) => Stop::End,
            (stop, _) => stop,
        };
        if self.text.trim().is_empty() && calls.is_empty() {
            return Err(match stop {
                Stop::Filtered | Stop::Refusal => Error::Filtered,
                // All output was thinking; a retry would end the same way.
                Stop::MaxTokens => {
                    let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
                    Error::TooLong { what: "thoughts and text, in tokens", limit }
                }
                Stop::End | Stop::ToolUse | Stop::PauseTurn => Error::Empty,
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
        })
    }

    /// Returns the server's id if it is valid and unique, else a new one.
    fn free_id(&self, given: &str) -> String {
        let taken: BTreeSet<&str> = self.calls.iter().map(|call| call.id.as_str()).collect();
        let fits = |id: &str| {
            let printable = id.bytes().all(|byte| byte.is_ascii_graphic());
            (1..=LONGEST_ID).contains(&id.len()) && printable && !taken.contains(id)
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
    fn is_ghost(&self) -> bool {
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
    serde_json::from_slice(data).map_err(|_| Error::Malformed("a part of it is not json"))
}

/// Returns the number at a path; 0 if there is none.
pub(crate) fn count(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::tests::request;

    fn gather() -> Gather {
        Gather::new(&request())
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

        assert_eq!(finish(Stop::End, 1), Stop::ToolUse);
        assert_eq!(finish(Stop::ToolUse, 0), Stop::End);
        assert_eq!(finish(Stop::MaxTokens, 1), Stop::MaxTokens);
        assert_eq!(finish(Stop::Filtered, 0), Stop::Filtered);
    }

    #[test]
    fn an_answer_of_nothing_says_why() {
        let class = |stop| {
            let gather = Gather { stop: Some(stop), ..gather() };
            gather.finish().unwrap_err().class()
        };

        assert_eq!(class(Stop::End), "empty");
        assert_eq!(class(Stop::Filtered), "filtered");
        assert_eq!(class(Stop::Refusal), "filtered");
        assert_eq!(class(Stop::MaxTokens), "too_long");
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
