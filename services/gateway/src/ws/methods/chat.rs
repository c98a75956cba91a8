//! `chat.*`: sending, stopping and reading messages of a session.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_proto::gateway::v1::MessageAttachment;
use holdfast_session::CancelResult;
use holdfast_types::{Attachment, Body, Effort, QueueMode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{
        call::Call,
        connection::{Protocol, now_ms},
        error::MethodError,
        events::{Audience, Event},
        keys,
        runs::{self, StartedRun},
    },
    Method, READ, Reply, WRITE, history, method,
};
use crate::ingest::{AcceptedMessage, Destination, InboundMessage, idempotency_key, new_message};
use crate::permissions::rights::{ConversationRight, NamedSession};

pub const METHODS: &[Method] = &[
    method!(
        "chat.send",
        WRITE,
        send,
        [
            "sessionId",
            "mentions",
            "workContext",
            "fastMode",
            "fastAutoOnSeconds",
            "deliver",
            "originatingChannel",
            "originatingTo",
            "originatingAccountId",
            "originatingThreadId",
            "replyToId",
            "toolBindings",
            "timeoutMs",
            "systemInputProvenance",
            "systemProvenanceReceipt",
            "suppressCommandInterpretation",
            "expectedLeafEntryId",
            "expectedSessionRoutingContract",
            "expectedPermissionMode",
            "expectedToolOverrides",
        ]
    ),
    method!("chat.abort", WRITE, abort, ["preserveSideRuns"]),
    method!("chat.inject", super::ADMIN, inject),
    method!(
        "chat.history",
        READ,
        history::history,
        ["sessionId", "pendingBefore", "inputRunIds", "maxBytes"]
    ),
    method!(
        "chat.startup",
        READ,
        history::startup,
        ["sessionId", "pendingBefore", "inputRunIds", "maxBytes"]
    ),
    method!("chat.metadata", READ, history::metadata, ["authProfileId"]),
    method!("chat.message.get", READ, history::message),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SendParams {
    session_key: String,
    #[serde(default)]
    agent_id: String,
    message: String,
    #[serde(default)]
    attachments: Vec<AttachmentParams>,
    idempotency_key: Option<String>,
    thinking: Option<String>,
    queue_mode: Option<String>,
}

/// File of a message.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentParams {
    #[serde(rename = "type")]
    kind: Option<String>,
    mime_type: Option<String>,
    file_name: Option<String>,
    /// Base64, or a `data:` URL.
    content: Option<Value>,
}

/// Message that a method sends to a session.
pub struct Sending {
    pub place: Destination,
    pub message: String,
    pub attachments: Vec<AttachmentParams>,
    pub idempotency_key: Option<String>,
    pub options: SendingOptions,
}

/// Options of one message, in place of the session's settings.
#[derive(Debug, Clone, Copy, Default)]
pub struct SendingOptions {
    pub effort: Option<Effort>,
    pub queue_mode: Option<QueueMode>,
}

/// Reads the options of a message.
pub fn sending_options(
    thinking: Option<&str>,
    queue_mode: Option<&str>,
) -> Result<SendingOptions, MethodError> {
    let effort = match thinking.map(str::trim) {
        None | Some("" | "default") => None,
        Some("off") => Some(Effort::None),
        Some(word) => Some(serde_json::from_value(word.into()).map_err(|_| {
            MethodError::invalid(
                "invalid params: thinking: must be off, none, minimal, low, medium, high or xhigh",
            )
        })?),
    };
    let queue_mode = queue_mode.map(str::parse).transpose();
    let wrong = |why| MethodError::invalid(format!("invalid params: queueMode: {why}"));
    Ok(SendingOptions { effort, queue_mode: queue_mode.map_err(wrong)? })
}

/// Message that was sent, and how its turn is known.
pub struct Sent {
    pub accepted: AcceptedMessage,
    pub run: String,
    pub key: String,
}

async fn send(call: Call, params: SendParams) -> Reply {
    let SendParams { session_key, agent_id, message, attachments, idempotency_key, .. } = params;
    let options = sending_options(params.thinking.as_deref(), params.queue_mode.as_deref())?;
    let place = call.place(&agent_id, &session_key, ConversationRight::Write).await?;
    let sending = Sending { place, message, attachments, idempotency_key, options };
    let sent = send_message(&call, sending).await?;
    let status = if sent.accepted.accepted.duplicate { "in_flight" } else { "started" };
    Ok(json!({ "runId": sent.run, "status": status, "sessionKey": sent.key }))
}

/// Sends a message, and follows its turn for all connections of the tenant.
pub async fn send_message(call: &Call, sending: Sending) -> Result<Sent, MethodError> {
    let Sending { place, message, attachments, idempotency_key: given, options } = sending;
    let attachments = attachments.into_iter().map(attachment).collect::<Result<_, _>>()?;
    let request_id = request_id(call, given)?;
    let text = message.clone();
    let inbound = InboundMessage {
        request_id: request_id.clone(),
        text: message,
        agent: String::new(),
        session: place.key.to_string(),
        attachments,
        effort: options.effort,
        queue_mode: options.queue_mode,
    };
    let accepted = call
        .as_method("Messages/Send", async {
            call.service.ingest.accept(&call.caller, inbound).await
        })
        .await?;
    let key = keys::shown(place.key.as_str());
    let run = StartedRun {
        id: request_id.clone(),
        turn: accepted.accepted.message.into(),
        key: key.clone(),
        session: accepted.accepted.session,
        agent: place.agent.name.to_string(),
        starter: Some(call.connection.id),
    };
    if !accepted.accepted.duplicate {
        tell_message(call, &run, &text);
    }
    follow(call, &accepted, run);
    call.service.ingest.notify_runners(&accepted);
    Ok(Sent { accepted, run: request_id, key })
}

