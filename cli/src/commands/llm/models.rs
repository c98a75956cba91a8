//! `holdfast models`.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    CheckModelsRequest, CheckedModel, DeleteAliasRequest, DeleteModelRequest, KnownModel,
    ListModelsRequest, PriceDifference, PutAliasRequest, PutModelRequest,
};
use serde_json::{Map, Value, json};

use super::super::option_values;
use crate::{client::Client, error::Error, screen::Screen};

const COLUMNS: [&str; 9] = [
    "model",
    "aliases",
    "context",
    "max_output",
    "images",
    "thinking",
    "prices",
    "retired_on",
    "is_own",
];
const CHECK_COLUMNS: [&str; 6] = ["model", "used_by", "state", "successor", "prices", "note"];

#[derive(Debug, Subcommand)]
pub enum Models {
    /// List known models and their properties
    List {
        /// Show only models that this tenant defined
        #[arg(long)]
        own: bool,
    },
    /// Ask the providers of the models in use for their models: which are retired, unknown, or have
    /// other prices; fails if one cannot be used
    Check,
    /// Define a model, or change its definition; options that are not given stay unchanged, and are
    /// as for an unknown model at first
    Put {
        /// The model to define, as `provider:id`
        model: String,
        /// Begin with an unknown model instead of the tenant's definition
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        card: Card,
    },
    /// Delete the tenant's definition of a model
    Delete {
        /// The model to define, as `provider:id`
        model: String,
    },
    /// Set or delete an alias of a model
    Alias {
        /// The alias to set or delete
        alias: String,
        /// The model, as `provider:id` or another alias; without it the alias is deleted
        model: Option<String>,
    },
}

/// Properties of a model, such as prices
#[derive(Debug, Args)]
pub struct Card {
    /// The whole definition as JSON: text, `@file`, or `-` for stdin; other options override it
    #[arg(long)]
    card: Option<String>,
    /// Size of the context window in tokens, input and output together
    #[arg(long)]
    context: Option<u64>,
    /// Maximum number of output tokens
    #[arg(long)]
    max_output: Option<u32>,
    /// The model accepts images
    #[arg(long)]
    images: bool,
    /// The model accepts a temperature while it does not think
    #[arg(long)]
    temperature: bool,
    /// The model cannot call tools
    #[arg(long)]
    no_tools: bool,
    /// Way in which the model's thinking is controlled
    #[arg(long, value_parser = ["no", "budget", "effort", "adaptive", "switch", "marks"])]
    thinking: Option<String>,
    /// Price of a million input tokens, in US dollars
    #[arg(long, requires = "output_price")]
    input_price: Option<f64>,
    /// Price of a million input tokens read from the provider's cache, in US dollars
    #[arg(long, requires = "input_price")]
    cached_price: Option<f64>,
    /// Price of a million input tokens written to the provider's cache, in US dollars
    #[arg(long, requires = "input_price")]
    written_price: Option<f64>,
    /// Price of a million output tokens, in US dollars
    #[arg(long, requires = "input_price")]
    output_price: Option<f64>,
}

impl Models {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { own } => {
                let request = client.request(ListModelsRequest { own });
                let listed = client.answer(client.models().list_models(request).await)?;
                let views = listed.models.iter().map(|known| {
                    let retired =
                        listed.retired.iter().find(|retired| retired.model == known.model);
                    let mut view = view(known);
                    if let Some(retired) = retired {
                        view["retired_on"] = retired.on.clone().into();
                        view["successor"] = retired.successor.clone().into();
                    }
                    view
                });
                screen.list(&COLUMNS, views.collect())
            }
            Self::Check => check(client, screen).await,
            Self::Put { model, replace, card } => {
                let before = match replace {
                    true => Map::new(),
                    false => own_card(client, &model).await?,
                };
                let card = card.json(before)?;
                let put = json!({"model": model, "card": card});
                let request = client.request(PutModelRequest { model, card: card.to_string() });
                client.answer(client.models().put_model(request).await)?;
                screen.done("put", &put)
            }
            Self::Delete { model } => {
                let deleted = json!({"deleted": model});
                let request = client.request(DeleteModelRequest { model });
                client.answer(client.models().delete_model(request).await)?;
                screen.done("deleted", &deleted)
            }
            Self::Alias { alias, model: Some(model) } => {
                let request = client.request(PutAliasRequest { alias: alias.clone(), model });
                let put = client.answer(client.models().put_alias(request).await)?;
                let sentence = format!("`{alias}` is {}", put.model);
                screen.done(&sentence, &json!({"alias": alias, "model": put.model}))
            }
            Self::Alias { alias, model: None } => {
                let deleted = json!({"deleted": alias});
                let request = client.request(DeleteAliasRequest { alias });
                client.answer(client.models().delete_alias(request).await)?;
                screen.done("deleted", &deleted)
            }
        }
    }
}

async fn check(client: &Client, screen: &Screen) -> Result<(), Error> {
    let request = client.request(CheckModelsRequest {});
    let models = client.answer(client.models().check_models(request).await)?.models;
    screen.list(&CHECK_COLUMNS, models.iter().map(check_view).collect())?;
    let is_lost = |state: &str| matches!(state, "retired" | "unknown" | "no_provider");
    let lost: Vec<&str> = models
        .iter()
        .filter(|model| is_lost(&model.state))
        .map(|model| model.model.as_str())
        .collect();
    if lost.is_empty() {
        return Ok(());
    }
    Err(Error::NoAnswer(format!(
        "{} cannot be used: choose another model with `holdfast setup` or `holdfast agents update \
         NAME --model MODEL`",
        lost.join(", ")
    )))
}

