//! `sessions.*`.

mod patch;

use std::time::Duration;

use holdfast_proto::gateway::v1::{self as pb, sessions_server::Sessions as _};
use holdfast_types::{Entry, SessionId, SessionKey, SessionKind};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    super::{
        call::{Call, rpc},
        connection::{MAX_SUBSCRIPTIONS, now_ms},
        error::MethodError,
        events::{Audience, Event},
        keys,
        snapshot::{self, millis},
    },
    ADMIN, Method, READ, Reply, WRITE, chat, history, method,
    models::ModelSetup,
};
use crate::permissions::{self, Permission, rights::ConversationRight};
use crate::{
    control::sessions::{Handler, is_page_token},
    ingest::{Destination, InboundMessage},
};

pub const METHODS: &[Method] = &[
    method!(
        "sessions.list",
        READ,
        list,
        [
            // Each row has these anyway, or has none of them.
            "includeActivitySummary",
            "includeDerivedTitles",
            "includeLastMessage",
            "includePeople",
            "includeGlobal",
            "includeUnknown",
            "configuredAgentsOnly",
            "requireLastInteraction",
            "excludeSystem",
            // The order is that of the last use.
            "sortBy",
            "ownerFirst",
            "involvingMe",
        ]
    ),
    method!("sessions.describe", READ, describe, ["includeDerivedTitles", "includeLastMessage"]),
    method!("sessions.get", READ, get),
    method!(
        "sessions.resolve",
        READ,
        resolve,
        ["reference", "slug", "slugHint", "includeGlobal", "includeUnknown", "spawnedBy"]
    ),
    method!("sessions.preview", READ, preview),
    method!("sessions.subscribe", READ, subscribe, ["includeApprovals"]),
    method!("sessions.unsubscribe", READ, unsubscribe),
    method!("sessions.messages.subscribe", READ, subscribe_messages, ["includeApprovals"]),
    method!("sessions.messages.unsubscribe", READ, unsubscribe_messages),
    method!(
        "sessions.create",
        WRITE,
        create,
        [
            "displayName",
            "category",
            "titleSource",
            "agentRuntime",
            "timeoutMs",
            "mentions",
            "contextWindow",
            "fastMode",
            "permissionMode",
            "toolOverrides",
            "incognito",
            "visibility",
            "spawnDepth",
            "emitCommandHooks",
            "succeedsParent",
            "parentSessionKey",
        ]
    ),
    method!("sessions.send", WRITE, send, ["timeoutMs", "mentions"]),
    method!("sessions.spawn", WRITE, send, ["timeoutMs"]),
    method!("sessions.abort", WRITE, abort, ["clearQueued"]),
    method!("sessions.patch", WRITE, patch::patch),
    method!("sessions.patchMany", WRITE, patch::patch_many),
    method!("sessions.branches.list", READ, branches, ["agentId"]),
    method!("sessions.reset", ADMIN, reset, ["reason", "expectedSessionId"]),
    method!("sessions.compact", ADMIN, compact, ["maxLines"]),
    method!(
        "sessions.delete",
        WRITE,
        delete,
        [
            "deleteTranscript",
            "expectedLifecycleRevision",
            "expectedSessionUpdatedAt",
            "emitLifecycleHooks",
            "archivedOnly",
        ]
    ),
];

const DEFAULT_SESSIONS: usize = 100;

/// Sessions of a tenant that one list looks through.
const MAX_SESSIONS: usize = 1_000;

/// Sessions of one page of the gRPC method.
const PAGE: u32 = 200;

/// Sessions of one preview.
const MAX_PREVIEWS: usize = 64;

