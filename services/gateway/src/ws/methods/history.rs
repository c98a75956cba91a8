//! Histories of sessions, from their journals.

use std::collections::HashMap;

use holdfast_session::EntryView;
use holdfast_types::{Entry, Note, SessionId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{call::Call, error::MethodError, keys, runs::usage_of},
    Reply, agents, sessions,
};
use crate::ingest::Destination;
use crate::permissions::rights::ConversationRight;

const DEFAULT_MESSAGES: usize = 200;
const MAX_MESSAGES: usize = 1_000;

/// Entries of a journal that one request reads.
const MAX_ENTRIES: i64 = 2_000;

/// Maximum length of one text of a history, in characters, unless the client asks for another.
const MAX_CHARS: usize = 12_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct HistoryParams {
    session_key: String,
    #[serde(default)]
    agent_id: String,
    limit: Option<usize>,
    offset: Option<usize>,
    /// Position in the journal after which messages are wanted: what was missed.
    cursor: Option<String>,
    /// Message at which the history ends.
    message_id: Option<String>,
    max_chars: Option<usize>,
}

/// A history's part, and the position after it.
struct Page {
    messages: Vec<Value>,
    cursor: i64,
    has_more: bool,
    total: usize,
}

pub async fn history(call: Call, params: HistoryParams) -> Reply {
    if let Some(cursor) = params.cursor.clone() {
        return missed(&call, params, &cursor).await;
    }
    let place = call.place(&params.agent_id, &params.session_key, ConversationRight::Read).await?;
    let session = find(&call, &place).await?;
    let page = read(&call, session, &params).await?;
    let mut reply = json!({
        "sessionKey": keys::shown(place.key.as_str()),
        "sessionId": session.map(|session| session.to_string()),
        "agentId": place.agent.name.to_string(),
        "messages": page.messages,
        "thinkingLevel": "off",
        "verboseLevel": "off",
        "deltaCursor": page.cursor.to_string(),
        "hasMore": page.has_more,
        "totalMessages": page.total,
        "completeSnapshot": !page.has_more,
    });
    if let Some(session) = session {
        let row = sessions::row(&call, session).await?;
        reply["sessionInfo"] = row;
    }
    Ok(reply)
}

/// Messages after a cursor: what a client has missed while it was not connected.
async fn missed(call: &Call, params: HistoryParams, cursor: &str) -> Reply {
    let wrong = || MethodError::invalid("invalid chat.history params: cursor: not a cursor");
    let after: i64 = cursor.parse().map_err(|_| wrong())?;
    let place = call.place(&params.agent_id, &params.session_key, ConversationRight::Read).await?;
    let Some(session) = find(call, &place).await? else { return Ok(json!({ "kind": "reset" })) };
    let entries = entries(call, session).await?;
    let is_gap = entries.first().is_some_and(|entry| entry.seq > after + 1);
    if is_gap && i64::try_from(entries.len()).unwrap_or(i64::MAX) >= MAX_ENTRIES {
        return Ok(json!({ "kind": "reset" }));
    }
    if entries.iter().any(|entry| entry.seq > after && is_reset(&entry.entry)) {
        return Ok(json!({ "kind": "reset" }));
    }
    let cursor = entries.last().map_or(after, |entry| entry.seq);
    let names = call_names(&entries);
    let limit = params.max_chars.unwrap_or(MAX_CHARS);
    let missed = entries.iter().filter(|entry| entry.seq > after);
    let messages: Vec<Value> =
        missed.filter_map(|entry| message_of(entry, &names, limit)).collect();
    Ok(json!({
        "kind": "delta",
        "messages": messages,
        "deltaCursor": cursor.to_string(),
        "sessionInfo": sessions::row(call, session).await?,
    }))
}

