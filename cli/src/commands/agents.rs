//! `holdfast agents`.

mod heartbeat;
mod template;

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    Agent, Bundle, CreateAgentRequest, DeleteAgentRequest, ExportAgentRequest, GetAgentRequest,
    ListAgentsRequest, UpdateAgentRequest,
};
use serde_json::{Value, json};

use super::{given, packages, subagents::Subagents, view::time};
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
        /// Make it ready for one kind of work; what is said besides goes before that
        #[arg(long, value_parser = template::NAMES)]
        template: Option<String>,
        #[command(flatten)]
        changes: Box<Changes>,
    },
    /// Change an agent; what is not said stays
    Update {
        /// Its name or id
        agent: String,
        #[command(flatten)]
        changes: Box<Changes>,
    },
    /// What agents have others do for them: list, stop, send
    #[command(subcommand)]
    Runs(Subagents),
    /// Write an agent to a file: what it is told, its tools, and the rule that leads to it
    Export {
        /// Its name or id
        agent: String,
        /// The file; `-` is stdout [default: the name with .skill.yaml]
        to: Option<String>,
        /// The package's version
        #[arg(long, default_value = "1.0")]
        package_version: String,
        /// Who wrote it
        #[arg(long, default_value = "", hide_default_value = true)]
        author: String,
    },
    /// Make the agent of a `.skill.yaml`; its rule is off until you approve it
    Import {
        /// The file; `-` is stdin
        from: String,
    },
    /// Turn on the rules of an agent that was imported
    Approve {
        /// Its name or id
        agent: String,
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
    /// Its model, as `provider:id` or an alias; empty takes the tenant's default
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
    /// Models that are asked in turn if its own does not answer, separated by commas; or `none`
    #[arg(long, value_delimiter = ',')]
    fallbacks: Option<Vec<String>>,
    /// How much its prompt holds
    #[arg(long, value_parser = ["full", "lite", "custom"])]
    context: Option<String>,
    /// The only tools that its prompt offers, separated by commas; `all` for all
    #[arg(long, value_delimiter = ',')]
    context_tools: Option<Vec<String>>,
    /// Tools that its prompt does not offer, separated by commas; `none` for none
    #[arg(long, value_delimiter = ',')]
    context_without_tools: Option<Vec<String>>,
    /// The only skills that its prompt tells of, separated by commas; `all` for all
    #[arg(long, value_delimiter = ',')]
    context_skills: Option<Vec<String>>,
    /// Skills that its prompt does not tell of, separated by commas; `none` for none
    #[arg(long, value_delimiter = ',')]
    context_without_skills: Option<Vec<String>>,
    /// Whether skills are recommended for each message: yes, no, or the model that chooses
    #[arg(long, value_name = "yes|no|MODEL")]
    recommend_skills: Option<String>,
    /// What channel, keywords, history and recency weigh then, as in 40,30,20,10
    #[arg(long, value_delimiter = ',')]
    skill_weights: Option<Vec<u32>>,
    /// Whether its prompt holds what it noted: yes, no, or auto
    #[arg(long, value_parser = ["yes", "no", "auto"])]
    context_memory: Option<String>,
    /// Whether its prompt says what runs it: yes, no, or auto
    #[arg(long, value_parser = ["yes", "no", "auto"])]
    context_runtime: Option<String>,
    /// A set of tools for its subagents, as `name=tool,tool`; `name=` removes it
    #[arg(long = "bundle")]
    bundles: Vec<String>,
    /// How long it waits for a person's approval, in seconds; 0 is as usual
    #[arg(long)]
    approval_timeout: Option<u32>,
    #[command(flatten)]
    heartbeat: heartbeat::Heartbeat,
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
            Self::Create { name, template, changes } => {
                let agent = match template {
                    Some(template) => template::ready(&template, name)?,
                    None => Agent { name, ..Agent::default() },
                };
                let agent = changes.apply(agent)?;
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
            Self::Runs(command) => command.run(client, screen).await,
            Self::Export { agent, to, package_version, author } => {
                let version = package_version;
                let request = ExportAgentRequest { agent, version, author };
                packages::export(client, screen, request, to).await
            }
            Self::Import { from } => packages::import(client, screen, &from).await,
            Self::Approve { agent } => packages::approve(client, screen, agent).await,
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
        if let Some(fallbacks) = self.fallbacks {
            agent.fallbacks = if fallbacks == ["none"] { Vec::new() } else { fallbacks };
        }
        if let Some(seconds) = self.approval_timeout {
            agent.approval_timeout_s = seconds;
        }
        self.heartbeat.apply(&mut agent)?;
        agent.is_default |= self.default;
        for bundle in self.bundles {
            let (name, tools) = bundle.split_once('=').ok_or_else(|| {
                Error::Usage(format!("`{bundle}` is no bundle: write `name=tool,tool`"))
            })?;
            agent.bundles.retain(|known| known.name != name);
            let tools: Vec<String> =
                tools.split(',').filter(|tool| !tool.is_empty()).map(str::to_owned).collect();
            if !tools.is_empty() {
                agent.bundles.push(Bundle { name: name.to_owned(), tools });
            }
        }
        let mut context = agent.context.take().unwrap_or_default();
        if let Some(strategy) = self.context {
            context.strategy = strategy;
        }
        for (list, said, nothing) in [
            (&mut context.include_tools, self.context_tools, "all"),
            (&mut context.exclude_tools, self.context_without_tools, "none"),
            (&mut context.include_skills, self.context_skills, "all"),
            (&mut context.exclude_skills, self.context_without_skills, "none"),
        ] {
            if let Some(said) = said {
                *list = if said == [nothing] { Vec::new() } else { said };
            }
        }
        match self.recommend_skills.as_deref() {
            None => {}
            Some("no") => context.recommend_skills = None,
            Some(said) => {
                let recommend = context.recommend_skills.get_or_insert_default();
                recommend.model = if said == "yes" { String::new() } else { said.to_owned() };
            }
        }
        if let Some(weights) = self.skill_weights {
            context.recommend_skills.get_or_insert_default().weights = weights;
        }
        for (field, said) in [
            (&mut context.include_memory, self.context_memory),
            (&mut context.include_runtime, self.context_runtime),
        ] {
            if let Some(said) = said {
                *field = match said.as_str() {
                    "yes" => Some(true),
                    "no" => Some(false),
                    _ => None,
                };
            }
        }
        agent.context = Some(context);
        Ok(agent)
    }
}

