//! Explanation of the tools that a turn would get, computed as the runner does.
//!
//! The inputs are those that a runner collects for a turn (its `participants.rs`). For a session they
//! are those of its last turn: the same authors, target, and tool lists of its messages.

use holdfast_grpc::Caller;
use std::collections::HashMap;

use holdfast_agent::{
    access::{ConversationAccess, SessionFacts},
    bundle::UNSCOPED_TOOLS,
    policy::{self, CompiledPolicy, Defaults, LocalTime, Subject, TurnAuthors},
};
use holdfast_directory::Agent;
use holdfast_proto::gateway::v1::{self as pb, ExplainToolsRequest, ExplainToolsResponse};
use holdfast_types::{
    Author, ConnectionKind, Entry, Fault as _, Kind, ModelId, SessionKey, SessionKind, Target,
    TenantId,
};
use jiff::{Timestamp, tz::TimeZone};

use super::{Policies, mcp::McpTools, settings};
use crate::permissions::rights::ConversationRight;
use crate::{
    Error,
    control::{invalid, non_empty, parse_word, word_of},
    ingest::of_key,
};

const SESSION_KIND_WORDS: &str =
    "main, dm, group, topic, subagent, cron, heartbeat, work, api or global";

/// Maximum number of entries searched for the last turn of a session.
const MAX_ENTRIES: i64 = 200;

/// Facts of a session.
#[derive(Debug, Default)]
struct KnownSession {
    kind: Option<SessionKind>,
    key: Option<String>,
    target: Option<Target>,
    model: Option<String>,
    /// Authors in the last turn, and in all entries searched.
    last_turn_authors: Vec<Author>,
    all_authors: Vec<Author>,
    /// Tool lists of the last turn's messages.
    message_tools: Vec<Vec<String>>,
    /// For a subagent: the tools that it was given, and whether its file access is limited.
    given_tools: Option<Vec<String>>,
    is_bounded: bool,
}