/// Time for a runner to answer a command that changes a session.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ListParams {
    limit: Option<usize>,
    offset: Option<usize>,
    /// Place to go on from: of a snapshot, or `nextCursor` of an earlier answer.
    cursor: Option<String>,
    label: Option<String>,
    spawned_by: Option<String>,
    #[serde(default)]
    agent_id: String,
    search: Option<String>,
    pinned: Option<bool>,
    active_minutes: Option<i64>,
    #[serde(default)]
    active_only: bool,
    #[serde(default)]
    exclude_subagents: bool,
    #[serde(default)]
    exclude_cron: bool,
    /// No session is archived.
    #[serde(default)]
    archived: Value,
    // Sessions have none of these.
    project_id: Option<String>,
    workspace_dir: Option<String>,
    group: Option<String>,
    has_board: Option<bool>,
    board_face: Option<String>,
    profile_relation: Option<Value>,
    involving_profile_id: Option<String>,
    creator_id: Option<String>,
    owner_id: Option<String>,
}

impl ListParams {
    /// Whether a filter asks for something that no session has.
    fn matches_nothing(&self) -> bool {
        let named = [
            &self.project_id,
            &self.workspace_dir,
            &self.board_face,
            &self.involving_profile_id,
            &self.creator_id,
            &self.owner_id,
            &self.spawned_by,
        ];
        self.archived == true
            || self.has_board == Some(true)
            || self.profile_relation.is_some()
            || self.group.as_ref().is_some_and(|group| !group.is_empty())
            || named.into_iter().any(Option::is_some)
    }

    fn matches(&self, session: &pb::Session) -> bool {
        let is_fresh = |minutes: i64| {
            millis(session.updated_at.as_ref()) >= now_ms() - minutes.saturating_mul(60_000)
        };
        let is_active = || matches!(session.state.as_str(), "RUNNING" | "READY");
        self.active_minutes.is_none_or(is_fresh)
            && (!self.active_only || is_active())
            && !(self.exclude_subagents && session.kind == "subagent")
            && !(self.exclude_cron && session.kind == "cron")
    }
}

/// Lists sessions, the last used first.
async fn list(call: Call, params: ListParams) -> Reply {
    let filter = pb::ListSessionsRequest {
        agent: params.agent_id.clone(),
        search: params.search.clone().unwrap_or_default(),
        label: params.label.clone().unwrap_or_default(),
        pinned: params.pinned,
        ..Default::default()
    };
    if let Some(cursor) = params.cursor.clone() {
        let request = pb::ListSessionsRequest { page_token: cursor, ..filter };
        return list_after(&call, request, &params).await;
    }
    let mut sessions = match params.matches_nothing() {
        true => Vec::new(),
        false => found(&call, filter).await?,
    };
    sessions.retain(|session| params.matches(session));
    let total = sessions.len();
    let offset = params.offset.unwrap_or(0);
    let limit = params.limit.unwrap_or(DEFAULT_SESSIONS).clamp(1, MAX_SESSIONS);
    let models = agent_models(&call).await?;
    let rows: Vec<Value> =
        sessions.iter().skip(offset).take(limit).map(|session| row_of(session, &models)).collect();
    let next = offset + rows.len();
    Ok(json!({
        "ts": now_ms(),
        "path": "",
        "count": rows.len(),
        "totalCount": total,
        "limitApplied": limit,
        "offset": offset,
        "nextOffset": (next < total).then_some(next),
        "hasMore": next < total,
        "defaults": models.defaults(),
        "sessions": rows,
    }))
}

/// Lists the sessions after a cursor. `limit` are read, and fewer are in the answer if some do not
/// match the filters.
async fn list_after(call: &Call, request: pb::ListSessionsRequest, params: &ListParams) -> Reply {
    let wrong =
        |why: &str| Err(MethodError::invalid(format!("invalid sessions.list params: {why}")));
    if params.offset.is_some() {
        return wrong("offset: leave it out with `cursor`");
    }
    if !is_page_token(&request.page_token) {
        return wrong(
            "cursor: must be `sessionsCursor` of a snapshot or `nextCursor` of an answer",
        );
    }
    let limit =
        u32::try_from(params.limit.unwrap_or(DEFAULT_SESSIONS)).unwrap_or(PAGE).clamp(1, PAGE);
    let request = pb::ListSessionsRequest { limit, ..request };
    let page = match params.matches_nothing() {
        true => pb::ListSessionsResponse::default(),
        false => {
            let handler = Handler(call.state().clone());
            rpc!(call, "Sessions/ListSessions", handler, list_sessions, request)?
        }
    };
    let models = agent_models(call).await?;
    let matching = page.sessions.iter().filter(|session| params.matches(session));
    let rows: Vec<Value> = matching.map(|session| row_of(session, &models)).collect();
    Ok(json!({
        "ts": now_ms(),
        "path": "",
        "count": rows.len(),
        "limitApplied": limit,
        "hasMore": !page.next_page_token.is_empty(),
        "nextCursor": snapshot::cursor(page.next_page_token),
        "defaults": models.defaults(),
        "sessions": rows,
    }))
}