fn check_view(model: &CheckedModel) -> Value {
    let mut used_by = model.agents.clone();
    if model.is_default {
        used_by.insert(0, "(default)".to_owned());
    }
    let mut notes = vec![model.detail.clone()];
    if !model.retired_on.is_empty() {
        let until = if model.state == "retired" { "switched off" } else { "will be switched off" };
        notes.push(format!("{until}: {}", model.retired_on));
    }
    if !model.is_known {
        notes.push("not in the catalogue: it has no price".to_owned());
    }
    notes.retain(|note| !note.is_empty());
    json!({
        "model": model.model,
        "used_by": used_by,
        "state": model.state,
        "successor": model.successor,
        "prices": model.prices.iter().map(difference).collect::<Vec<_>>(),
        "note": notes.join("; "),
    })
}

/// Describes a difference in US dollars for a million tokens: `input 2.5, here 2`.
fn difference(price: &PriceDifference) -> String {
    let dollars = |thousandths: u64| {
        let text = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let known = price.known.map_or("none".to_owned(), dollars);
    format!("{} {}, here {known}", price.kind, dollars(price.listed))
}

impl Card {
    /// Returns the definition; fields that are not given are those of `before`.
    fn json(self, before: Map<String, Value>) -> Result<Value, Error> {
        let given = self.card.as_deref().map(option_values::json).transpose()?;
        let mut card = match given {
            Some(Value::Object(card)) => card,
            Some(_) => return Err(Error::Usage("`--card` is no JSON object".to_owned())),
            None => before,
        };
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                card.insert(name.to_owned(), value);
            }
        };
        set("context", self.context.map(Value::from));
        set("max_output", self.max_output.map(Value::from));
        set("images", self.images.then_some(Value::Bool(true)));
        set("temperature", self.temperature.then_some(Value::Bool(true)));
        set("tools", self.no_tools.then_some(Value::Bool(false)));
        set("thinking", self.thinking.map(|by| json!({ "by": by })));
        if let (Some(input), Some(output)) = (self.input_price, self.output_price) {
            let mut prices = json!({"input": thousandths(input)?, "output": thousandths(output)?});
            if let Some(cached) = self.cached_price {
                prices["cached"] = thousandths(cached)?.into();
            }
            if let Some(written) = self.written_price {
                prices["written"] = thousandths(written)?.into();
            }
            set("prices", Some(prices));
        }
        Ok(Value::Object(card))
    }
}

/// Returns the tenant's definition of a model; empty if there is none.
async fn own_card(client: &Client, model: &str) -> Result<Map<String, Value>, Error> {
    let request = client.request(ListModelsRequest { own: true });
    let models = client.answer(client.models().list_models(request).await)?.models;
    let known = models.into_iter().find(|known| known.model == model);
    let card = known.and_then(|known| serde_json::from_str(&known.card).ok());
    Ok(card.unwrap_or_default())
}

/// Converts US dollars to thousandths, the unit of the model catalogue.
fn thousandths(dollars: f64) -> Result<u64, Error> {
    let thousandths = format!("{:.0}", dollars * 1_000.0);
    thousandths
        .parse()
        .map_err(|_| Error::Usage(format!("{dollars} is no price: write US dollars, as 2.5")))
}

fn view(model: &KnownModel) -> Value {
    let mut card: Value = serde_json::from_str(&model.card).unwrap_or_default();
    let mut view = json!({
        "model": model.model,
        "aliases": model.aliases,
        "is_own": model.is_own,
    });
    if let (Some(view), Some(card)) = (view.as_object_mut(), card.as_object_mut()) {
        view.append(card);
    }
    view
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        card: Card,
    }

    #[test]
    fn a_checked_model_says_who_uses_it_and_what_is_wrong() {
        let model = CheckedModel {
            model: "deepseek:deepseek-chat".into(),
            agents: vec!["main".into()],
            is_default: true,
            state: "retired".into(),
            retired_on: "2026-07-24".into(),
            successor: "deepseek:deepseek-flash".into(),
            prices: vec![PriceDifference { kind: "input".into(), listed: 2_500, known: Some(30) }],
            ..CheckedModel::default()
        };

        let view = check_view(&model);

        assert_eq!(view["used_by"], json!(["(default)", "main"]));
        assert_eq!(view["prices"], json!(["input 2.5, here 0.03"]));
        assert_eq!(view["note"], "switched off: 2026-07-24; not in the catalogue: it has no price");
    }

    #[test]
    fn a_card_is_made_of_what_is_said() {
        let line = Line::parse_from([
            "x",
            "--card",
            r#"{"context": 5, "tools": true}"#,
            "--context",
            "8192",
            "--input-price",
            "2.5",
            "--output-price",
            "10",
        ]);

        let before = Map::from_iter([("context".to_owned(), json!(7))]);
        let changed = Line::parse_from(["x", "--images"]).card.json(before).unwrap();
        let card = line.card.json(Map::new()).unwrap();

        assert_eq!(changed, json!({"context": 7, "images": true}));

        let prices = json!({"input": 2_500, "output": 10_000});
        assert_eq!(card, json!({"context": 8_192, "tools": true, "prices": prices}));
        assert!(thousandths(-1.0).is_err() && thousandths(f64::NAN).is_err());
    }
}
