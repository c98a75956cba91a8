//! A reply that is still coming: what every provider's decoder gathers, and how much of it.

use std::collections::BTreeSet;

use holdfast_types::{Reply, Stop, Thinking, ToolCall, Usage};
use serde_json::Value;

use crate::{
    By, Delta, Error, Request,
    marks::{Marks, Piece, Told},
};

/// The longest text, in bytes.
const MOST_TEXT: usize = 1024 * 1024;
/// The most that is shown of what a model thought, in bytes.
const MOST_THINKING: usize = 256 * 1024;
/// The longest input of one call, in bytes.
const MOST_INPUT: usize = 256 * 1024;
/// The most calls.
const MOST_CALLS: usize = 64;
/// The longest id that providers take back, in bytes.
pub(crate) const LONGEST_ID: usize = 40;
/// The most that is carried back to a provider, in bytes.
pub(crate) const MOST_CARRY: usize = 512 * 1024;

/// Gathers a reply from its pieces.
#[derive(Debug)]
pub(crate) struct Gather {
    model: String,
    text: String,
    /// How much was taken in as text, in bytes, thoughts in it included.
    taken: usize,
    thinking: String,
    /// Where thoughts may stand in the text.
    marks: Option<Marks>,
    calls: Vec<Call>,
    /// What it cost, as far as it was told.
    pub(crate) usage: Usage,
    /// Why it stopped; `None` until that was said.
    pub(crate) stop: Option<Stop>,
    /// Whether the provider has said that nothing more comes.
    pub(crate) done: bool,
    /// The most tokens it may write.
    limit: u32,
    carry: Option<Value>,
}

/// A call that is still being asked for.
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

    /// The same for a server whose models may write their thoughts into the text.
    pub(crate) fn marked(request: &Request) -> Self {
        let is_told = request.card().thinking.by == By::Marks && request.thinking != Thinking::Off;
        let told = if is_told { Told::Yes } else { Told::No };
        Self { marks: Some(Marks::new(told)), ..Self::new(request) }
    }

    /// How much text there is, in bytes.
    pub(crate) const fn text_len(&self) -> usize {
        self.text.len()
    }

    /// Takes in a piece of the text.
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

    /// Takes in a piece of what it thinks. It is only shown: what is too much is left out.
    pub(crate) fn thought(&mut self, text: &str, deltas: &mut Vec<Delta>) {
        if text.is_empty() || self.thinking.len() + text.len() > MOST_THINKING {
            return;
        }
        self.thinking.push_str(text);
        deltas.push(Delta::Thought(text.to_owned()));
    }

    /// Begins a call, and says which it is. It keeps the id that the provider gave if that will
    /// do, and gets one if not.
    pub(crate) fn begin_call(&mut self, given: &str) -> Result<usize, Error> {
        if self.calls.len() == MOST_CALLS {
            return Err(Error::TooLong { what: "calls", limit: MOST_CALLS });
        }
        let id = self.free_id(given);
        self.calls.push(Call { id, name: String::new(), input: String::new(), announced: false });
        Ok(self.calls.len() - 1)
    }

    /// The id of a call.
    pub(crate) fn call_id(&self, at: usize) -> &str {
        self.calls.get(at).map_or("", |call| &call.id)
    }

    /// Says what tool a call is of, if it was not said yet.
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

    /// Takes in a piece of a call's input: a text, or what is to become one.
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

    /// Whether nothing of a call's input has come yet.
    pub(crate) fn has_no_input(&self, at: usize) -> bool {
        self.calls.get(at).is_some_and(|call| call.input.is_empty())
    }

    /// Sets what is to be carried back with the results of the calls.
    pub(crate) fn carry(&mut self, carry: Option<Value>) {
        self.carry = carry;
    }

    /// The reply, now that nothing more comes.
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
            // Some do not tell these two apart.
            (Stop::End, false) => Stop::ToolUse,
            (Stop::ToolUse, true) => Stop::End,
            (stop, _) => stop,
        };
        if self.text.trim().is_empty() && calls.is_empty() {
            return Err(match stop {
                Stop::Filtered | Stop::Refusal => Error::Filtered,
                // It spent all on thinking, and would again.
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

    /// The id that the server gave, if it will do; else one of our own.
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
    /// Whether nothing was ever said of it but that it is there.
    fn is_ghost(&self) -> bool {
        self.name.is_empty() && self.input.trim().is_empty()
    }

    fn finish(self) -> ToolCall {
        let input = if self.input.trim().is_empty() { "{}".to_owned() } else { self.input };
        ToolCall { id: self.id, tool: self.name, input }
    }
}

/// Reads a part of an answer.
pub(crate) fn parse(data: &[u8]) -> Result<Value, Error> {
    // What the parser says would repeat what the model said.
    serde_json::from_slice(data).map_err(|_| Error::Malformed("a part of it is not json"))
}

/// A number at a path; 0 if there is none.
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
