//! What is known of each model: how much it reads and writes, what it costs, what it can do.
//!
//! The facts are data ([`catalogue.json`](../catalogue.json), with the day they were looked up); a
//! tenant adds to them and overrides them with a [`Supplement`]. A model that nobody knows gets
//! [`Card::default`]: it is believed to read 32,768 tokens and to write 4,096, to use tools, to see
//! no pictures, to have no way to be told how much to think, and to have no price. Too small a
//! window costs an early summary; too large a one, a refused request.
//!
//! Prices are in thousandths of a US dollar for a million tokens, which is the same number as
//! billionths of a dollar for one: 2500 is $2.50 for a million.

use std::{collections::BTreeMap, sync::LazyLock};

use holdfast_types::{InvalidModelId, ModelId, Usage};
use serde::{Deserialize, Serialize};

const BUILT_IN: &str = include_str!("../catalogue.json");

/// What is known of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Card {
    /// The most tokens that it reads and writes together.
    pub context: u64,
    /// The most tokens that it writes.
    pub max_output: u32,
    /// Whether it can ask for tools.
    pub tools: bool,
    /// Whether it sees pictures.
    pub images: bool,
    /// How it is told how much to think.
    pub thinking: Thinks,
    /// What it costs; `None` if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
}

impl Default for Card {
    fn default() -> Self {
        Self {
            context: 32_768,
            max_output: 4_096,
            tools: true,
            images: false,
            thinking: Thinks::default(),
            prices: None,
        }
    }
}

/// How a model is told how much to think.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Thinks {
    /// In which way.
    pub by: By,
    /// Its word for as little as possible; `None` says nothing, and leaves it to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off: Option<String>,
    /// Whether its provider checks that nothing before its thoughts has changed since.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_bound: bool,
}

/// In which way a model is told how much to think.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// It cannot be told.
    #[default]
    No,
    /// By a number of tokens.
    Budget,
    /// By a word.
    Effort,
    /// By a word, and it decides itself when to think.
    Adaptive,
    /// By yes or no.
    Switch,
    /// By its instructions: it thinks in its text, between marks (spec SYS-024).
    Marks,
}

/// What a model costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// For what it reads.
    pub input: u64,
    /// For what it reads from the provider's cache; `None` is the price of input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
    /// For what it writes.
    pub output: u64,
    /// What a long request costs instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<Long>,
    /// For a picture of 1024 × 1024 dots that it draws, in millionths of a US dollar, besides what
    /// it reads and writes; a larger one counts as so many of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<u64>,
}

/// What a long request costs, all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Long {
    /// One is long that reads more tokens than this.
    pub over: u64,
    /// For what it reads.
    pub input: u64,
    /// For what it reads from the cache; `None` is the price of input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
    /// For what it writes.
    pub output: u64,
}

impl Prices {
    /// What a request costs, in billionths of a US dollar. What a provider takes for writing to
    /// its cache is not in it.
    #[must_use]
    pub const fn cost(&self, usage: &Usage) -> u64 {
        let (input, cached, output) = match self.long {
            Some(long) if usage.input > long.over => (long.input, long.cached, long.output),
            Some(_) | None => (self.input, self.cached, self.output),
        };
        let cached = match cached {
            Some(price) => price,
            None => input,
        };
        let fresh = usage.input.saturating_sub(usage.cached).saturating_mul(input);
        let known = usage.cached.saturating_mul(cached);
        fresh.saturating_add(known).saturating_add(usage.output.saturating_mul(output))
    }
}

/// What a tenant knows better, or besides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Supplement {
    /// Models, by their ids. Each replaces what was known of it.
    pub models: BTreeMap<ModelId, Card>,
    /// Short names of models.
    pub aliases: BTreeMap<String, ModelId>,
}

/// What is known of all models.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalogue {
    as_of: String,
    models: BTreeMap<ModelId, Card>,
    aliases: BTreeMap<String, ModelId>,
    providers: BTreeMap<String, String>,
    unknown: Card,
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    as_of: String,
    models: BTreeMap<ModelId, Card>,
    aliases: BTreeMap<String, ModelId>,
    /// What else providers are called.
    providers: BTreeMap<String, String>,
}

