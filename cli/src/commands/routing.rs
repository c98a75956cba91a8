//! `holdfast routing`: choice of agent and session for a message.

mod explain;
mod rules;

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    Binding, CreateBindingRequest, DeleteBindingRequest, DeleteIdentityRequest, Identity,
    ListBindingsRequest, ListIdentitiesRequest, ModelRoute, PutIdentityRequest,
};
use serde::Deserialize;
use serde_json::{Value, json};

pub use self::rules::read_rules;
use self::{
    explain::Explain,
    rules::{Rules, WrittenRoute},
};
use crate::{client::Client, error::Error, screen::Screen};

const BINDING_COLUMNS: [&str; 9] =
    ["id", "channel", "account", "peer_kind", "peer_id", "guild", "team", "agent", "by_model"];
const IDENTITY_COLUMNS: [&str; 3] = ["channel", "peer", "canonical"];

#[derive(Debug, Subcommand)]
pub enum Routing {
    /// Manage bindings; the most specific one that matches decides
    #[command(subcommand)]
    Bindings(Bindings),
    /// Manage rules; without a matching binding, the first rule that matches decides
    #[command(subcommand)]
    Rules(Rules),
    /// Manage identities: accounts of one user on several channels
    #[command(subcommand)]
    Identities(Identities),
    /// Explain where a message would be routed, and why
    #[command(visible_alias = "test")]
    Explain(Box<Explain>),
}

#[derive(Debug, Subcommand)]
pub enum Bindings {
    /// List all bindings of the tenant
    List,
    /// Bind a channel, an account, a group or a person to an agent
    Add(Box<NewBinding>),
    /// Remove a binding by its id
    #[command(visible_alias = "rm")]
    Remove {
        /// Id of the binding, as `list` shows it
        id: String,
    },
}

#[derive(Debug, Args)]
pub struct NewBinding {
    /// Name or id of the agent that answers
    #[arg(long)]
    agent: String,
    /// Channel of the messages
    #[arg(long)]
    channel: String,
    /// Name of the channel account; `*` for any [default: `default`]
    #[arg(long, default_value = "", hide_default_value = true)]
    account: String,
    /// Kind of the peer: direct, group or channel
    #[arg(long, default_value = "", hide_default_value = true)]
    peer_kind: String,
    /// The channel's id of the person or group
    #[arg(long, default_value = "", hide_default_value = true)]
    peer: String,
    /// The channel's id of the server (guild) that contains the groups
    #[arg(long, default_value = "", hide_default_value = true)]
    guild: String,
    /// The channel's id of the team that contains the groups
    #[arg(long, default_value = "", hide_default_value = true)]
    team: String,
    /// Let a model choose the agent, for each message or each session; `--agent` is the fallback
    #[arg(long, value_name = "EACH", value_parser = ["message", "session"])]
    by_model: Option<String>,
    /// Agents that the model may choose besides `--agent`; may be repeated [default: all]
    #[arg(long, value_name = "AGENT", value_delimiter = ',', requires = "by_model")]
    among: Vec<String>,
    /// Further agents that answer each message, each in a session of its own
    #[arg(long, value_name = "AGENT", value_delimiter = ',', conflicts_with = "by_model")]
    also: Vec<String>,
    /// Model that chooses, as provider:id [default: the agent's]
    #[arg(long, value_name = "MODEL", requires = "by_model")]
    chooser: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Identities {
    /// List all identities of the tenant
    List,
    /// Link a channel's user to an identity
    Put {
        /// The channel's id of the user
        peer: String,
        /// Name of the identity, the same on every channel
        canonical: String,
        /// Link the user only on this channel
        #[arg(long, default_value = "", hide_default_value = true)]
        channel: String,
    },
    /// Remove the identity of a channel's user
    #[command(visible_alias = "rm")]
    Remove {
        /// The channel's id of the user
        peer: String,
        /// The channel for which the identity was set
        #[arg(long, default_value = "", hide_default_value = true)]
        channel: String,
    },
}

impl Routing {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::Bindings(command) => command.run(client, screen).await,
            Self::Rules(command) => command.run(client, screen).await,
            Self::Identities(command) => command.run(client, screen).await,
            Self::Explain(args) => args.run(client, screen).await,
        }
    }
}

