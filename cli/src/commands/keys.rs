//! `holdfast keys`.

pub mod console;
pub mod devices;

use clap::Subcommand;
use holdfast_proto::gateway::v1::{CreateKeyRequest, Key, ListKeysRequest, RevokeKeyRequest};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 9] = [
    "id",
    "name",
    "scopes",
    "created_at",
    "expires_at",
    "revoked_at",
    "person",
    "agent",
    "origins",
];
const DAY: u64 = 86_400;

#[derive(Debug, Subcommand)]
pub enum Keys {
    /// List API keys, without their secrets
    List,
    /// Create an API key; its secret is shown only once
    Create {
        /// Purpose of the key, in words
        name: String,
        /// Scopes of the key: `guest` (to publish in a page) only begins conversations, `approve` decides
        /// about tool calls, `admin` runs the tenant's installation, `owner` owns its agents,
        /// `platform` runs the mesh
        #[arg(
            long = "scope",
            value_delimiter = ',',
            default_values = ["chat", "read"],
            value_parser = ["guest", "chat", "read", "events", "approve", "admin", "owner", "platform"]
        )]
        scopes: Vec<String>,
        /// Lifetime in days; 0 for no expiry
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=3650))]
        days: u64,
        /// Id of the person whose the key is, `per_…`: its calls are theirs, with no more than their role
        #[arg(long)]
        person: Option<String>,
        /// The only agent that the key talks to, with the scopes `guest` or `chat`
        #[arg(long)]
        agent: Option<String>,
        /// Origin of web pages that may use the key, such as `https://example.com`; other calls are refused
        #[arg(long = "origin", value_delimiter = ',')]
        origins: Vec<String>,
    },
    /// Revoke a key; takes effect everywhere within 5 s
    Revoke {
        /// Id of the key, as `list` shows it
        id: String,
    },
}

impl Keys {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => {
                let request = client.request(ListKeysRequest {});
                let keys = client.answer(client.keys().list_keys(request).await)?.keys;
                screen.list(&COLUMNS, keys.iter().map(view).collect())
            }
            Self::Create { name, scopes, days, person, agent, origins } => {
                let lifetime_seconds = days * DAY;
                let (person, agent) = (person.unwrap_or_default(), agent.unwrap_or_default());
                let request =
                    CreateKeyRequest { name, scopes, lifetime_seconds, person, agent, origins };
                let made = client.keys().create_key(client.request(request)).await;
                let made = client.answer(made)?;
                let mut shown = view(&made.key.unwrap_or_default());
                shown["secret"] = Value::String(made.secret);
                screen.one(&["secret", "id", "name", "scopes"], &shown)?;
                if !screen.is_json() {
                    screen.note("The secret is not shown again.")?;
                }
                Ok(())
            }
            Self::Revoke { id } => {
                let request = client.request(RevokeKeyRequest { id: id.clone() });
                client.answer(client.keys().revoke_key(request).await)?;
                screen.done("revoked", &json!({"revoked": id}))
            }
        }
    }
}

fn view(key: &Key) -> Value {
    json!({
        "id": key.id,
        "name": key.name,
        "scopes": key.scopes,
        "created_at": time(key.created_at.as_ref()),
        "expires_at": time(key.expires_at.as_ref()),
        "revoked_at": time(key.revoked_at.as_ref()),
        "person": key.person,
        "agent": key.agent,
        "origins": key.origins,
    })
}
