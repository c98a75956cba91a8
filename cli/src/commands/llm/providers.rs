//! `holdfast providers`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    DeleteProviderRequest, ListProvidersRequest, Provider, PutProviderRequest,
};
use serde_json::{Value, json};

use super::super::option_values;
use crate::{client::Client, error::Error, screen::Screen};

/// APIs that a provider may have.
const KINDS: [&str; 6] = ["openai", "openai-responses", "anthropic", "gemini", "ollama", "demo"];

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
            Self::Put { name, kind, base_url, api_key, model } => {
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
                let request = client.request(PutProviderRequest {
                    provider: Some(Provider {
                        name,
                        kind,
                        base_url: base_url.unwrap_or_default(),
                        default_model: model.unwrap_or(before.default_model),
                        has_key: false,
                    }),
                    api_key: api_key.transpose()?.unwrap_or_default(),
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
    })
}
