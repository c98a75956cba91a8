//! The platform as an MCP server at `/mcp`.
//!
//! | tool | scope | effect |
//! |---|---|---|
//! | `ask` | chat | sends a message to an agent, and returns its answer |
//! | `list_agents`, `list_sessions`, `read_history` | read | reads agents and conversations |
//! | `list_files`, `read_file` | read | reads an agent's files |
//! | `write_file` | admin | changes a file |
//!
//! Keys, rate limits and body limits are those of the HTTP API. The tools call the gRPC handlers,
//! which check scopes. Tools that the key has no scope for are not listed.

mod shape;

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use holdfast_grpc::{Caller, Scope};
use holdfast_mcp::{About, Answer, Context, Door, Offered, Serve};
use holdfast_proto::gateway::v1::{
    self as pb, agents_server::Agents as _, files_server::Files as _,
    sessions_server::Sessions as _,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use self::shape::{Ask, ListFiles, ListSessions, Nothing, ReadFile, ReadHistory, WriteFile};
use crate::{
    Error,
    auth::require,
    config,
    control::{self, agents::Agents, files::Files},
    follow::{Finished, Follow, Follower, What},
    ingest::{Ingest, Said},
    openai::Refusal,
    sessions,
};

pub type Service = holdfast_mcp::Service<Mesh>;

/// Session name used when the client gives none.
const SESSION: &str = "mcp";

const INSTRUCTIONS: &str = "\
Personal assistants of one tenant. `ask` speaks with one of them; name a session to go on with a \
conversation later. What an assistant writes is its own: check it before you act on it.";

#[derive(Debug)]
pub struct Mesh {
    ingest: Ingest,
    follower: Follower,
    state: control::State,
    answer_timeout: Duration,
}

/// Limits of a request's body: size in bytes, and time to arrive.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    limit: usize,
    patience: Duration,
}

/// Creates the MCP service, and the limits of request bodies.
pub fn service(
    ingest: Ingest,
    follower: Follower,
    state: control::State,
    config: &config::Gateway,
    stop: CancellationToken,
) -> (Service, Bounds) {
    let mesh = Mesh { ingest, follower, state, answer_timeout: config.answer_timeout };
    let origins = config.mcp_origins.clone();
    let door = Door { origins, body_limit: config.body_limit, stop };
    let bounds = Bounds { limit: config.body_limit, patience: config.body_timeout };
    (holdfast_mcp::service(Arc::new(mesh), door), bounds)
}

/// Middleware that reads the whole body of a request, within its limits, before the service waits
/// for it.
pub async fn whole(State(bounds): State<Bounds>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let Bounds { limit, patience } = bounds;
    match tokio::time::timeout(patience, to_bytes(body, limit)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(parts, Body::from(body))).await,
        // An interrupted body gets the same response: the client is no longer there to read it.
        Ok(Err(_)) => Refusal::too_large(limit).into_response(),
        Err(_) => Refusal::too_slow(patience).into_response(),
    }
}

impl Serve for Mesh {
    type Who = Caller;

    fn about(&self) -> About {
        About { name: "holdfast", version: env!("CARGO_PKG_VERSION"), instructions: INSTRUCTIONS }
    }

    fn tools(&self, who: &Caller) -> Vec<Offered> {
        let may = |(scope, _): &(Scope, Offered)| require(who, *scope).is_ok();
        shape::all().into_iter().filter(may).map(|(_, tool)| tool).collect()
    }

    async fn call(
        &self,
        who: Caller,
        tool: &str,
        input: Map<String, Value>,
        context: Context,
    ) -> Answer {
        let input = Value::Object(input);
        let done = match tool {
            "ask" => match read(input) {
                Ok(ask) => return self.ask(&who, ask, &context).await,
                Err(status) => Err(status),
            },
            "list_agents" => self.list_agents(who, input).await,
            "list_sessions" => self.list_sessions(who, input).await,
            "read_history" => self.read_history(who, input).await,
            "list_files" => self.list_files(who, input).await,
            "read_file" => self.read_file(who, input).await,
            "write_file" => self.write_file(who, input).await,
            // The client was given a list of all tools.
            _ => Err(Status::not_found("there is no such tool")),
        };
        match done {
            Ok(Value::String(text)) => Answer::text(text),
            Ok(value) => Answer::text(value.to_string()),
            Err(status) => Answer::failed(status.message()),
        }
    }
}

