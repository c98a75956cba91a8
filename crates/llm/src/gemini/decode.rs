//! Decoder of Gemini's stream.
//!
//! | piece | contents |
//! |---|---|
//! | a part with `text` | text; with `thought`, thinking |
//! | a part with `functionCall` | a complete call |
//! | `thoughtSignature` in either | carried |
//! | `finishReason` | the end, and why |
//! | `promptFeedback.blockReason` | the filter withheld the answer |
//! | `error` | the stream failed, and why |

use holdfast_types::{ModelId, Reply, StopReason, Usage};
use serde_json::{Value, json};

use super::{API_NAME, refusal};
use crate::{
    Delta, Error, Request, carry,
    http::Decode,
    reply_builder::{MAX_CARRY_BYTES, ReplyBuilder, count, parse},
};

#[derive(Debug)]
pub(crate) struct Decoder {
    model: ModelId,
    gather: ReplyBuilder,
    /// Items to carry, in order. Consecutive text without a signature is one item.
    items: Vec<Value>,
    signatures: usize,
    /// Whether the model produced a malformed call.
    is_garbled: bool,
}

impl Decoder {
    pub(super) fn new(request: &Request) -> Self {
        Self {
            model: request.model.clone(),
            gather: ReplyBuilder::new(request),
            items: Vec::new(),
            signatures: 0,
            is_garbled: false,
        }
    }

    fn take(&mut self, piece: &Value, deltas: &mut Vec<Delta>) -> Result<(), Error> {
        if let Some(error) = piece.get("error").filter(|error| !error.is_null()) {
            return Err(refusal::mid_stream(error, &self.model));
        }
        let usage = &piece["usageMetadata"];
        if usage.is_object() {
            let searches = self.gather.usage.searches;
            self.gather.usage = Usage { searches, ..read_usage(usage) };
        }
        let candidate = &piece["candidates"][0];
        let queries = candidate["groundingMetadata"]["webSearchQueries"].as_array();
        if let Some(queries) = queries {
            self.gather.usage.searches = u64::try_from(queries.len()).unwrap_or_default();
        }
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            self.part(part, deltas)?;
        }
        if let Some(reason) = candidate["finishReason"].as_str() {
            self.stop(reason);
        } else if piece["promptFeedback"]["blockReason"].is_string() {
            self.gather.stop = Some(StopReason::Filtered);
            self.gather.done = true;
        }
        Ok(())
    }

    fn part(&mut self, part: &Value, deltas: &mut Vec<Delta>) -> Result<(), Error> {
        let signature = &part["thoughtSignature"];
        self.signatures += signature.as_str().map_or(0, str::len);
        let function = &part["functionCall"];
        if function.is_object() {
            let given = function["id"].as_str().unwrap_or_default();
            let at = self.gather.begin_call(given)?;
            self.gather.name_call(at, function["name"].as_str().unwrap_or_default(), deltas);
            self.gather.input(at, &function["args"])?;
            let id = self.gather.call_id(at);
            let mut item = json!({ "call": id, "is_given": id == given });
            if signature.is_string() {
                item["signature"] = signature.clone();
            }
            self.items.push(item);
        } else if part["thought"] == true {
            self.gather.thought(part["text"].as_str().unwrap_or_default(), deltas);
        } else if let Some(text) = part["text"].as_str() {
            let before = self.gather.text_len();
            self.gather.text(text, deltas)?;
            self.add_text_item(self.gather.text_len() - before, signature);
        }
        Ok(())
    }

    /// Adds the length of a text piece to the carried items, with its signature.
    fn add_text_item(&mut self, length: usize, signature: &Value) {
        let open = self
            .items
            .last_mut()
            .filter(|item| item["text"].is_u64() && item["signature"].is_null());
        match open {
            Some(open) => {
                let length = open["text"].as_u64().unwrap_or_default()
                    + u64::try_from(length).unwrap_or_default();
                open["text"] = length.into();
            }
            None if length == 0 && !signature.is_string() => return,
            None => self.items.push(json!({ "text": length })),
        }
        if let (Some(last), true) = (self.items.last_mut(), signature.is_string()) {
            last["signature"] = signature.clone();
        }
    }

    fn stop(&mut self, reason: &str) {
        self.gather.done = true;
        self.gather.stop = Some(match reason {
            "MAX_TOKENS" => StopReason::MaxTokens,
            "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
            | "IMAGE_SAFETY" => StopReason::Filtered,
            _ => StopReason::End,
        });
        self.is_garbled = matches!(
            reason,
            "MALFORMED_FUNCTION_CALL" | "MALFORMED_RESPONSE" | "UNEXPECTED_TOOL_CALL"
        );
    }
}

/// Thoughts are billed as output, and are not among the candidates' tokens.
pub(crate) fn read_usage(usage: &Value) -> Usage {
    let uncached = |modality| {
        let all = modality_tokens(&usage["promptTokensDetails"], modality);
        all.saturating_sub(modality_tokens(&usage["cacheTokensDetails"], modality))
    };
    let reasoning = count(usage, "/thoughtsTokenCount");
    Usage {
        input: count(usage, "/promptTokenCount") + count(usage, "/toolUsePromptTokenCount"),
        cached: count(usage, "/cachedContentTokenCount"),
        output: count(usage, "/candidatesTokenCount") + reasoning,
        audio_input: uncached("AUDIO"),
        image_input: uncached("IMAGE"),
        reasoning,
        audio_output: modality_tokens(&usage["candidatesTokensDetails"], "AUDIO"),
        image_output: modality_tokens(&usage["candidatesTokensDetails"], "IMAGE"),
        ..Usage::default()
    }
}

/// Tokens of a modality in a list of `{"modality": …, "tokenCount": …}`.
fn modality_tokens(details: &Value, modality: &str) -> u64 {
    let details = details.as_array().into_iter().flatten();
    let of_modality = details.filter(|detail| detail["modality"] == modality);
    of_modality.map(|detail| count(detail, "/tokenCount")).sum()
}

impl Decode for Decoder {
    fn push(&mut self, data: &[u8]) -> Result<Vec<Delta>, Error> {
        let mut deltas = Vec::new();
        if !data.trim_ascii().is_empty() {
            self.take(&parse(data)?, &mut deltas)?;
        }
        Ok(deltas)
    }

    /// A complete body is one piece or a list of pieces.
    fn whole(&mut self, body: &[u8]) -> Result<Vec<Delta>, Error> {
        let mut deltas = Vec::new();
        match parse(body)? {
            Value::Array(pieces) => {
                for piece in &pieces {
                    self.take(piece, &mut deltas)?;
                }
            }
            piece => self.take(&piece, &mut deltas)?,
        }
        Ok(deltas)
    }

    fn is_done(&self) -> bool {
        self.gather.done
    }

    fn finish(mut self) -> Result<Reply, Error> {
        if self.is_garbled {
            return Err(Error::Malformed("its call of a tool"));
        }
        let is_worth_it =
            self.items.iter().any(|item| item["signature"].is_string() || item["is_given"] == true);
        if is_worth_it && self.signatures <= MAX_CARRY_BYTES {
            self.gather.carry(carry::pack(API_NAME, &self.model.to_string(), self.items));
        }
        self.gather.finish()
    }
}

#[cfg(test)]
mod tests;
