//! Prices of a model, and what a request costs.
//!
//! Prices are in thousandths of a US dollar per million tokens, which is the same number as
//! billionths of a dollar per token: 2500 is $2.50 per million. A price that is absent is that of
//! the tokens which it is a part of. How vendors bill:
//!
//! | vendor | rule |
//! |---|---|
//! | Anthropic | cache writes cost 1.25 times the input for 5 minutes, twice for an hour |
//! | OpenAI | since GPT-5.6 cache writes cost 1.25 times the input, for 12 hours 2.5 times |
//! | DeepSeek, Moonshot, Z.ai | cache writes are plain input, or free |
//! | Gemini, xAI | all tokens of a request with a long prompt cost more |
//! | all | reasoning is output |
//! | Gemini | sound in the input costs more than text |
//! | models of Whisper, Voxtral | sound costs by its length |

use holdfast_types::Usage;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    pub input: u64,
    /// Input from the provider's cache; `None` is the price of input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
    /// Input that is written to the provider's cache; `None` is the price of input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<u64>,
    /// The same for the longer lifetime; `None` is `written`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_long: Option<u64>,
    pub output: u64,
    /// Reasoning; `None` is the price of output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// Sound that is read; `None` is the price of input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio_input: Option<u64>,
    /// Sound that is made; `None` is the price of output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio_output: Option<u64>,
    /// Images that are read; `None` is the price of input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_input: Option<u64>,
    /// Images that are made; `None` is the price of output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_output: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongRequestPrices>,
    /// A generated image of 1024 × 1024 pixels, in millionths of a US dollar, in addition to the
    /// tokens; larger images count as several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<u64>,
    /// A second of sound that is transcribed, in billionths of a US dollar, where the vendor counts
    /// no tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio_second: Option<u64>,
    /// A search that the provider makes itself, in millionths of a US dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<u64>,
}

/// Prices that apply to all text tokens of a long request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongRequestPrices {
    /// A request is long if it has more input tokens than this.
    pub over: u64,
    pub input: u64,
    /// Input from the cache; `None` is the price of input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
    /// Input that is written to the cache; `None` is the price of input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<u64>,
    /// The same for the longer lifetime; `None` is `written`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_long: Option<u64>,
    pub output: u64,
}

impl Prices {
    /// Returns the cost of a request in billionths of a US dollar.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> u64 {
        let prices = self.for_input(usage.input);
        let written = prices.written.unwrap_or(prices.input);
        let input = [
            (usage.cached, prices.cached.unwrap_or(prices.input)),
            (usage.written, written),
            (usage.written_long, prices.written_long.unwrap_or(written)),
            (usage.audio_input, self.audio_input.unwrap_or(prices.input)),
            (usage.image_input, self.image_input.unwrap_or(prices.input)),
        ];
        let output = [
            (usage.reasoning, self.reasoning.unwrap_or(prices.output)),
            (usage.audio_output, self.audio_output.unwrap_or(prices.output)),
            (usage.image_output, self.image_output.unwrap_or(prices.output)),
        ];
        let searches = usage.searches.saturating_mul(self.search.unwrap_or_default());
        parts_cost(usage.input, prices.input, &input)
            .saturating_add(parts_cost(usage.output, prices.output, &output))
            .saturating_add(searches.saturating_mul(1_000))
    }

    /// Returns the cost of transcribed sound in millionths of a US dollar, rounded up.
    #[must_use]
    pub fn sound_micros(&self, seconds: u64) -> u64 {
        seconds.saturating_mul(self.audio_second.unwrap_or_default()).div_ceil(1_000)
    }

    /// Returns the highest cost of a request with this many tokens, in billionths of a US dollar:
    /// all of its input may be written to the cache.
    #[must_use]
    pub fn highest_cost(&self, input: u64, output: u64) -> u64 {
        let prices = self.for_input(input);
        let price = prices.input.max(prices.written.unwrap_or_default());
        input.saturating_mul(price).saturating_add(output.saturating_mul(prices.output))
    }

    /// Returns the prices of text in a request with this much input.
    #[must_use]
    pub fn for_input(&self, input: u64) -> LongRequestPrices {
        match self.long {
            Some(long) if input > long.over => long,
            Some(_) | None => LongRequestPrices {
                over: 0,
                input: self.input,
                cached: self.cached,
                written: self.written,
                written_long: self.written_long,
                output: self.output,
            },
        }
    }

    /// Returns all prices of tokens.
    pub fn of_tokens(&self) -> impl Iterator<Item = u64> {
        let long = self.long.unwrap_or_default();
        let parts = [
            self.cached,
            self.written,
            self.written_long,
            self.reasoning,
            self.audio_input,
            self.audio_output,
            self.image_input,
            self.image_output,
            long.cached,
            long.written,
            long.written_long,
        ];
        [self.input, self.output, long.input, long.output]
            .into_iter()
            .chain(parts.into_iter().flatten())
    }
}

/// Returns the cost of tokens of which parts have other prices.
fn parts_cost(all: u64, price: u64, parts: &[(u64, u64)]) -> u64 {
    let mut plain = all;
    let mut cost = 0_u64;
    for (tokens, price) in parts {
        plain = plain.saturating_sub(*tokens);
        cost = cost.saturating_add(tokens.saturating_mul(*price));
    }
    cost.saturating_add(plain.saturating_mul(price))
}

#[cfg(test)]
mod tests;
