//! The call `CheckModels`: compares the models that a tenant uses with what their providers list.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use holdfast_directory::{ModelChoice, ModelUse};
use holdfast_egress::Guard;
use holdfast_llm::{Catalogue, ListedModel, Prices, list_models};
use holdfast_proto::gateway::v1 as pb;
use holdfast_types::ModelId;
use jiff::Timestamp;

/// Names of vendors at OpenRouter that the catalogue has under another one.
const VENDORS_AT_OPENROUTER: [(&str, &str); 6] = [
    ("google", "gemini"),
    ("mistralai", "mistral"),
    ("moonshotai", "moonshot"),
    ("x-ai", "xai"),
    ("z-ai", "zhipu"),
    ("bytedance-seed", "volcengine"),
];

/// Answer of a provider that was asked for its models.
type Listing = Result<Vec<ListedModel>, String>;

/// Asks each provider once, and compares.
pub(super) async fn check(
    guard: &Guard,
    catalogue: &Catalogue,
    uses: Vec<ModelUse>,
) -> Vec<pb::CheckedModel> {
    let choices = uses.iter().filter_map(|model| model.choice.as_ref());
    let providers: BTreeMap<&str, &ModelChoice> =
        choices.map(|choice| (choice.model.provider(), choice)).collect();
    let listings = providers
        .into_iter()
        .map(|(name, choice)| async move { (name.to_owned(), ask(guard, name, choice).await) });
    let listings: BTreeMap<String, Listing> = join_all(listings).await.into_iter().collect();
    let today = Timestamp::now().strftime("%F").to_string();
    uses.into_iter().map(|model| compare(catalogue, &listings, &today, model)).collect()
}

/// Asks a provider for its models, with its first key.
async fn ask(guard: &Guard, name: &str, choice: &ModelChoice) -> Listing {
    let listed =
        list_models(name, guard, &choice.provider()).await.map_err(|error| error.to_string())?;
    listed.ok_or_else(|| {
        format!(
            "providers of the kind `{}` have no list of what a key may ask: see the cloud's console",
            choice.kind.as_str()
        )
    })
}

fn compare(
    catalogue: &Catalogue,
    listings: &BTreeMap<String, Listing>,
    today: &str,
    of: ModelUse,
) -> pb::CheckedModel {
    let model = of.model();
    let retired = model.as_ref().and_then(|model| catalogue.retired(model));
    let is_off = retired.is_some_and(|retired| retired.is_off(today));
    let listing = of.choice.as_ref().and_then(|choice| listings.get(choice.model.provider()));
    let listed = match (listing, &model) {
        (Some(Ok(listed)), Some(model)) => find_listed(listed, model.id()),
        _ => None,
    };
    let (state, detail) = match listing {
        None => ("no_provider", "its provider is not set up".to_owned()),
        Some(_) if listed.is_some() => ("ok", String::new()),
        Some(_) if is_off => ("retired", String::new()),
        Some(Ok(_)) => ("unknown", "its provider does not list it".to_owned()),
        Some(Err(why)) => ("unchecked", why.clone()),
    };
    let known = model.as_ref().and_then(|model| catalogue.find(model));
    let priced = known.or_else(|| model.as_ref().and_then(|model| at_router(catalogue, model)));
    let prices = listed.and_then(|listed| listed.prices);
    let prices = prices.map(|listed| differences(listed, priced.and_then(|card| card.prices)));
    pb::CheckedModel {
        model: of.name,
        agents: of.agents,
        is_default: of.is_default,
        state: state.to_owned(),
        detail,
        retired_on: retired.map(|retired| retired.on.clone()).unwrap_or_default(),
        successor: retired.map(|retired| retired.successor.to_string()).unwrap_or_default(),
        is_known: known.is_some(),
        prices: prices.unwrap_or_default(),
    }
}