impl Mesh {
    /// Sends a message to an agent, and waits for its answer.
    async fn ask(&self, who: &Caller, ask: Ask, context: &Context) -> Answer {
        let Ask { message: text, agent, session, request_id } = ask;
        let session = if session.is_empty() { SESSION.to_owned() } else { session };
        let follow = match self
            .begin(who, Said { request_id, text, agent, session, ..Said::default() })
            .await
        {
            Ok(follow) => follow,
            Err(error) => return Answer::failed(holdfast_grpc::status(&error).message()),
        };
        let answered = tokio::select! {
            answered = tokio::time::timeout(self.answer_timeout, finish(follow, context)) => answered,
            // The turn goes on, and its answer is stored.
            () = context.cancelled.cancelled() => return Answer::failed("it was cancelled"),
        };
        match answered {
            Ok(Ok(finished)) => match Refusal::of(&finished) {
                None => Answer::text(finished.text),
                Some(refusal) => Answer::failed(refusal.message()),
            },
            Ok(Err(error)) => Answer::failed(holdfast_grpc::status(&error).message()),
            Err(_) => Answer::failed(format!(
                "there is no answer after {} s; the turn goes on: call `ask` again with the same \
                 message and `request_id`",
                self.answer_timeout.as_secs()
            )),
        }
    }

    async fn begin(&self, who: &Caller, said: Said) -> Result<Follow, Error> {
        require(who, Scope::Chat)?;
        let taken = self.ingest.accept(who, said).await?;
        let runs = taken.runs.clone();
        let follow = self.follower.accepted(taken.tenant, &taken.accepted, runs).await;
        self.ingest.announce(&taken);
        Ok(follow)
    }

    async fn list_agents(&self, who: Caller, input: Value) -> Result<Value, Status> {
        let Nothing {} = read(input)?;
        let asked = by(who, pb::ListAgentsRequest {});
        let listed = Agents(self.state.clone()).list_agents(asked).await?.into_inner();
        Ok(listed.agents.iter().map(shape::agent).collect())
    }

    async fn list_sessions(&self, who: Caller, input: Value) -> Result<Value, Status> {
        let ListSessions { agent, limit } = read(input)?;
        let asked = by(who, pb::ListSessionsRequest { agent, limit, ..Default::default() });
        let handler = sessions::Handler(self.state.clone());
        let listed = handler.list_sessions(asked).await?.into_inner();
        Ok(listed.sessions.iter().map(shape::session).collect())
    }

    async fn read_history(&self, who: Caller, input: Value) -> Result<Value, Status> {
        let ReadHistory { session, limit, before } = read(input)?;
        let asked = by(who, pb::GetHistoryRequest { session, limit, before_seq: before });
        let handler = sessions::Handler(self.state.clone());
        let history = handler.get_history(asked).await?.into_inner();
        Ok(history.entries.iter().map(shape::entry).collect())
    }

    async fn list_files(&self, who: Caller, input: Value) -> Result<Value, Status> {
        let ListFiles { agent, path } = read(input)?;
        let asked = by(who, pb::ListFilesRequest { agent, path, ..Default::default() });
        let listed = Files(self.state.clone()).list_files(asked).await?.into_inner();
        Ok(listed.files.iter().map(shape::file).collect())
    }

    async fn read_file(&self, who: Caller, input: Value) -> Result<Value, Status> {
        let ReadFile { agent, path } = read(input)?;
        let asked = by(who, pb::ReadFileRequest { agent, path, ..Default::default() });
        let found = Files(self.state.clone()).read_file(asked).await?.into_inner();
        let size = found.content.len();
        let no_text = |_| {
            Status::invalid_argument(format!("the file is no text, but {size} bytes of something"))
        };
        let content = String::from_utf8(found.content).map_err(no_text)?;
        Ok(json!({ "content": content, "hash": found.hash, "revision": found.revision }))
    }

    async fn write_file(&self, who: Caller, input: Value) -> Result<Value, Status> {
        let WriteFile { agent, path, content, base_hash, reason } = read(input)?;
        let content = content.into_bytes();
        let asked =
            pb::WriteFileRequest { agent, path, content, base_hash, reason, ..Default::default() };
        let written = Files(self.state.clone()).write_file(by(who, asked)).await?.into_inner();
        Ok(json!({ "revision": written.revision }))
    }
}

/// Follows a message to its end, and sends progress notifications.
async fn finish(mut follow: Follow, context: &Context) -> Result<Finished, Error> {
    let mut told = 0;
    while let Some(event) = follow.next().await {
        let news = match event?.what {
            What::Done(finished) => return Ok(finished),
            What::StepStarted { .. } => "thinking".to_owned(),
            What::ToolStarted { tool, .. } => format!("using {tool}"),
            What::Approval(_) => "waiting for a person's approval".to_owned(),
            What::Text(_) | What::Thought(_) | What::ToolEnded { .. } | What::Canvas(_) => continue,
        };
        told += 1;
        context.progress(told, &news).await;
    }
    Err(Error::Stopping)
}

/// Request to a gRPC handler, with a verified caller.
fn by<T>(who: Caller, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.extensions_mut().insert(who);
    request
}

fn read<T: DeserializeOwned>(input: Value) -> Result<T, Status> {
    serde_json::from_value(input)
        .map_err(|error| Status::invalid_argument(format!("the input is not right: {error}")))
}
