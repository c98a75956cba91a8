//! Stream format of the Responses API: its events, in order.
//!
//! | event | when |
//! |---|---|
//! | `response.created`, `response.in_progress` | at once |
//! | `response.output_item.added`, `response.content_part.added` | a part begins |
//! | `response.output_text.delta` | more text of the part |
//! | `….output_text.done`, `….content_part.done`, `….output_item.done` | the part ends |
//! | `….output_item.added`, `….function_call_arguments.delta`, `….done`, `….output_item.done` | a call of the client's tools |
//! | `response.completed`, `response.incomplete` or `response.failed` | the end |
//!
//! Events are not stored. Their sequence numbers are made from the step and from the length of its
//! text, and not counted: a stream from any gateway, with its text in other pieces, has the same
//! numbers, so a client can resume after any of them. They increase, with gaps.

use holdfast_types::ClientCall;
use serde::Serialize;

use super::{
    super::sse::{EventBuffer, StreamFormat},
    object::{
        OutputCall, OutputItem, OutputMessage, OutputText, ResponseHead, ResponseObject,
        ResponseStatus, call_item_id,
    },
};
use crate::{api_error::ApiError, follow::TurnResult};

/// Numbers for the events of one step: more than its text has bytes.
const NUMBERS_PER_STEP: u64 = 1 << 24;

/// Numbers of the events before the first step.
const FIRST_NUMBERS: u64 = 2;

pub struct ResponseStream {
    frame: ResponseHead,
    events: EventWriter,
    /// The last one is open.
    parts: Vec<Part>,
}

struct Part {
    step: u32,
    text: String,
}

impl Part {
    /// Number of its first event.
    fn first_number(&self) -> u64 {
        u64::from(self.step).saturating_mul(NUMBERS_PER_STEP).saturating_add(FIRST_NUMBERS)
    }

    /// Number of the event that adds the text up to a position.
    fn number_at(&self, position: usize) -> u64 {
        let position = u64::try_from(position).unwrap_or(u64::MAX);
        self.first_number().saturating_add(1).saturating_add(position)
    }
}

/// Numbers events, and leaves those out that the client has.
#[derive(Default)]
struct EventWriter {
    next: u64,
    /// Number of the last event that the client has.
    starting_after: Option<u64>,
}

impl EventWriter {
    fn has_client(&self, number: u64) -> bool {
        self.starting_after.is_some_and(|last| number <= last)
    }

    fn write<T: Serialize>(&mut self, kind: &'static str, what: &T, out: &mut EventBuffer) {
        if !self.has_client(self.next) {
            out.named_event(kind, &StreamEvent { kind, sequence_number: self.next, what });
        }
        self.next = self.next.saturating_add(1);
    }
}

#[derive(Serialize)]
struct StreamEvent<'a, T: Serialize> {
    #[serde(rename = "type")]
    kind: &'static str,
    sequence_number: u64,
    #[serde(flatten)]
    what: &'a T,
}

#[derive(Serialize)]
struct ResponsePayload<'a> {
    response: ResponseObject<'a>,
}

#[derive(Serialize)]
struct ItemPayload<'a> {
    output_index: usize,
    item: OutputItem<'a>,
}

#[derive(Serialize)]
struct PartPayload<'a> {
    item_id: &'a str,
    output_index: usize,
    content_index: usize,
    part: OutputText<'a>,
}

#[derive(Serialize)]
struct TextDeltaPayload<'a> {
    item_id: &'a str,
    output_index: usize,
    content_index: usize,
    delta: &'a str,
    logprobs: [(); 0],
}

#[derive(Serialize)]
struct TextDonePayload<'a> {
    item_id: &'a str,
    output_index: usize,
    content_index: usize,
    text: &'a str,
    logprobs: [(); 0],
}

#[derive(Serialize)]
struct ArgumentsDeltaPayload<'a> {
    item_id: &'a str,
    output_index: usize,
    delta: &'a str,
}

#[derive(Serialize)]
struct ArgumentsDonePayload<'a> {
    item_id: &'a str,
    output_index: usize,
    name: &'a str,
    arguments: &'a str,
}

impl ResponseStream {
    pub fn new(frame: ResponseHead) -> Self {
        Self { frame, events: EventWriter::default(), parts: Vec::new() }
    }

    /// Stream without the events up to a number.
    pub fn resumed(frame: ResponseHead, starting_after: Option<u64>) -> Self {
        let events = EventWriter { next: 0, starting_after };
        Self { frame, events, parts: Vec::new() }
    }