impl Catalogue {
    /// What this build knows.
    #[must_use]
    pub fn built_in() -> &'static Self {
        static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| {
            // A test reads the file; were it broken all the same, every model would be unknown.
            let Ok(file) = serde_json::from_str::<File>(BUILT_IN) else {
                return Catalogue::default();
            };
            let File { as_of, models, aliases, providers } = file;
            Catalogue { as_of, models, aliases, providers, unknown: Card::default() }
        });
        &CATALOGUE
    }

    /// This, and what a tenant knows better.
    #[must_use]
    pub fn with(&self, supplement: Supplement) -> Self {
        let mut extended = self.clone();
        extended.models.extend(supplement.models);
        extended.aliases.extend(supplement.aliases);
        extended
    }

    /// The day on which the prices were looked up, as `2026-11-22`.
    #[must_use]
    pub fn as_of(&self) -> &str {
        &self.as_of
    }

    /// All models that are known.
    pub fn models(&self) -> impl Iterator<Item = (&ModelId, &Card)> {
        self.models.iter()
    }

    /// What is known of a model: under its own name, under its provider's usual name, or under the
    /// same id with another provider, a date or a tag (as in `qwen3:4b`) at its end left aside.
    #[must_use]
    pub fn card(&self, model: &ModelId) -> &Card {
        self.find(model).unwrap_or(&self.unknown)
    }

    /// What is known of a model, as [`card`](Self::card) says, if it is known at all.
    #[must_use]
    pub fn find(&self, model: &ModelId) -> Option<&Card> {
        let usual = self.provider(model.provider());
        let exactly = |provider: &str, id: &str| {
            format!("{provider}:{id}").parse().ok().and_then(|id: ModelId| self.models.get(&id))
        };
        let anywhere =
            |id: &str| self.models.iter().find(|(known, _)| known.id() == id).map(|(_, card)| card);
        let undated = undated(model.id());
        self.models
            .get(model)
            .or_else(|| exactly(usual, model.id()))
            .or_else(|| exactly(usual, undated))
            .or_else(|| anywhere(model.id()))
            .or_else(|| anywhere(undated))
    }

    /// The model that a text names: an alias, `provider:id` with any name of the provider, or an
    /// id that is known; any other id is believed to be OpenAI's.
    ///
    /// # Errors
    ///
    /// If it can be no model's name.
    pub fn resolve(&self, text: &str) -> Result<ModelId, InvalidModelId> {
        let text = text.trim();
        if let Some(model) = self.aliases.get(&text.to_ascii_lowercase()) {
            return Ok(model.clone());
        }
        if let Some((provider, id)) = text.split_once(':') {
            let provider = provider.to_ascii_lowercase();
            return format!("{}:{id}", self.provider(&provider)).parse();
        }
        match self.models.keys().find(|known| known.id() == text) {
            Some(known) => Ok(known.clone()),
            // What is no id at all is refused as it was given.
            None if text.is_empty() => text.parse(),
            None => format!("openai:{text}").parse(),
        }
    }

    /// The model that a short name stands for.
    #[must_use]
    pub fn alias(&self, name: &str) -> Option<&ModelId> {
        self.aliases.get(&name.trim().to_ascii_lowercase())
    }

    /// All short names.
    pub fn aliases(&self) -> impl Iterator<Item = (&str, &ModelId)> {
        self.aliases.iter().map(|(alias, model)| (alias.as_str(), model))
    }

    /// The usual name of a provider.
    #[must_use]
    pub fn usual_provider<'a>(&'a self, name: &'a str) -> &'a str {
        self.provider(name)
    }

    /// The usual name of a provider.
    fn provider<'a>(&'a self, name: &'a str) -> &'a str {
        self.providers.get(name).map_or(name, String::as_str)
    }
}

/// An id without the date at its end: `-20250514`, `-2025-08-07`; or without its tag.
fn undated(id: &str) -> &str {
    let id = id.split_once(':').map_or(id, |(before, _)| before);
    let is_date = |text: &str| match text.as_bytes() {
        digits if digits.len() == 8 => digits.iter().all(u8::is_ascii_digit),
        [y @ .., b'-', m1, m2, b'-', d1, d2] if y.len() == 4 => {
            y.iter().chain([m1, m2, d1, d2]).all(u8::is_ascii_digit)
        }
        _ => false,
    };
    for length in [8, 10] {
        if let Some(at) = id.len().checked_sub(length + 1)
            && let Some((before, date)) = id.split_at_checked(at)
            && let Some(date) = date.strip_prefix('-')
            && is_date(date)
        {
            return before;
        }
    }
    id
}

#[cfg(test)]
mod tests;
