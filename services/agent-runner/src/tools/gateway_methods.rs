//! Gateway methods for the `gateway` tool, answered inside the runner.
//!
//! A runner has no API key: it calls the crates behind the gateway's handlers directly, for the
//! tenant of its claim. Field names are those of the `.proto` files, as `holdfast … --output json`
//! prints them. Only the owner's conversations may use it, since the answers concern the whole
//! tenant (spec TOL-016, TOL-022).

use std::time::Duration;

use holdfast_directory::Agent;
use holdfast_session::{EntryView, RunFilter, RunView, SessionFilter, SessionView};
use holdfast_tools::{Call, GatewayMethod, GatewayMethods, GatewayParams, ToolError};
use holdfast_types::{
    AgentId, Entry, Fault, Kind, RunId, SessionId, SessionKey, SessionKind, Usage,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::tools::mesh::SessionTools;

const DEFAULT_PAGE_SIZE: u32 = 20;
/// In bytes.
const MAX_TEXT_BYTES: usize = 2_000;

impl GatewayMethods for SessionTools {
    async fn ask(
        &self,
        call: &Call,
        method: GatewayMethod,
        params: GatewayParams,
        limit: Duration,
    ) -> Result<Value, ToolError> {
        if !SessionTools::is_owner_or_agent(call)? {
            return Err(tool_error("this may be asked in a conversation with your owner only"));
        }
        match timeout(limit, self.call_method(call, method, params)).await {
            Ok(answer) => answer,
            Err(_) => Err(ToolError::Tell(format!(
                "the method took longer than {} ms and was given up",
                limit.as_millis()
            ))),
        }
    }
}

impl SessionTools {
    async fn call_method(
        &self,
        call: &Call,
        method: GatewayMethod,
        params: GatewayParams,
    ) -> Result<Value, ToolError> {
        let tenant = call.tenant;
        let most = i64::from(params.limit.unwrap_or(DEFAULT_PAGE_SIZE));
        match method {
            GatewayMethod::GetStatus => self.tenant_status(call).await,
            GatewayMethod::ListSessions => {
                let kind = params.kind.as_deref().map(parse_kind).transpose()?;
                let agent = match params.agent.as_deref() {
                    Some(agent) => Some(self.find_agent(call, agent).await?.id),
                    None => None,
                };
                let filter = SessionFilter { agent, kind, limit: most, ..SessionFilter::default() };
                let views =
                    self.sessions.views().sessions(tenant, filter).await.map_err(to_tool_error)?;
                Ok(json!({ "sessions": views.iter().map(session_json).collect::<Vec<_>>() }))
            }
            GatewayMethod::GetSession => {
                let id = self.session_id(call, &required_param("session", params.session)?).await?;
                let view =
                    self.sessions.views().session(tenant, id).await.map_err(to_tool_error)?;
                Ok(json!({ "session": session_json(&view) }))
            }
            GatewayMethod::GetHistory => {
                let id = self.session_id(call, &required_param("session", params.session)?).await?;
                let entries = self
                    .sessions
                    .views()
                    .history(tenant, id, most, None)
                    .await
                    .map_err(to_tool_error)?;
                Ok(json!({ "entries": entries.iter().map(entry_json).collect::<Vec<_>>() }))
            }
            GatewayMethod::ListRuns => {
                let session = match params.session.as_deref() {
                    Some(session) => Some(self.session_id(call, session).await?),
                    None => None,
                };
                let filter = RunFilter { session, limit: most, ..RunFilter::default() };
                let runs =
                    self.sessions.views().runs(tenant, filter).await.map_err(to_tool_error)?;
                Ok(json!({ "runs": runs.iter().map(run_json).collect::<Vec<_>>() }))
            }
            GatewayMethod::GetRun => {
                let id = required_param("run_id", params.run_id)?;
                let id: RunId = id.parse().map_err(display_error)?;
                let (view, entries) =
                    self.sessions.views().run(tenant, id).await.map_err(to_tool_error)?;
                let entries = entries.iter().map(entry_json).collect::<Vec<_>>();
                Ok(json!({ "run": run_json(&view), "entries": entries }))
            }
            GatewayMethod::ListAgents => {
                let agents = self.directory.agents().list(tenant).await.map_err(to_tool_error)?;
                Ok(json!({ "agents": agents.iter().map(agent_json).collect::<Vec<_>>() }))
            }
            GatewayMethod::GetAgent => {
                let agent = self.find_agent(call, &required_param("agent", params.agent)?).await?;
                Ok(json!({ "agent": agent_json(&agent) }))
            }
        }
    }

    async fn tenant_status(&self, call: &Call) -> Result<Value, ToolError> {
        let counts = self.sessions.queues().counts(call.tenant).await.map_err(to_tool_error)?;
        let agents = self.directory.agents().list(call.tenant).await.map_err(to_tool_error)?;
        let by_state = |counts: Vec<(String, i64)>| -> Value {
            counts.into_iter().map(|(state, count)| (state, Value::from(count))).collect()
        };
        Ok(json!({
            "sessions": by_state(counts.sessions),
            "waiting_messages": counts.waiting,
            "oldest_wait_ms": u64::try_from(counts.oldest_wait.as_millis()).unwrap_or(u64::MAX),
            "dead_letters": counts.dead,
            "deliveries": by_state(counts.deliveries),
            "agents": agents.len(),
            "version": env!("CARGO_PKG_VERSION"),
        }))
    }

    async fn find_agent(&self, call: &Call, named: &str) -> Result<Agent, ToolError> {
        self.directory.agents().get(call.tenant, named).await.map_err(to_tool_error)
    }

    async fn session_id(&self, call: &Call, named: &str) -> Result<SessionId, ToolError> {
        if named.starts_with("ses_") {
            return named.parse().map_err(display_error);
        }
        let key: SessionKey = named.parse().map_err(display_error)?;
        let found = self.sessions.views().find(call.tenant, &key).await.map_err(to_tool_error)?;
        found.ok_or_else(|| tool_error("there is no such session"))
    }
}

fn session_json(view: &SessionView) -> Value {
    json!({
        "id": view.id, "key": view.key, "kind": view.kind, "agent": view.agent,
        "state": if view.paused.is_some() { "PAUSE" } else { view.state.as_str() },
        "label": view.given_label.as_ref().unwrap_or(&view.label),
        "waiting": view.waiting, "turns": view.turns,
        "usage": usage_json(view.usage),
        "created_at": view.created_at, "updated_at": view.updated_at,
    })
}

fn run_json(view: &RunView) -> Value {
    json!({
        "id": view.id, "session_id": view.session, "agent": view.agent,
        "outcome": view.outcome.as_str(), "reason": view.reason, "steps": view.steps,
        "model": view.model, "usage": usage_json(view.usage), "text": truncate(&view.text),
        "started_at": view.started_at, "finished_at": view.finished_at,
    })
}

fn usage_json(usage: Usage) -> Value {
    json!({ "input_tokens": usage.input, "output_tokens": usage.output })
}

fn entry_json(view: &EntryView) -> Value {
    let text = match &view.entry {
        Entry::Heard { body, .. } => body.text.as_str(),
        Entry::Thought { text, .. } => text,
        Entry::Returned { output, .. } => output,
        Entry::Called { .. } | Entry::Noted { .. } => "",
    };
    json!({
        "seq": view.seq, "run_id": view.run, "kind": view.entry.kind(), "text": truncate(text),
        "created_at": view.created_at,
    })
}

/// Agent without its instructions, which must not appear in a conversation.
fn agent_json(agent: &Agent) -> Value {
    let id: AgentId = agent.id;
    json!({
        "id": id, "name": agent.name, "description": agent.description,
        "model": agent.model.as_deref().unwrap_or("the default"), "is_default": agent.is_default,
        "tools": agent.settings.tools, "time_zone": agent.settings.time_zone,
    })
}

fn parse_kind(word: &str) -> Result<SessionKind, ToolError> {
    serde_json::from_value(Value::String(word.to_owned())).map_err(|_| {
        tool_error(
            "`kind` is main, dm, group, topic, subagent, cron, heartbeat, work, api or global",
        )
    })
}

fn required_param(what: &'static str, given: Option<String>) -> Result<String, ToolError> {
    given.ok_or_else(|| ToolError::Tell(format!("`{what}` is missing from `params`")))
}

fn tool_error(text: &str) -> ToolError {
    ToolError::Tell(text.to_owned())
}

fn display_error(error: impl std::fmt::Display) -> ToolError {
    ToolError::Tell(error.to_string())
}

/// Errors that the model can solve become tool results; the others are internal.
fn to_tool_error(error: impl Fault) -> ToolError {
    match error.kind() {
        Kind::Invalid | Kind::NotFound | Kind::Forbidden | Kind::Conflict => display_error(error),
        Kind::Unauthenticated | Kind::Exhausted | Kind::Unavailable | Kind::Internal => {
            ToolError::Broken(anyhow::Error::new(error))
        }
    }
}

fn truncate(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}