fn context(agent: &Agent) -> Value {
    let options = agent.context.clone().unwrap_or_default();
    json!({
        "strategy": options.strategy,
        "include_tools": options.include_tools,
        "exclude_tools": options.exclude_tools,
        "include_skills": options.include_skills,
        "exclude_skills": options.exclude_skills,
        "include_memory": options.include_memory,
        "include_runtime": options.include_runtime,
        "recommend_skills": options.recommend_skills.map(|recommend| json!({
            "model": recommend.model, "weights": recommend.weights,
        })),
    })
}

fn bundles(agent: &Agent) -> Value {
    let bundles = agent.bundles.iter().map(|bundle| (bundle.name.clone(), json!(bundle.tools)));
    Value::Object(bundles.collect())
}

fn beats(agent: &Agent) -> Value {
    let set = agent.heartbeat.clone().unwrap_or_default();
    json!({
        "enabled": set.enabled,
        "every": set.every,
        "prompt": set.prompt,
        "target": set.target,
        "model": set.model,
        "ack_max_chars": set.ack_max_chars,
        "session": set.session,
        "active_hours": set.active_hours.map(|hours| {
            json!({"start": hours.start, "end": hours.end, "time_zone": hours.time_zone})
        }),
        "include_reasoning": set.include_reasoning,
    })
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
        "fallbacks": agent.fallbacks,
        "context": context(agent),
        "bundles": bundles(agent),
        "approval_timeout_s": agent.approval_timeout_s,
        "heartbeat": beats(agent),
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
        changes: Box<Changes>,
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

        let context = Some(holdfast_proto::gateway::v1::ContextOptions::default());
        let expected = Agent { model: "demo:demo".to_owned(), tools: Vec::new(), context, ..agent };
        assert_eq!(changed, expected);
    }

    #[test]
    fn what_the_prompt_holds_and_bundles_are_set_and_taken_back() {
        let apply = |agent: Agent, line: &[&str]| {
            let line: Vec<&str> = [&["x"], line].concat();
            Line::parse_from(line).changes.apply(agent)
        };
        let set = [
            "--context",
            "custom",
            "--context-without-tools",
            "exec,process",
            "--context-memory",
            "no",
            "--bundle",
            "look=read,list_files",
        ];
        let changed = apply(Agent::default(), &set).unwrap();
        let context = changed.context.clone().unwrap_or_default();
        assert_eq!(context.strategy, "custom");
        assert_eq!(context.exclude_tools, ["exec", "process"]);
        assert_eq!(context.include_memory, Some(false));
        assert_eq!(changed.bundles[0].tools, ["read", "list_files"]);

        let back =
            ["--context-without-tools", "none", "--context-memory", "auto", "--bundle", "look="];
        let changed = apply(changed, &back).unwrap();
        let context = changed.context.unwrap_or_default();
        assert_eq!((context.exclude_tools.len(), context.include_memory), (0, None));
        assert!(changed.bundles.is_empty());
        assert!(apply(Agent::default(), &["--bundle", "look"]).is_err());
    }
}
