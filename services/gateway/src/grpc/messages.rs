//! The service `Messages`: send, stream, follow, cancel.

use std::{pin::Pin, time::Duration};

use futures::{Stream, stream};
use holdfast_grpc::{Scope, deadline};
use holdfast_proto::gateway::v1::{
    self as pb, CancelRequest, CancelResponse, FollowRequest, RunEvent, SendRequest, SendResponse,
    messages_server::Messages as Service, run_event,
};
use holdfast_session::{Accepted, Outcome};
use tokio::time::{Instant, timeout_at};
use tonic::{Request, Response, Status};

use crate::{
    Error,
    auth::require,
    follow::{Event, Finished, Follow, Follower, What},
    ingest::{Ingest, Said},
};

/// Implements `holdfast.gateway.v1.Messages`.
#[derive(Debug)]
pub struct Messages {
    ingest: Ingest,
    follower: Follower,
}

type Events = Pin<Box<dyn Stream<Item = Result<RunEvent, Status>> + Send>>;

impl Messages {
    pub const fn new(ingest: Ingest, follower: Follower) -> Self {
        Self { ingest, follower }
    }
}

#[tonic::async_trait]
impl Service for Messages {
    type StreamStream = Events;
    type FollowStream = Events;

    async fn send(&self, request: Request<SendRequest>) -> Result<Response<SendResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        require(&caller, Scope::Chat)?;

        let taken = self.ingest.accept(&caller, request.into()).await?;
        self.ingest.announce(&taken);

        Ok(Response::new(answer_to_send(&taken.accepted)))
    }

    async fn stream(&self, request: Request<SendRequest>) -> Result<Response<Events>, Status> {
        let until = deadline::given(request.metadata());
        let (caller, request) = holdfast_grpc::caller(request)?;
        require(&caller, Scope::Chat)?;

        let taken = self.ingest.accept(&caller, request.into()).await?;
        let runs = taken.runs.clone();
        let follow = self.follower.accepted(taken.tenant, &taken.accepted, runs).await;
        self.ingest.announce(&taken);

        Ok(Response::new(events(follow, Some(accepted(&taken.accepted)), until)))
    }

    async fn follow(&self, request: Request<FollowRequest>) -> Result<Response<Events>, Status> {
        let until = deadline::given(request.metadata());
        let (caller, request) = holdfast_grpc::caller(request)?;
        require(&caller, Scope::Chat)?;
        let message = request.message_id.parse().map_err(Error::from)?;

        let follow = self.follower.message(caller.tenant, message).await?;

        Ok(Response::new(events(follow, None, until)))
    }

    async fn cancel(
        &self,
        request: Request<CancelRequest>,
    ) -> Result<Response<CancelResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        require(&caller, Scope::Chat)?;

        let running = self.ingest.cancel(caller.tenant, &request.agent, &request.session).await?;

        Ok(Response::new(CancelResponse { running }))
    }
}

/// Stream of the events of a message. It ends with the answer, or with an error at the caller's
/// deadline.
fn events(follow: Follow, first: Option<RunEvent>, patience: Option<Duration>) -> Events {
    let until = patience.map(|patience| Instant::now() + patience);
    Box::pin(stream::unfold((follow, first, false), move |(mut follow, first, over)| async move {
        if over {
            return None;
        }
        if let Some(first) = first {
            return Some((Ok(first), (follow, None, false)));
        }
        let next = match until {
            Some(until) => timeout_at(until, follow.next()).await,
            None => Ok(follow.next().await),
        };
        let item = match next {
            Ok(Some(Ok(event))) => Ok(event_of(&follow, event)),
            Ok(Some(Err(error))) => Err(error.into()),
            Ok(None) => return None,
            Err(_) => Err(Status::deadline_exceeded(
                "the deadline has passed; the turn goes on: follow the message again",
            )),
        };
        let over = item.is_err();
        Some((item, (follow, None, over)))
    }))
}

fn accepted(accepted: &Accepted) -> RunEvent {
    let Accepted { message, session, seq, duplicate, .. } = accepted;
    RunEvent {
        message_id: message.to_string(),
        session_id: session.to_string(),
        run_id: String::new(),
        step: 0,
        event: Some(run_event::Event::Accepted(pb::Accepted { seq: *seq, duplicate: *duplicate })),
    }
}

fn event_of(follow: &Follow, event: Event) -> RunEvent {
    use run_event::Event as E;

    let Event { run, step, what } = event;
    let event = match what {
        What::StepStarted { again } => E::StepStarted(pb::StepStarted { again }),
        What::Text(text) => E::Text(pb::TextDelta { text }),
        What::Thought(text) => E::Thinking(pb::TextDelta { text }),
        What::ToolStarted { call, tool } => E::ToolStarted(pb::ToolStarted { call_id: call, tool }),
        What::ToolEnded { call, failed } => E::ToolEnded(pb::ToolEnded { call_id: call, failed }),
        What::Approval(awaited) => E::ApprovalRequested(pb::ApprovalRequested {
            approval_id: awaited.approval.to_string(),
            slug: awaited.approval.slug(),
            tool: awaited.tool,
            summary: awaited.summary,
            left_ms: awaited.left_ms,
        }),
        What::Canvas(surfaces) => E::CanvasChanged(pb::CanvasChanged { surfaces }),
        What::Done(finished) => E::Done(finished.into()),
    };
    RunEvent {
        message_id: follow.message().to_string(),
        session_id: follow.session().to_string(),
        run_id: run.map(|run| run.to_string()).unwrap_or_default(),
        step: step.unwrap_or_default(),
        event: Some(event),
    }
}

impl From<SendRequest> for Said {
    fn from(request: SendRequest) -> Self {
        let SendRequest { request_id, text, agent, session, attachments } = request;
        Self { request_id, text, agent, session, attachments }
    }
}

fn answer_to_send(accepted: &Accepted) -> SendResponse {
    SendResponse {
        message_id: accepted.message.to_string(),
        session_id: accepted.session.to_string(),
        seq: accepted.seq,
        duplicate: accepted.duplicate,
    }
}

impl From<Finished> for pb::Done {
    fn from(finished: Finished) -> Self {
        let Finished { outcome, text, reason, usage, model } = finished;
        let outcome = match outcome {
            Outcome::Completed => pb::Outcome::Completed,
            Outcome::Interrupted => pb::Outcome::Interrupted,
            Outcome::Cancelled => pb::Outcome::Cancelled,
            Outcome::Failed => pb::Outcome::Failed,
            Outcome::Dead => pb::Outcome::Dead,
        };
        Self {
            outcome: outcome.into(),
            text,
            reason: reason.unwrap_or_default(),
            usage: Some(pb::Usage {
                input_tokens: usage.input,
                cached_tokens: usage.cached,
                output_tokens: usage.output,
            }),
            model,
        }
    }
}
