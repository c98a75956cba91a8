//! Handshake of OpenClaw's protocol, versions 3 and 4.

mod device;
pub mod pairing;

use std::sync::Arc;

use holdfast_directory::Directory;
use holdfast_grpc::Caller;
use holdfast_types::{Fault as _, Kind, SessionKey};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use self::{device::DeviceIdentity, pairing::Pairing};
use super::{
    Service,
    connection::{ClientInfo, Connection, NewConnection, Protocol, now_ms},
    error::MethodError,
    events::OPENCLAW_EVENTS,
    handshake::{AcceptedClient, Refusal, credential},
    keys, methods,
    queue::CloseReason,
    request::response,
    snapshot,
};
use crate::{Error, auth::CredentialHolder, ingest::named_destination};

/// Versions of the protocol that are spoken.
const VERSIONS: std::ops::RangeInclusive<u32> = 3..=4;

/// Capabilities of the server that clients ask for.
const CAPABILITIES: &[&str] =
    &["published-model-catalog", "session-scoped-chat-metadata", "session-scoped-model-catalog"];

/// Challenge of one connection, which a device signs.
#[derive(Debug)]
pub struct Challenge {
    nonce: String,
    at: i64,
}

impl Challenge {
    pub fn new() -> Self {
        Self { nonce: Uuid::new_v4().to_string(), at: now_ms() }
    }

    pub fn frame(&self) -> String {
        let payload = json!({ "nonce": self.nonce, "ts": self.at });
        json!({ "type": "event", "event": "connect.challenge", "payload": payload }).to_string()
    }
}

/// First request of a client. Fields that a newer client adds are ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConnectParams {
    min_protocol: u32,
    max_protocol: u32,
    client: Client,
    #[serde(default)]
    caps: Vec<String>,
    role: Option<String>,
    scopes: Option<Vec<String>>,
    device: Option<DeviceIdentity>,
    #[serde(default)]
    auth: Auth,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Client {
    id: String,
    display_name: Option<String>,
    version: String,
    platform: String,
    device_family: Option<String>,
    mode: String,
    instance_id: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Auth {
    token: Option<String>,
    password: Option<String>,
    device_token: Option<String>,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth").finish_non_exhaustive()
    }
}

#[derive(Debug, Deserialize)]
struct ConnectFrame {
    id: String,
    method: String,
    #[serde(default)]
    params: Value,
}

/// Verifies the first request of a client. With the `session` of the console it needs no credential
/// of its own.
///
/// # Errors
///
/// The answer to a client that is not let in.
pub async fn connect(
    service: &Service,
    frame: Value,
    (challenge, session): (&Challenge, Option<&SecretString>),
) -> Result<AcceptedClient, Refusal> {
    let frame: ConnectFrame = serde_path_to_error::deserialize(frame).map_err(|_| Refusal {
        frame: None,
        closing: CloseReason { code: 1008, reason: "invalid request frame" },
    })?;
    let refuse = |(error, reason): (MethodError, &'static str)| Refusal {
        frame: Some(refusal(&frame.id, &error)),
        closing: CloseReason { code: 1008, reason },
    };
    if frame.method != "connect" {
        let error = MethodError::invalid("invalid handshake: first request must be connect");
        return Err(refuse((error, "the first request must be `connect`")));
    }
    let invalid = |error: MethodError| refuse((error, "invalid connect params"));
    let params: ConnectParams =
        serde_path_to_error::deserialize(frame.params).map_err(|error| {
            invalid(MethodError::invalid(format!("invalid connect params: {error}")))
        })?;
    if session.is_some() && params.device.is_some() {
        let message = "a device connects at `/ws`, with a credential of its own";
        return Err(invalid(MethodError::invalid(message)));
    }
    accept(service, params, (challenge, session), &frame.id).await.map_err(refuse)
}

