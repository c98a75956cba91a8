//! The platform as an MCP server at `/mcp`.
//!
//! | tool | scope | effect |
//! |---|---|---|
//! | `ask` | chat | sends a message to an agent, and returns its answer |
//! | `list_agents`, `list_sessions`, `read_history` | read | reads agents and conversations |
//! | `list_files`, `read_file` | read | reads an agent's files |
//! | `write_file` | admin | changes a file |
//!
//! Credentials, rate limits and body limits are those of the HTTP API. The tools call the gRPC
//! handlers, and have the rules of their methods. Tools that the caller may not use are not listed.

pub mod sign_in;
mod tools;

use std::sync::Arc;

use axum::{
    Json,
    body::{Body, to_bytes},
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use holdfast_grpc::Caller;
use holdfast_kit::config::reload::Current;
use holdfast_mcp::{
    CallContext, HttpSettings, OfferedTool, ServerDescription, ToolProvider, ToolResult,
};
use holdfast_proto::gateway::v1::{
    self as pb, agents_server::Agents as _, files_server::Files as _,
    sessions_server::Sessions as _,
};
use holdfast_types::{Body as MessageBody, Command};
use http::{StatusCode, header::CONTENT_TYPE};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use uuid::Uuid;

use self::tools::{
    AskArgs, EmptyArgs, ListFilesArgs, ListSessionsArgs, ReadFileArgs, ReadHistoryArgs,
    WriteFileArgs,
};
use crate::{
    Config, Error,
    api_error::ApiError,
    audit,
    auth::Authenticator,
    bodies::BodyRefusal,
    config,
    control::{self, agents::Agents, files::Files, sessions},
    follow::{EventKind, FollowedMessage, Follower, TurnResult},
    ingest::{InboundMessage, Ingest},
    permissions,
};

pub type Service = holdfast_mcp::Service<PlatformTools>;

/// Session name used when the client gives none.
const DEFAULT_SESSION_NAME: &str = "mcp";

const INSTRUCTIONS: &str = "\
Personal assistants of one tenant. `ask` speaks with one of them; name a session to go on with a \
conversation later. What an assistant writes is its own: check it before you act on it.";

#[derive(Debug)]
pub struct PlatformTools {
    ingest: Ingest,
    follower: Follower,
    doorman: Authenticator,
    state: control::State,
    settings: Current<Config>,
}

/// Settings with the limits of a request's body.
#[derive(Debug, Clone)]
pub struct BodyLimits(Current<Config>);

/// Creates the MCP service, and the limits of request bodies.
pub fn service(
    (ingest, follower): (Ingest, Follower),
    (doorman, state): (Authenticator, control::State),
    settings: &Current<Config>,
    stop: CancellationToken,
) -> (Service, BodyLimits) {
    let config = settings.get();
    let config::Gateway { mcp_origins, body_limit, .. } = &config.gateway;
    let door = HttpSettings { origins: mcp_origins.clone(), body_limit: *body_limit, stop };
    let bounds = BodyLimits(settings.clone());
    let settings = settings.clone();
    let mesh = PlatformTools { ingest, follower, doorman, state, settings };
    (holdfast_mcp::http_service(Arc::new(mesh), door), bounds)
}

/// Middleware that reads the whole body of a request, within its limits, before the service waits
/// for it.
pub async fn read_whole_body(
    State(BodyLimits(settings)): State<BodyLimits>,
    request: Request,
    next: Next,
) -> Response {
    let is_json = request
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .is_some_and(|kind| kind.starts_with("application/json"));
    let (parts, body) = request.into_parts();
    let config::Gateway { body_limit: limit, body_timeout: patience, .. } = settings.get().gateway;
    match tokio::time::timeout(patience, to_bytes(body, limit)).await {
        Ok(Ok(body)) => {
            let request = Request::from_parts(parts, Body::from(body.clone()));
            let response = next.run(request).await;
            // The service says that of a body, too, that is no message.
            match response.status() {
                StatusCode::UNSUPPORTED_MEDIA_TYPE if is_json => invalid_message(&body),
                _ => response,
            }
        }
        // An interrupted body is too large, too: the client is no longer there to read it.
        Ok(Err(error)) => match BodyRefusal::find(&error) {
            Some(refusal) => ApiError::from(Error::from(refusal)).into_response(),
            None => ApiError::too_large(limit).into_response(),
        },
        Err(_) => ApiError::too_slow(patience).into_response(),
    }
}

/// Response to a body that is no JSON-RPC message.
fn invalid_message(body: &[u8]) -> Response {
    let (code, message) = match serde_json::from_slice::<serde::de::IgnoredAny>(body) {
        Ok(_) => (-32_600, "the body is no JSON-RPC message".to_owned()),
        Err(error) => (-32_700, format!("the body is no JSON: {error}")),
    };
    let error = json!({ "code": code, "message": message });
    let told = json!({ "jsonrpc": "2.0", "id": null, "error": error });
    (StatusCode::BAD_REQUEST, Json(told)).into_response()
}

impl ToolProvider for PlatformTools {
    type Who = Caller;

    fn about(&self) -> ServerDescription {
        ServerDescription {
            name: "holdfast",
            version: env!("CARGO_PKG_VERSION"),
            instructions: INSTRUCTIONS,
        }
    }

    fn tools(&self, who: &Caller) -> Vec<OfferedTool> {
        let may = |(method, _): &(&'static str, OfferedTool)| {
            permissions::of_method(method).is_some_and(|rule| rule.permits(who).is_ok())
        };
        tools::all_tools().into_iter().filter(may).map(|(_, tool)| tool).collect()
    }

    async fn call(
        &self,
        who: Caller,
        tool: &str,
        input: Map<String, Value>,
        context: CallContext,
    ) -> ToolResult {
        let input = Value::Object(input);
        let Some(rule) = tools::rule(tool) else {
            // The client was given a list of all tools.
            return ToolResult::failed("there is no such tool");
        };
        let request = Uuid::now_v7();
        if let Err(error) = rule.permits(&who) {
            let status = Status::from(error);
            audit::record(&self.doorman, &who, (rule, request), status.code(), "").await;
            return ToolResult::failed(status.message());
        }
        let done = match tool {
            "ask" => match parse_input(input) {
                Ok(ask) => return self.ask(&who, ask, &context).await,
                Err(status) => Err(status),
            },
            "list_agents" => self.list_agents(who, input).await,
            "list_sessions" => self.list_sessions(who, input).await,
            "read_history" => self.read_history(who, input).await,
            "list_files" => self.list_files(who, input).await,
            "read_file" => self.read_file(who, input).await,
            _ => {
                let call = self.write_file(who.clone(), input);
                let code = |done: &Result<Value, Status>| {
                    done.as_ref().map_or_else(Status::code, |_| Code::Ok)
                };
                audit::audited(&self.doorman, &who, (rule, request), call, code).await
            }
        };
        match done {
            Ok(Value::String(text)) => ToolResult::text(text),
            Ok(value) => ToolResult::text(value.to_string()),
            Err(status) => ToolResult::failed(status.message()),
        }
    }
}

impl PlatformTools {
    /// Sends a message to an agent, and waits for its answer.
    async fn ask(&self, who: &Caller, ask: AskArgs, context: &CallContext) -> ToolResult {
        let AskArgs { message: text, agent, session, request_id } = ask;
        let session = if session.is_empty() { DEFAULT_SESSION_NAME.to_owned() } else { session };
        let follow = match self
            .send_message(
                who,
                InboundMessage { request_id, text, agent, session, ..InboundMessage::default() },
            )
            .await
        {
            Ok(follow) => follow,
            Err(error) => return ToolResult::failed(holdfast_grpc::status(&error).message()),
        };
        let patience = self.settings.get().gateway.answer_timeout;
        let answered = tokio::select! {
            answered = tokio::time::timeout(patience, finish_with_progress(follow, context)) => answered,
            // The turn goes on, and its answer is stored.
            () = context.cancelled.cancelled() => return ToolResult::failed("it was cancelled"),
        };
        match answered {
            Ok(Ok(finished)) => match ApiError::of_result(&finished) {
                None => ToolResult::text(finished.text),
                Some(refusal) => ToolResult::failed(refusal.message()),
            },
            Ok(Err(error)) => ToolResult::failed(holdfast_grpc::status(&error).message()),
            Err(_) => ToolResult::failed(format!(
                "there is no answer after {} s; the turn goes on: call `ask` again with the same \
                 message and `request_id`",
                patience.as_secs()
            )),
        }
    }

    async fn send_message(
        &self,
        who: &Caller,
        said: InboundMessage,
    ) -> Result<FollowedMessage, Error> {
        // The client is a model: it must not approve the calls of another one.
        let text = self.ingest.text(&said.text)?;
        let body = MessageBody::text(text);
        let directives = match body.command() {
            Some(Command::Decide(_)) => return Err(Error::DecisionOverMcp),
            Some(Command::SetDirectives(directives)) => directives,
            _ => body.directives(),
        };
        if directives.elevated.is_some() {
            return Err(Error::DecisionOverMcp);
        }
        let taken = self.ingest.accept(who, said).await?;
        let runs = taken.runs.clone();
        let follow = self.follower.follow_accepted(taken.tenant, &taken.accepted, runs).await;
        self.ingest.notify_runners(&taken);
        Ok(follow)
    }

    async fn list_agents(&self, who: Caller, input: Value) -> Result<Value, Status> {
        let EmptyArgs {} = parse_input(input)?;
        let asked = request_by(who, pb::ListAgentsRequest {});
        let listed = Agents(self.state.clone()).list_agents(asked).await?.into_inner();
        Ok(listed.agents.iter().map(tools::agent).collect())
    }

    async fn list_sessions(&self, who: Caller, input: Value) -> Result<Value, Status> {
        let ListSessionsArgs { agent, limit } = parse_input(input)?;
        let asked = request_by(who, pb::ListSessionsRequest { agent, limit, ..Default::default() });
        let handler = sessions::Handler(self.state.clone());
        let listed = handler.list_sessions(asked).await?.into_inner();
        Ok(listed.sessions.iter().map(tools::session).collect())
    }

    async fn read_history(&self, who: Caller, input: Value) -> Result<Value, Status> {
        let ReadHistoryArgs { session, limit, before } = parse_input(input)?;
        let asked = request_by(
            who,
            pb::GetHistoryRequest { session, limit, before_seq: before, after_seq: None },
        );
        let handler = sessions::Handler(self.state.clone());
        let history = handler.get_history(asked).await?.into_inner();
        Ok(history.entries.iter().map(tools::entry).collect())
    }

    async fn list_files(&self, who: Caller, input: Value) -> Result<Value, Status> {
        let ListFilesArgs { agent, path } = parse_input(input)?;
        let asked = request_by(who, pb::ListFilesRequest { agent, path, ..Default::default() });
        let listed = Files(self.state.clone()).list_files(asked).await?.into_inner();
        Ok(listed.files.iter().map(tools::file).collect())
    }

    async fn read_file(&self, who: Caller, input: Value) -> Result<Value, Status> {
        let ReadFileArgs { agent, path } = parse_input(input)?;
        let asked = request_by(who, pb::ReadFileRequest { agent, path, ..Default::default() });
        let found = Files(self.state.clone()).read_file(asked).await?.into_inner();
        let size = found.content.len();
        let no_text = |_| {
            Status::invalid_argument(format!("the file is no text, but {size} bytes of something"))
        };
        let content = String::from_utf8(found.content).map_err(no_text)?;
        Ok(json!({ "content": content, "hash": found.hash, "revision": found.revision }))
    }

    async fn write_file(&self, who: Caller, input: Value) -> Result<Value, Status> {
        let WriteFileArgs { agent, path, content, base_hash, reason } = parse_input(input)?;
        let content = content.into_bytes();
        let asked =
            pb::WriteFileRequest { agent, path, content, base_hash, reason, ..Default::default() };
        let written =
            Files(self.state.clone()).write_file(request_by(who, asked)).await?.into_inner();
        Ok(json!({ "revision": written.revision }))
    }
}

/// Follows a message to its end, and sends progress notifications.
async fn finish_with_progress(
    mut follow: FollowedMessage,
    context: &CallContext,
) -> Result<TurnResult, Error> {
    let mut told = 0;
    while let Some(event) = follow.next().await {
        let news = match event?.kind {
            EventKind::Done(finished) => return Ok(finished),
            EventKind::StepStarted { .. } => "thinking".to_owned(),
            EventKind::Progress(progress) => progress.to_string(),
            EventKind::ToolStarted { tool, .. } => format!("using {tool}"),
            EventKind::Approval(_) => "waiting for a person's approval".to_owned(),
            EventKind::Text(_)
            | EventKind::Thinking(_)
            | EventKind::ToolEnded { .. }
            | EventKind::Canvas(_) => continue,
        };
        told += 1;
        context.progress(told, &news).await;
    }
    Err(Error::Stopping)
}

/// Request to a gRPC handler, with a verified caller.
fn request_by<T>(who: Caller, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.extensions_mut().insert(who);
    request
}

fn parse_input<T: DeserializeOwned>(input: Value) -> Result<T, Status> {
    serde_json::from_value(input)
        .map_err(|error| Status::invalid_argument(format!("the input is not right: {error}")))
}
