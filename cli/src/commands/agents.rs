//! `holdfast agents`.

pub mod behaviors;
mod channel_options;
pub mod config;
pub mod economy;
mod heartbeat;
mod moving;
pub mod proposals;
mod self_improve;
mod template;
mod tree;

use clap::{Args, Subcommand, ValueEnum};
use holdfast_proto::gateway::v1::{
    Agent, Bundle, CreateAgentRequest, DeleteAgentRequest, ExportAgentRequest, GetAgentRequest,
    ListAgentsRequest, SetAgentStateRequest, UpdateAgentRequest,
};
use serde_json::{Value, json};

use super::{files, option_values, packages, subagents::Subagents};
use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 7] =
    ["name", "state", "is_default", "model", "queue_mode", "description", "id"];

/// First bytes of a `.tar.gz`.
const GZIP: &[u8] = &[0x1f, 0x8b];

#[derive(Debug, Subcommand)]
pub enum Agents {
    /// List all agents of the tenant
    List,
    /// Show one agent with its settings
    Show {
        /// Name or id of the agent
        agent: String,
    },
    /// Create an agent, from options or a template
    Create {
        /// Name of the agent: letters, digits, `_` and `-`
        name: String,
        /// Template for one kind of work; other options override it
        #[arg(long, value_parser = template::NAMES)]
        template: Option<String>,
        #[command(flatten)]
        changes: Box<Changes>,
    },
    /// Change an agent; options that are not given stay unchanged
    Update {
        /// Name or id of the agent
        agent: String,
        #[command(flatten)]
        changes: Box<Changes>,
    },
    /// List, stop and message the subagents of agents
    #[command(subcommand)]
    Runs(Subagents),
    /// Export an agent to a file: instructions, tools and its routing rule
    Export {
        /// Name or id of the agent
        agent: String,
        /// The file to write; `-` is stdout [default: the name with .skill.yaml]
        to: Option<String>,
        /// Version that is written into the package
        #[arg(long, default_value = "1.0")]
        package_version: String,
        /// Author that is written into the package
        #[arg(long, default_value = "", hide_default_value = true)]
        author: String,
        /// What to write: a package, or a `.tar.gz` with all files, behaviours, memories and subagents
        /// in the folders of OpenDAN
        #[arg(long, value_enum, default_value = "package")]
        layout: Layout,
    },
    /// Import an agent from a `.skill.yaml`, whose routing rule is off until you approve it, or from a
    /// `.tar.gz` in the layout of OpenDAN
    Import {
        /// The file to read; `-` is stdin
        from: String,
    },
    /// Enable the routing rules of an imported agent
    Approve {
        /// Name or id of the agent
        agent: String,
    },
    /// Disable an agent: it takes no turns, and its messages wait
    Disable {
        /// Name or id of the agent
        agent: String,
    },
    /// Enable an agent again; messages that waited are answered
    Enable {
        /// Name or id of the agent
        agent: String,
    },
    /// Archive an agent: disable it for good, and keep its files and conversations
    Archive {
        /// Name or id of the agent
        agent: String,
    },
    /// Delete an agent by its name or id
    Delete {
        /// Name or id of the agent
        agent: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Layout {
    Package,
    Opendan,
}

/// Settings of an agent that `create` and `update` accept
#[derive(Debug, Args)]
pub struct Changes {
    /// Purpose of the agent, in one sentence for other agents
    #[arg(long)]
    description: Option<String>,
    /// Instructions for its behaviour: text, `@file`, or `-` for stdin
    #[arg(long)]
    instructions: Option<String>,
    /// Model, as `provider:id` or an alias; empty uses the tenant's default
    #[arg(long)]
    model: Option<String>,
    /// Make this the default agent, which answers if no other is chosen
    #[arg(long)]
    default: bool,
    /// What its prompt is made of: `embedded` (the product's sections, its files and skills) or
    /// `simple` (its instructions and memories)
    #[arg(long, value_parser = ["embedded", "simple"])]
    kind: Option<String>,
    /// Queue mode: what happens to input while a turn runs
    #[arg(long, value_parser = ["steer", "followup", "collect", "interrupt", "steer_backlog", "queue"])]
    queue_mode: Option<String>,
    /// Scope of a session for direct messages
    #[arg(long, value_parser = ["main", "per-peer", "per-channel-peer", "per-account-channel-peer"])]
    dm_scope: Option<String>,
    /// Whether all members of a group share one session
    #[arg(long, value_parser = ["group", "group-user"])]
    group_scope: Option<String>,
    /// Time that queue mode `collect` waits for more input, in milliseconds
    #[arg(long)]
    debounce_ms: Option<u32>,
    /// Options for channels as JSON or `@FILE`, which replace all: `{"telegram": {"queue": {"mode":
    /// "collect", "cap": 10}, "blocks": {"by": "paragraph"}}}`; `{}` for none
    #[arg(long, value_name = "JSON")]
    channels: Option<String>,
    /// Time zone of the agent, for example `Europe/Oslo`
    #[arg(long)]
    time_zone: Option<String>,
    /// Tools that the agent may use, separated by commas; `all` or `none`
    #[arg(long, value_delimiter = ',')]
    tools: Option<Vec<String>>,
    /// Agents that may run as its subagents, separated by commas; `all` or `none`
    #[arg(long, value_delimiter = ',')]
    spawns: Option<Vec<String>>,
    /// Fallback models, tried in order if its own fails, separated by commas; or `none`
    #[arg(long, value_delimiter = ',')]
    fallbacks: Option<Vec<String>>,
    /// How much its model thinks before it answers, unless `/think` sets another level; no effect
    /// for models that cannot be told
    #[arg(long, value_parser = ["off", "low", "medium", "high"])]
    thinking: Option<String>,
    /// Strategy that decides how much its prompt contains
    #[arg(long, value_parser = ["full", "lite", "custom", "none"])]
    context: Option<String>,
    /// The only tools in its prompt, separated by commas; `all` for all
    #[arg(long, value_delimiter = ',')]
    context_tools: Option<Vec<String>>,
    /// Tools left out of its prompt, separated by commas; `none` for none
    #[arg(long, value_delimiter = ',')]
    context_without_tools: Option<Vec<String>>,
    /// The only skills in its prompt, separated by commas; `all` for all
    #[arg(long, value_delimiter = ',')]
    context_skills: Option<Vec<String>>,
    /// Skills left out of its prompt, separated by commas; `none` for none
    #[arg(long, value_delimiter = ',')]
    context_without_skills: Option<Vec<String>>,
    /// Recommend skills for each message: yes, no, or the model that chooses them
    #[arg(long, value_name = "yes|no|MODEL")]
    recommend_skills: Option<String>,
    /// Weights of channel, keywords, history and recency for these recommendations, for example
    /// 40,30,20,10
    #[arg(long, value_delimiter = ',')]
    skill_weights: Option<Vec<u32>>,
    /// Whether its prompt contains its notes: yes, no, or auto
    #[arg(long, value_parser = ["yes", "no", "auto"])]
    context_memory: Option<String>,
    /// Whether its prompt describes its runtime: yes, no, or auto
    #[arg(long, value_parser = ["yes", "no", "auto"])]
    context_runtime: Option<String>,
    /// How often it reacts to messages with an emoji, on channels with reactions
    #[arg(long, value_parser = ["off", "minimal", "extensive"])]
    reactions: Option<String>,
    /// Set of tools for its subagents, as `name=tool,tool`; `name=` removes the set
    #[arg(long = "bundle")]
    bundles: Vec<String>,
    /// Time that a tool call waits for approval, in seconds; 0 for the default
    #[arg(long)]
    approval_timeout: Option<u32>,
    #[command(flatten)]
    heartbeat: heartbeat::Heartbeat,
    /// Work by behaviours: the one that conversations begin with; `none` works without
    #[arg(long, value_name = "BEHAVIOR|none")]
    behavior: Option<String>,
    /// Whether work costs it hit points: on, off, or settings as JSON (docs/economy.md)
    #[arg(long, value_name = "on|off|JSON")]
    hit_points: Option<String>,
    /// Whether it looks after itself while nobody needs it: on, off, or settings as JSON
    /// (docs/self.md); it needs behaviours
    #[arg(long, value_name = "on|off|JSON")]
    self_improve: Option<String>,
    /// Steps of a turn before other sessions get theirs
    #[arg(long)]
    max_steps: Option<u32>,
    /// Changes of behaviour in a turn before other sessions get theirs
    #[arg(long)]
    max_hops: Option<u32>,
    /// Seconds of a turn before other sessions get theirs
    #[arg(long)]
    max_seconds: Option<u32>,
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
                let agent = match &template {
                    Some(template) => template::from_template(template, name)?,
                    None => Agent { name, ..Agent::default() },
                };
                let agent = changes.apply(agent)?;
                let wanted = agent.name.clone();
                let request = client.request(CreateAgentRequest { agent: Some(agent) });
                let made = client.answer(client.agents().create_agent(request).await)?;
                screen.warn(&made.warnings)?;
                let agent = made.agent.unwrap_or_default();
                for (name, source) in template.as_deref().map_or(&[][..], template::behaviors_of) {
                    behaviors::put_own(client, &agent.id, name, source).await?;
                }
                if agent.name != wanted {
                    let name = &agent.name;
                    screen.note(&format!(
                        "the name is `{name}`: a name has only a-z, 0-9, `-` and `_`"
                    ))?;
                }
                screen.one(&COLUMNS, &view(&agent))
            }
            Self::Update { agent, changes } => {
                let before = get(client, agent).await?;
                let base_version = Some(before.version);
                let agent = Some(changes.apply(before)?);
                let request = client.request(UpdateAgentRequest { agent, base_version });
                let changed = client.answer(client.agents().update_agent(request).await)?;
                screen.warn(&changed.warnings)?;
                screen.one(&COLUMNS, &view(&changed.agent.unwrap_or_default()))
            }
            Self::Runs(command) => command.run(client, screen).await,
            Self::Export { agent, to, layout: Layout::Opendan, .. } => {
                moving::export(client, screen, &agent, to).await
            }
            Self::Export { agent, to, package_version, author, layout: Layout::Package } => {
                let version = package_version;
                let request = ExportAgentRequest { agent, version, author };
                packages::export(client, screen, request, to).await
            }
            Self::Import { from } => {
                let content = files::read_local(&from)?;
                if content.starts_with(GZIP) {
                    return moving::import(client, screen, &from, &content).await;
                }
                let text = String::from_utf8(content).map_err(|_| {
                    Error::Usage(format!("`{from}` is neither a package nor a `.tar.gz`"))
                })?;
                packages::import(client, screen, text).await
            }
            Self::Approve { agent } => packages::approve(client, screen, agent).await,
            Self::Disable { agent } => set_state(client, screen, agent, "disabled").await,
            Self::Enable { agent } => set_state(client, screen, agent, "enabled").await,
            Self::Archive { agent } => set_state(client, screen, agent, "archived").await,
            Self::Delete { agent } => {
                let request = client.request(DeleteAgentRequest { agent: agent.clone() });
                client.answer(client.agents().delete_agent(request).await)?;
                screen.done("deleted", &json!({"deleted": agent}))
            }
        }
    }
}

