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
    super::{
        Refusal,
        sse::{Events, Voice},
    },
    shape::{Frame, Item, Part, Shape, Status},
};
use crate::follow::Finished;

pub struct Narration {
    frame: Frame,
    /// Sequence number of the next event.
    n: u64,
    /// Texts of the parts so far; the last one is open.
    parts: Vec<String>,
}

#[derive(Serialize)]
struct Event<'a, T: Serialize> {
    #[serde(rename = "type")]
    kind: &'static str,
    sequence_number: u64,
    #[serde(flatten)]
    what: &'a T,
}

#[derive(Serialize)]
struct OfResponse<'a> {
    response: Shape<'a>,
}

#[derive(Serialize)]
struct OfItem<'a> {
    output_index: usize,
    item: Item<'a>,
}

#[derive(Serialize)]
struct OfPart<'a> {
    item_id: &'a str,
    output_index: usize,
    content_index: usize,
    part: Part<'a>,
}

#[derive(Serialize)]
struct MoreText<'a> {
    item_id: &'a str,
    output_index: usize,
    content_index: usize,
    delta: &'a str,
    logprobs: [(); 0],
}

#[derive(Serialize)]
struct WholeText<'a> {
    item_id: &'a str,
    output_index: usize,
    content_index: usize,
    text: &'a str,
    logprobs: [(); 0],
}

impl Narration {
    pub const fn new(frame: Frame) -> Self {
        Self { frame, n: 0, parts: Vec::new() }
    }

    fn open(&mut self, out: &mut Events) {
        let output_index = self.parts.len();
        self.parts.push(String::new());
        let item = Item::new(&self.frame, output_index, Status::InProgress, None);
        tell(&mut self.n, "response.output_item.added", &OfItem { output_index, item }, out);
        let item_id = &self.frame.item_id(output_index);
        let part = OfPart { item_id, output_index, content_index: 0, part: Part::new("") };
        tell(&mut self.n, "response.content_part.added", &part, out);
    }

    fn close(&mut self, out: &mut Events) {
        let Some(text) = self.parts.last() else { return };
        let (output_index, content_index) = (self.parts.len() - 1, 0);
        let item_id = &self.frame.item_id(output_index);
        let whole = WholeText { item_id, output_index, content_index, text, logprobs: [] };
        tell(&mut self.n, "response.output_text.done", &whole, out);
        let part = OfPart { item_id, output_index, content_index, part: Part::new(text) };
        tell(&mut self.n, "response.content_part.done", &part, out);
        let item = Item::new(&self.frame, output_index, Status::Completed, Some(text));
        tell(&mut self.n, "response.output_item.done", &OfItem { output_index, item }, out);
    }
}

fn tell<T: Serialize>(n: &mut u64, kind: &'static str, what: &T, out: &mut Events) {
    out.named(kind, &Event { kind, sequence_number: *n, what });
    *n += 1;
}

impl Voice for Narration {
    fn begin(&mut self, out: &mut Events) {
        for kind in ["response.created", "response.in_progress"] {
            let response = Shape::new(&self.frame, Status::InProgress, &[]);
            tell(&mut self.n, kind, &OfResponse { response }, out);
        }
    }

    fn text(&mut self, part: bool, text: &str, out: &mut Events) {
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
        let more = MoreText { item_id, output_index, content_index: 0, delta: text, logprobs: [] };
        tell(&mut self.n, "response.output_text.delta", &more, out);
    }

    fn end(&mut self, finished: &Finished, out: &mut Events) {
        // Clients expect a message even in an empty response.
        if self.parts.is_empty() {
            self.open(out);
        }
        self.close(out);
        let texts: Vec<&str> = self.parts.iter().map(String::as_str).collect();
        let response =
            Shape::new(&self.frame, Status::Completed, &texts).with_usage(finished.usage);
        tell(&mut self.n, "response.completed", &OfResponse { response }, out);
    }

    fn fail(&mut self, refusal: &Refusal, out: &mut Events) {
        let response = Shape::new(&self.frame, Status::Failed, &[]).with_error(refusal);
        tell(&mut self.n, "response.failed", &OfResponse { response }, out);
    }
}