impl Bindings {
    async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => {
                let request = client.request(ListBindingsRequest {});
                let listed = client.answer(client.routing().list_bindings(request).await)?;
                screen.list(&BINDING_COLUMNS, listed.bindings.iter().map(binding).collect())
            }
            Self::Add(mut new) => {
                let by_model = new.route();
                let NewBinding {
                    agent, channel, account, peer_kind, peer, guild, team, also, ..
                } = *new;
                let new = Binding {
                    id: String::new(),
                    channel,
                    account,
                    peer_kind,
                    peer_id: peer,
                    guild,
                    team,
                    agent,
                    by_model,
                    also,
                };
                let request = client.request(CreateBindingRequest { binding: Some(new) });
                let made = client.answer(client.routing().create_binding(request).await)?.binding;
                screen.one(&BINDING_COLUMNS, &binding(&made.unwrap_or_default()))
            }
            Self::Remove { id } => {
                let request = client.request(DeleteBindingRequest { id: id.clone() });
                client.answer(client.routing().delete_binding(request).await)?;
                screen.done("removed", &json!({"removed": id}))
            }
        }
    }
}

impl NewBinding {
    /// Returns the model route, if `--by-model` was given.
    fn route(&mut self) -> Option<ModelRoute> {
        let each = self.by_model.take()?;
        let among = std::mem::take(&mut self.among);
        Some(ModelRoute { among, each, model: self.chooser.take().unwrap_or_default() })
    }
}

impl Identities {
    async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => {
                let request = client.request(ListIdentitiesRequest {});
                let listed = client.answer(client.routing().list_identities(request).await)?;
                screen.list(&IDENTITY_COLUMNS, listed.identities.iter().map(identity).collect())
            }
            Self::Put { peer, canonical, channel } => {
                let new = Identity { channel, peer, canonical };
                let shown = identity(&new);
                let request = client.request(PutIdentityRequest { identity: Some(new) });
                client.answer(client.routing().put_identity(request).await)?;
                screen.one(&IDENTITY_COLUMNS, &shown)
            }
            Self::Remove { peer, channel } => {
                let request = DeleteIdentityRequest { channel, peer: peer.clone() };
                let removed = client.routing().delete_identity(client.request(request)).await;
                client.answer(removed)?;
                screen.done("removed", &json!({"removed": peer}))
            }
        }
    }
}

/// Binding in the JSON form that users write, which is the printed one without its id.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenBinding {
    channel: String,
    account: String,
    peer_kind: String,
    peer_id: String,
    guild: String,
    team: String,
    agent: String,
    by_model: Option<WrittenRoute>,
    also: Vec<String>,
}

pub fn read_bindings(written: Vec<Value>) -> Result<Vec<Binding>, Error> {
    let bindings: Vec<WrittenBinding> = serde_json::from_value(Value::Array(written))
        .map_err(|error| {
            Error::Usage(format!(
                "that is no array of bindings ({error}): each has a `channel` and an `agent`, and may \
                 have `account`, `peer_kind`, `peer_id`, `guild`, `team`, `by_model` and `also`"
            ))
        })?;
    let binding = |written: WrittenBinding| Binding {
        id: String::new(),
        channel: written.channel,
        account: written.account,
        peer_kind: written.peer_kind,
        peer_id: written.peer_id,
        guild: written.guild,
        team: written.team,
        agent: written.agent,
        by_model: written.by_model.map(WrittenRoute::into_message),
        also: written.also,
    };
    Ok(bindings.into_iter().map(binding).collect())
}

fn binding(binding: &Binding) -> Value {
    json!({
        "id": binding.id,
        "channel": binding.channel,
        "account": binding.account,
        "peer_kind": binding.peer_kind,
        "peer_id": binding.peer_id,
        "guild": binding.guild,
        "team": binding.team,
        "agent": binding.agent,
        "by_model": binding.by_model.as_ref().map(model_route),
        "also": binding.also,
    })
}

fn model_route(route: &ModelRoute) -> Value {
    json!({
        "among": route.among,
        "each": route.each,
        "model": (!route.model.is_empty()).then_some(&route.model),
    })
}

fn identity(identity: &Identity) -> Value {
    json!({
        "channel": identity.channel,
        "peer": identity.peer,
        "canonical": identity.canonical,
    })
}
