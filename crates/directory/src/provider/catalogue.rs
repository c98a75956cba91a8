//! Model catalogue of a tenant: the built-in models, and the tenant's additions.

use std::borrow::Cow;

use holdfast_llm::{Catalogue, ModelCard};
use holdfast_types::ModelId;

use crate::Error;

const MAX_ALIAS_BYTES: usize = 64;
/// Larger than any model's context, and small enough that sums do not overflow.
const MAX_CONTEXT_TOKENS: u64 = 100_000_000;
/// In thousandths of a US dollar per million tokens: 10,000 dollars.
const MAX_PRICE: u64 = 10_000_000;

/// A model of a tenant's catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownModel {
    pub model: ModelId,
    /// Properties and prices of the model.
    pub card: ModelCard,
    pub aliases: Vec<String>,
    /// Whether the tenant added the model or one of its aliases.
    pub is_own: bool,
}

/// Catalogue of a tenant; borrowed if the tenant has added nothing.
pub type TenantCatalogue = Cow<'static, Catalogue>;

/// Returns the model with this alias or `provider:id`.
pub(crate) fn resolve(catalogue: &Catalogue, text: &str) -> Result<ModelId, Error> {
    if let Some(model) = catalogue.alias(text) {
        return Ok(model.clone());
    }
    text.parse().map_err(|error: holdfast_types::InvalidModelId| {
        Error::Invalid(format!("{error}, or an alias that `holdfast models list` shows"))
    })
}

/// Checks that a model's properties are in range.
pub(crate) fn check_card(card: &ModelCard) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::Invalid(why.to_owned()));
    if !(1_024..=MAX_CONTEXT_TOKENS).contains(&card.context) {
        return refuse("a model's context is 1,024 to 100,000,000 tokens");
    }
    if card.max_output == 0 || u64::from(card.max_output) > card.context {
        return refuse(
            "a model's largest output is 1 token at least, and no more than its context",
        );
    }
    holdfast_llm::check_body(&card.extra_body)
        .map_err(|error| Error::Invalid(error.to_string()))?;
    let Some(prices) = &card.prices else { return Ok(()) };
    if prices.of_tokens().any(|price| price > MAX_PRICE) {
        return refuse(
            "a price is 10000 US dollars for a million tokens at most, written in thousandths of \
             a dollar: 2500 is $2.50",
        );
    }
    Ok(())
}

/// Checks the form of an alias.
pub(crate) fn check_alias(alias: &str) -> Result<(), Error> {
    let first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let rest = |c: char| first(c) || matches!(c, '.' | '_' | '-');
    let is_word = !matches!(alias, "default" | "list" | "show");
    if (1..=MAX_ALIAS_BYTES).contains(&alias.len())
        && alias.starts_with(first)
        && alias.chars().all(rest)
        && is_word
    {
        return Ok(());
    }
    let shown: String = alias.chars().take(80).collect();
    Err(Error::Invalid(format!(
        "`{shown}` is not an alias: write 1 to {MAX_ALIAS_BYTES} of a-z, 0-9, `.`, `_` and `-`, a \
         letter or digit first, and not `default`, `list` or `show`"
    )))
}

#[cfg(test)]
mod tests {
    use holdfast_llm::Prices;

    use super::*;

    #[test]
    fn a_name_is_an_alias_or_an_id() {
        let catalogue = Catalogue::built_in();

        let opus = resolve(catalogue, "opus").unwrap();
        assert_eq!(opus.provider(), "anthropic");
        assert_eq!(resolve(catalogue, "fake:one").unwrap().to_string(), "fake:one");
        assert!(resolve(catalogue, "nonsense").unwrap_err().to_string().contains("alias"));
    }

    #[test]
    fn what_no_model_is_is_refused() {
        let prices = |input| Some(Prices { input, output: 1, ..Prices::default() });
        assert!(check_card(&ModelCard { prices: prices(2_500), ..ModelCard::default() }).is_ok());
        for wrong in [
            ModelCard { context: 10, ..ModelCard::default() },
            ModelCard { max_output: 0, ..ModelCard::default() },
            ModelCard { max_output: 40_000, ..ModelCard::default() },
            ModelCard { prices: prices(u64::MAX), ..ModelCard::default() },
        ] {
            assert!(check_card(&wrong).is_err(), "{wrong:?}");
        }
        for alias in ["", "a:b", "Big", "default", "a b"] {
            assert!(check_alias(alias).is_err(), "{alias}");
        }
        assert!(check_alias("gpt-6.1").is_ok());
    }
}