pub async fn startup(call: Call, params: HistoryParams) -> Reply {
    let agent = params.agent_id.clone();
    let key = params.session_key.clone();
    let mut reply = history(call.clone(), params).await?;
    reply["agentsList"] = agents::listed(&call).await?;
    let place = call.place(&agent, &key, ConversationRight::Read).await?;
    reply["metadata"] = metadata_of(&call, &place).await?;
    Ok(reply)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct MetadataParams {
    #[serde(default)]
    agent_id: String,
    #[serde(default)]
    session_key: String,
}

pub async fn metadata(call: Call, params: MetadataParams) -> Reply {
    let place = call.place(&params.agent_id, &params.session_key, ConversationRight::Read).await?;
    metadata_of(&call, &place).await
}

async fn metadata_of(call: &Call, place: &Destination) -> Reply {
    Ok(json!({
        "sessionKey": keys::shown(place.key.as_str()),
        "agentId": place.agent.name.to_string(),
        "models": super::models::choices(call).await?,
        "commands": super::commands::entries(),
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct MessageParams {
    session_key: String,
    #[serde(default)]
    agent_id: String,
    message_id: String,
    max_chars: Option<usize>,
}

/// One message, whole.
pub async fn message(call: Call, params: MessageParams) -> Reply {
    let place = call.place(&params.agent_id, &params.session_key, ConversationRight::Read).await?;
    let Some(session) = find(&call, &place).await? else {
        return Ok(json!({ "ok": false, "unavailableReason": "not_found" }));
    };
    let entries = entries(&call, session).await?;
    let names = call_names(&entries);
    let limit = params.max_chars.unwrap_or(usize::MAX);
    let found = entries
        .iter()
        .find(|entry| entry_id(session, entry.seq) == params.message_id)
        .and_then(|entry| message_of(entry, &names, limit));
    Ok(match found {
        Some(message) => json!({ "ok": true, "message": message }),
        None => json!({ "ok": false, "unavailableReason": "not_found" }),
    })
}

async fn find(call: &Call, place: &Destination) -> Result<Option<SessionId>, MethodError> {
    Ok(call.state().sessions.views().find(call.tenant(), &place.key).await?)
}

/// The newest entries of a session.
pub async fn entries(call: &Call, session: SessionId) -> Result<Vec<EntryView>, MethodError> {
    call.as_method("Sessions/GetHistory", async {
        let views = call.state().sessions.views();
        Ok(views.history(call.tenant(), session, MAX_ENTRIES, None).await?)
    })
    .await
}

async fn read(
    call: &Call,
    session: Option<SessionId>,
    params: &HistoryParams,
) -> Result<Page, MethodError> {
    let Some(session) = session else {
        return Ok(Page { messages: Vec::new(), cursor: 0, has_more: false, total: 0 });
    };
    let entries = entries(call, session).await?;
    let cursor = entries.last().map_or(0, |entry| entry.seq);
    let mut messages = messages_of(session, &entries, params.max_chars.unwrap_or(MAX_CHARS));
    if let Some(id) = &params.message_id {
        let end = messages.iter().position(|message| message["__openclaw"]["id"] == **id);
        messages.truncate(end.map_or(messages.len(), |end| end + 1));
    }
    let total = messages.len();
    messages.truncate(total.saturating_sub(params.offset.unwrap_or(0)));
    let limit = params.limit.unwrap_or(DEFAULT_MESSAGES).clamp(1, MAX_MESSAGES);
    let first = messages.len().saturating_sub(limit);
    Ok(Page { messages: messages.split_off(first), cursor, has_more: first > 0, total })
}

/// Messages of a journal since the conversation began.
pub fn messages_of(session: SessionId, entries: &[EntryView], max_chars: usize) -> Vec<Value> {
    let names = call_names(entries);
    let began = entries.iter().rposition(|entry| is_reset(&entry.entry));
    let since = entries.get(began.map_or(0, |at| at + 1)..).unwrap_or_default();
    let messages = since.iter().filter_map(|entry| {
        let mut message = message_of(entry, &names, max_chars)?;
        message["__openclaw"] = json!({ "id": entry_id(session, entry.seq), "seq": entry.seq });
        Some(message)
    });
    messages.collect()
}

fn entry_id(session: SessionId, seq: i64) -> String {
    format!("{}:{seq}", session.as_uuid().simple())
}

const fn is_reset(entry: &Entry) -> bool {
    matches!(entry, Entry::Noted { note: Note::Reset, .. })
}

/// Tools of calls, by the id of the call.
fn call_names(entries: &[EntryView]) -> HashMap<&str, &str> {
    let calls = entries.iter().filter_map(|entry| match &entry.entry {
        Entry::Thought { calls, .. } => Some(calls),
        Entry::Heard { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    });
    calls.flatten().map(|call| (call.id.as_str(), call.tool.as_str())).collect()
}

/// A message as clients show it; `None` for an entry that is none.
fn message_of(entry: &EntryView, names: &HashMap<&str, &str>, max_chars: usize) -> Option<Value> {
    let at = entry.created_at.as_millisecond();
    Some(match &entry.entry {
        Entry::Heard { body, .. }
            if body.event.is_none() && !body.text_and_recordings().is_empty() =>
        {
            let role = body.role.as_deref().unwrap_or("user");
            json!({
                "role": role,
                "content": [{
                    "type": "text",
                    "text": cut(&body.text_and_recordings(), max_chars),
                }],
                "timestamp": at,
            })
        }
        Entry::Thought { text, calls, usage, model, .. } => {
            let mut content = Vec::new();
            if !text.trim().is_empty() {
                content.push(json!({ "type": "text", "text": cut(text, max_chars) }));
            }
            content.extend(calls.iter().map(|call| {
                let arguments: Value = serde_json::from_str(&call.input).unwrap_or_default();
                json!({
                    "type": "toolCall",
                    "id": call.id,
                    "name": call.tool,
                    "arguments": arguments,
                })
            }));
            let (provider, name) = model.split_once(':').unwrap_or(("", model));
            json!({
                "role": "assistant",
                "content": content,
                "timestamp": at,
                "provider": provider,
                "model": name,
                "usage": usage_of(*usage),
                "stopReason": if calls.is_empty() { "stop" } else { "toolUse" },
            })
        }
        Entry::Returned { call, output, failed, .. } => json!({
            "role": "toolResult",
            "toolCallId": call,
            "toolName": names.get(call.as_str()).copied().unwrap_or_default(),
            "content": [{ "type": "text", "text": cut(output, max_chars) }],
            "isError": failed,
            "timestamp": at,
        }),
        Entry::Noted { note: Note::Failed, text, .. } => json!({
            "role": "assistant",
            "content": [],
            "stopReason": "error",
            "errorMessage": cut(text, max_chars),
            "timestamp": at,
        }),
        Entry::Noted { note: Note::Command, text, .. } => json!({
            "role": "assistant",
            "content": [{ "type": "text", "text": cut(text, max_chars) }],
            "stopReason": "stop",
            "timestamp": at,
        }),
        Entry::Heard { .. } | Entry::Called { .. } | Entry::Noted { .. } => return None,
    })
}

/// Cuts a text to a number of characters.
fn cut(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => {
            format!("{}\n...(truncated)...", text.get(..end).unwrap_or_default())
        }
        None => text.to_owned(),
    }
}
