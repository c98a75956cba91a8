//! The service `Subagents`: listing, stopping and messaging subagents.

use std::time::Duration;

use holdfast_bus::{Control, ControlKind};
use holdfast_proto::gateway::v1::{
    self as pb, ListSubagentsRequest, ListSubagentsResponse, SendToSubagentRequest,
    SendToSubagentResponse, StopSubagentRequest, StopSubagentResponse,
    subagents_server::Subagents as Service,
};
use holdfast_session::{NewMessage, Subagent, SubagentFilter, SubagentOutcome};
use holdfast_types::{Body, QueueMode, SessionId, Source};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{State, invalid, non_empty, page_size, timestamp};
use crate::Error;
use crate::ingest::of_caller;
use crate::permissions::rights::ConversationRight;

const DEFAULT_PAGE_SIZE: u32 = 50;
const MAX_PAGE_SIZE: u32 = 200;

/// Maximum text of a message to a subagent, in bytes.
const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Event name of a message to a subagent; the same as of its requester's messages.
const SEND_EVENT: &str = "sessions_send";

/// Implements `holdfast.gateway.v1.Subagents`.
#[derive(Debug)]
pub struct Subagents(pub State);

#[tonic::async_trait]
impl Service for Subagents {
    async fn list_subagents(
        &self,
        request: Request<ListSubagentsRequest>,
    ) -> Result<Response<ListSubagentsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let most = page_size(request.limit, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?;
        let parent = match non_empty(request.session) {
            Some(session) => {
                Some(self.0.known_session(&caller, &session, ConversationRight::Read).await?)
            }
            None => None,
        };

        let filter = SubagentFilter { parent, open: request.running, most };
        let listed = self.0.sessions.subagents().list(caller.tenant, &filter).await;

        let subagents = listed.map_err(Error::from)?.into_iter().map(subagent_of).collect();
        Ok(Response::new(ListSubagentsResponse { subagents }))
    }

    async fn stop_subagent(
        &self,
        request: Request<StopSubagentRequest>,
    ) -> Result<Response<StopSubagentResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let session =
            self.0.known_session(&caller, &request.session, ConversationRight::Control).await?;

        let stopped = self.0.sessions.subagents().stop(caller.tenant, session).await;

        if let Some(running) = stopped.map_err(Error::from)? {
            let control = Control { session, kind: ControlKind::Cancel, epoch: running.epoch };
            self.0.bus.control(running.owner, &control);
        }
        Ok(Response::new(StopSubagentResponse {}))
    }

    async fn send_to_subagent(
        &self,
        request: Request<SendToSubagentRequest>,
    ) -> Result<Response<SendToSubagentResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let SendToSubagentRequest { session, text, request_id } = request;
        let session = self.0.known_session(&caller, &session, ConversationRight::Write).await?;
        match text.len() {
            _ if text.trim().is_empty() => return Err(Error::MissingField("text").into()),
            got if got > MAX_TEXT_BYTES => {
                let told = format!("`text` is {got} bytes, and {MAX_TEXT_BYTES} are the most");
                return Err(invalid(told).into());
            }
            _ => {}
        }
        let (tenant, sessions) = (caller.tenant, &self.0.sessions);
        let known = sessions.subagents().get(tenant, session).await.map_err(Error::from)?;
        match known.ok_or_else(|| no_subagent(session))?.outcome {
            None => {}
            Some(_) => {
                let told = "the subagent has ended: ask for another".to_owned();
                return Err(Error::from(holdfast_session::Error::Conflict(told)).into());
            }
        }
        let view = sessions.views().session(tenant, session).await.map_err(Error::from)?;
        let message = NewMessage {
            key: view.key.parse().map_err(Error::from)?,
            agent: view.agent,
            label: None,
            source: Source::Internal(SEND_EVENT.to_owned()),
            idem_key: non_empty(request_id).unwrap_or_else(|| Uuid::now_v7().to_string()),
            body: Body {
                event: Some(SEND_EVENT.to_owned()),
                author: of_caller(&caller),
                ..Body::text(text)
            },
            target: None,
            mode: QueueMode::Steer,
            debounce: Duration::ZERO,
            trace: holdfast_kit::trace::current(),
        };

        let accepted = sessions.ingest(tenant, message).await.map_err(Error::from)?;

        if accepted.wake.is_some() {
            self.0.bus.wake_run(0);
        }
        if let Some(running) = accepted.running {
            let control = Control { session, kind: ControlKind::Input, epoch: running.epoch };
            self.0.bus.control(running.owner, &control);
        }
        let (message_id, duplicate) = (accepted.message.to_string(), accepted.duplicate);
        Ok(Response::new(SendToSubagentResponse { message_id, duplicate }))
    }
}

fn no_subagent(session: SessionId) -> Error {
    Error::from(holdfast_session::Error::NotFound { what: "subagent", name: session.to_string() })
}

fn subagent_of(one: Subagent) -> pb::Subagent {
    let place = one.place;
    pb::Subagent {
        session_id: one.session.to_string(),
        session: one.key,
        parent_session_id: one.parent.to_string(),
        label: one.label,
        task: one.task,
        status: one.outcome.map_or("running", SubagentOutcome::as_str).to_owned(),
        result: one.result,
        error: one.error,
        tokens: one.tokens,
        seconds: one.took.as_secs_f64(),
        started_at: Some(timestamp(one.started_at)),
        bundle: one.given.bundle,
        tools: one.given.tools.unwrap_or_default(),
        read: one.given.fs_read.unwrap_or_default(),
        write: one.given.fs_write.unwrap_or_default(),
        chain_run_id: place.as_ref().map(|place| place.run.to_string()).unwrap_or_default(),
        step: place.map(|place| place.step).unwrap_or_default(),
    }
}