pub(in crate::control) async fn explain_tools(
    of: &Policies,
    caller: &Caller,
    request: ExplainToolsRequest,
) -> Result<ExplainToolsResponse, Error> {
    let tenant = caller.tenant;
    let (agent, known) = find_agent_and_session(of, caller, &request).await?;
    let stored = of.0.directory.policies().for_agent(tenant, agent.id).await?;
    let (tenants, own) = (settings(&stored.tenant)?, settings(&stored.agent)?);
    let brought = match request.mcp {
        true => super::mcp::probe_servers(of, tenant, agent.id).await?,
        false => McpTools::default(),
    };
    let summaries: HashMap<String, String> =
        of.0.directory
            .policies()
            .known_tools()
            .await?
            .into_iter()
            .map(|tool| (tool.name, tool.summary))
            .chain(brought.summaries)
            .collect();
    let catalog = of.catalog(brought.tools).await?;
    let (given, bounds) =
        (known.given_tools, tool_lists(&agent, summaries.keys(), known.is_bounded));
    let compiled = CompiledPolicy::new(catalog, &Defaults::default(), &tenants, &own);
    let compiled = compiled.map_err(|error| invalid(error.to_string()))?;
    let connections = of.0.directory.connections().of_agent(tenant, agent.id).await?;
    let (agent_name, time_zone) = (agent.name.to_string(), agent.settings.time_zone.clone());

    let kind = match non_empty(request.kind) {
        Some(kind) => parse_word("kind", &kind, SESSION_KIND_WORDS)?,
        None => known.kind.unwrap_or(SessionKind::Main),
    };
    let (who, always) = match non_empty(request.user) {
        Some(user) => {
            let author = author(of, tenant, user, request.roles).await?;
            (compiled.turn_authors([&author]), compiled.turn_authors([&author]))
        }
        None => (
            compiled.turn_authors(&known.last_turn_authors),
            compiled.turn_authors(&known.all_authors),
        ),
    };
    let key = known.key.as_deref().unwrap_or_default();
    let facts = SessionFacts { kind, key, dm_scope: agent.settings.dm_scope };
    let ConversationAccess { is_owner, authors, .. } =
        ConversationAccess::decide(&facts, who, &always);
    let (channel, chat) = match known.target {
        Some(place) => (Some(place.channel), Some(place.chat)),
        None => (None, None),
    };
    let TurnAuthors { user, roles } = authors;
    let subject = Subject {
        is_owner,
        roles,
        user,
        channel: non_empty(request.channel).or(channel),
        chat: non_empty(request.chat).or(chat),
        tools: agent.settings.tools.clone(),
        model: model(of, tenant, agent, non_empty(request.model).or(known.model)).await?,
        messages: known.message_tools.into_iter().chain(bounds).collect(),
        bundle: given,
        now: local_time(&time_zone),
        ..Subject::new(kind)
    };
    let view = compiled.view(&subject);
    let decisions = view.explain_all();
    // Whether a connection is for the current user is only known during a turn.
    let is_connected = |tool: &str| {
        ConnectionKind::of_tool(tool)
            .is_none_or(|kind| connections.iter().any(|c| c.to.kind() == kind))
    };
    let line = |explanation: policy::Explanation| {
        let is_usable = explanation.decision != "deny";
        if is_usable && !is_connected(&explanation.tool) {
            return unconnected_decision(explanation.tool);
        }
        let summary = summaries.get(&explanation.tool).cloned().unwrap_or_default();
        pb::ToolDecision {
            line: explanation.to_string(),
            tool: explanation.tool,
            summary,
            decision: explanation.decision,
            layer: explanation.layer.unwrap_or_default(),
            number: explanation.number.map_or(0, u32::from),
            entry: explanation.entry.unwrap_or_default(),
            list: explanation.list.unwrap_or_default(),
            reason: explanation.reason,
        }
    };
    Ok(ExplainToolsResponse {
        decisions: decisions.into_iter().map(line).collect(),
        agent: agent_name,
        kind: word_of(&subject.kind),
        channel: subject.channel.unwrap_or_default(),
        chat: subject.chat.unwrap_or_default(),
        model: subject.model.map(|model| model.to_string()).unwrap_or_default(),
        user: subject.user.unwrap_or_default(),
        roles: with_owner(subject.roles, is_owner),
        away: brought.unreachable,
        sandbox_mode: view.sandbox_mode().as_str().to_owned(),
    })
}

/// Decision for a tool whose connection the agent lacks.
fn unconnected_decision(tool: String) -> pb::ToolDecision {
    let reason = "the agent has no connection for it: see `holdfast connections`".to_owned();
    pb::ToolDecision {
        line: format!("{tool}: deny: {reason}"),
        tool,
        decision: "deny".to_owned(),
        reason,
        ..pb::ToolDecision::default()
    }
}

