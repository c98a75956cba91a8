//! `holdfast platform-keys`. Needs the scope `platform`.

use std::collections::BTreeMap;

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    DeletePlatformKeyRequest, ListPlatformKeysRequest, PlatformKey, PlatformProvider,
    PutPlatformKeyRequest,
};
use serde_json::{Value, json};

use super::super::option_values;
use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 7] =
    ["provider", "name", "kind", "base_url", "default_model", "unusable_until", "failures"];

#[derive(Debug, Subcommand)]
pub enum PlatformKeys {
    /// List the keys of the installation, with their providers and states
    List,
    /// Add or replace a key of the installation; tenants whose plan allows the provider are served
    /// with it where they have no key of their own
    #[command(after_help = "\
Example:
  holdfast platform-keys add openai main --api-key @openai.key --model gpt-6.1-terra
  holdfast plans put basic --platform-provider openai --usd-per-month 20")]
    Add {
        /// Name of the provider, for example `openai`
        provider: String,
        /// Name for the key, for example `main`
        name: String,
        /// The key: `@file`, or `-` for stdin
        #[arg(long, env = "HOLDFAST_PLATFORM_KEY", hide_env_values = true, default_value = "-")]
        api_key: String,
        /// API of the provider [default: that of the provider, `openai` for a new one]
        #[arg(long, value_parser = super::providers::KINDS)]
        kind: Option<String>,
        /// Base URL, the only place to which the provider's keys are sent [default: that of the
        /// provider, else the usual one of its name or API]
        #[arg(long)]
        base_url: Option<String>,
        /// Model of tenants and agents that have none of their own; empty for none
        #[arg(long)]
        model: Option<String>,
    },
    /// Remove a key of the installation, and its provider with the last one
    Remove {
        /// Name of the provider
        provider: String,
        /// Name of the key
        name: String,
    },
}

impl PlatformKeys {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => {
                let request = client.request(ListPlatformKeysRequest {});
                let listed =
                    client.answer(client.platform_keys().list_platform_keys(request).await)?;
                screen.list(&COLUMNS, listed.providers.iter().flat_map(views).collect())
            }
            Self::Add { provider, name, api_key, kind, base_url, model } => {
                let request = client.request(PutPlatformKeyRequest {
                    provider,
                    name: name.clone(),
                    api_key: option_values::secret(&api_key)?,
                    kind,
                    base_url,
                    default_model: model,
                });
                let put = client.answer(client.platform_keys().put_platform_key(request).await)?;
                let provider = put.provider.unwrap_or_default();
                let key = provider.keys.iter().find(|key| key.name == name);
                screen.one(&COLUMNS, &view(&provider, &key.cloned().unwrap_or_default()))
            }
            Self::Remove { provider, name } => {
                let removed = json!({"removed": name, "provider": provider});
                let request = client.request(DeletePlatformKeyRequest { provider, name });
                client.answer(client.platform_keys().delete_platform_key(request).await)?;
                screen.done("removed", &removed)
            }
        }
    }
}

fn views(provider: &PlatformProvider) -> impl Iterator<Item = Value> {
    provider.keys.iter().map(move |key| view(provider, key))
}

fn view(provider: &PlatformProvider, key: &PlatformKey) -> Value {
    let failures: BTreeMap<&String, &u32> = key.failures.iter().collect();
    json!({
        "provider": provider.name,
        "name": key.name,
        "kind": provider.kind,
        "base_url": provider.base_url,
        "default_model": provider.default_model,
        "unusable_until": time(key.unusable_until.as_ref()),
        "failures": failures,
        "updated_at": time(key.updated_at.as_ref()),
    })
}
