//! `holdfast agents`.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    Agent, CreateAgentRequest, DeleteAgentRequest, GetAgentRequest, ListAgentsRequest,
    UpdateAgentRequest,
};
use serde_json::{Value, json};

use super::{given, view::time};
use crate::{client::Client, error::Error, screen::Screen};

const COLUMNS: [&str; 6] = ["name", "is_default", "model", "queue_mode", "description", "id"];

#[derive(Debug, Subcommand)]
pub enum Agents {
    /// List agents
    List,
    /// Show one agent
    Show {
        /// Its name or id
        agent: String,
    },
    /// Make an agent
    Create {
        /// Its name: letters, digits, `_` and `-`
        name: String,
        #[command(flatten)]
        changes: Changes,
    },
    /// Change an agent; what is not said stays
    Update {
        /// Its name or id
        agent: String,
        #[command(flatten)]
        changes: Changes,
    },
    /// Delete an agent
    Delete {
        /// Its name or id
        agent: String,
    },
}

/// What an agent is.
#[derive(Debug, Args)]
pub struct Changes {
    /// What it is for, in a sentence that other agents read
    #[arg(long)]
    description: Option<String>,
    /// How it is to behave: text, `@file`, or `-` for stdin
    #[arg(long)]
    instructions: Option<String>,
    /// Its model, as `provider:id`; empty takes the tenant's default
    #[arg(long)]
    model: Option<String>,
    /// Make it the one that answers where no other is named
    #[arg(long)]
    default: bool,
    /// What happens to input while it runs
    #[arg(long, value_parser = ["steer", "followup", "collect", "interrupt"])]
    queue_mode: Option<String>,
    /// Which direct messages share a session
    #[arg(long, value_parser = ["main", "per-peer", "per-channel-peer", "per-account-channel-peer"])]
    dm_scope: Option<String>,
    /// Whether a group's members share a session
    #[arg(long, value_parser = ["group", "group-user"])]
    group_scope: Option<String>,
    /// How long `collect` waits for more, in milliseconds
    #[arg(long)]
    debounce_ms: Option<u32>,
    /// Its time zone, as `Europe/Oslo`
    #[arg(long)]
    time_zone: Option<String>,
    /// The tools that it may use, separated by commas; `all` for all
    #[arg(long, value_delimiter = ',')]
    tools: Option<Vec<String>>,
    /// Other agents that it may give tasks to, separated by commas; `all` or `none`
    #[arg(long, value_delimiter = ',')]
    spawns: Option<Vec<String>>,
    /// How long it waits for a person's approval, in seconds; 0 is as usual
    #[arg(long)]
    approval_timeout: Option<u32>,
}

impl Agents {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => {
                let request = client.request(ListAgentsRequest {});
                let agents = client.answer(client.agents().list_agents(request).await)?.agents;
                screen.list(&COLUMNS, agents.iter().map(view).collect())
            }
            Self::Show { agent } => screen.one(&COLUMNS, &view(&get(client, agent).await?)),
            Self::Create { name, changes } => {
                let agent = changes.apply(Agent { name, ..Agent::default() })?;
                let request = client.request(CreateAgentRequest { agent: Some(agent) });
                let made = client.answer(client.agents().create_agent(request).await)?.agent;
                screen.one(&COLUMNS, &view(&made.unwrap_or_default()))
            }
            Self::Update { agent, changes } => {
                let agent = changes.apply(get(client, agent).await?)?;
                let request = client.request(UpdateAgentRequest { agent: Some(agent) });
                let changed = client.answer(client.agents().update_agent(request).await)?.agent;
                screen.one(&COLUMNS, &view(&changed.unwrap_or_default()))
            }
            Self::Delete { agent } => {
                let request = client.request(DeleteAgentRequest { agent: agent.clone() });
                client.answer(client.agents().delete_agent(request).await)?;
                screen.done("deleted", &json!({"deleted": agent}))
            }
        }
    }
}

async fn get(client: &Client, agent: String) -> Result<Agent, Error> {
    let request = client.request(GetAgentRequest { agent });
    let found = client.answer(client.agents().get_agent(request).await)?.agent;
    Ok(found.unwrap_or_default())
}

impl Changes {
    /// The agent with what was said, and otherwise as it is.
    fn apply(self, mut agent: Agent) -> Result<Agent, Error> {
        let texts = [
            (&mut agent.description, self.description),
            (&mut agent.model, self.model),
            (&mut agent.queue_mode, self.queue_mode),
            (&mut agent.dm_scope, self.dm_scope),
            (&mut agent.group_scope, self.group_scope),
            (&mut agent.time_zone, self.time_zone),
        ];
        for (field, said) in texts {
            if let Some(said) = said {
                *field = said;
            }
        }
        if let Some(instructions) = self.instructions {
            agent.instructions = given::text(&instructions)?;
        }
        if let Some(debounce_ms) = self.debounce_ms {
            agent.debounce_ms = debounce_ms;
        }
        if let Some(tools) = self.tools {
            agent.tools = if tools == ["all"] { Vec::new() } else { tools };
        }
        if let Some(spawns) = self.spawns {
            agent.spawns = match spawns.as_slice() {
                [all] if all == "all" => vec!["*".to_owned()],
                [none] if none == "none" => Vec::new(),
                _ => spawns,
            };
        }
        if let Some(seconds) = self.approval_timeout {
            agent.approval_timeout_s = seconds;
        }
        agent.is_default |= self.default;
        Ok(agent)
    }
}

fn view(agent: &Agent) -> Value {
    json!({
        "id": agent.id,
        "name": agent.name,
        "description": agent.description,
        "instructions": agent.instructions,
        "model": agent.model,
        "is_default": agent.is_default,
        "queue_mode": agent.queue_mode,
        "dm_scope": agent.dm_scope,
        "group_scope": agent.group_scope,
        "debounce_ms": agent.debounce_ms,
        "time_zone": agent.time_zone,
        "tools": agent.tools,
        "spawns": agent.spawns,
        "approval_timeout_s": agent.approval_timeout_s,
        "created_at": time(agent.created_at.as_ref()),
        "updated_at": time(agent.updated_at.as_ref()),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        changes: Changes,
    }

    #[test]
    fn what_is_not_said_stays() {
        let agent = Agent {
            name: "main".to_owned(),
            description: "old".to_owned(),
            is_default: true,
            tools: vec!["message".to_owned()],
            ..Agent::default()
        };
        let line = Line::parse_from(["x", "--model", "demo:demo", "--tools", "all"]);

        let changed = line.changes.apply(agent.clone()).unwrap();

        let expected = Agent { model: "demo:demo".to_owned(), tools: Vec::new(), ..agent };
        assert_eq!(changed, expected);
    }
}
