//! `holdfast credentials`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    Credential, DeleteCredentialRequest, EnableCredentialRequest, ListCredentialsRequest,
    OrderCredentialsRequest, PutCredentialRequest,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::option_values;
use crate::{
    client::Client,
    error::Error,
    screen::Screen,
    view::{time, timestamp},
};

const COLUMNS: [&str; 8] =
    ["provider", "name", "kind", "state", "until", "failures", "place", "trouble"];

#[derive(Debug, Subcommand)]
pub enum Credentials {
    /// List keys and their states
    List,
    /// Add or replace a key of a provider
    Add {
        /// Name of the provider, for example `openai`
        provider: String,
        /// Name for the key, for example `work`
        name: String,
        /// The key or token: `@file`, or `-` for stdin
        #[arg(long, env = "HOLDFAST_CREDENTIAL", hide_env_values = true, default_value = "-")]
        secret: String,
        /// Kind of secret that is stored
        #[arg(long, default_value = "api_key", value_parser = ["api_key", "token", "oauth"])]
        kind: String,
        /// Expiry of a token or an access token, for example `2027-01-31T00:00:00Z`
        #[arg(long)]
        expires: Option<Timestamp>,
        /// Refresh token of kind `oauth`: `@file`
        #[arg(long, env = "HOLDFAST_CREDENTIAL_REFRESH", hide_env_values = true)]
        refresh: Option<String>,
        /// URL where the refresh token is exchanged [default: that of the provider's kind, if it
        /// has one]
        #[arg(long, requires = "refresh")]
        token_url: Option<String>,
        /// OAuth client id to which the refresh token belongs
        #[arg(long, requires = "refresh")]
        client_id: Option<String>,
        /// OAuth client secret, if the client has one: `@file`
        #[arg(
            long,
            env = "HOLDFAST_CREDENTIAL_CLIENT_SECRET",
            hide_env_values = true,
            requires = "refresh"
        )]
        client_secret: Option<String>,
    },
    /// Delete a key; `default` is the one set by `providers put`
    Remove {
        /// Name of the provider, for example `openai`
        provider: String,
        /// Name of the key, as `list` shows it
        name: String,
    },
    /// Choose the keys to use; without names, all of them
    Order {
        /// Name of the provider, for example `openai`
        provider: String,
        /// Names of the keys, in order of preference
        names: Vec<String>,
        /// Always try them in this order [default: the one that was unused for longest first]
        #[arg(long)]
        strict: bool,
    },
    /// Clear the failures of a key, so that it is used again at once
    Enable {
        /// Name of the provider, for example `openai`
        provider: String,
        /// Name of the key, as `list` shows it
        name: String,
    },
}

impl Credentials {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => {
                let request = client.request(ListCredentialsRequest {});
                let listed = client.answer(client.credentials().list_credentials(request).await)?;
                screen.list(&COLUMNS, listed.credentials.iter().map(view).collect())
            }
            Self::Add {
                provider,
                name,
                secret,
                kind,
                expires,
                refresh,
                token_url,
                client_id,
                client_secret,
            } => {
                let shown = json!({"provider": provider, "name": name});
                let expires_at = expires.map(timestamp);
                let (token_url, client_id) =
                    (token_url.unwrap_or_default(), client_id.unwrap_or_default());
                let credential = Credential {
                    provider,
                    name,
                    kind,
                    expires_at,
                    token_url,
                    client_id,
                    ..Credential::default()
                };
                let request = client.request(PutCredentialRequest {
                    credential: Some(credential),
                    secret: option_values::secret(&secret)?,
                    refresh: refresh
                        .as_deref()
                        .map(option_values::secret)
                        .transpose()?
                        .unwrap_or_default(),
                    client_secret: client_secret
                        .as_deref()
                        .map(option_values::secret)
                        .transpose()?
                        .unwrap_or_default(),
                });
                client.answer(client.credentials().put_credential(request).await)?;
                screen.done("kept", &shown)
            }
            Self::Remove { provider, name } => {
                let removed = json!({"removed": format!("{provider}/{name}")});
                let request = client.request(DeleteCredentialRequest { provider, name });
                client.answer(client.credentials().delete_credential(request).await)?;
                screen.done("removed", &removed)
            }
            Self::Order { provider, names, strict } => {
                let ordered = json!({"provider": provider, "names": names, "strict": strict});
                let request = client.request(OrderCredentialsRequest { provider, names, strict });
                client.answer(client.credentials().order_credentials(request).await)?;
                screen.done("ordered", &ordered)
            }
            Self::Enable { provider, name } => {
                let enabled = json!({"enabled": format!("{provider}/{name}")});
                let request = client.request(EnableCredentialRequest { provider, name });
                client.answer(client.credentials().enable_credential(request).await)?;
                screen.done("enabled", &enabled)
            }
        }
    }
}

fn view(credential: &Credential) -> Value {
    json!({
        "provider": credential.provider,
        "name": credential.name,
        "kind": credential.kind,
        "state": credential.state,
        "until": time(credential.until.as_ref()),
        "failures": credential.failures,
        "expires_at": time(credential.expires_at.as_ref()),
        "place": credential.place,
        "strict": credential.strict,
        "token_url": credential.token_url,
        "client_id": credential.client_id,
        "trouble": credential.trouble,
    })
}
