//! `holdfast behaviors`, and the settings of agents that work by behaviours.

mod trial;

use std::path::Path;

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    Agent, Behavior, BehaviorSettings, DeleteBehaviorRequest, GetBehaviorRequest,
    ListBehaviorVersionsRequest, ListBehaviorsRequest, PutBehaviorRequest, RenderBehaviorRequest,
    RenderBehaviorResponse, ValidateBehaviorRequest,
};
use serde_json::{Value, json};

use crate::{client::Client, commands::option_values, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 7] =
    ["name", "layer", "role", "step_limit", "files", "output_protocol", "description"];
const VERSION_COLUMNS: [&str; 4] = ["version", "is_current", "created_at", "description"];

#[derive(Debug, Subcommand)]
pub enum Behaviors {
    /// List the behaviours in effect, built-in ones included
    List {
        #[command(flatten)]
        of: Owner,
    },
    /// Show the document of a behaviour
    Show {
        /// Name of the behaviour, as `list` shows it
        name: String,
        /// Version of this layer, as `versions` shows it [default: the one in effect]
        #[arg(long, value_name = "VERSION", default_value_t = 0, hide_default_value = true)]
        at: i64,
        #[command(flatten)]
        of: Owner,
    },
    /// Create or replace a behaviour
    Put {
        /// Document in YAML or JSON; `-` is stdin. Without a `name` in it, it is called like the file
        file: String,
        /// Refuse the change if the behaviour has another version by now; 0 for a new one
        #[arg(long, value_name = "VERSION")]
        base: Option<i64>,
        #[command(flatten)]
        of: Owner,
    },
    /// End the use of a behaviour; its versions are kept
    Delete {
        /// Name of the behaviour, as `list` shows it
        name: String,
        #[command(flatten)]
        of: Owner,
    },
    /// List the versions of a behaviour, newest first
    Versions {
        /// Name of the behaviour
        name: String,
        #[command(flatten)]
        of: Owner,
    },
    /// Check a document without storing it
    Validate {
        /// Document in YAML or JSON; `-` is stdin
        file: String,
        #[command(flatten)]
        of: Owner,
    },
    /// Show what a model would be asked in a step, without asking it
    Render {
        /// Name of the behaviour, with parameters as in `do:todo=T001`
        name: String,
        /// Document to use instead of the one in effect; `-` is stdin
        #[arg(long)]
        file: Option<String>,
        /// New message; may be given several times
        #[arg(long = "message")]
        messages: Vec<String>,
        /// New event; may be given several times
        #[arg(long = "event")]
        events: Vec<String>,
        /// Details of the current todo
        #[arg(long, default_value = "", hide_default_value = true)]
        todo: String,
        /// Number of the step, from 0
        #[arg(long, default_value_t = 0)]
        step: u32,
        /// Summary of the step before; from step 1 on
        #[arg(long, default_value = "", hide_default_value = true)]
        last_step: String,
        /// Memory; may be given several times
        #[arg(long = "memory")]
        memories: Vec<String>,
        #[command(flatten)]
        of: Owner,
    },
    /// Run steps without their effects: with given answers, or one step with the agent's model
    Try(trial::Trial),
}

/// Layer of a command
#[derive(Debug, Args)]
pub struct Owner {
    /// Name or id of the agent [default: the layer of the tenant, for all agents]
    #[arg(long, default_value = "", hide_default_value = true)]
    agent: String,
}

impl Behaviors {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { of } => {
                let request = client.request(ListBehaviorsRequest { agent: of.agent });
                let found = client.answer(client.behaviors().list_behaviors(request).await)?;
                screen.list(&COLUMNS, found.behaviors.iter().map(view).collect())
            }
            Self::Show { name, at: version, of } => {
                let request = client.request(GetBehaviorRequest { agent: of.agent, name, version });
                let found = client.answer(client.behaviors().get_behavior(request).await)?;
                let behavior = found.behavior.unwrap_or_default();
                if screen.is_json() {
                    return screen.one(&[], &view(&behavior));
                }
                screen.print(&format!("{}\n", behavior.source.trim_end()))
            }
            Self::Put { file, base, of } => {
                let (source, default_name) = read(&file)?;
                let (agent, name, base_version) = (of.agent, String::new(), base);
                let wanted = PutBehaviorRequest { agent, name, source, base_version, default_name };
                let request = client.request(wanted);
                let put = client.answer(client.behaviors().put_behavior(request).await)?;
                screen.warn(&put.warnings)?;
                screen.one(&COLUMNS, &view(&put.behavior.unwrap_or_default()))
            }
            Self::Delete { name, of } => {
                let request =
                    client.request(DeleteBehaviorRequest { agent: of.agent, name: name.clone() });
                client.answer(client.behaviors().delete_behavior(request).await)?;
                screen.done("deleted", &json!({"deleted": name}))
            }
            Self::Versions { name, of } => {
                let request = client.request(ListBehaviorVersionsRequest { agent: of.agent, name });
                let found = client.behaviors().list_behavior_versions(request).await;
                let versions = client.answer(found)?.versions;
                screen.list(&VERSION_COLUMNS, versions.iter().map(view).collect())
            }
            Self::Validate { file, of } => {
                let (source, default_name) = read(&file)?;
                let (agent, name) = (of.agent, String::new());
                let request =
                    client.request(ValidateBehaviorRequest { agent, name, source, default_name });
                let found = client.answer(client.behaviors().validate_behavior(request).await)?;
                screen.warn(&found.warnings)?;
                screen.one(&COLUMNS, &view(&found.behavior.unwrap_or_default()))
            }
            Self::Render { name, file, messages, events, todo, step, last_step, memories, of } => {
                let (agent, source) = (of.agent, source_of(file)?);
                let request = client.request(RenderBehaviorRequest {
                    agent,
                    name,
                    source,
                    messages,
                    events,
                    todo,
                    last_step,
                    step,
                    memories,
                });
                let found = client.answer(client.behaviors().render_behavior(request).await)?;
                show_rendered(screen, &found)
            }
            Self::Try(trial) => trial.run(client, screen).await,
        }
    }
}

