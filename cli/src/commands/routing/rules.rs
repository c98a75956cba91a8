//! `holdfast routing rules`.
//!
//! The gateway stores the rules as one list. A single rule is changed by reading the list and
//! putting it back on condition that it is still the one that was read.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{ListRulesRequest, ModelRoute, PutRulesRequest, Rule};
use serde::Deserialize;
use serde_json::{Value, json};
use tonic::Code;

use super::{super::option_values, model_route};
use crate::{client::Client, error::Error, screen::Screen};

const COLUMNS: [&str; 8] =
    ["place", "channel", "user_id", "pattern", "agent", "tools", "by_model", "disabled"];

/// Number of times that a change is made again because somebody else changed the rules meanwhile.
const MAX_TRIES: u32 = 5;

#[derive(Debug, Subcommand)]
pub enum Rules {
    /// List all rules, in order
    List,
    /// Add a rule
    Add(Box<NewRule>),
    /// Remove a rule by its place
    #[command(visible_alias = "rm")]
    Remove {
        /// Place of the rule, as `list` shows it
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        place: u32,
    },
    /// Move a rule to another place; the first rule that matches decides
    Move {
        /// Place of the rule, as `list` shows it
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        place: u32,
        /// Place that it gets
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        to: u32,
    },
    /// Let a disabled rule match again
    Enable {
        /// Place of the rule, as `list` shows it
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        place: u32,
    },
    /// Keep a rule, and let it match nothing
    Disable {
        /// Place of the rule, as `list` shows it
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        place: u32,
    },
    /// Show which rule a message would match; the same as `routing test`
    Test(Box<super::Explain>),
    /// Replace all rules by new ones
    Put {
        /// JSON array of rules, as `list --output json` prints it; `@file`, or `-` for stdin
        rules: String,
    },
}

#[derive(Debug, Args)]
pub struct NewRule {
    /// Name or id of the agent that answers
    #[arg(long)]
    agent: String,
    /// Channel of the messages [default: any]
    #[arg(long, default_value = "", hide_default_value = true)]
    channel: String,
    /// The channel's id of the sender [default: any]
    #[arg(long, default_value = "", hide_default_value = true)]
    user: String,
    /// Regular expression that is searched for in the text [default: any text]
    #[arg(long, default_value = "", hide_default_value = true)]
    pattern: String,
    /// Tools that the turn may use, with commas; `none` allows none [default: the agent's own]
    #[arg(long, value_delimiter = ',')]
    tools: Option<Vec<String>>,
    /// Let a model choose the agent, for each message or each session; `--agent` is the fallback
    #[arg(long, value_name = "EACH", value_parser = ["message", "session"])]
    by_model: Option<String>,
    /// Agents that the model may choose besides `--agent`, with commas [default: all]
    #[arg(long, value_name = "AGENT", value_delimiter = ',', requires = "by_model")]
    among: Vec<String>,
    /// Model that chooses, as provider:id [default: the agent's]
    #[arg(long, value_name = "MODEL", requires = "by_model")]
    chooser: Option<String>,
    /// Place of the rule [default: the last]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    at: Option<u32>,
    /// Add it switched off
    #[arg(long)]
    disabled: bool,
}

impl Rules {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => {
                let (rules, _) = read(client).await?;
                screen.list(&COLUMNS, placed(&rules))
            }
            Self::Add(new) => {
                let at = new.at;
                let added = new.rule();
                let changed = change(client, screen, |rules| {
                    let end = rules.len();
                    let at = at.map_or(end, |at| index(at).min(end));
                    rules.insert(at, added.clone());
                    Ok(())
                });
                screen.list(&COLUMNS, placed(&changed.await?))
            }
            Self::Remove { place } => {
                let mut removed = Rule::default();
                let changed = change(client, screen, |rules| {
                    removed = rules.remove(found(rules, place)?);
                    Ok(())
                });
                changed.await?;
                screen.done("removed", &json!({ "removed": view(&removed) }))
            }
            Self::Move { place, to } => {
                let changed = change(client, screen, |rules| {
                    let rule = rules.remove(found(rules, place)?);
                    rules.insert(index(to).min(rules.len()), rule);
                    Ok(())
                });
                screen.list(&COLUMNS, placed(&changed.await?))
            }
            Self::Enable { place } => switch(client, screen, place, false).await,
            Self::Disable { place } => switch(client, screen, place, true).await,
            Self::Test(args) => args.run(client, screen).await,
            Self::Put { rules } => {
                let rules = read_rules(&rules)?;
                let count = rules.len();
                put(client, screen, rules, String::new()).await?;
                screen.done(&format!("there are {count} rules now"), &json!({"rules": count}))
            }
        }
    }
}

