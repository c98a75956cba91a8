//! State that a client gets with its handshake, filtered by what it may read.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use holdfast_directory::DeviceRequest;
use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{
    self as pb, channels_server::Channels as _, schedules_server::Schedules as _,
    sessions_server::Sessions as _,
};
use serde_json::{Value, json};
use tonic::{Request, Response};

use super::{
    Service,
    connection::{Connection, now_ms},
    events::{Audience, Event},
    keys,
};
use crate::{
    control::{accounts::Channels, keys::devices::request_of, sessions},
    permissions::operator_scopes::{Grants, OperatorScope},
};

/// Sessions and jobs in a snapshot.
const SNAPSHOT_ITEMS: u32 = 50;

/// Clients that are shown. A tenant may have thousands.
const MAX_PRESENCE: usize = 100;

/// Clients of the tenant that are connected to this process, at most a hundred; the asking one is
/// the last, and the only one if it may not read.
pub fn presence(service: &Service, connection: &Arc<Connection>) -> Vec<Value> {
    let mut known = match connection.grants.has(OperatorScope::Read) {
        true => service.hubs().connections_of(connection.tenant),
        false => Vec::new(),
    };
    known.retain(|other| other.id != connection.id);
    known.truncate(MAX_PRESENCE - 1);
    known.push(Arc::clone(connection));
    known.iter().map(|connection| presence_of(connection)).collect()
}

/// A connected client, as others of its tenant see it.
pub fn presence_of(connection: &Connection) -> Value {
    let client = &connection.client;
    let mut entry = json!({
        "host": client.display_name.as_deref().unwrap_or(&client.id),
        "version": client.version,
        "platform": client.platform,
        "mode": client.mode,
        "reason": "connect",
        "text": format!("{} ({})", client.display_name.as_deref().unwrap_or(&client.id), client.mode),
        "ts": connection.heard_at(),
        "onlineSince": connection.connected_at,
        "roles": ["operator"],
        "scopes": connection.grants.names(),
    });
    if let Some(device) = connection.device_id() {
        entry["deviceId"] = device.into();
    }
    if let Some(instance) = &client.instance {
        entry["instanceId"] = instance.as_str().into();
    }
    entry
}

/// Event that tells of a device's request.
pub fn pairing_requested(request: DeviceRequest) -> Event {
    let audience = Audience::Pairing { device: request.profile.id.clone() };
    let payload = device_request(&request_of(request));
    Event::new(("device.pair.requested", ""), &payload, audience)
}

/// A device's request to be paired, as clients show it.
pub fn device_request(request: &pb::DeviceRequest) -> Value {
    let mut row = request.device.as_ref().map(device_profile).unwrap_or_default();
    row["requestId"] = request.id.as_str().into();
    row["silent"] = false.into();
    row["isRepair"] = request.paired.into();
    row["ts"] = millis(request.requested_at.as_ref()).into();
    row
}

/// What clients show of a device, whether it is paired or not.
pub fn device_profile(device: &pb::Device) -> Value {
    let mut row = json!({
        "deviceId": device.id,
        "publicKey": URL_SAFE_NO_PAD.encode(&device.public_key),
        "role": "operator",
        "roles": ["operator"],
        "scopes": device.scopes,
    });
    for (field, text) in [
        ("displayName", &device.name),
        ("platform", &device.platform),
        ("deviceFamily", &device.family),
        ("clientId", &device.client_id),
        ("clientMode", &device.client_mode),
    ] {
        if !text.is_empty() {
            row[field] = text.as_str().into();
        }
    }
    row
}

/// Health of the gateway and the tenant's agents, for the first frame of a connection. It asks the
/// database for nothing that is not cached: many clients connect at once after a restart.
pub async fn brief_health(service: &Service, caller: &Caller, grants: Grants) -> Value {
    let mut health = json!({
        "ok": true,
        "ts": now_ms(),
        "channels": {},
        "channelOrder": [],
        "channelLabels": {},
        "heartbeatSeconds": 0,
        "sessions": { "path": "", "count": 0, "recent": [] },
        "agents": [],
    });
    if !grants.has(OperatorScope::Read) {
        return health;
    }
    if let Ok(routing) = service.state.directory.routing().get(caller.tenant).await {
        let agents = routing.agents().iter().map(|agent| {
            json!({
                "agentId": agent.name.to_string(),
                "isDefault": agent.is_default,
                "heartbeat": {
                    "enabled": agent.settings.heartbeat.enabled,
                    "every": agent.settings.heartbeat.every,
                    "everyMs": null,
                    "prompt": "",
                    "target": "last",
                    "ackMaxChars": agent.settings.heartbeat.ack_max_chars,
                },
                "sessions": { "path": "", "count": 0, "recent": [] },
            })
        });
        health["agents"] = agents.collect();
        health["defaultAgentId"] = routing.default_agent().name.to_string().into();
    }
    health
}

