//! `holdfast routing`: choice of agent and session for a message.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    Binding, CreateBindingRequest, DeleteBindingRequest, DeleteIdentityRequest, ExplainRequest,
    Identity, ListBindingsRequest, ListIdentitiesRequest, ListRulesRequest, ModelRoute,
    PutIdentityRequest, PutRulesRequest, Rule,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::option_values;
use crate::{client::Client, error::Error, screen::Screen};

const BINDING_COLUMNS: [&str; 9] =
    ["id", "channel", "account", "peer_kind", "peer_id", "guild", "team", "agent", "by_model"];
const RULE_COLUMNS: [&str; 7] =
    ["channel", "user_id", "pattern", "agent", "tools", "by_model", "disabled"];
const IDENTITY_COLUMNS: [&str; 3] = ["channel", "peer", "canonical"];
const EXPLAIN_COLUMNS: [&str; 5] =
    ["agent", "session_key", "main_session_key", "matched_by", "by_model"];

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
    Explain(Explain),
}

#[derive(Debug, Subcommand)]
pub enum Bindings {
    /// List all bindings of the tenant
    List,
    /// Bind a channel, an account, a group or a person to an agent
    Add(Box<NewBinding>),
    /// Remove a binding by its id
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
    /// Model that chooses, as provider:id [default: the agent's]
    #[arg(long, value_name = "MODEL", requires = "by_model")]
    chooser: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Rules {
    /// List all rules, in order
    List,
    /// Replace all rules by new ones
    Put {
        /// JSON array of rules, as `list --output json` prints it; `@file`, or `-` for stdin
        rules: String,
    },
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
    Remove {
        /// The channel's id of the user
        peer: String,
        /// The channel for which the identity was set
        #[arg(long, default_value = "", hide_default_value = true)]
        channel: String,
    },
}

#[derive(Debug, Args)]
pub struct Explain {
    /// Channel of the message
    #[arg(long)]
    channel: String,
    /// Name of the channel account
    #[arg(long, default_value = "default")]
    account: String,
    /// Kind of the peer: direct, group or channel
    #[arg(long, default_value = "direct")]
    peer_kind: String,
    /// The channel's id of the person or group
    #[arg(long, default_value = "", hide_default_value = true)]
    peer: String,
    /// Kind of the peer's parent
    #[arg(long, default_value = "", hide_default_value = true)]
    parent_kind: String,
    /// The channel's id of the peer's parent
    #[arg(long, default_value = "", hide_default_value = true)]
    parent: String,
    /// The channel's id of the server (guild) that contains the group
    #[arg(long, default_value = "", hide_default_value = true)]
    guild: String,
    /// The channel's id of the team that contains the group
    #[arg(long, default_value = "", hide_default_value = true)]
    team: String,
    /// The channel's id of the sender [default: the peer]
    #[arg(long)]
    sender: Option<String>,
    /// The channel's id of the thread or topic
    #[arg(long, default_value = "", hide_default_value = true)]
    thread: String,
    /// Text of the message
    #[arg(long, default_value = "", hide_default_value = true)]
    text: String,
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
                let NewBinding { agent, channel, account, peer_kind, peer, guild, team, .. } = *new;
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

impl Rules {
    async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => {
                let request = client.request(ListRulesRequest {});
                let rules = client.answer(client.routing().list_rules(request).await)?.rules;
                screen.list(&RULE_COLUMNS, rules.iter().map(rule).collect())
            }
            Self::Put { rules } => {
                let rules = read_rules(&rules)?;
                let count = rules.len();
                let request = client.request(PutRulesRequest { rules });
                let put = client.answer(client.routing().put_rules(request).await)?;
                screen.warn(&put.warnings)?;
                screen.done(&format!("there are {count} rules now"), &json!({"rules": count}))
            }
        }
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

impl Explain {
    async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let request = client.request(ExplainRequest {
            channel: self.channel,
            account: self.account,
            peer_kind: self.peer_kind,
            sender_id: self.sender.unwrap_or_else(|| self.peer.clone()),
            peer_id: self.peer,
            parent_peer_kind: self.parent_kind,
            parent_peer_id: self.parent,
            guild: self.guild,
            team: self.team,
            text: self.text,
            thread: self.thread,
        });
        let told = client.answer(client.routing().explain(request).await)?;
        screen.one(
            &EXPLAIN_COLUMNS,
            &json!({
                "agent": told.agent,
                "session_key": told.session_key,
                "main_session_key": told.main_session_key,
                "matched_by": told.matched_by,
                "by_model": told.by_model.as_ref().map(model_route),
            }),
        )
    }
}

/// Rule in the JSON form that users write. `tools: null` keeps the agent's own tools.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    #[serde(default)]
    channel: String,
    #[serde(default)]
    user_id: String,
    #[serde(default)]
    pattern: String,
    agent: String,
    #[serde(default)]
    tools: Option<Vec<String>>,
    #[serde(default)]
    by_model: Option<WrittenRoute>,
    #[serde(default)]
    disabled: bool,
}

