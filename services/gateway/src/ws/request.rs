//! Requests of a connection: parsing, admission, dispatch and responses, for both protocols.

use std::{sync::Arc, time::Duration};

use holdfast_kit::trace::continue_from;
use holdfast_types::{Fault as _, Kind};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info_span};
use uuid::Uuid;

use super::{
    Service,
    call::Call,
    connection::{Connection, MAX_REQUESTS, Protocol},
    error::{ErrorKind, MethodError},
    frames::MessageCharge,
    hub::TenantHub,
    methods::{self, refusals},
    queue::CloseReason,
};
use crate::{Error, auth::CredentialHolder};

/// Maximum length of a request's id and of a method's name.
const MAX_NAME_BYTES: usize = 256;

/// A request, in either protocol.
#[derive(Debug)]
pub struct Request {
    pub id: String,
    pub method: String,
    pub params: Value,
    traceparent: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenClawRequest {
    #[serde(rename = "type")]
    _kind: String,
    id: String,
    method: String,
    #[serde(default)]
    params: Value,
    traceparent: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct LurkBotRequest {
    #[serde(rename = "type")]
    _kind: String,
    id: String,
    method: String,
    #[serde(default)]
    params: Value,
    session_key: Option<String>,
}

/// A frame that is no request: the error, and the id to answer under if there is one.
type NoRequest = (Option<String>, MethodError);

impl Request {
    /// Parses a frame; `None` for a frame of another type, which is ignored.
    fn parse(protocol: Protocol, text: &str) -> Result<Option<Self>, NoRequest> {
        let frame: Value = serde_json::from_str(text).map_err(|error| {
            (None, MethodError::invalid(format!("the frame is not JSON: {error}")))
        })?;
        let id = frame.get("id").and_then(Value::as_str).map(str::to_owned);
        let wrong = |error: &dyn std::fmt::Display| {
            (id.clone(), MethodError::invalid(format!("invalid request frame: {error}")))
        };
        let kind = frame.get("type").and_then(Value::as_str);
        let request = match (protocol, kind) {
            (Protocol::OpenClaw(_), Some("req")) => {
                let OpenClawRequest { id, method, params, traceparent, .. } =
                    serde_path_to_error::deserialize(frame).map_err(|error| wrong(&error))?;
                Self { id, method, params, traceparent }
            }
            (Protocol::LurkBot, Some("request")) => {
                let LurkBotRequest { id, method, mut params, session_key, .. } =
                    serde_path_to_error::deserialize(frame).map_err(|error| wrong(&error))?;
                if let Some(key) = session_key {
                    add_session_key(&mut params, key);
                }
                Self { id, method, params, traceparent: None }
            }
            (Protocol::OpenClaw(_), _) => return Err(wrong(&"`type` must be `req`")),
            (Protocol::LurkBot, _) => return Ok(None),
        };
        if request.id.is_empty() || request.method.is_empty() {
            return Err(wrong(&"`id` and `method` must not be empty"));
        }
        if request.id.len() > MAX_NAME_BYTES || request.method.len() > MAX_NAME_BYTES {
            return Err(wrong(&format!("`id` and `method` have {MAX_NAME_BYTES} bytes at most")));
        }
        Ok(Some(request))
    }
}

/// The session of a frame is a parameter of the method, unless the parameters name one.
fn add_session_key(params: &mut Value, key: String) {
    if params.is_null() {
        *params = json!({});
    }
    if let Value::Object(params) = params {
        params.entry("sessionKey").or_insert_with(|| key.into());
    }
}

/// Response to a request.
pub fn response(protocol: Protocol, id: &str, result: Result<Value, MethodError>) -> String {
    let frame = match (protocol, result) {
        (Protocol::OpenClaw(_), Ok(payload)) => {
            json!({ "type": "res", "id": id, "ok": true, "payload": payload })
        }
        (Protocol::OpenClaw(_), Err(error)) => {
            json!({ "type": "res", "id": id, "ok": false, "error": error.openclaw() })
        }
        (Protocol::LurkBot, Ok(result)) => {
            json!({ "type": "response", "id": id, "result": result })
        }
        (Protocol::LurkBot, Err(error)) => {
            json!({ "type": "response", "id": id, "error": error.lurkbot() })
        }
    };
    frame.to_string()
}

/// Handles a frame of a client. Requests run on tasks of their own, so that one that waits holds up
/// no other.
pub fn receive(
    service: &Arc<Service>,
    hub: &Arc<TenantHub>,
    connection: &Arc<Connection>,
    (text, charge): (&str, Option<MessageCharge>),
) {
    let protocol = connection.protocol;
    let request = match Request::parse(protocol, text) {
        Ok(Some(request)) => request,
        Ok(None) => return debug!("a frame of an unknown type is ignored"),
        Err((id, error)) => {
            let id = id.unwrap_or_else(|| "invalid".to_owned());
            return connection.queue.push(response(protocol, &id, Err(error)));
        }
    };
    let Some(in_flight) = connection.begin_request() else {
        let error = MethodError {
            retry_after: Some(Duration::from_secs(1)),
            ..MethodError::new(
                ErrorKind::Unavailable,
                format!("{MAX_REQUESTS} requests of this connection are worked on: wait for one"),
            )
        };
        return connection.queue.push(response(protocol, &request.id, Err(error)));
    };
    let (service, hub, connection) = (Arc::clone(service), Arc::clone(hub), Arc::clone(connection));
    let tasks = service.requests().clone();
    tasks.spawn(async move {
        let _held = (in_flight, charge);
        let ended = connection.ended.clone();
        let id = request.id.clone();
        let answered = CancellationToken::new();
        // Cancelled if the handler panics, too.
        let _answered = answered.clone().drop_guard();
        let handled = handle(&service, &hub, &connection, (request, answered));
        // What waits for something ends with the connection; what it has begun goes on.
        if let Some(result) = ended.run_until_cancelled(handled).await {
            connection.queue.push(response(connection.protocol, &id, result));
        }
    });
}

async fn handle(
    service: &Arc<Service>,
    hub: &Arc<TenantHub>,
    connection: &Arc<Connection>,
    (request, answered): (Request, CancellationToken),
) -> Result<Value, MethodError> {
    let (began, id) = (Instant::now(), Uuid::now_v7());
    let Request { id: frame, method: name, params, traceparent } = request;
    let method = methods::find(connection.protocol, &name);
    let label = method.map_or("unknown", |method| method.name);
    let span = info_span!(
        "request",
        door = "websocket",
        path = label,
        request.id = %id.simple(),
        connection.id = %connection.id.simple(),
        tenant.id = %connection.tenant
    );
    if let Some(traceparent) = &traceparent {
        continue_from(&span, traceparent);
    }
    let work = async {
        let admitted = service.doorman.admit_connection(connection.credential()).await;
        let (identity, _call) = admitted.inspect_err(|error| end_if_refused(connection, error))?;
        let CredentialHolder { caller, grants, .. } = identity;
        if caller.tenant != connection.tenant {
            connection.queue.close(CloseReason::INVALID_CREDENTIAL);
            return Err(MethodError::new(
                ErrorKind::NotPaired,
                CloseReason::INVALID_CREDENTIAL.reason,
            ));
        }
        let method = method.ok_or_else(|| refusals::of_method(connection.protocol, &name))?;
        // The key or the role may have changed since the handshake.
        let grants = connection.grants.and(grants);
        if let Some(scope) = method.scope
            && !grants.has(scope)
        {
            return Err(MethodError::missing_scope(method.name, scope.as_str()));
        }
        let call = Call {
            service: Arc::clone(service),
            hub: Arc::clone(hub),
            connection: Arc::clone(connection),
            caller,
            grants,
            request: id,
            frame,
            answered,
        };
        (method.run)(call, params).await
    };
    let result = work.instrument(span).await;
    let outcome = result.as_ref().map_or_else(|error| outcome(error.kind), |_| "ok");
    metrics::counter!(
        "holdfast_gateway_requests_total", "door" => "websocket", "outcome" => outcome
    )
    .increment(1);
    metrics::histogram!(
        "holdfast_gateway_request_duration_seconds", "door" => "websocket", "method" => label
    )
    .record(began.elapsed());
    result
}

/// Ends a connection whose credential was revoked or has expired.
fn end_if_refused(connection: &Connection, error: &Error) {
    if error.kind() == Kind::Unauthenticated {
        connection.refuse_credential();
    }
}

const fn outcome(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid | ErrorKind::UnknownMethod => "invalid",
        ErrorKind::Forbidden => "forbidden",
        ErrorKind::NotPaired => "unauthenticated",
        ErrorKind::ApprovalNotFound => "not_found",
        ErrorKind::AgentTimeout | ErrorKind::Unavailable => "unavailable",
        ErrorKind::Internal => "internal",
    }
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::inputs::mutated_json;
    use proptest::prelude::*;

    use super::*;

    fn parse(protocol: Protocol, frame: &Value) -> Result<Option<Request>, NoRequest> {
        Request::parse(protocol, &frame.to_string())
    }

    #[test]
    fn a_frame_that_is_wrong_is_refused_with_the_field() {
        let openclaw = Protocol::OpenClaw(4);
        let error = |frame: Value| parse(openclaw, &frame).unwrap_err();

        let (id, why) = error(json!({"type": "req", "id": "1", "method": 5}));
        assert_eq!(id.as_deref(), Some("1"));
        assert!(why.message.contains("method: invalid type"), "{}", why.message);
        let (_, why) = error(json!({"type": "req", "id": "1", "method": "x", "more": 1}));
        assert!(why.message.contains("unknown field `more`"), "{}", why.message);
        let (_, why) = error(json!({"type": "hello"}));
        assert!(why.message.contains("`type` must be `req`"), "{}", why.message);
        assert!(Request::parse(openclaw, "{").is_err());
        assert!(parse(openclaw, &json!({"type": "req", "id": "", "method": "x"})).is_err());
    }

    #[test]
    fn a_frame_of_lurkbot_may_name_its_session_outside_of_the_parameters() {
        let frame = json!({"type": "request", "id": "1", "method": "x", "sessionKey": "main"});
        let request = parse(Protocol::LurkBot, &frame).unwrap().unwrap();
        assert_eq!(request.params, json!({"sessionKey": "main"}));

        let unknown = json!({"type": "heartbeat", "id": "1"});
        assert!(parse(Protocol::LurkBot, &unknown).unwrap().is_none());
    }

    const FRAMES: [&str; 4] = [
        r#"{"type": "req", "id": "1", "method": "chat.send", "params": {"sessionKey": "main", "message": "hi", "idempotencyKey": "k"}, "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}"#,
        r#"{"type": "req", "id": "2", "method": "events.log.subscribe", "params": {"types": ["run."], "cursor": "evc1_1c7"}}"#,
        r#"{"type": "request", "id": "3", "method": "agent", "params": {"message": "hi"}, "sessionKey": "agent:main:main"}"#,
        r#"{"type": "heartbeat", "id": "4", "at": 1}"#,
    ];

    proptest! {
        #[test]
        fn any_frame_is_parsed_refused_or_ignored(text in mutated_json(&FRAMES)) {
            for protocol in [Protocol::OpenClaw(4), Protocol::LurkBot] {
                match Request::parse(protocol, &text) {
                    Ok(Some(request)) => {
                        prop_assert!((1..=MAX_NAME_BYTES).contains(&request.id.len()));
                        prop_assert!((1..=MAX_NAME_BYTES).contains(&request.method.len()));
                    }
                    Ok(None) => prop_assert_eq!(protocol, Protocol::LurkBot),
                    Err((id, error)) => {
                        prop_assert!(!error.message.is_empty());
                        let id = id.unwrap_or_default();
                        let answer = response(protocol, &id, Err(error));
                        let answer: Value = serde_json::from_str(&answer).unwrap();
                        prop_assert_eq!(answer["id"].as_str(), Some(id.as_str()));
                    }
                }
            }
        }
    }
}
