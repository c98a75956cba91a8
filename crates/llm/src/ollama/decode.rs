//! Decoder of Ollama's stream.
//!
//! Each line has a piece of `message`: text, thinking, or complete calls. The line with `done` has
//! the stop reason and the usage, without cached tokens. A line with `error` reports a failure.

use holdfast_types::{ModelId, Reply, StopReason};
use serde_json::{Value, json};

use super::{API_NAME, refusal};
use crate::{
    Delta, Error, Request, carry,
    http::Decode,
    reply_builder::{MAX_CARRY_BYTES, ReplyBuilder, count, parse},
};

#[derive(Debug)]
pub(super) struct Decoder {
    model: ModelId,
    gather: ReplyBuilder,
    /// Thinking to carry, up to the size limit.
    thoughts: String,
}

impl Decoder {
    pub(super) fn new(request: &Request) -> Self {
        let (model, gather) = (request.model.clone(), ReplyBuilder::marked(request));
        Self { model, gather, thoughts: String::new() }
    }

    fn take(&mut self, line: &Value, deltas: &mut Vec<Delta>) -> Result<(), Error> {
        if let Some(error) = line.get("error").filter(|error| !error.is_null()) {
            return Err(refusal::mid_stream(error));
        }
        let message = &line["message"];
        let thought = message["thinking"].as_str().unwrap_or_default();
        if self.thoughts.len() + thought.len() <= MAX_CARRY_BYTES {
            self.thoughts.push_str(thought);
        }
        self.gather.thought(thought, deltas);
        self.gather.text(message["content"].as_str().unwrap_or_default(), deltas)?;
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            let at = self.gather.begin_call(call["id"].as_str().unwrap_or_default())?;
            self.gather.name_call(at, function["name"].as_str().unwrap_or_default(), deltas);
            self.gather.input(at, &function["arguments"])?;
        }
        if line["done"] == true {
            self.gather.done = true;
            self.gather.usage.input = count(line, "/prompt_eval_count");
            self.gather.usage.output = count(line, "/eval_count");
            self.gather.stop = Some(match line["done_reason"].as_str() {
                Some("length") => StopReason::MaxTokens,
                Some(_) | None => StopReason::End,
            });
        }
        Ok(())
    }
}

impl Decode for Decoder {
    fn push(&mut self, data: &[u8]) -> Result<Vec<Delta>, Error> {
        let mut deltas = Vec::new();
        if !data.trim_ascii().is_empty() {
            self.take(&parse(data)?, &mut deltas)?;
        }
        Ok(deltas)
    }

    /// A complete body is one line, which is also the last.
    fn whole(&mut self, body: &[u8]) -> Result<Vec<Delta>, Error> {
        self.push(body)
    }

    fn is_done(&self) -> bool {
        self.gather.done
    }

    fn finish(mut self) -> Result<Reply, Error> {
        if !self.thoughts.is_empty() {
            let items = vec![json!({ "thinking": self.thoughts })];
            self.gather.carry(carry::pack(API_NAME, &self.model.to_string(), items));
        }
        self.gather.finish()
    }
}

#[cfg(test)]
mod tests;
