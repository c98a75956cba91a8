//! Handshake of LurkBot's protocol, version 1.

use std::sync::Arc;

use holdfast_grpc::Caller;
use holdfast_types::{Fault as _, Kind};
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Service,
    connection::{ClientInfo, Connection, NewConnection, Protocol},
    error::{ErrorKind, MethodError},
    events::LURKBOT_EVENTS,
    handshake::{AcceptedClient, Refusal, credential},
    methods,
    queue::CloseReason,
    snapshot,
};

/// Version of the protocol.
const PROTOCOL_VERSION: u32 = 1;

/// Version of the server that the protocol prescribes.
const SERVER_VERSION: &str = "0.1.0";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Hello {
    #[serde(rename = "type")]
    _kind: String,
    min_protocol: u32,
    max_protocol: u32,
    client: Client,
    #[serde(default, rename = "caps")]
    _caps: Vec<String>,
    #[serde(default)]
    auth: Auth,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Client {
    id: String,
    display_name: Option<String>,
    version: String,
    platform: String,
    mode: Mode,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    App,
    Web,
    Cli,
}

impl Mode {
    const fn as_str(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Web => "web",
            Self::Cli => "cli",
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Auth {
    token: Option<String>,
    password: Option<String>,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth").finish_non_exhaustive()
    }
}

/// Verifies the first frame of a client.
///
/// # Errors
///
/// The answer to a client that is not let in.
pub async fn hello(service: &Service, frame: Value) -> Result<AcceptedClient, Refusal> {
    let refuse = |error: &MethodError, reason| Refusal {
        frame: Some(refusal("hello", error)),
        closing: CloseReason { code: 1008, reason },
    };
    let hello: Hello = serde_path_to_error::deserialize(frame).map_err(|error| {
        refuse(&MethodError::invalid(format!("invalid hello: {error}")), "invalid hello")
    })?;
    if !(hello.min_protocol..=hello.max_protocol).contains(&PROTOCOL_VERSION) {
        let error = format!(
            "the protocol is version {PROTOCOL_VERSION}, and the client speaks {} to {}",
            hello.min_protocol, hello.max_protocol
        );
        return Err(refuse(&MethodError::invalid(error), "protocol mismatch"));
    }
    let Auth { token, password } = hello.auth;
    let Some(credential) = credential(token, password) else {
        let error = MethodError::new(
            ErrorKind::NotPaired,
            "no credential: send `auth.token` or `auth.password`, a key of Holdfast",
        );
        return Err(refuse(&error, "no credential"));
    };
    let identity = match service.doorman.identify(credential.expose_secret()).await {
        Ok(identity) if identity.device.is_some() => {
            let error = MethodError::new(
                ErrorKind::NotPaired,
                "the token of a device needs its signature, which this protocol does not have: send \
                 a key of Holdfast",
            );
            return Err(refuse(&error, "unauthorized"));
        }
        Ok(identity) => identity,
        Err(error) if error.kind() == Kind::Unauthenticated => {
            let error = MethodError::new(ErrorKind::NotPaired, error.to_string());
            return Err(refuse(&error, "unauthorized"));
        }
        Err(error) => return Err(refuse(&error.into(), "the credential cannot be verified now")),
    };
    let client = ClientInfo {
        id: hello.client.id,
        display_name: hello.client.display_name,
        version: hello.client.version,
        platform: hello.client.platform,
        mode: hello.client.mode.as_str().to_owned(),
        wants_tools: true,
        ..ClientInfo::default()
    };
    let new = NewConnection {
        tenant: identity.caller.tenant,
        protocol: Protocol::LurkBot,
        grants: identity.grants,
        client,
        credential,
        handshake_id: "hello".to_owned(),
    };
    Ok(AcceptedClient { identity, new, pairing: None })
}

/// Frame that refuses a handshake.
pub fn refusal(id: &str, error: &MethodError) -> String {
    json!({ "type": "response", "id": id, "error": error.lurkbot() }).to_string()
}

/// First frame that a client is sent.
pub async fn hello_ok(service: &Service, caller: &Caller, connection: &Arc<Connection>) -> String {
    json!({
        "type": "hello-ok",
        "protocol": PROTOCOL_VERSION,
        "server": { "version": SERVER_VERSION, "connId": connection.id.to_string() },
        "features": {
            "methods": methods::names(connection.protocol, connection.grants),
            "events": LURKBOT_EVENTS,
        },
        "snapshot": snapshot::lurkbot(service, caller, connection.grants).await,
    })
    .to_string()
}