/// Health of the gateway, as the tenant may know it.
pub async fn health(service: &Service, caller: &Caller, grants: Grants) -> Value {
    let began = now_ms();
    let mut health = brief_health(service, caller, grants).await;
    if !grants.has(OperatorScope::Read) {
        return health;
    }
    let sessions = sessions(service, caller).await.sessions;
    let recent = sessions.iter().map(|session| {
        let updated = millis(session.updated_at.as_ref());
        json!({ "key": keys::shown(&session.key), "updatedAt": updated, "age": began - updated })
    });
    let recent: Vec<Value> = recent.collect();
    health["sessions"] = json!({ "path": "", "count": recent.len(), "recent": recent });
    for account in channels(service, caller).await {
        let (channel, name) = (account.channel.as_str(), account.name.as_str());
        health["channelLabels"][channel] = channel.into();
        let state = json!({
            "configured": true,
            "enabled": account.enabled,
            "linked": account.enabled,
            "running": account.enabled,
            "accountId": name,
        });
        health["channels"][channel]["accounts"][name] = state.clone();
        if let Value::Object(channel) = &mut health["channels"][channel] {
            channel.extend(state.as_object().cloned().unwrap_or_default());
        }
        if let Value::Array(order) = &mut health["channelOrder"]
            && !order.iter().any(|known| known == channel)
        {
            order.push(channel.into());
        }
    }
    health["durationMs"] = (now_ms() - began).into();
    health
}

/// Snapshot of LurkBot's protocol. `sessions.list` and `cron.list` go on from its cursors, which
/// are null if nothing follows.
pub async fn lurkbot(service: &Service, caller: &Caller, grants: Grants) -> Value {
    if !grants.has(OperatorScope::Read) {
        return json!({
            "sessions": [], "sessionsCursor": null,
            "cronJobs": [], "cronJobsCursor": null,
            "channels": [],
        });
    }
    let listed = sessions(service, caller).await;
    let sessions: Vec<Value> = listed
        .sessions
        .iter()
        .map(|session| {
            json!({
                "key": keys::shown(&session.key),
                "sessionId": session.id,
                "agentId": session.agent,
                "updatedAt": millis(session.updated_at.as_ref()),
            })
        })
        .collect();
    let request = pb::ListJobsRequest { limit: SNAPSHOT_ITEMS, ..Default::default() };
    let jobs = service.schedules.list_jobs(by(caller, request)).await;
    let listed_jobs = jobs.map(Response::into_inner).unwrap_or_default();
    let jobs: Vec<Value> = listed_jobs
        .jobs
        .iter()
        .map(|job| json!({ "id": job.id, "name": job.name, "enabled": job.state == "active" }))
        .collect();
    let channels: Vec<Value> = channels(service, caller)
        .await
        .iter()
        .map(|account| {
            json!({ "channel": account.channel, "name": account.name, "enabled": account.enabled })
        })
        .collect();
    json!({
        "sessions": sessions, "sessionsCursor": cursor(listed.next_page_token),
        "cronJobs": jobs, "cronJobsCursor": cursor(listed_jobs.next),
        "channels": channels,
    })
}

/// Cursor of the next page, as clients get it; null at the end of a list.
pub fn cursor(token: String) -> Value {
    if token.is_empty() { Value::Null } else { token.into() }
}

async fn sessions(service: &Service, caller: &Caller) -> pb::ListSessionsResponse {
    let request = pb::ListSessionsRequest { limit: SNAPSHOT_ITEMS, ..Default::default() };
    let handler = sessions::Handler(service.state.clone());
    let listed = handler.list_sessions(by(caller, request)).await;
    listed.map(Response::into_inner).unwrap_or_default()
}

async fn channels(service: &Service, caller: &Caller) -> Vec<pb::Account> {
    let handler = Channels(service.state.clone());
    let listed = handler.list_accounts(by(caller, pb::ListAccountsRequest::default())).await;
    listed.map(|listed| listed.into_inner().accounts).unwrap_or_default()
}

fn by<T>(caller: &Caller, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(caller.clone());
    request
}

/// Unix milliseconds of a time; 0 if there is none.
pub fn millis(at: Option<&prost_types::Timestamp>) -> i64 {
    at.map_or(0, |at| at.seconds.saturating_mul(1_000) + i64::from(at.nanos / 1_000_000))
}