async fn accept(
    service: &Service,
    params: ConnectParams,
    (challenge, session): (&Challenge, Option<&SecretString>),
    frame: &str,
) -> Result<AcceptedClient, (MethodError, &'static str)> {
    let version = negotiate(&params)?;
    let role = params.role.as_deref().unwrap_or("operator");
    if role != "operator" {
        let message = format!("the role `{role}` is not served: connect as `operator`");
        return Err((MethodError::invalid(message), "invalid role"));
    }
    if let Some(device) = &params.device {
        let token = params.auth.token.as_deref().filter(|token| !token.is_empty());
        let signed = device::SignedFields {
            client: &params.client.id,
            mode: &params.client.mode,
            role,
            scopes: params.scopes.as_deref().unwrap_or_default(),
            token: token.or(params.auth.device_token.as_deref()).unwrap_or_default(),
            platform: &params.client.platform,
            family: params.client.device_family.as_deref().unwrap_or_default(),
        };
        device.verify(&signed, &challenge.nonce, now_ms())?;
    }
    let (identity, credential) = match session {
        Some(session) => (identify_session(service, session).await?, session.clone()),
        None => identify(service, params.auth, params.device.as_ref()).await?,
    };
    let pairing = params.device.as_ref();
    let pairing =
        pairing.and_then(|device| Pairing::new(device, &params.client, params.scopes.as_deref()));
    let wants = |cap: &str| params.caps.iter().any(|given| given == cap);
    let client = ClientInfo {
        id: params.client.id,
        display_name: params.client.display_name,
        version: params.client.version,
        platform: params.client.platform,
        mode: params.client.mode,
        instance: params.client.instance_id,
        device: pairing.as_ref().map(|pairing| Box::new(pairing.profile.clone())),
        wants_tools: wants("tool-events"),
        is_session_scoped: wants("session-scoped-events"),
    };
    let new = NewConnection {
        tenant: identity.caller.tenant,
        protocol: Protocol::OpenClaw(version),
        grants: identity.grants.limit_to(params.scopes.as_deref()),
        client,
        credential,
        handshake_id: frame.to_owned(),
    };
    Ok(AcceptedClient { identity, new, pairing })
}

/// Verifies the session of the console.
async fn identify_session(
    service: &Service,
    session: &SecretString,
) -> Result<CredentialHolder, (MethodError, &'static str)> {
    let found = service.doorman.identify(session.expose_secret()).await;
    found.map_err(|error| refused(error, true, false))
}

/// Verifies the credential of a handshake: a token or a password, or else the token of the device.
async fn identify(
    service: &Service,
    auth: Auth,
    device: Option<&DeviceIdentity>,
) -> Result<(CredentialHolder, SecretString), (MethodError, &'static str)> {
    let Auth { token, password, device_token } = auth;
    let is_token = token.is_some();
    let own = credential(device_token, None);
    let Some(first) = credential(token, password).or_else(|| own.clone()) else {
        let error =
            unauthorized("AUTH_TOKEN_MISSING", "gateway token missing: send a key of Holdfast");
        return Err((error, "unauthorized: gateway token missing"));
    };
    let mut used = first;
    let mut found = service.doorman.identify(used.expose_secret()).await;
    if let (Err(error), Some(own)) = (&found, own)
        && error.kind() == Kind::Unauthenticated
    {
        used = own;
        found = service.doorman.identify(used.expose_secret()).await;
    }
    let is_of_device = Directory::is_device_token(used.expose_secret());
    let identity = match found {
        Ok(identity) => identity,
        Err(error) if is_of_device && error.kind() == Kind::Unauthenticated => {
            return Err(device_token_mismatch("it was revoked, rotated, or is not known"));
        }
        Err(error) => return Err(refused(error, is_token, device.is_some())),
    };
    // A token that was copied is worth nothing without the key of its device.
    if identity.device.is_some() && identity.device.as_ref() != device.map(|device| &device.id) {
        return Err(device_token_mismatch("it is of another device than the one that connects"));
    }
    Ok((identity, used))
}

fn device_token_mismatch(why: &str) -> (MethodError, &'static str) {
    let message = format!("device token mismatch: {why}");
    (unauthorized("AUTH_DEVICE_TOKEN_MISMATCH", &message), "unauthorized: device token mismatch")
}

