//! `holdfast providers`.

use std::collections::HashMap;

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    DeleteProviderRequest, ListProvidersRequest, Provider, PutProviderRequest,
};
use serde_json::{Value, json};

use super::super::option_values;
use crate::{client::Client, error::Error, screen::Screen};

/// APIs that a provider may have.
pub const KINDS: [&str; 9] = [
    "openai",
    "openai-responses",
    "anthropic",
    "gemini",
    "ollama",
    "azure",
    "vertex",
    "bedrock",
    "demo",
];

/// API of a new provider for which none is given.
const DEFAULT_KIND: &str = "openai";

const COLUMNS: [&str; 5] = ["name", "kind", "base_url", "has_key", "default_model"];

#[derive(Debug, Subcommand)]
pub enum Providers {
    /// List all providers of the tenant
    List,
    /// Create or change a provider; options that are not given stay unchanged
    Put {
        /// Name of the provider, the first part of its models' names, for example `openai` in
        /// `openai:gpt-5`
        name: String,
        /// API of the provider; `openai` for every compatible server [default for a new provider:
        /// openai]
        #[arg(long, value_parser = KINDS)]
        kind: Option<String>,
        /// Base URL, for example `https://host/v1` [default: the known URL for names such as `groq`
        /// and `openrouter`, else that of the API's vendor]
        #[arg(long)]
        base_url: Option<String>,
        /// API key: `@file`, `-` for stdin, or the key itself; without it the stored one is kept
        #[arg(long, env = "OPENAI_API_KEY", hide_env_values = true)]
        api_key: Option<String>,
        /// Model of the provider that becomes the tenant's default; empty for none
        #[arg(long)]
        model: Option<String>,
        /// A header that is added to each request, as `Name: value`; a value of `@file` or `-` is read
        /// from there. Given headers replace all that are stored
        #[arg(long = "header", value_name = "HEADER")]
        headers: Vec<String>,
        /// Remove the headers that are stored
        #[arg(long, conflicts_with = "headers")]
        no_headers: bool,
        /// Fields that are added to the body of each request: a JSON object, `@file`, or `-` for stdin;
        /// `{}` for none
        #[arg(long, value_name = "JSON")]
        extra_body: Option<String>,
    },
    /// Delete a provider and its key
    Delete {
        /// Name of the provider, as `list` shows it
        name: String,
    },
}

impl Providers {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => screen.list(&COLUMNS, list(client).await?.iter().map(view).collect()),
            Self::Put { name, kind, base_url, api_key, model, headers, no_headers, extra_body } => {
                let before = list(client).await?.into_iter().find(|one| one.name == name);
                let before = before.unwrap_or_default();
                let kind = kind.unwrap_or_else(|| match before.kind.as_str() {
                    "" => DEFAULT_KIND.to_owned(),
                    kind => kind.to_owned(),
                });
                // Another API has another address.
                let base_url =
                    base_url.or_else(|| (kind == before.kind).then_some(before.base_url));
                let api_key =
                    api_key.filter(|_| kind != "demo").as_deref().map(option_values::secret);
                let extra_body = extra_body.as_deref().map(option_values::json);
                let request = client.request(PutProviderRequest {
                    provider: Some(Provider {
                        name,
                        kind,
                        base_url: base_url.unwrap_or_default(),
                        default_model: model.unwrap_or(before.default_model),
                        extra_body: extra_body.transpose()?.map(|body| body.to_string()),
                        ..Provider::default()
                    }),
                    api_key: api_key.transpose()?.unwrap_or_default(),
                    headers: header_pairs(&headers)?,
                    remove_headers: no_headers,
                });
                let put = client.answer(client.providers().put_provider(request).await)?.provider;
                screen.one(&COLUMNS, &view(&put.unwrap_or_default()))
            }
            Self::Delete { name } => {
                let request = client.request(DeleteProviderRequest { name: name.clone() });
                client.answer(client.providers().delete_provider(request).await)?;
                screen.done("deleted", &json!({"deleted": name}))
            }
        }
    }
}

async fn list(client: &Client) -> Result<Vec<Provider>, Error> {
    let request = client.request(ListProvidersRequest {});
    Ok(client.answer(client.providers().list_providers(request).await)?.providers)
}

fn view(provider: &Provider) -> Value {
    json!({
        "name": provider.name,
        "kind": provider.kind,
        "base_url": provider.base_url,
        "has_key": provider.has_key,
        "default_model": provider.default_model,
        "headers": provider.header_names,
        "extra_body": provider.extra_body.as_deref().map(stored_json),
    })
}

/// Parses what the gateway stores as JSON.
fn stored_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// Names and values of headers. A value is never repeated.
fn header_pairs(given: &[String]) -> Result<HashMap<String, String>, Error> {
    let pair = |given: &String| match given.split_once(':') {
        Some((name, value)) => Ok((name.trim().to_owned(), option_values::secret(value.trim())?)),
        None => Err(Error::Usage("write a header as `Name: value`".to_owned())),
    };
    given.iter().map(pair).collect()
}
