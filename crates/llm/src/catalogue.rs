//! Model catalogue: limits, prices and abilities of each model.
//!
//! The facts are data: [`catalogue.json`](../catalogue.json), which `deploy/dev/models.py` makes of a
//! public list (`models/list.json`, with its source and date) and of what we add (`models/ours.json`). A
//! tenant adds and overrides entries with a [`Supplement`]. Unknown models get [`Card::default`]:
//! 32,768 tokens of context, 4,096 of output, tools, no images, no thinking levels, no price. A
//! context that is assumed too small costs an early summary; one assumed too large, a refused
//! request.
//!
//! [`Prices`] says what each kind of token costs.

use std::{collections::BTreeMap, sync::LazyLock};

use holdfast_types::ModelId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

mod prices;

pub use prices::{LongRequestPrices, Prices};

const BUILT_IN: &str = include_str!("../catalogue.json");

static RETIRED_MODELS: LazyLock<BTreeMap<ModelId, RetiredModel>> =
    LazyLock::new(|| built_in_file().retired);
static SUGGESTED_MODELS: LazyLock<Vec<ModelId>> = LazyLock::new(|| built_in_file().suggested);

/// Catalogue entry of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelCard {
    /// Context window: maximum tokens of input and output together.
    pub context: u64,
    pub max_output: u32,
    /// Whether the model can call tools.
    pub tools: bool,
    /// Whether the model accepts images.
    pub images: bool,
    /// Whether the model accepts a temperature while it does not think.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub temperature: bool,
    pub thinking: ThinkingControl,
    /// `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// Fields that are added to the body of each request to the model.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra_body: Map<String, Value>,
}

impl Default for ModelCard {
    fn default() -> Self {
        Self {
            context: 32_768,
            max_output: 4_096,
            tools: true,
            images: false,
            temperature: false,
            thinking: ThinkingControl::default(),
            prices: None,
            extra_body: Map::new(),
        }
    }
}

/// How the thinking level of a model is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ThinkingControl {
    pub by: ThinkingForm,
    /// The provider's word for the least thinking; `None` sends nothing, so the model decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off: Option<String>,
    /// Whether the provider checks that nothing before a thinking block has changed since.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_bound: bool,
}

/// Form in which the thinking level is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingForm {
    #[default]
    No,
    Budget,
    Effort,
    /// A word; the model decides itself when to think.
    Adaptive,
    Switch,
    /// Instructions: the model writes its thinking into the text, between marks (spec SYS-024).
    Marks,
}

/// Tenant's additions to the catalogue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Supplement {
    /// Entries that replace the catalogue's.
    pub models: BTreeMap<ModelId, ModelCard>,
    pub aliases: BTreeMap<String, ModelId>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalogue {
    models: BTreeMap<ModelId, ModelCard>,
    aliases: BTreeMap<String, ModelId>,
    providers: BTreeMap<String, String>,
    unknown: ModelCard,
}

/// A model that its vendor has switched off, or has announced to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetiredModel {
    /// Day, or year if the vendor names none.
    pub on: String,
    /// Model that the vendor, or the same family, offers instead.
    #[serde(rename = "use")]
    pub successor: ModelId,
}

impl RetiredModel {
    /// Whether the model is switched off on a day, as `2026-11-29`.
    #[must_use]
    pub fn is_off(&self, today: &str) -> bool {
        // A year is before all of its days.
        self.on.as_str() <= today
    }
}

/// Format of `catalogue.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Date of the prices, as `2026-11-22`; a test reads it.
    #[cfg_attr(not(test), expect(dead_code, reason = "a note for the readers of the file"))]
    as_of: String,
    models: BTreeMap<ModelId, ModelCard>,
    aliases: BTreeMap<String, ModelId>,
    /// Other names of providers.
    providers: BTreeMap<String, String>,
    /// A good default model of each provider.
    suggested: Vec<ModelId>,
    retired: BTreeMap<ModelId, RetiredModel>,
}

/// Reads the file. A test parses it; should it fail nevertheless, every model would be unknown.
fn built_in_file() -> File {
    serde_json::from_str(BUILT_IN).unwrap_or_default()
}