impl NewRule {
    fn rule(self) -> Rule {
        let Self { by_model, among, chooser, tools, .. } = self;
        let model = chooser.unwrap_or_default();
        let tools_given = tools.is_some();
        let mut tools = tools.unwrap_or_default();
        if tools == ["none"] {
            tools.clear();
        }
        Rule {
            channel: self.channel,
            user_id: self.user,
            pattern: self.pattern,
            agent: self.agent,
            tools,
            tools_given,
            by_model: by_model.map(|each| ModelRoute { among, each, model }),
            disabled: self.disabled,
        }
    }
}

/// Returns the rules and their version.
async fn read(client: &Client) -> Result<(Vec<Rule>, String), Error> {
    let request = client.request(ListRulesRequest {});
    let listed = client.answer(client.routing().list_rules(request).await)?;
    Ok((listed.rules, listed.version))
}

async fn put(
    client: &Client,
    screen: &Screen,
    rules: Vec<Rule>,
    base: String,
) -> Result<(), Error> {
    let request = client.request(PutRulesRequest { rules, base });
    let put = client.answer(client.routing().put_rules(request).await)?;
    screen.warn(&put.warnings)
}

/// Applies an edit to the rules that are there. If somebody else changes them meanwhile, reads them
/// again and applies it to the new ones.
async fn change(
    client: &Client,
    screen: &Screen,
    mut edit: impl FnMut(&mut Vec<Rule>) -> Result<(), Error>,
) -> Result<Vec<Rule>, Error> {
    let mut tries = 0;
    loop {
        let (mut rules, version) = read(client).await?;
        if version.is_empty() {
            return Err(Error::Usage(
                "this gateway cannot change single rules: update it, or use `routing rules put`"
                    .to_owned(),
            ));
        }
        edit(&mut rules)?;
        tries += 1;
        match put(client, screen, rules.clone(), version).await {
            Ok(()) => return Ok(rules),
            Err(Error::Refused(status)) if status.code() == Code::Aborted && tries < MAX_TRIES => {}
            Err(error) => return Err(error),
        }
    }
}

async fn switch(client: &Client, screen: &Screen, place: u32, disabled: bool) -> Result<(), Error> {
    let changed = change(client, screen, |rules| {
        let at = found(rules, place)?;
        rules[at].disabled = disabled;
        Ok(())
    });
    screen.list(&COLUMNS, placed(&changed.await?))
}

/// Index of a place, which counts from 1.
fn index(place: u32) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX).saturating_sub(1)
}

fn found(rules: &[Rule], place: u32) -> Result<usize, Error> {
    let at = index(place);
    if at < rules.len() {
        return Ok(at);
    }
    Err(Error::NotFound(format!(
        "there is no rule at place {place}: `holdfast routing rules list` shows all {}",
        rules.len()
    )))
}

/// Rule in the JSON form that users write. `tools: null` keeps the agent's own tools.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    /// Ignored: `list` prints it, and the order of the array decides.
    #[serde(default, rename = "place")]
    _place: u32,
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
pub(super) struct WrittenRoute {
    among: Vec<String>,
    each: String,
    model: Option<String>,
}

impl WrittenRoute {
    pub(super) fn into_message(self) -> ModelRoute {
        ModelRoute { among: self.among, each: self.each, model: self.model.unwrap_or_default() }
    }
}

pub fn read_rules(given: &str) -> Result<Vec<Rule>, Error> {
    let rules: Vec<WrittenRule> =
        serde_json::from_value(option_values::json(given)?).map_err(|error| {
            Error::Usage(format!(
                "that is no array of rules ({error}): each has an `agent`, and may have `channel`, \
             `user_id`, `pattern`, `tools`, `by_model` and `disabled`"
            ))
        })?;
    let rule = |written: WrittenRule| Rule {
        channel: written.channel,
        user_id: written.user_id,
        pattern: written.pattern,
        agent: written.agent,
        tools_given: written.tools.is_some(),
        tools: written.tools.unwrap_or_default(),
        by_model: written.by_model.map(WrittenRoute::into_message),
        disabled: written.disabled,
    };
    Ok(rules.into_iter().map(rule).collect())
}

fn placed(rules: &[Rule]) -> Vec<Value> {
    let placed = |(rule, place): (&Rule, usize)| {
        let mut view = view(rule);
        view["place"] = json!(place);
        view
    };
    rules.iter().zip(1..).map(placed).collect()
}

pub fn view(rule: &Rule) -> Value {
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
        let printed = Value::Array(placed(&rules)).to_string();

        assert_eq!(read_rules(&printed).unwrap(), rules);
    }

    #[test]
    fn a_misspelt_field_is_refused() {
        let error = read_rules(r#"[{"agent": "a", "patern": "x"}]"#).unwrap_err();

        assert_eq!(error.code(), 2);
        assert!(error.to_string().contains("patern"), "{error}");
    }
}
