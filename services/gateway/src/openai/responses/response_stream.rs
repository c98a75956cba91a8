//! Stream format of the Responses API: its events, in order.
//!
//! | event | when |
//! |---|---|
//! | `response.created`, `response.in_progress` | at once |
//! | `response.output_item.added`, `response.content_part.added` | a part begins |
//! | `response.output_text.delta` | more text of the part |
//! | `….output_text.done`, `….content_part.done`, `….output_item.done` | the part ends |
//! | `response.completed`, or `response.failed` | the end |

use serde::Serialize;

use super::{
    super::sse::{EventBuffer, StreamFormat},
    object::{OutputMessage, OutputText, ResponseHead, ResponseObject, ResponseStatus},
};
use crate::{api_error::ApiError, follow::TurnResult};

pub struct ResponseStream {
    frame: ResponseHead,
    /// Sequence number of the next event.
    next_sequence_number: u64,
    /// Texts of the parts so far; the last one is open.
    parts: Vec<String>,
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
    item: OutputMessage<'a>,
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

impl ResponseStream {
    pub const fn new(frame: ResponseHead) -> Self {
        Self { frame, next_sequence_number: 0, parts: Vec::new() }
    }

    fn open(&mut self, out: &mut EventBuffer) {
        let output_index = self.parts.len();
        self.parts.push(String::new());
        let item = OutputMessage::new(&self.frame, output_index, ResponseStatus::InProgress, None);
        write_event(
            &mut self.next_sequence_number,
            "response.output_item.added",
            &ItemPayload { output_index, item },
            out,
        );
        let item_id = &self.frame.item_id(output_index);
        let part =
            PartPayload { item_id, output_index, content_index: 0, part: OutputText::new("") };
        write_event(&mut self.next_sequence_number, "response.content_part.added", &part, out);
    }

    fn close(&mut self, out: &mut EventBuffer) {
        let Some(text) = self.parts.last() else { return };
        let (output_index, content_index) = (self.parts.len() - 1, 0);
        let item_id = &self.frame.item_id(output_index);
        let whole = TextDonePayload { item_id, output_index, content_index, text, logprobs: [] };
        write_event(&mut self.next_sequence_number, "response.output_text.done", &whole, out);
        let part =
            PartPayload { item_id, output_index, content_index, part: OutputText::new(text) };
        write_event(&mut self.next_sequence_number, "response.content_part.done", &part, out);
        let item =
            OutputMessage::new(&self.frame, output_index, ResponseStatus::Completed, Some(text));
        write_event(
            &mut self.next_sequence_number,
            "response.output_item.done",
            &ItemPayload { output_index, item },
            out,
        );
    }
}

fn write_event<T: Serialize>(n: &mut u64, kind: &'static str, what: &T, out: &mut EventBuffer) {
    out.named_event(kind, &StreamEvent { kind, sequence_number: *n, what });
    *n += 1;
}

impl StreamFormat for ResponseStream {
    fn begin(&mut self, out: &mut EventBuffer) {
        for kind in ["response.created", "response.in_progress"] {
            let response = ResponseObject::new(&self.frame, ResponseStatus::InProgress, &[]);
            write_event(&mut self.next_sequence_number, kind, &ResponsePayload { response }, out);
        }
    }

    fn text(&mut self, part: bool, text: &str, out: &mut EventBuffer) {
        if part {
            self.close(out);
        }
        if part || self.parts.is_empty() {
            self.open(out);
        }
        let output_index = self.parts.len() - 1;
        if let Some(open) = self.parts.last_mut() {
            open.push_str(text);
        }
        let item_id = &self.frame.item_id(output_index);
        let more =
            TextDeltaPayload { item_id, output_index, content_index: 0, delta: text, logprobs: [] };
        write_event(&mut self.next_sequence_number, "response.output_text.delta", &more, out);
    }

    fn end(&mut self, finished: &TurnResult, out: &mut EventBuffer) {
        // Clients expect a message even in an empty response.
        if self.parts.is_empty() {
            self.open(out);
        }
        self.close(out);
        let texts: Vec<&str> = self.parts.iter().map(String::as_str).collect();
        let response = ResponseObject::new(&self.frame, ResponseStatus::Completed, &texts)
            .with_usage(finished.usage);
        write_event(
            &mut self.next_sequence_number,
            "response.completed",
            &ResponsePayload { response },
            out,
        );
    }

    fn fail(&mut self, refusal: &ApiError, out: &mut EventBuffer) {
        let response =
            ResponseObject::new(&self.frame, ResponseStatus::Failed, &[]).with_error(refusal);
        write_event(
            &mut self.next_sequence_number,
            "response.failed",
            &ResponsePayload { response },
            out,
        );
    }
}