/// Model route in the JSON form that users write.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenRoute {
    among: Vec<String>,
    each: String,
    model: Option<String>,
}

fn read_rules(given: &str) -> Result<Vec<Rule>, Error> {
    let rules: Vec<WrittenRule> =
        serde_json::from_value(option_values::json(given)?).map_err(|error| {
            Error::Usage(format!(
                "that is no array of rules ({error}): each has an `agent`, and may have `channel`, \
             `user_id`, `pattern`, `tools`, `by_model` and `disabled`"
            ))
        })?;
    let route = |WrittenRoute { among, each, model }| ModelRoute {
        among,
        each,
        model: model.unwrap_or_default(),
    };
    let rule = |WrittenRule { channel, user_id, pattern, agent, tools, by_model, disabled }| Rule {
        channel,
        user_id,
        pattern,
        agent,
        tools_given: tools.is_some(),
        tools: tools.unwrap_or_default(),
        by_model: by_model.map(route),
        disabled,
    };
    Ok(rules.into_iter().map(rule).collect())
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
    })
}

fn model_route(route: &ModelRoute) -> Value {
    json!({
        "among": route.among,
        "each": route.each,
        "model": (!route.model.is_empty()).then_some(&route.model),
    })
}

fn rule(rule: &Rule) -> Value {
    json!({
        "channel": rule.channel,
        "user_id": rule.user_id,
        "pattern": rule.pattern,
        "agent": rule.agent,
        "tools": rule.tools_given.then_some(&rule.tools),
        "by_model": rule.by_model.as_ref().map(model_route),
        "disabled": rule.disabled,
    })
}

fn identity(identity: &Identity) -> Value {
    json!({
        "channel": identity.channel,
        "peer": identity.peer,
        "canonical": identity.canonical,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_printed() {
        let rules = vec![
            Rule { agent: "a".to_owned(), pattern: "^!".to_owned(), ..Rule::default() },
            Rule { agent: "b".to_owned(), tools_given: true, disabled: true, ..Rule::default() },
            Rule {
                agent: "c".to_owned(),
                by_model: Some(ModelRoute {
                    among: vec!["a".to_owned()],
                    each: "session".to_owned(),
                    model: "fake:small".to_owned(),
                }),
                ..Rule::default()
            },
        ];
        let printed = Value::Array(rules.iter().map(rule).collect()).to_string();

        assert_eq!(read_rules(&printed).unwrap(), rules);
    }

    #[test]
    fn a_misspelt_field_is_refused() {
        let error = read_rules(r#"[{"agent": "a", "patern": "x"}]"#).unwrap_err();

        assert_eq!(error.code(), 2);
        assert!(error.to_string().contains("patern"), "{error}");
    }
}
