//! What a tenant knows of models, besides what every build does.

use std::borrow::Cow;

use holdfast_llm::{Card, Catalogue};
use holdfast_types::ModelId;

use crate::Error;

const LONGEST_ALIAS: usize = 64;
/// More than any model has, and few enough that sums do not overflow.
const MOST_TOKENS: u64 = 100_000_000;
/// Ten thousand dollars for a million tokens.
const HIGHEST_PRICE: u64 = 10_000_000;

/// A model, as a tenant sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownModel {
    /// Which.
    pub model: ModelId,
    /// What is known of it.
    pub card: Card,
    /// Its other names.
    pub aliases: Vec<String>,
    /// Whether the tenant put it, or its name, itself.
    pub is_own: bool,
}

/// What is known to a tenant: most have nothing of their own.
pub type Known = Cow<'static, Catalogue>;

/// The model that a text names: an alias, or `provider:id`.
pub(crate) fn resolve(catalogue: &Catalogue, text: &str) -> Result<ModelId, Error> {
    if let Some(model) = catalogue.alias(text) {
        return Ok(model.clone());
    }
    text.parse().map_err(|error: holdfast_types::InvalidModelId| {
        Error::Invalid(format!("{error}, or an alias that `holdfast models list` shows"))
    })
}

/// Refuses what no model is.
pub(crate) fn check_card(card: &Card) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::Invalid(why.to_owned()));
    if !(1_024..=MOST_TOKENS).contains(&card.context) {
        return refuse("a model's context is 1,024 to 100,000,000 tokens");
    }
    if card.max_output == 0 || u64::from(card.max_output) > card.context {
        return refuse(
            "a model's largest output is 1 token at least, and no more than its context",
        );
    }
    let Some(prices) = &card.prices else { return Ok(()) };
    let long = prices.long.map(|long| [Some(long.input), long.cached, Some(long.output)]);
    let all = [Some(prices.input), prices.cached, Some(prices.output)];
    if all.into_iter().chain(long.into_iter().flatten()).flatten().any(|p| p > HIGHEST_PRICE) {
        return refuse(
            "a price is 10000 US dollars for a million tokens at most, written in thousandths of \
             a dollar: 2500 is $2.50",
        );
    }
    Ok(())
}

/// Refuses what can be no short name, or would hide another model.
pub(crate) fn check_alias(alias: &str) -> Result<(), Error> {
    let first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let rest = |c: char| first(c) || matches!(c, '.' | '_' | '-');
    let is_word = !matches!(alias, "default" | "list" | "show");
    if (1..=LONGEST_ALIAS).contains(&alias.len())
        && alias.starts_with(first)
        && alias.chars().all(rest)
        && is_word
    {
        return Ok(());
    }
    let shown: String = alias.chars().take(80).collect();
    Err(Error::Invalid(format!(
        "`{shown}` is not an alias: write 1 to {LONGEST_ALIAS} of a-z, 0-9, `.`, `_` and `-`, a \
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
        let prices =
            |input| Some(Prices { input, cached: None, output: 1, long: None, picture: None });
        assert!(check_card(&Card { prices: prices(2_500), ..Card::default() }).is_ok());
        for wrong in [
            Card { context: 10, ..Card::default() },
            Card { max_output: 0, ..Card::default() },
            Card { max_output: 40_000, ..Card::default() },
            Card { prices: prices(u64::MAX), ..Card::default() },
        ] {
            assert!(check_card(&wrong).is_err(), "{wrong:?}");
        }
        for alias in ["", "a:b", "Big", "default", "a b"] {
            assert!(check_alias(alias).is_err(), "{alias}");
        }
        assert!(check_alias("gpt-6.1").is_ok());
    }
}