    fn open(&mut self, step: u32, out: &mut EventBuffer) {
        let output_index = self.parts.len();
        let after_last = self.parts.last().map_or(0, |last| last.step.saturating_add(1));
        let part = Part { step: step.max(after_last), text: String::new() };
        self.events.next = part.first_number();
        self.parts.push(part);
        let item = OutputMessage::new(&self.frame, output_index, ResponseStatus::InProgress, None);
        let item = ItemPayload { output_index, item: OutputItem::Message(item) };
        self.events.write("response.output_item.added", &item, out);
        let item_id = &self.frame.item_id(output_index);
        let part =
            PartPayload { item_id, output_index, content_index: 0, part: OutputText::new("") };
        self.events.write("response.content_part.added", &part, out);
    }

    fn close(&mut self, out: &mut EventBuffer) {
        let Some(part) = self.parts.last() else { return };
        let text = part.text.as_str();
        self.events.next = part.number_at(text.len() + 1);
        let (output_index, content_index) = (self.parts.len() - 1, 0);
        let item_id = &self.frame.item_id(output_index);
        let whole = TextDonePayload { item_id, output_index, content_index, text, logprobs: [] };
        self.events.write("response.output_text.done", &whole, out);
        let part =
            PartPayload { item_id, output_index, content_index, part: OutputText::new(text) };
        self.events.write("response.content_part.done", &part, out);
        let item =
            OutputMessage::new(&self.frame, output_index, ResponseStatus::Completed, Some(text));
        let item = ItemPayload { output_index, item: OutputItem::Message(item) };
        self.events.write("response.output_item.done", &item, out);
    }

    fn call(&mut self, output_index: usize, call: &ClientCall, out: &mut EventBuffer) {
        let item = |status| ItemPayload {
            output_index,
            item: OutputItem::Call(OutputCall::new(call, status)),
        };
        let (item_id, arguments) = (&call_item_id(call), call.arguments.as_str());
        self.events.write("response.output_item.added", &item(ResponseStatus::InProgress), out);
        let delta = ArgumentsDeltaPayload { item_id, output_index, delta: arguments };
        self.events.write("response.function_call_arguments.delta", &delta, out);
        let done = ArgumentsDonePayload { item_id, output_index, name: &call.name, arguments };
        self.events.write("response.function_call_arguments.done", &done, out);
        self.events.write("response.output_item.done", &item(ResponseStatus::Completed), out);
    }
}

impl StreamFormat for ResponseStream {
    fn begin(&mut self, out: &mut EventBuffer) {
        for kind in ["response.created", "response.in_progress"] {
            let response = ResponseObject::new(&self.frame, ResponseStatus::InProgress, &[]);
            self.events.write(kind, &ResponsePayload { response }, out);
        }
    }

    fn text(&mut self, step: u32, part: bool, text: &str, out: &mut EventBuffer) {
        if part {
            self.close(out);
        }
        if part || self.parts.is_empty() {
            self.open(step, out);
        }
        let output_index = self.parts.len() - 1;
        let Some(open) = self.parts.last_mut() else { return };
        let from = open.text.len();
        open.text.push_str(text);
        self.events.next = open.number_at(open.text.len());
        // The client may have a part of the text already.
        let had = self.events.starting_after.unwrap_or_default();
        let had = usize::try_from(had.saturating_sub(open.number_at(0))).unwrap_or(usize::MAX);
        let more = open.text.get(open.text.floor_char_boundary(had).max(from)..);
        let delta = more.unwrap_or_default();
        let item_id = &self.frame.item_id(output_index);
        let more =
            TextDeltaPayload { item_id, output_index, content_index: 0, delta, logprobs: [] };
        self.events.write("response.output_text.delta", &more, out);
    }

    fn end(&mut self, finished: &TurnResult, out: &mut EventBuffer) {
        // Clients expect a message even in an empty response.
        if self.parts.is_empty() && finished.calls.is_empty() {
            self.open(0, out);
        }
        self.close(out);
        for (n, call) in finished.calls.iter().enumerate() {
            self.call(self.parts.len() + n, call, out);
        }
        let texts: Vec<&str> = self.parts.iter().map(|part| part.text.as_str()).collect();
        let status = ResponseStatus::of(finished);
        let kind = match finished.early_end().is_some() {
            true => "response.incomplete",
            false => "response.completed",
        };
        let response = ResponseObject::new(&self.frame, status, &texts).with_end(finished);
        self.events.write(kind, &ResponsePayload { response }, out);
    }

    fn fail(&mut self, refusal: &ApiError, out: &mut EventBuffer) {
        let response =
            ResponseObject::new(&self.frame, ResponseStatus::Failed, &[]).with_error(refusal);
        // The journal has no text of a step that failed, so the number that it had is not known.
        let last = self.events.starting_after.map_or(0, |last| last.saturating_add(1));
        self.events.next = self.events.next.max(last);
        self.events.write("response.failed", &ResponsePayload { response }, out);
    }
}