/// Idempotency key of a request. OpenClaw's protocol demands one.
fn request_id(call: &Call, given: Option<String>) -> Result<String, MethodError> {
    match (given, call.connection.protocol) {
        (None, Protocol::OpenClaw(_)) => {
            Err(MethodError::invalid("invalid params: missing field `idempotencyKey`"))
        }
        (Some(given), Protocol::OpenClaw(_)) if given.is_empty() => {
            Err(MethodError::invalid("invalid params: `idempotencyKey` is empty"))
        }
        (given, _) => Ok(idempotency_key(given.unwrap_or_default())?),
    }
}

/// Tells the connections of the tenant that a person has written.
fn tell_message(call: &Call, run: &StartedRun, text: &str) {
    let payload = json!({
        "sessionKey": run.key,
        "agentId": run.agent,
        "runId": run.id,
        "message": {
            "role": "user",
            "content": [{ "type": "text", "text": text }],
            "timestamp": now_ms(),
        },
    });
    let audience =
        Audience::Session { key: run.key.clone(), starter: run.starter, is_tool_stream: false };
    let event = Event::new(("session.message", "session.message"), &payload, audience);
    call.hub.publish(&event);
}

/// Follows the turn of a message on a task of its own.
fn follow(call: &Call, accepted: &AcceptedMessage, run: StartedRun) {
    let id = accepted.accepted.message.into();
    let Some(deltas) = call.hub.follow(id, accepted.accepted.session) else { return };
    let followed = call.service.follower.follow_accepted_with(
        accepted.tenant,
        &accepted.accepted,
        accepted.runs.clone(),
        deltas,
    );
    let (service, hub) = (Arc::clone(&call.service), Arc::clone(&call.hub));
    let tasks = service.tasks().clone();
    tasks.spawn(async move {
        runs::follow(&service, &hub, run, followed).await;
        hub.end_run(id, false);
    });
}

fn attachment(given: AttachmentParams) -> Result<MessageAttachment, MethodError> {
    let AttachmentParams { kind, mime_type, file_name, content } = given;
    let wrong = || MethodError::invalid("invalid params: attachments: `content` must be base64");
    let content = content.as_ref().and_then(Value::as_str).ok_or_else(wrong)?;
    let content = match content.split_once(";base64,") {
        Some((prefix, data)) if prefix.starts_with("data:") => data,
        _ => content,
    };
    let content = STANDARD.decode(content).map_err(|_| wrong())?;
    let media_type = mime_type.unwrap_or_default();
    let is_image = kind.as_deref() == Some("image") || media_type.starts_with("image/");
    Ok(MessageAttachment {
        kind: if is_image { "image" } else { "file" }.to_owned(),
        reference: String::new(),
        name: file_name.unwrap_or_default(),
        content,
        media_type,
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AbortParams {
    session_key: String,
    #[serde(default)]
    agent_id: String,
    run_id: Option<String>,
}

async fn abort(call: Call, params: AbortParams) -> Reply {
    let runs: Vec<String> = params.run_id.into_iter().collect();
    let aborted = abort_session(&call, &params.agent_id, &params.session_key).await?;
    Ok(json!({ "ok": true, "aborted": aborted, "runIds": if aborted { runs } else { Vec::new() } }))
}

/// Stops the turn of a session. Returns whether there was one.
pub async fn abort_session(call: &Call, agent: &str, key: &str) -> Result<bool, MethodError> {
    let place = call.place(agent, key, ConversationRight::Control).await?;
    let found = call.state().sessions.views().find(call.tenant(), &place.key).await?;
    let Some(session) = found else { return Ok(false) };
    let cancelled = call
        .as_method("Messages/Cancel", async {
            let session = session.to_string();
            let named = NamedSession { agent: "", session: &session };
            call.service.ingest.cancel(&call.caller, named).await
        })
        .await?;
    Ok(cancelled != CancelResult::Nothing)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct InjectParams {
    session_key: String,
    #[serde(default)]
    agent_id: String,
    message: String,
    label: Option<String>,
}

/// Adds a message of the assistant to a session, without a turn.
async fn inject(call: Call, params: InjectParams) -> Reply {
    let InjectParams { session_key, agent_id, message, label } = params;
    let place = call.place(&agent_id, &session_key, ConversationRight::Write).await?;
    let text = call.service.ingest.text(&message)?;
    let text = label.map_or(text.clone(), |label| format!("[{label}]\n\n{text}"));
    let key = keys::shown(place.key.as_str());
    let attachments: Vec<Attachment> = Vec::new();
    let role = Some("assistant".to_owned());
    let body = Body { role, silent: true, attachments, ..Body::text(text.clone()) };
    let message = new_message(&call.caller, place, body);
    let message =
        holdfast_session::NewMessage { idem_key: idempotency_key(String::new())?, ..message };
    let accepted = call
        .as_method("Messages/Send", async {
            call.service.ingest.store_all(call.tenant(), vec![message], None).await
        })
        .await?;
    call.service.ingest.notify_runners(&accepted);
    let id = accepted.accepted.message.to_string();
    let payload = json!({
        "runId": format!("inject-{id}"),
        "sessionKey": key,
        "seq": 0,
        "state": "final",
        "message": runs::assistant_message(&text, None),
    });
    let audience = Audience::Session { key, starter: None, is_tool_stream: false };
    call.hub.publish(&Event::new(("chat", "agent.block_reply"), &payload, audience));
    Ok(json!({ "ok": true, "messageId": id }))
}
