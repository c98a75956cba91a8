//! `holdfast tools`.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{ExplainToolsRequest, ExplainToolsResponse, ToolDecision};
use serde_json::{Map, Value, json};

use crate::{client::Client, error::Error, screen::Screen};

const COLUMNS: [&str; 3] = ["tool", "decision", "summary"];

#[derive(Debug, Subcommand)]
pub enum Tools {
    /// List all tools and whether an agent may use them
    List {
        #[command(flatten)]
        whom: ToolContextArgs,
    },
    /// Explain for each tool which layer of the policy decided, and why
    Explain {
        #[command(flatten)]
        whom: ToolContextArgs,
        /// Show only this tool, by any of its names
        tool: Option<String>,
    },
}

/// Agent, conversation and user for which tools are evaluated
#[derive(Debug, Default, Args)]
pub struct ToolContextArgs {
    /// Name or id of the agent [default: the session's, else the tenant's default agent]
    #[arg(long, default_value = "", hide_default_value = true)]
    agent: String,
    /// Evaluate for this session, by id or key, and the users of its last turn
    #[arg(long, default_value = "", hide_default_value = true)]
    session: String,
    /// Evaluate for this channel
    #[arg(long, default_value = "", hide_default_value = true)]
    channel: String,
    /// Evaluate for this chat, by the channel's id
    #[arg(long, default_value = "", hide_default_value = true)]
    chat: String,
    /// Evaluate for this kind of session [default: main]
    #[arg(long, default_value = "", hide_default_value = true)]
    kind: String,
    /// Evaluate for this model, as `provider:id` [default: the agent's]
    #[arg(long, default_value = "", hide_default_value = true)]
    model: String,
    /// Evaluate for this user, as `telegram:12345`, or this key, as `api:key_…`
    #[arg(long, default_value = "", hide_default_value = true)]
    user: String,
    /// Roles that the channel gives the user, for example `member` for senders on an account's
    /// allow-list
    #[arg(long, value_delimiter = ',', requires = "user")]
    roles: Vec<String>,
    /// Also probe the agent's MCP servers for their tools; implied if the tool is one of theirs
    #[arg(long)]
    mcp: bool,
}

impl Tools {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { whom } => {
                let explained = explain(client, whom).await?;
                let rows = explained.decisions.iter().map(|one| {
                    json!({"tool": one.tool, "decision": one.decision, "summary": one.summary})
                });
                screen.list(&COLUMNS, rows.collect())
            }
            Self::Explain { mut whom, tool } => {
                whom.mcp |= tool.as_deref().is_some_and(|tool| tool.starts_with("mcp_"));
                let explained = explain(client, whom).await?;
                for away in &explained.away {
                    screen.note(&format!("mcp server {away}"))?;
                }
                let decisions = chosen(&explained, tool.as_deref())?;
                if screen.is_json() {
                    return screen.one(&[], &view(&explained, &decisions));
                }
                screen.note(&context_line(&explained))?;
                let lines: Vec<&str> = decisions.iter().map(|one| one.line.as_str()).collect();
                screen.print(&format!("{}\n", crate::screen::plain(&lines.join("\n"))))
            }
        }
    }
}

async fn explain(client: &Client, whom: ToolContextArgs) -> Result<ExplainToolsResponse, Error> {
    let ToolContextArgs { agent, session, channel, chat, kind, model, user, roles, mcp } = whom;
    let request =
        ExplainToolsRequest { agent, session, channel, chat, kind, model, user, roles, mcp };
    let request = client.request(request);
    client.answer(client.policies().explain_tools(request).await)
}

fn chosen<'a>(
    explained: &'a ExplainToolsResponse,
    tool: Option<&str>,
) -> Result<Vec<&'a ToolDecision>, Error> {
    let all = explained.decisions.iter();
    let Some(tool) = tool else { return Ok(all.collect()) };
    let wanted = holdfast_agent::policy::canonical(tool).into_owned();
    let found: Vec<&ToolDecision> = all.filter(|one| one.tool == wanted).collect();
    match found.is_empty() {
        true => Err(Error::NotFound(format!(
            "no runner has a tool `{tool}`: `tools list` shows those that there are"
        ))),
        false => Ok(found),
    }
}

/// Returns the agent, conversation and user of the explanation in one line.
fn context_line(explained: &ExplainToolsResponse) -> String {
    let facts = [
        ("agent", explained.agent.clone()),
        ("kind", explained.kind.clone()),
        ("channel", explained.channel.clone()),
        ("chat", explained.chat.clone()),
        ("model", explained.model.clone()),
        ("user", explained.user.clone()),
        ("roles", explained.roles.join(" ")),
        ("sandbox mode", explained.sandbox_mode.clone()),
    ];
    let known = facts.into_iter().filter(|(_, value)| !value.is_empty());
    known.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

fn view(explained: &ExplainToolsResponse, decisions: &[&ToolDecision]) -> Value {
    json!({
        "agent": explained.agent,
        "kind": explained.kind,
        "channel": explained.channel,
        "chat": explained.chat,
        "model": explained.model,
        "user": explained.user,
        "roles": explained.roles,
        "sandbox_mode": explained.sandbox_mode,
        "away": explained.away,
        "tools": decisions.iter().map(|one| decision(one)).collect::<Vec<_>>(),
    })
}

/// Returns the decision in the form of docs/policy.md: unknown fields are omitted.
fn decision(decision: &ToolDecision) -> Value {
    let mut fields = Map::new();
    let texts = [
        ("tool", &decision.tool),
        ("decision", &decision.decision),
        ("layer", &decision.layer),
        ("entry", &decision.entry),
        ("list", &decision.list),
        ("reason", &decision.reason),
    ];
    for (name, text) in texts {
        if !text.is_empty() {
            fields.insert(name.to_owned(), Value::String(text.clone()));
        }
    }
    if decision.number > 0 {
        fields.insert("number".to_owned(), decision.number.into());
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_has_what_is_known_of_it_and_nothing_else() {
        let denied = ToolDecision {
            tool: "cron".into(),
            decision: "deny".into(),
            layer: "global".into(),
            number: 3,
            entry: "group:automation".into(),
            list: "tools.deny".into(),
            reason: "denied by `group:automation` in tools.deny".into(),
            ..ToolDecision::default()
        };

        assert_eq!(
            decision(&denied),
            json!({
                "tool": "cron", "decision": "deny", "layer": "global", "number": 3,
                "entry": "group:automation", "list": "tools.deny",
                "reason": "denied by `group:automation` in tools.deny"
            })
        );
        let allowed = ToolDecision {
            tool: "read".into(),
            decision: "allow".into(),
            reason: "no layer removes it".into(),
            ..ToolDecision::default()
        };
        assert_eq!(decision(&allowed).as_object().unwrap().len(), 3);
    }

    #[test]
    fn a_tool_is_chosen_by_any_of_its_names() {
        let one = ToolDecision { tool: "exec".into(), ..ToolDecision::default() };
        let explained = ExplainToolsResponse { decisions: vec![one], ..Default::default() };

        assert_eq!(chosen(&explained, Some("Bash")).unwrap().len(), 1);
        assert!(matches!(chosen(&explained, Some("cron")), Err(Error::NotFound(_))));
    }
}