/// Stores a behaviour of an agent.
pub async fn put_own(client: &Client, agent: &str, name: &str, source: &str) -> Result<(), Error> {
    let request = client.request(PutBehaviorRequest {
        agent: agent.to_owned(),
        name: name.to_owned(),
        source: source.to_owned(),
        ..PutBehaviorRequest::default()
    });
    client.answer(client.behaviors().put_behavior(request).await)?;
    Ok(())
}

/// Applies the options of an agent: the first behaviour, and the limits of a turn.
pub fn apply(
    agent: &mut Agent,
    first: Option<String>,
    (steps, hops, seconds): (Option<u32>, Option<u32>, Option<u32>),
) -> Result<(), Error> {
    match first.as_deref() {
        None => {}
        Some("none") => agent.behaviors = None,
        Some(name) => {
            let settings = agent.behaviors.get_or_insert_default();
            name.clone_into(&mut settings.default);
        }
    }
    if steps.is_none() && hops.is_none() && seconds.is_none() {
        return Ok(());
    }
    let Some(settings) = &mut agent.behaviors else {
        let told = "the agent works without behaviours: give `--behavior resolve_router` too";
        return Err(Error::Usage(told.to_owned()));
    };
    for (field, given) in [
        (&mut settings.max_steps, steps),
        (&mut settings.max_hops, hops),
        (&mut settings.max_seconds, seconds),
    ] {
        if let Some(given) = given {
            *field = given;
        }
    }
    Ok(())
}

pub fn settings_view(agent: &Agent) -> Value {
    let Some(settings) = &agent.behaviors else { return Value::Null };
    let BehaviorSettings { default, max_steps, max_hops, max_seconds } = settings;
    json!({
        "default": default,
        "max_steps": max_steps,
        "max_hops": max_hops,
        "max_seconds": max_seconds,
    })
}

/// Reads a document, and the name of its file without the extension.
fn read(file: &str) -> Result<(String, String), Error> {
    if file == "-" {
        return Ok((option_values::text("-")?, String::new()));
    }
    let path = file.strip_prefix('@').unwrap_or(file);
    let stem = Path::new(path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok((option_values::text(&format!("@{path}"))?, stem))
}

fn source_of(file: Option<String>) -> Result<String, Error> {
    file.map_or_else(|| Ok(String::new()), |file| Ok(read(&file)?.0))
}

fn show_rendered(screen: &Screen, found: &RenderBehaviorResponse) -> Result<(), Error> {
    if screen.is_json() {
        return screen.one(
            &[],
            &json!({
                "system_prompt": found.system_prompt,
                "messages": found.messages,
                "tools": found.tools,
                "is_empty_input": found.is_empty_input,
                "result_schema":
                    serde_json::from_str::<Value>(&found.result_schema).unwrap_or_default(),
                "prompt_tokens": found.prompt_tokens,
            }),
        );
    }
    let texts = [&found.system_prompt].into_iter().chain(&found.messages);
    let text: Vec<&str> = texts.map(|text| text.trim_end()).collect();
    screen.print(&format!("{}\n", text.join("\n\n")))?;
    screen.note(&format!("about {} tokens, without tools", found.prompt_tokens))?;
    if found.is_empty_input {
        screen.note("there is no input: no model would be asked")?;
    }
    Ok(())
}

fn view(behavior: &Behavior) -> Value {
    let mut view = json!({
        "name": behavior.name,
        "layer": behavior.layer,
        "version": behavior.version,
        "is_current": behavior.is_current,
        "created_at": time(behavior.created_at.as_ref()),
        "description": behavior.description,
        "role": behavior.role,
        "output_protocol": behavior.output_protocol,
        "step_limit": behavior.step_limit,
        "fallback": behavior.fallback,
        "files": behavior.files,
        "source": behavior.source,
    });
    if !behavior.error.is_empty() {
        view["error"] = behavior.error.clone().into();
    }
    view
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_an_agent_set_and_unset_its_behaviors() {
        let mut agent = Agent::default();
        assert!(apply(&mut agent, None, (Some(3), None, None)).is_err());

        apply(&mut agent, Some("plan".to_owned()), (Some(3), None, Some(60))).unwrap();
        apply(&mut agent, None, (None, Some(2), None)).unwrap();

        let expected = BehaviorSettings {
            default: "plan".to_owned(),
            max_steps: 3,
            max_hops: 2,
            max_seconds: 60,
        };
        assert_eq!(agent.behaviors.as_ref(), Some(&expected));
        apply(&mut agent, Some("none".to_owned()), (None, None, None)).unwrap();
        assert_eq!(agent.behaviors, None);
    }

    #[test]
    fn a_document_is_called_like_its_file() {
        assert_eq!(read("Cargo.toml").unwrap().1, "Cargo");
        assert_eq!(read("@Cargo.toml").unwrap().1, "Cargo");
        assert!(read("nowhere.yaml").is_err());
    }
}