async fn set_state(
    client: &Client,
    screen: &Screen,
    agent: String,
    state: &str,
) -> Result<(), Error> {
    let request = client.request(SetAgentStateRequest { agent, state: state.to_owned() });
    let changed = client.answer(client.agents().set_agent_state(request).await)?.agent;
    screen.one(&COLUMNS, &view(&changed.unwrap_or_default()))
}

async fn get(client: &Client, agent: String) -> Result<Agent, Error> {
    let request = client.request(GetAgentRequest { agent });
    let found = client.answer(client.agents().get_agent(request).await)?.agent;
    Ok(found.unwrap_or_default())
}

impl Changes {
    /// Returns the agent with the given options applied.
    fn apply(self, mut agent: Agent) -> Result<Agent, Error> {
        let texts = [
            (&mut agent.description, self.description),
            (&mut agent.model, self.model),
            (&mut agent.kind, self.kind),
            (&mut agent.reactions, self.reactions),
            (&mut agent.thinking, self.thinking),
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
            agent.instructions = option_values::text(&instructions)?;
        }
        if let Some(debounce_ms) = self.debounce_ms {
            agent.debounce_ms = debounce_ms;
        }
        channel_options::apply(&mut agent, self.channels)?;
        if let Some(tools) = self.tools {
            agent.no_tools = tools == ["none"];
            agent.tools = if tools == ["all"] || agent.no_tools { Vec::new() } else { tools };
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
        let limits = (self.max_steps, self.max_hops, self.max_seconds);
        behaviors::apply(&mut agent, self.behavior, limits)?;
        economy::apply(&mut agent, self.hit_points.as_deref())?;
        self_improve::apply(&mut agent, self.self_improve.as_deref())?;
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

fn heartbeat_view(agent: &Agent) -> Value {
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
        "kind": agent.kind,
        "queue_mode": agent.queue_mode,
        "dm_scope": agent.dm_scope,
        "group_scope": agent.group_scope,
        "debounce_ms": agent.debounce_ms,
        "channels": channel_options::view(agent),
        "time_zone": agent.time_zone,
        "tools": agent.tools,
        "no_tools": agent.no_tools,
        "spawns": agent.spawns,
        "fallbacks": agent.fallbacks,
        "thinking": agent.thinking,
        "context": context(agent),
        "bundles": bundles(agent),
        "approval_timeout_s": agent.approval_timeout_s,
        "reactions": agent.reactions,
        "heartbeat": heartbeat_view(agent),
        "behaviors": behaviors::settings_view(agent),
        "hit_points": economy::settings_view(agent),
        "self_improve": self_improve::view(agent),
        "state": agent.state,
        "did": agent.did,
        "version": agent.version,
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
        let line = Line::parse_from(["x", "--tools", "none"]);
        let changed = line.changes.apply(changed).unwrap();
        assert!(changed.no_tools && changed.tools.is_empty());
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
