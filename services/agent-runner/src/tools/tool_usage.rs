//! Usage besides the turn's own model requests: images, speech, recordings, other models that look at
//! something, summaries.
//!
//! A tool adds its usage to its session; it is charged in the transaction that stores the call's
//! result. Images and speech reserve nothing: their price is known and small.

use holdfast_agent::tokens::{CjkAware, Tokenizer as _};
use holdfast_types::Usage;

use crate::agents::budget::Ledger;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolUsage {
    /// Model, as `provider:id`.
    pub(crate) model: String,
    /// Tokens; for speech, characters.
    pub(crate) usage: Usage,
    /// Number of squares of 1024 × 1024 pixels that were drawn.
    pub(crate) images: u64,
    /// Seconds of sound that were transcribed, where the provider counts no tokens.
    pub(crate) seconds: u64,
}

impl ToolUsage {
    pub(crate) fn of_answer(model: String, usage: Usage) -> Self {
        Self { model, usage, images: 0, seconds: 0 }
    }

    /// Usage of a transcription.
    pub(crate) fn of_recording(model: String, usage: Usage, seconds: u64) -> Self {
        Self { model, usage, images: 0, seconds }
    }

    /// Usage of speech: each character is charged as an input token.
    pub(crate) fn of_speech(model: String, text: &str) -> Self {
        let input = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
        Self::of_answer(model, Usage { input, output: 0, ..Usage::default() })
    }

    /// Usage of a generated image; `usage` is `None` if the provider counted no tokens.
    pub(crate) fn of_image(model: String, prompt: &str, size: &str, usage: Option<Usage>) -> Self {
        let read = || u64::try_from(CjkAware.count(prompt)).unwrap_or(u64::MAX);
        let usage = usage.unwrap_or_else(|| Usage { input: read(), output: 0, ..Usage::default() });
        Self { model, usage, images: image_squares(size), seconds: 0 }
    }

    /// Cost in millionths of a US dollar.
    pub(crate) fn cost_micros(&self, ledger: &Ledger) -> u64 {
        let Ok(model) = self.model.parse() else { return 0 };
        let prices = ledger.catalogue.card(&model).prices;
        let picture = prices.and_then(|prices| prices.picture).unwrap_or_default();
        let drawn = picture.saturating_mul(self.images);
        let heard = prices.map_or(0, |prices| prices.sound_micros(self.seconds));
        ledger.micros(&self.model, &self.usage).saturating_add(drawn).saturating_add(heard)
    }
}

/// Number of squares of 1024 pixels in a size, rounded up: `1792x1024` has two.
fn image_squares(size: &str) -> u64 {
    const SQUARE: u64 = 1_024 * 1_024;
    let sides = size.split_once('x').map(|(wide, high)| (wide.parse(), high.parse()));
    match sides {
        Some((Ok(wide), Ok(high))) => u64::saturating_mul(wide, high).div_ceil(SQUARE).max(1),
        Some(_) | None => 1,
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use holdfast_llm::{Catalogue, ModelCard, Prices, Supplement};

    use super::*;

    fn ledger(prices: Prices) -> Ledger {
        let card = ModelCard { prices: Some(prices), ..ModelCard::default() };
        let models = [("p:m".parse().unwrap(), card)].into();
        let supplement = Supplement { models, ..Supplement::default() };
        let catalogue = Cow::Owned(Catalogue::default().with(supplement));
        Ledger::new(catalogue, Vec::new(), holdfast_directory::PlanLimits::default())
    }

    #[test]
    fn a_picture_costs_by_its_size_and_a_text_by_its_characters() {
        let prices =
            Prices { input: 15_000, output: 15_000, picture: Some(40_000), ..Prices::default() };
        let ledger = ledger(prices);
        let drawn = |size| {
            let usage = Some(Usage::default());
            ToolUsage::of_image("p:m".into(), "a cat", size, usage).cost_micros(&ledger)
        };

        assert_eq!(
            (drawn("1024x1024"), drawn("1792x1024"), drawn("auto")),
            (40_000, 80_000, 40_000)
        );
        assert_eq!(ToolUsage::of_speech("p:m".into(), "grüße").cost_micros(&ledger), 75);
        assert_eq!(ToolUsage::of_speech("p:other".into(), "grüße").cost_micros(&ledger), 0);
        assert_eq!(ToolUsage::of_image("p:m".into(), "a cat", "", None).usage.input, 2);
    }

    #[test]
    fn a_recording_costs_by_its_length_or_its_tokens() {
        let ledger = ledger(Prices {
            input: 1_000,
            audio_input: Some(3_000),
            output: 5_000,
            audio_second: Some(11_112),
            ..Prices::default()
        });
        let cost = |usage, seconds| {
            ToolUsage::of_recording("p:m".into(), usage, seconds).cost_micros(&ledger)
        };

        assert_eq!(cost(Usage::default(), 3_600), 40_004);
        let tokens = Usage { input: 1_100, audio_input: 1_000, output: 20, ..Usage::default() };
        assert_eq!(cost(tokens, 0), 3_200);
    }
}