fn negotiate(params: &ConnectParams) -> Result<u32, (MethodError, &'static str)> {
    let ConnectParams { min_protocol, max_protocol, .. } = *params;
    let version = max_protocol.min(*VERSIONS.end());
    if version >= min_protocol && VERSIONS.contains(&version) {
        return Ok(version);
    }
    let details = json!({
        "code": "PROTOCOL_MISMATCH",
        "expectedProtocol": VERSIONS.end(),
        "minimumProtocol": VERSIONS.start(),
        "clientMinProtocol": min_protocol,
        "clientMaxProtocol": max_protocol,
    });
    Err((MethodError::invalid("protocol mismatch").with_details(details), "protocol mismatch"))
}

/// Refusal of a credential.
fn refused(error: Error, is_token: bool, has_device: bool) -> (MethodError, &'static str) {
    if error.kind() != Kind::Unauthenticated {
        return (error.into(), "the credential cannot be verified now");
    }
    let code = if is_token { "AUTH_TOKEN_MISMATCH" } else { "AUTH_PASSWORD_MISMATCH" };
    let mut refusal = unauthorized(code, &error.to_string());
    if let Some(details) = &mut refusal.details {
        details["canRetryWithDeviceToken"] = has_device.into();
    }
    (refusal, "unauthorized")
}

fn unauthorized(code: &str, why: &str) -> MethodError {
    let details = json!({
        "code": code,
        "canRetryWithDeviceToken": false,
        "recommendedNextStep": "update_auth_credentials",
    });
    MethodError::invalid(format!("unauthorized: {why}")).with_details(details)
}

/// Frame that refuses a handshake.
pub fn refusal(id: &str, error: &MethodError) -> String {
    response(Protocol::OpenClaw(*VERSIONS.end()), id, Err(error.clone()))
}

/// First frame that a client is sent.
pub async fn hello_ok(
    service: &Service,
    caller: &Caller,
    connection: &Arc<Connection>,
    (frame, device_token): (&str, Option<SecretString>),
) -> String {
    let Protocol::OpenClaw(version) = connection.protocol else { return String::new() };
    let config = service.settings();
    let routing = service.state.directory.routing().get(caller.tenant).await;
    let main = routing
        .as_ref()
        .ok()
        .and_then(|routing| named_destination(routing, caller, "", "").ok().map(|place| place.key));
    let agent = routing.map(|routing| routing.default_agent().name.clone()).unwrap_or_default();
    let main = main.unwrap_or_else(|| SessionKey::main(&agent));
    let tick = u64::try_from(config.tick_interval.as_millis()).unwrap_or(u64::MAX);
    let mut payload = json!({
        "type": "hello-ok",
        "protocol": version,
        "server": {
            "version": env!("CARGO_PKG_VERSION"),
            "connId": connection.id.to_string(),
            "bootId": service.boot_id().to_string(),
        },
        "features": {
            "methods": methods::names(connection.protocol, connection.grants),
            "events": OPENCLAW_EVENTS,
            "capabilities": CAPABILITIES,
        },
        "snapshot": {
            "presence": snapshot::presence(service, connection),
            "health": snapshot::brief_health(service, caller, connection.grants).await,
            "stateVersion": { "presence": 1, "health": 1 },
            "uptimeMs": service.uptime_ms(),
            "authMode": "token",
            "sessionDefaults": {
                "defaultAgentId": agent.to_string(),
                "modelConfigured": true,
                "mainKey": "main",
                "mainSessionKey": keys::shown(main.as_str()),
                "scope": "per-sender",
            },
        },
        "auth": { "role": "operator", "scopes": connection.grants.names() },
        "policy": {
            "maxPayload": config.max_payload,
            "maxBufferedBytes": config.send_buffer,
            "tickIntervalMs": tick,
        },
    });
    if let Some(token) = device_token {
        payload["auth"]["deviceToken"] = token.expose_secret().into();
        payload["auth"]["issuedAtMs"] = now_ms().into();
    }
    response(connection.protocol, frame, Ok(payload))
}