/// The last used sessions of a tenant; `agent` may be empty.
pub async fn all(call: &Call, agent: String) -> Result<Vec<pb::Session>, MethodError> {
    found(call, pb::ListSessionsRequest { agent, ..Default::default() }).await
}

/// The last used sessions that a filter finds.
async fn found(
    call: &Call,
    filter: pb::ListSessionsRequest,
) -> Result<Vec<pb::Session>, MethodError> {
    let mut sessions = Vec::new();
    let mut page_token = String::new();
    while sessions.len() < MAX_SESSIONS {
        let request = pb::ListSessionsRequest { limit: PAGE, page_token, ..filter.clone() };
        let handler = Handler(call.state().clone());
        let page = rpc!(call, "Sessions/ListSessions", handler, list_sessions, request)?;
        sessions.extend(page.sessions);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    Ok(sessions)
}

/// Models of agents, by their names.
pub struct AgentModels {
    default_agent: String,
    by_agent: Vec<(String, String)>,
}

impl AgentModels {
    fn of(&self, agent: &str) -> (&str, &str) {
        let known = self.by_agent.iter().find(|(name, _)| name == agent);
        let model = known.map(|(_, model)| model.as_str()).unwrap_or_default();
        model.split_once(':').unwrap_or(("", model))
    }

    fn defaults(&self) -> Value {
        let (provider, model) = self.of(&self.default_agent);
        json!({ "modelProvider": provider, "model": model, "contextTokens": null })
    }
}

pub async fn agent_models(call: &Call) -> Result<AgentModels, MethodError> {
    let routing = call.state().directory.routing().get(call.tenant()).await?;
    let default_agent = routing.default_agent().name.to_string();
    let agents = call.state().directory.agents().list(call.tenant()).await?;
    let default_model = ModelSetup::load(call).await?.default_model;
    let model = |agent: holdfast_directory::Agent| {
        (agent.name.to_string(), agent.model.unwrap_or_else(|| default_model.clone()))
    };
    let by_agent = agents.into_iter().map(model).collect();
    Ok(AgentModels { default_agent, by_agent })
}

fn row_of(session: &pb::Session, models: &AgentModels) -> Value {
    let key = session.key.parse::<SessionKey>().ok();
    let kind = match key.as_ref().map(SessionKey::kind) {
        Some(SessionKind::Group | SessionKind::Topic) => "group",
        Some(SessionKind::Global) => "global",
        Some(_) => "direct",
        None => "unknown",
    };
    let channel = key
        .as_ref()
        .filter(|key| {
            matches!(key.kind(), SessionKind::Dm | SessionKind::Group | SessionKind::Topic)
        })
        .and_then(|key| key.as_str().split(':').nth(3).map(str::to_owned));
    let (provider, model) = models.of(&session.agent);
    let usage = session.usage.unwrap_or_default();
    let updated = millis(session.updated_at.as_ref());
    let name = key.as_ref().and_then(SessionKey::api_name);
    let title = if session.label.is_empty() { name } else { Some(session.label.clone()) };
    let status = match session.state.as_str() {
        "RUNNING" => "running",
        "READY" => "queued",
        _ => "done",
    };
    let mut row = json!({
        "key": keys::shown(&session.key),
        "sessionId": session.id,
        "kind": kind,
        "agentId": session.agent,
        "isMain": key.as_ref().is_some_and(|key| key.kind() == SessionKind::Main),
        "updatedAt": updated,
        "lastActivityAt": updated,
        "lastInteractionAt": updated,
        "createdAt": millis(session.created_at.as_ref()),
        "status": status,
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.input_tokens + usage.output_tokens,
        "totalTokensFresh": true,
        "modelProvider": provider,
        "model": model,
        "hasActiveRun": status == "running",
        "pinned": session.pinned,
    });
    for (field, text) in [("label", title.clone()), ("displayName", title), ("channel", channel)] {
        if let Some(text) = text {
            row[field] = text.into();
        }
    }
    if !session.summary.is_empty() {
        row["lastMessagePreview"] = session.summary.as_str().into();
    }
    row
}

/// Row of one session.
pub async fn row(call: &Call, session: SessionId) -> Reply {
    let session = session.to_string();
    let request = pb::GetSessionRequest { session };
    let handler = Handler(call.state().clone());
    let found = rpc!(call, "Sessions/GetSession", handler, get_session, request)?;
    let models = agent_models(call).await?;
    Ok(found.session.map_or(Value::Null, |session| row_of(&session, &models)))
}

/// Row of a session that the caller has changed; `null` for those who may write, and not read.
async fn row_after_change(call: &Call, session: Option<SessionId>) -> Reply {
    match session.filter(|_| permissions::require(&call.caller, Permission::ReadOwn).is_ok()) {
        Some(session) => row(call, session).await,
        None => Ok(Value::Null),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct KeyParams {
    #[serde(alias = "sessionKey")]
    key: String,
    #[serde(default)]
    agent_id: String,
}

/// Finds the session that a request names.
async fn find(
    call: &Call,
    agent: &str,
    key: &str,
    right: ConversationRight,
) -> Result<(Destination, Option<SessionId>), MethodError> {
    let place = call.place(agent, key, right).await?;
    let found = call.state().sessions.views().find(call.tenant(), &place.key).await?;
    Ok((place, found))
}

fn unknown(key: &str) -> MethodError {
    let key: String = key.chars().take(80).collect();
    MethodError::invalid(format!(
        "there is no session `{key}`: `sessions.list` has those there are"
    ))
}

async fn describe(call: Call, params: KeyParams) -> Reply {
    let (_, found) = find(&call, &params.agent_id, &params.key, ConversationRight::Read).await?;
    let session = match found {
        Some(session) => row(&call, session).await?,
        None => Value::Null,
    };
    Ok(json!({ "session": session }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct GetParams {
    #[serde(alias = "sessionKey")]
    key: String,
    #[serde(default)]
    agent_id: String,
    limit: Option<usize>,
}

async fn get(call: Call, params: GetParams) -> Reply {
    let (_, found) = find(&call, &params.agent_id, &params.key, ConversationRight::Read).await?;
    let session = found.ok_or_else(|| unknown(&params.key))?;
    let entries = history::entries(&call, session).await?;
    let mut messages = history::messages_of(session, &entries, usize::MAX);
    let first = messages.len().saturating_sub(params.limit.unwrap_or(usize::MAX));
    Ok(json!({ "session": row(&call, session).await?, "messages": messages.split_off(first) }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ResolveParams {
    key: Option<String>,
    session_id: Option<String>,
    label: Option<String>,
    short_id: Option<String>,
    #[serde(default)]
    agent_id: String,
    #[serde(default)]
    allow_missing: bool,
}

async fn resolve(call: Call, params: ResolveParams) -> Reply {
    let ResolveParams { key, session_id, label, short_id, agent_id, allow_missing } = params;
    if let Some(key) = &key {
        let (place, found) = find(&call, &agent_id, key, ConversationRight::Read).await?;
        return match found {
            Some(_) => {
                let key = keys::shown(place.key.as_str());
                Ok(json!({ "ok": true, "key": key, "agentId": place.agent.name.to_string() }))
            }
            None if allow_missing => Ok(json!({ "ok": false })),
            None => Err(unknown(key)),
        };
    }
    let named = session_id.as_ref().or(label.as_ref()).or(short_id.as_ref());
    let Some(named) = named.cloned() else {
        return Err(MethodError::invalid(
            "invalid sessions.resolve params: one of `key`, `sessionId`, `label`, `shortId`",
        ));
    };
    let sessions = all(&call, agent_id).await?;
    let is_meant = |session: &&pb::Session| {
        session_id.as_ref().is_some_and(|id| session.id == *id)
            || label.as_ref().is_some_and(|label| session.label == *label)
            || short_id.as_ref().is_some_and(|id| session.id.ends_with(id.as_str()))
    };
    let found: Vec<&pb::Session> = sessions.iter().filter(is_meant).collect();
    match found.as_slice() {
        [only] => Ok(json!({ "ok": true, "key": keys::shown(&only.key), "agentId": only.agent })),
        [] if allow_missing => Ok(json!({ "ok": false })),
        [] => Err(unknown(&named)),
        several => {
            let candidates = several.iter().map(
                |session| json!({ "key": keys::shown(&session.key), "agentId": session.agent }),
            );
            Ok(json!({ "ok": false, "candidates": candidates.collect::<Vec<_>>() }))
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PreviewParams {
    keys: Vec<String>,
    limit: Option<usize>,
    max_chars: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct BranchesParams {
    session_key: String,
}

/// The one line of messages that a session has.
async fn branches(call: Call, params: BranchesParams) -> Reply {
    let (_, found) = find(&call, "", &params.session_key, ConversationRight::Read).await?;
    let Some(session) = found else { return Ok(json!({ "branches": [] })) };
    let entries = history::entries(&call, session).await?;
    let messages = history::messages_of(session, &entries, usize::MAX);
    let (Some(last), Some(entry)) = (messages.last(), entries.last()) else {
        return Ok(json!({ "branches": [] }));
    };
    Ok(json!({
        "branches": [{
            "leafEntryId": last["id"],
            "headline": last["content"][0]["text"].as_str().unwrap_or_default(),
            "messageCount": messages.len(),
            "updatedAt": entry.created_at.to_string(),
            "active": true,
        }],
    }))
}

async fn preview(call: Call, params: PreviewParams) -> Reply {
    if params.keys.len() > MAX_PREVIEWS {
        return Err(MethodError::invalid(format!(
            "invalid sessions.preview params: keys: {MAX_PREVIEWS} at most"
        )));
    }
    let (limit, max) = (params.limit.unwrap_or(12), params.max_chars.unwrap_or(240));
    let mut previews = Vec::with_capacity(params.keys.len());
    for key in params.keys {
        let (_, found) = find(&call, "", &key, ConversationRight::Read).await?;
        let Some(session) = found else {
            previews.push(json!({ "key": key, "status": "missing", "items": [] }));
            continue;
        };
        let entries = history::entries(&call, session).await?;
        let items = entries.iter().rev().filter_map(|entry| match &entry.entry {
            Entry::Heard { body, .. } if body.event.is_none() => Some(("user", &body.text)),
            Entry::Thought { text, .. } if !text.trim().is_empty() => Some(("assistant", text)),
            Entry::Heard { .. }
            | Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => None,
        });
        let short = |(role, text): (&str, &String)| json!({ "role": role, "text": text.chars().take(max).collect::<String>() });
        let mut items: Vec<Value> = items.take(limit).map(short).collect();
        items.reverse();
        let status = if items.is_empty() { "empty" } else { "ok" };
        previews.push(json!({ "key": key, "status": status, "items": items }));
    }
    Ok(json!({ "ts": now_ms(), "previews": previews }))
}

/// A method without parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// Subscribes to changes of the list of sessions.
async fn subscribe(call: Call, NoParams {}: NoParams) -> Reply {
    call.hub.members().join_list(&call.connection);
    Ok(json!({ "subscribed": true }))
}

async fn unsubscribe(call: Call, NoParams {}: NoParams) -> Reply {
    call.hub.members().leave_list(&call.connection);
    Ok(json!({ "subscribed": false }))
}

async fn subscribe_messages(call: Call, params: KeyParams) -> Reply {
    let place = call.place(&params.agent_id, &params.key, ConversationRight::Read).await?;
    let key = keys::shown(place.key.as_str());
    let mut members = call.hub.members();
    let mut subscriptions = call.connection.subscriptions();
    if !subscriptions.sessions.contains(&key) {
        if subscriptions.sessions.len() >= MAX_SUBSCRIPTIONS {
            return Err(MethodError::invalid(format!(
                "the connection has {MAX_SUBSCRIPTIONS} subscriptions, which is the most: end one"
            )));
        }
        subscriptions.sessions.push(key.clone());
    }
    members.join_session(&key, &call.connection);
    drop((subscriptions, members));
    if call.connection.client.is_session_scoped {
        call.hub.catch_up(&call.connection, Some(&key));
    }
    Ok(json!({ "subscribed": true, "key": key, "agentId": place.agent.name.to_string() }))
}

async fn unsubscribe_messages(call: Call, params: KeyParams) -> Reply {
    let place = call.place(&params.agent_id, &params.key, ConversationRight::Read).await?;
    let key = keys::shown(place.key.as_str());
    let mut members = call.hub.members();
    call.connection.subscriptions().sessions.retain(|known| *known != key);
    members.leave_session(&key, &call.connection);
    drop(members);
    Ok(json!({ "subscribed": false, "key": key }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CreateParams {
    key: Option<String>,
    idempotency_key: Option<String>,
    #[serde(default)]
    agent_id: String,
    label: Option<String>,
    model: Option<String>,
    thinking_level: Option<String>,
    #[serde(alias = "task")]
    message: Option<String>,
    #[serde(default)]
    attachments: Vec<chat::AttachmentParams>,
}

/// Names a new session. It exists once it has its first message.
async fn create(call: Call, params: CreateParams) -> Reply {
    let CreateParams { key, idempotency_key, agent_id, label, model, thinking_level, .. } = params;
    let label = label.filter(|label| !label.trim().is_empty());
    let named = key.unwrap_or_else(|| {
        label.clone().unwrap_or_else(|| format!("chat:{}", Uuid::now_v7().simple()))
    });
    let place = call.place(&agent_id, &named, ConversationRight::Write).await?;
    let key = keys::shown(place.key.as_str());
    let agent = place.agent.name.to_string();
    for (command, value) in [("model", model), ("think", thinking_level)] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            run_command(&call, &place, patch::command(command, &value)?).await?;
        }
    }
    let mut reply = json!({ "ok": true, "key": key, "agentId": agent, "runStarted": false });
    if let Some(message) = params.message.filter(|message| !message.trim().is_empty()) {
        let idempotency_key =
            Some(idempotency_key.unwrap_or_else(|| Uuid::now_v7().simple().to_string()));
        let attachments = params.attachments;
        let options = chat::SendingOptions::default();
        let sending = chat::Sending { place, message, attachments, idempotency_key, options };
        let sent = chat::send_message(&call, sending).await?;
        reply["runStarted"] = true.into();
        reply["runId"] = sent.run.into();
        let session = sent.accepted.accepted.session.to_string();
        reply["sessionId"] = session.as_str().into();
        if label.is_some() {
            patch::update(&call, session, label, None).await?;
        }
    }
    changed(&call, &key, &agent, "create");
    Ok(reply)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SendParams {
    #[serde(alias = "sessionKey")]
    key: String,
    #[serde(default)]
    agent_id: String,
    #[serde(alias = "task")]
    message: String,
    #[serde(default)]
    attachments: Vec<chat::AttachmentParams>,
    idempotency_key: Option<String>,
    thinking: Option<String>,
}

async fn send(call: Call, params: SendParams) -> Reply {
    let SendParams { key, agent_id, message, attachments, idempotency_key, thinking } = params;
    let place = call.place(&agent_id, &key, ConversationRight::Write).await?;
    let options = chat::sending_options(thinking.as_deref(), None)?;
    let idempotency_key =
        Some(idempotency_key.unwrap_or_else(|| Uuid::now_v7().simple().to_string()));
    let sending = chat::Sending { place, message, attachments, idempotency_key, options };
    let sent = chat::send_message(&call, sending).await?;
    Ok(json!({
        "ok": true,
        "runId": sent.run,
        "status": "started",
        "key": sent.key,
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AbortParams {
    #[serde(alias = "sessionKey")]
    key: String,
    run_id: Option<String>,
    #[serde(default)]
    agent_id: String,
}

async fn abort(call: Call, params: AbortParams) -> Reply {
    let aborted = chat::abort_session(&call, &params.agent_id, &params.key).await?;
    let status = if aborted { "aborted" } else { "no-active-run" };
    Ok(json!({ "ok": true, "status": status, "abortedRunId": params.run_id.filter(|_| aborted) }))
}

async fn reset(call: Call, params: KeyParams) -> Reply {
    let place = call.place(&params.agent_id, &params.key, ConversationRight::Write).await?;
    run_command(&call, &place, "/new".to_owned()).await?;
    let key = keys::shown(place.key.as_str());
    let found = call.state().sessions.views().find(call.tenant(), &place.key).await?;
    let entry = row_after_change(&call, found).await?;
    changed(&call, &key, place.agent.name.as_str(), "reset");
    Ok(json!({ "ok": true, "key": key, "entry": entry }))
}

async fn compact(call: Call, params: KeyParams) -> Reply {
    let (place, found) =
        find(&call, &params.agent_id, &params.key, ConversationRight::Write).await?;
    if found.is_none() {
        return Err(unknown(&params.key));
    }
    let answer = run_command(&call, &place, "/compact".to_owned()).await?;
    let key = keys::shown(place.key.as_str());
    changed(&call, &key, place.agent.name.as_str(), "compact");
    Ok(json!({ "ok": true, "key": key, "compacted": true, "reason": answer }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct DeleteParams {
    #[serde(alias = "sessionKey")]
    key: String,
    #[serde(default)]
    agent_id: String,
    expected_session_id: Option<String>,
}

async fn delete(call: Call, params: DeleteParams) -> Reply {
    let (place, found) =
        find(&call, &params.agent_id, &params.key, ConversationRight::Control).await?;
    let key = keys::shown(place.key.as_str());
    let Some(session) = found else {
        return Ok(json!({ "ok": true, "key": key, "deleted": false, "archived": [] }));
    };
    let session = session.to_string();
    if params.expected_session_id.is_some_and(|expected| expected != session) {
        return Err(MethodError::invalid(
            "the session is another one now: list the sessions again",
        ));
    }
    let request = pb::DeleteSessionRequest { session };
    let handler = Handler(call.state().clone());
    rpc!(call, "Sessions/DeleteSession", handler, delete_session, request)?;
    changed(&call, &key, place.agent.name.as_str(), "delete");
    Ok(json!({ "ok": true, "key": key, "deleted": true, "archived": [] }))
}

/// Sends a command to a session and waits for its answer.
async fn run_command(
    call: &Call,
    place: &Destination,
    text: String,
) -> Result<String, MethodError> {
    let inbound =
        InboundMessage { text, session: place.key.to_string(), ..InboundMessage::default() };
    let accepted = call
        .as_method("Messages/Send", async {
            call.service.ingest.accept(&call.caller, inbound).await
        })
        .await?;
    let run = accepted.accepted.message.into();
    // Followed here, so that it is not told as a turn of the conversation.
    let deltas = call.hub.follow(run, accepted.accepted.session);
    let follower = &call.service.follower;
    let followed = match deltas {
        Some(deltas) => follower.follow_accepted_with(
            accepted.tenant,
            &accepted.accepted,
            accepted.runs.clone(),
            deltas,
        ),
        None => {
            let runs = accepted.runs.clone();
            follower.follow_accepted(accepted.tenant, &accepted.accepted, runs).await
        }
    };
    call.service.ingest.notify_runners(&accepted);
    let finished = followed.finish(COMMAND_TIMEOUT).await;
    call.hub.end_run(run, false);
    Ok(finished?.text)
}

/// Tells that a session has changed.
fn changed(call: &Call, key: &str, agent: &str, reason: &str) {
    let payload = json!({ "sessionKey": key, "agentId": agent, "reason": reason, "ts": now_ms() });
    let names = ("sessions.changed", "session.changed");
    call.hub.publish(&Event::new(names, &payload, Audience::SessionList));
}
