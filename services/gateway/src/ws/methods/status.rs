//! State of the gateway and the tenant: `health`, `status`, `system-presence`, `last-heartbeat`.

use std::sync::Arc;

use holdfast_proto::gateway::v1::{
    self as pb, heartbeats_server::Heartbeats as _, operations_server::Operations as _,
};
use serde_json::{Value, json};

use super::{
    super::{
        call::{Call, rpc},
        connection::now_ms,
        keys, snapshot,
        snapshot::millis,
    },
    Method, READ, Reply, method, sessions,
    sessions::NoParams,
};
use crate::control::{heartbeats::Heartbeats, operations};

pub const METHODS: &[Method] = &[
    method!("health", None, health, ["probe", "includeSensitive"]),
    method!("status", READ, status, ["includeChannelSummary", "verbose", "deep", "probe"]),
    method!("system-presence", READ, presence),
    method!("last-heartbeat", READ, last_heartbeat),
    method!("gateway.identity.get", READ, identity),
];

/// Sessions that a status shows.
const RECENT_SESSIONS: usize = 10;

async fn health(call: Call, NoParams {}: NoParams) -> Reply {
    Ok(snapshot::health(&call.service, &call.caller, call.connection.grants).await)
}

async fn status(call: Call, NoParams {}: NoParams) -> Reply {
    let handler = operations::Handler(call.state().clone());
    let request = pb::GetStatusRequest {};
    let state = rpc!(call, "Operations/GetStatus", handler, get_status, request)?;
    let mut sessions = sessions::all(&call, String::new()).await?;
    sessions.sort_by_key(|session| std::cmp::Reverse(millis(session.updated_at.as_ref())));
    let now = now_ms();
    let recent: Vec<Value> = sessions
        .iter()
        .take(RECENT_SESSIONS)
        .map(|session| {
            let updated = millis(session.updated_at.as_ref());
            let usage = session.usage.unwrap_or_default();
            json!({
                "agentId": session.agent,
                "key": keys::shown(&session.key),
                "kind": "direct",
                "sessionId": session.id,
                "updatedAt": updated,
                "age": now - updated,
                "inputTokens": usage.input_tokens,
                "outputTokens": usage.output_tokens,
                "totalTokens": usage.input_tokens + usage.output_tokens,
                "totalTokensFresh": true,
                "flags": [],
            })
        })
        .collect();
    let routing = call.state().directory.routing().get(call.tenant()).await?;
    let heartbeats: Vec<Value> = routing
        .agents()
        .iter()
        .map(|agent| {
            let heartbeat = &agent.settings.heartbeat;
            json!({
                "agentId": agent.name.to_string(),
                "enabled": heartbeat.enabled,
                "every": heartbeat.every,
                "everyMs": null,
            })
        })
        .collect();
    Ok(json!({
        "runtimeVersion": state.version,
        "tenant": state.tenant,
        "heartbeat": {
            "defaultAgentId": routing.default_agent().name.to_string(),
            "agents": heartbeats,
        },
        "channelSummary": [],
        "queuedSystemEvents": [],
        "tasks": { "total": 0, "active": 0, "terminal": 0, "failures": 0, "byStatus": {}, "byRuntime": {} },
        "taskAudit": { "total": 0, "warnings": 0, "errors": 0, "byCode": {} },
        "waitingMessages": state.waiting_messages,
        "deadLetters": state.dead_letters,
        "deliveries": state.deliveries,
        "sessions": {
            "paths": [],
            "count": sessions.len(),
            "defaults": { "model": null, "contextTokens": null },
            "recent": recent,
            "byAgent": [],
            "states": state.sessions,
        },
    }))
}

async fn presence(call: Call, NoParams {}: NoParams) -> Reply {
    Ok(snapshot::presence(&call.service, &Arc::clone(&call.connection)).into())
}

async fn last_heartbeat(call: Call, NoParams {}: NoParams) -> Reply {
    let handler = Heartbeats(call.state().clone());
    let request = pb::ListHeartbeatEventsRequest { limit: 1, ..Default::default() };
    let listed =
        rpc!(call, "Heartbeats/ListHeartbeatEvents", handler, list_heartbeat_events, request)?;
    Ok(listed.events.first().map_or(Value::Null, |event| {
        json!({
            "ts": event.ts,
            "status": event.status,
            "to": event.to,
            "preview": event.preview,
            "durationMs": event.duration_ms,
            "hasMedia": event.has_media,
            "reason": event.reason,
            "channel": event.channel,
            "silent": event.silent,
            "indicatorType": event.indicator_type,
        })
    }))
}

async fn identity(call: Call, NoParams {}: NoParams) -> Reply {
    Ok(json!({ "id": call.service.boot_id().to_string(), "name": "Holdfast" }))
}
