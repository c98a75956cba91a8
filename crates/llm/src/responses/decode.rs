//! Decoder of the Responses stream.
//!
//! | event | contents |
//! |---|---|
//! | `response.output_item.added`, `.done` | start of an item; the whole item |
//! | `response.output_text.delta`, `.refusal.delta` | a piece of text |
//! | `response.function_call_arguments.delta` | a piece of a call's input |
//! | `response.reasoning_summary_text.delta` | a piece of thinking |
//! | `response.completed`, `.incomplete` | the end, its reason, and the usage |
//! | `response.failed`, `error` | the stream failed, and why |
//! | others | ignored |
//!
//! Reasoning items are not part of the text. They are carried unchanged, with their positions.

use std::collections::BTreeMap;

use holdfast_types::{ModelId, Reply, StopReason, Usage};
use serde_json::{Value, json};

use super::API_NAME;
use crate::{
    Delta, Error, Request, carry,
    http::Decode,
    openai::{count_searches, refusal},
    reply_builder::{ReplyBuilder, count, parse},
};

const MAX_ITEMS: usize = 1_000;

#[derive(Debug)]
pub(crate) struct Decoder {
    model: ModelId,
    gather: ReplyBuilder,
    /// Open and complete items, by index.
    items: BTreeMap<u64, Item>,
    is_refused: bool,
}

/// Item of a reply.
#[derive(Debug)]
enum Item {
    /// Length of the text in bytes, and its phase.
    Text(usize, Value),
    /// Index of the call in the collected reply.
    Call(usize),
    /// Item to carry unchanged.
    Reasoning(Value),
    Other,
}

impl Decoder {
    pub(super) fn new(request: &Request) -> Self {
        Self {
            model: request.model.clone(),
            gather: ReplyBuilder::new(request),
            items: BTreeMap::new(),
            is_refused: false,
        }
    }