impl Catalogue {
    /// Returns the catalogue of this build.
    #[must_use]
    pub fn built_in() -> &'static Self {
        static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| {
            let File { models, aliases, providers, .. } = built_in_file();
            Catalogue { models, aliases, providers, unknown: ModelCard::default() }
        });
        &CATALOGUE
    }

    /// Returns a copy with a tenant's entries.
    #[must_use]
    pub fn with(&self, supplement: Supplement) -> Self {
        let mut extended = self.clone();
        extended.models.extend(supplement.models);
        extended.aliases.extend(supplement.aliases);
        extended
    }

    pub fn models(&self) -> impl Iterator<Item = (&ModelId, &ModelCard)> {
        self.models.iter()
    }

    /// Returns the entry of a model: by its own name, by its provider's usual name, or by the same
    /// id at another provider. A date or tag at the id's end (as in `qwen3:4b`) is ignored.
    #[must_use]
    pub fn card(&self, model: &ModelId) -> &ModelCard {
        self.find(model).unwrap_or(&self.unknown)
    }

    /// Same as [`card`](Self::card), but `None` for an unknown model.
    #[must_use]
    pub fn find(&self, model: &ModelId) -> Option<&ModelCard> {
        let usual = self.provider(model.provider());
        let exactly = |provider: &str, id: &str| {
            format!("{provider}:{id}").parse().ok().and_then(|id: ModelId| self.models.get(&id))
        };
        let anywhere =
            |id: &str| self.models.iter().find(|(known, _)| known.id() == id).map(|(_, card)| card);
        let undated = without_date_or_tag(model.id());
        self.models
            .get(model)
            .or_else(|| exactly(usual, model.id()))
            .or_else(|| exactly(usual, undated))
            .or_else(|| anywhere(model.id()))
            .or_else(|| anywhere(undated))
            .or_else(|| anywhere(anthropic_model_of_bedrock(model.id())?))
    }

    /// Returns when a model's vendor switches it off, and what takes its place.
    #[must_use]
    pub fn retired(&self, model: &ModelId) -> Option<&'static RetiredModel> {
        let usual = format!("{}:{}", self.provider(model.provider()), model.id());
        RETIRED_MODELS.get(&usual.parse::<ModelId>().ok()?)
    }

    /// Returns all models that their vendors have switched off, or have announced to.
    pub fn all_retired(&self) -> impl Iterator<Item = (&'static ModelId, &'static RetiredModel)> {
        RETIRED_MODELS.iter()
    }

    /// Returns a good default model of each provider.
    pub fn suggested(&self) -> impl Iterator<Item = &'static ModelId> {
        SUGGESTED_MODELS.iter()
    }

    #[must_use]
    pub fn alias(&self, name: &str) -> Option<&ModelId> {
        self.aliases.get(&name.trim().to_ascii_lowercase())
    }

    pub fn aliases(&self) -> impl Iterator<Item = (&str, &ModelId)> {
        self.aliases.iter().map(|(alias, model)| (alias.as_str(), model))
    }

    #[must_use]
    pub fn usual_provider<'a>(&'a self, name: &'a str) -> &'a str {
        self.provider(name)
    }

    fn provider<'a>(&'a self, name: &'a str) -> &'a str {
        self.providers.get(name).map_or(name, String::as_str)
    }
}

/// Returns the name of Anthropic's model in an id of Bedrock, such as
/// `us.anthropic.claude-sonnet-4-5-20250929-v1:0`.
fn anthropic_model_of_bedrock(id: &str) -> Option<&str> {
    let (_, name) = id.split_once("anthropic.")?;
    let name = name.split_once(':').map_or(name, |(before, _)| before);
    let is_version = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let unversioned = name.rsplit_once("-v").filter(|(_, version)| is_version(version));
    Some(without_date_or_tag(unversioned.map_or(name, |(before, _)| before)))
}

/// Removes a date (`-20250514`, `-2025-08-07`, `@20250514`) or a tag from the end of an id.
fn without_date_or_tag(id: &str) -> &str {
    let id = id.split_once([':', '@']).map_or(id, |(before, _)| before);
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
