//! `holdfast providers`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    DeleteProviderRequest, ListProvidersRequest, Provider, PutProviderRequest,
};
use serde_json::{Value, json};

use super::given;
use crate::{client::Client, error::Error, screen::Screen};

/// What a provider may speak.
const KINDS: [&str; 6] = ["openai", "openai-responses", "anthropic", "gemini", "ollama", "demo"];

const COLUMNS: [&str; 5] = ["name", "kind", "base_url", "has_key", "default_model"];

#[derive(Debug, Subcommand)]
pub enum Providers {
    /// List providers
    List,
    /// Set a provider up, or change it
    Put {
        /// The first half of its models' names, as `openai` in `openai:gpt-5`
        name: String,
        /// What it speaks: `openai` is what every compatible server speaks
        #[arg(long, default_value = "openai", value_parser = KINDS)]
        kind: String,
        /// Where it is, as `https://host/v1` [default: where the server of this name is known to
        /// be, as `groq` and `openrouter` are; else the kind's own place]
        #[arg(long, default_value = "", hide_default_value = true)]
        base_url: String,
        /// Its API key: `@file`, `-` for stdin, or the key itself; without it the stored one stays
        #[arg(long, env = "OPENAI_API_KEY", hide_env_values = true)]
        api_key: Option<String>,
        /// A model of it that is to be the tenant's default
        #[arg(long, default_value = "", hide_default_value = true)]
        model: String,
    },
    /// Delete a provider and its key
    Delete {
        /// Its name
        name: String,
    },
}

impl Providers {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => {
                let request = client.request(ListProvidersRequest {});
                let listed = client.answer(client.providers().list_providers(request).await)?;
                screen.list(&COLUMNS, listed.providers.iter().map(view).collect())
            }
            Self::Put { name, kind, base_url, api_key, model } => {
                let api_key = api_key.filter(|_| kind != "demo").as_deref().map(given::secret);
                let request = client.request(PutProviderRequest {
                    provider: Some(Provider {
                        name,
                        kind,
                        base_url,
                        default_model: model,
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

fn view(provider: &Provider) -> Value {
    json!({
        "name": provider.name,
        "kind": provider.kind,
        "base_url": provider.base_url,
        "has_key": provider.has_key,
        "default_model": provider.default_model,
    })
}