    fn take(&mut self, event: &Value, deltas: &mut Vec<Delta>) -> Result<(), Error> {
        let index = event["output_index"].as_u64().unwrap_or_default();
        match event["type"].as_str().unwrap_or_default() {
            "response.output_item.added" => self.begin(index, &event["item"], deltas)?,
            "response.output_item.done" => self.end(index, &event["item"], deltas)?,
            "response.output_text.delta" => self.text(index, &event["delta"], deltas)?,
            "response.refusal.delta" => {
                self.is_refused = true;
                self.text(index, &event["delta"], deltas)?;
            }
            "response.reasoning_summary_text.delta" => {
                self.gather.thought(event["delta"].as_str().unwrap_or_default(), deltas);
            }
            "response.reasoning_summary_part.added" => {
                let is_first = event["summary_index"].as_u64() == Some(0);
                self.gather.thought(if is_first { "" } else { "\n\n" }, deltas);
            }
            "response.function_call_arguments.delta" => {
                if let Some(Item::Call(at)) = self.items.get(&index) {
                    self.gather.input(*at, &event["delta"])?;
                }
            }
            "response.completed" | "response.incomplete" => self.complete(&event["response"]),
            "response.failed" => {
                return Err(refusal::mid_stream(&event["response"]["error"], &self.model));
            }
            // The code is in the event itself, or in an error object within it.
            "error" => {
                let error = event.get("error").filter(|error| error.is_object());
                return Err(match error {
                    Some(error) => refusal::mid_stream(error, &self.model),
                    None => refusal::mid_stream(&json!({ "code": event["code"] }), &self.model),
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, index: u64, item: &Value, deltas: &mut Vec<Delta>) -> Result<(), Error> {
        let begun = match item["type"].as_str().unwrap_or_default() {
            "message" => Item::Text(0, item["phase"].clone()),
            "function_call" => {
                let at = self.gather.begin_call(item["call_id"].as_str().unwrap_or_default())?;
                self.gather.name_call(at, item["name"].as_str().unwrap_or_default(), deltas);
                self.gather.input(at, &item["arguments"])?;
                Item::Call(at)
            }
            "reasoning" => Item::Reasoning(Value::Null),
            _ => Item::Other,
        };
        if self.items.len() > MAX_ITEMS {
            return Err(Error::TooLong { what: "items", limit: MAX_ITEMS });
        }
        self.items.insert(index, begun);
        Ok(())
    }

    fn text(&mut self, index: u64, piece: &Value, deltas: &mut Vec<Delta>) -> Result<(), Error> {
        let piece = piece.as_str().unwrap_or_default();
        if let Some(Item::Text(length, _)) = self.items.get_mut(&index) {
            *length += piece.len();
        }
        self.gather.text(piece, deltas)
    }

    /// Ends an item; adds what was not streamed.
    fn end(&mut self, index: u64, item: &Value, deltas: &mut Vec<Delta>) -> Result<(), Error> {
        if !self.items.contains_key(&index) {
            self.begin(index, item, deltas)?;
        }
        match self.items.get_mut(&index) {
            Some(Item::Text(0, _)) => {
                for part in item["content"].as_array().into_iter().flatten() {
                    self.is_refused |= part["type"] == "refusal";
                    self.text(index, &part["text"], deltas)?;
                    self.text(index, &part["refusal"], deltas)?;
                }
            }
            Some(Item::Call(at)) if self.gather.has_no_input(*at) => {
                self.gather.input(*at, &item["arguments"])?;
            }
            Some(Item::Reasoning(whole)) => *whole = item.clone(),
            Some(Item::Text(..) | Item::Call(_) | Item::Other) | None => {}
        }
        Ok(())
    }

    fn complete(&mut self, response: &Value) {
        self.gather.done = true;
        self.gather.usage = read_usage(response);
        self.gather.stop = Some(match response["incomplete_details"]["reason"].as_str() {
            Some("max_output_tokens") => StopReason::MaxTokens,
            Some("content_filter") => StopReason::Filtered,
            Some(_) | None if self.is_refused => StopReason::Refusal,
            Some(_) | None => StopReason::End,
        });
    }

    /// Returns the encrypted reasoning and its positions, to be carried.
    fn carried_items(&self) -> Option<Value> {
        let is_sealed = |item: &Item| matches!(item, Item::Reasoning(whole) if whole["encrypted_content"].is_string());
        if !self.items.values().any(is_sealed) {
            return None;
        }
        let items = self.items.values().filter_map(|item| match item {
            Item::Text(length, Value::Null) => Some(json!({ "text": length })),
            Item::Text(length, phase) => Some(json!({ "text": length, "phase": phase })),
            Item::Call(at) => Some(json!({ "call": self.gather.call_id(*at) })),
            Item::Reasoning(whole) => is_sealed(item).then(|| {
                let mut whole = whole.clone();
                // The API sends `status`, but does not accept it in a request.
                if let Value::Object(fields) = &mut whole {
                    fields.remove("status");
                }
                whole
            }),
            Item::Other => None,
        });
        carry::pack(API_NAME, &self.model.to_string(), items.collect())
    }
}

pub(crate) fn read_usage(response: &Value) -> Usage {
    let usage = &response["usage"];
    let is_search = |item: &&Value| item["type"] == "web_search_call";
    let searches = response["output"].as_array().into_iter().flatten().filter(is_search);
    let searches = u64::try_from(searches.count()).unwrap_or_default();
    let written = count(usage, "/input_tokens_details/cache_write_tokens");
    let written_long =
        count(usage, "/input_tokens_details/cache_write_tokens_details/ttl_12h_tokens");
    Usage {
        input: count(usage, "/input_tokens"),
        cached: count(usage, "/input_tokens_details/cached_tokens"),
        output: count(usage, "/output_tokens"),
        written: written.saturating_sub(written_long),
        written_long,
        audio_input: count(usage, "/input_tokens_details/audio_tokens"),
        image_input: count(usage, "/input_tokens_details/image_tokens"),
        reasoning: count(usage, "/output_tokens_details/reasoning_tokens"),
        audio_output: count(usage, "/output_tokens_details/audio_tokens"),
        image_output: count(usage, "/output_tokens_details/image_tokens"),
        // xAI counts searches of its own network too.
        searches: searches.max(count_searches(usage)),
    }
}

impl Decode for Decoder {
    fn push(&mut self, data: &[u8]) -> Result<Vec<Delta>, Error> {
        let mut deltas = Vec::new();
        match data.trim_ascii() {
            b"" | b"[DONE]" => {}
            data => self.take(&parse(data)?, &mut deltas)?,
        }
        Ok(deltas)
    }

    fn whole(&mut self, body: &[u8]) -> Result<Vec<Delta>, Error> {
        let response = parse(body)?;
        let mut deltas = Vec::new();
        if response["error"].is_object() {
            return Err(refusal::mid_stream(&response["error"], &self.model));
        }
        for (index, item) in (0..).zip(response["output"].as_array().into_iter().flatten()) {
            self.end(index, item, &mut deltas)?;
        }
        if response["output"].is_array() {
            self.complete(&response);
        }
        Ok(deltas)
    }

    fn is_done(&self) -> bool {
        self.gather.done
    }

    fn finish(mut self) -> Result<Reply, Error> {
        let carried = self.carried_items();
        self.gather.carry(carried);
        self.gather.finish()
    }
}

#[cfg(test)]
mod tests;