/// Returns the entry of a model. Providers list dated ids of models that have undated names too,
/// and Ollama has tags.
fn find_listed<'l>(listed: &'l [ListedModel], id: &str) -> Option<&'l ListedModel> {
    let exact = listed.iter().find(|model| model.id == id);
    exact.or_else(|| {
        listed.iter().find(|model| {
            model.id.strip_prefix(id).is_some_and(|rest| {
                rest == ":latest" || rest.strip_prefix('-').is_some_and(is_date)
            })
        })
    })
}

/// Whether a text is a date, as `20250929` or `2025-09-29`.
fn is_date(text: &str) -> bool {
    let digits = text.chars().filter(char::is_ascii_digit).count();
    digits == 8 && text.chars().all(|c| c.is_ascii_digit() || c == '-')
}

/// Returns the vendor's own entry of a model that a router names `vendor/model`.
fn at_router<'c>(catalogue: &'c Catalogue, model: &ModelId) -> Option<&'c holdfast_llm::ModelCard> {
    let (vendor, id) = model.id().split_once('/')?;
    let own = VENDORS_AT_OPENROUTER.iter().find(|(name, _)| *name == vendor);
    let vendor = own.map_or(vendor, |(_, own)| own);
    // OpenRouter writes `claude-sonnet-5.5` for `claude-sonnet-5-5`.
    let names: BTreeSet<String> = [id.to_owned(), id.replace('.', "-")].into();
    let find = |id: String| catalogue.find(&format!("{vendor}:{id}").parse().ok()?);
    names.into_iter().find_map(find)
}

/// Returns the prices that a provider and the catalogue name otherwise.
fn differences(listed: Prices, known: Option<Prices>) -> Vec<pb::PriceDifference> {
    let of = |pick: fn(&Prices) -> Option<u64>| (pick(&listed), known.as_ref().and_then(pick));
    let kinds = [
        ("input", of(|prices| Some(prices.input))),
        ("cached", of(|prices| prices.cached)),
        ("written", of(|prices| prices.written)),
        ("output", of(|prices| Some(prices.output))),
    ];
    let differ = kinds.into_iter().filter_map(|(kind, (listed, known))| {
        let listed = listed.filter(|listed| known != Some(*listed))?;
        Some(pb::PriceDifference { kind: kind.to_owned(), listed, known })
    });
    differ.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(ids: &[&str]) -> Vec<ListedModel> {
        ids.iter().map(|id| ListedModel { id: (*id).to_owned(), prices: None }).collect()
    }

    #[test]
    fn a_model_is_listed_with_its_date_or_tag_too() {
        let models = listed(&["claude-sonnet-4-5-20250929", "qwen3:latest", "gpt-5", "gpt-5-mini"]);
        let find = |id: &str| find_listed(&models, id).map(|model| model.id.as_str());

        assert_eq!(find("claude-sonnet-4-5"), Some("claude-sonnet-4-5-20250929"));
        assert_eq!(find("qwen3"), Some("qwen3:latest"));
        assert_eq!(find("gpt-5"), Some("gpt-5"));
        assert_eq!(find("gpt"), None);
        assert_eq!(find("gpt-5-mini-2"), None);
    }

    #[test]
    fn prices_that_differ_are_named_also_where_none_is_known() {
        let prices =
            Prices { input: 2_000, cached: Some(200), output: 10_000, ..Prices::default() };
        let known = Prices { input: 1_000, ..prices };

        assert!(differences(prices, Some(prices)).is_empty());
        let differing = differences(prices, Some(known));
        assert_eq!((differing[0].kind.as_str(), differing[0].known), ("input", Some(1_000)));
        assert_eq!(differing.len(), 1);
        assert_eq!(differences(prices, None).len(), 3);
    }

    #[test]
    fn a_router_s_name_leads_to_the_vendor_s_entry() {
        for name in ["openrouter:anthropic/claude-sonnet-5.5", "openrouter:google/gemini-3.8-flash"]
        {
            assert!(at_router(Catalogue::built_in(), &name.parse().unwrap()).is_some(), "{name}");
        }
        let nobody = "openrouter:nobody/x".parse().unwrap();
        assert!(at_router(Catalogue::built_in(), &nobody).is_none());
    }
}