/// Agent of the request, and the facts of the session if it names one.
async fn find_agent_and_session(
    of: &Policies,
    caller: &Caller,
    request: &ExplainToolsRequest,
) -> Result<(Agent, KnownSession), Error> {
    let tenant = caller.tenant;
    let directory = &of.0.directory;
    let named = match request.agent.as_str() {
        "" => None,
        agent => Some(directory.agents().get(tenant, agent).await?),
    };
    if request.session.is_empty() {
        let agent = match named {
            Some(agent) => agent,
            None => directory.agents().default_agent(tenant).await?,
        };
        return Ok((agent, KnownSession::default()));
    }
    let session = of.0.session(caller, &request.session, ConversationRight::Read).await?;
    let view = of.0.sessions.views().session(tenant, session).await?;
    let agent = match named {
        Some(named) if named.id == view.agent => named,
        Some(named) => {
            let owner = directory.agents().by_id(tenant, view.agent).await;
            let owner = owner.map_or_else(|_| view.agent.to_string(), |of| of.name.to_string());
            return Err(Error::OtherAgent { of: owner, named: named.name.to_string() });
        }
        // The default agent replaces a deleted one, as in routing.
        None => match directory.agents().by_id(tenant, view.agent).await {
            Ok(agent) => agent,
            Err(error) if error.kind() == Kind::NotFound => {
                directory.agents().default_agent(tenant).await?
            }
            Err(error) => return Err(error.into()),
        },
    };
    let history = of.0.sessions.views().history(tenant, session, MAX_ENTRIES, None).await?;
    let last = history.last().map(|entry| entry.run);
    let mut known = KnownSession {
        kind: view.key.parse().ok().map(|key: SessionKey| key.kind()),
        key: Some(view.key),
        target: view.last_target,
        model: of.0.sessions.settings().get(tenant, session).await?.model,
        ..KnownSession::default()
    };
    if let Some(subagent) = of.0.sessions.subagents().get(tenant, session).await? {
        known.is_bounded = subagent.given.fs_read.is_some() || subagent.given.fs_write.is_some();
        known.given_tools = subagent.given.tools;
    }
    for entry in history {
        let Entry::Heard { body, .. } = entry.entry else { continue };
        if Some(entry.run) == last {
            known.message_tools.extend(body.tools);
            known.last_turn_authors.extend(body.author.clone().filter(|_| !body.silent));
        }
        known.all_authors.extend(body.author.filter(|_| !body.silent));
    }
    Ok((agent, known))
}

/// Tool lists from the agent's prompt settings and from a subagent's limited file access, as in the
/// runner's `bounds.rs`.
fn tool_lists<'n>(
    agent: &Agent,
    names: impl Iterator<Item = &'n String> + Clone,
    is_bounded: bool,
) -> Vec<Vec<String>> {
    let without = |is_out: &dyn Fn(&str) -> bool| {
        names.clone().filter(|name| !is_out(name)).cloned().collect::<Vec<String>>()
    };
    let context = &agent.settings.context;
    let mut lists: Vec<Vec<String>> = context.include_tools.clone().into_iter().collect();
    if let Some(excluded) = &context.exclude_tools {
        lists.push(without(&|name| excluded.iter().any(|one| one == name)));
    }
    if is_bounded {
        lists.push(without(&|name| UNSCOPED_TOOLS.contains(&name)));
    }
    lists
}

/// Author with the given id; for an API key, the roles of its scopes are added.
async fn author(
    of: &Policies,
    tenant: TenantId,
    user: String,
    roles: Vec<String>,
) -> Result<Author, Error> {
    let Some(key) = user.strip_prefix("api:") else {
        return Ok(Author { id: user, roles });
    };
    let id = key.parse()?;
    let found = of.0.directory.keys().get(tenant, id).await?;
    let scopes = found.scopes.iter().filter_map(|scope| scope.parse().ok()).collect();
    let mut author = of_key(id, scopes);
    author.roles.extend(roles);
    Ok(author)
}

/// Model of the turn; `None` if no usable model is configured.
async fn model(
    of: &Policies,
    tenant: TenantId,
    agent: Agent,
    instead: Option<String>,
) -> Result<Option<ModelId>, Error> {
    if let Some(model) = instead {
        let wrong = |error: holdfast_types::InvalidModelId| invalid(error.to_string());
        return Ok(Some(model.parse().map_err(wrong)?));
    }
    match of.0.directory.models().of_agent(tenant, &agent).await {
        Ok(choice) => Ok(Some(choice.model)),
        Err(error) if error.kind().is_transient() => Err(error.into()),
        Err(_) => Ok(None),
    }
}

fn local_time(zone: &str) -> Option<LocalTime> {
    let zone = TimeZone::get(zone).unwrap_or(TimeZone::UTC);
    let there = Timestamp::now().to_zoned(zone);
    LocalTime::of(there.weekday().to_monday_zero_offset(), there.hour(), there.minute())
}

fn with_owner(mut roles: Vec<String>, is_owner: bool) -> Vec<String> {
    if is_owner && !roles.iter().any(|role| role == "owner") {
        roles.push("owner".to_owned());
    }
    roles
}
