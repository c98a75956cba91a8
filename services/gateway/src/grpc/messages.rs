//! The service `Messages`: send, stream, follow, cancel.

use std::{pin::Pin, time::Duration};

use futures::{Stream, stream};
use holdfast_grpc::deadline;
use holdfast_proto::gateway::v1::{
    self as pb, CancelRequest, CancelResponse, FollowRequest, RunEvent, SendRequest, SendResponse,
    messages_server::Messages as Service, run_event,
};
use holdfast_session::{Acceptance, CancelResult, TurnOutcome};
use tokio::time::{Instant, timeout_at};
use tonic::{Request, Response, Status};

use crate::permissions::rights::{ConversationRight, NamedSession};
use crate::{
    Error,
    control::sessions::usage_message,
    follow::{Event, EventKind, FollowedMessage, Follower, TurnResult},
    ingest::{InboundMessage, Ingest},
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

        let taken = self.ingest.accept(&caller, request.into()).await?;
        self.ingest.notify_runners(&taken);

        Ok(Response::new(answer_to_send(&taken.accepted)))
    }

    async fn stream(&self, request: Request<SendRequest>) -> Result<Response<Events>, Status> {
        let until = deadline::caller_timeout(request.metadata());
        let (caller, request) = holdfast_grpc::caller(request)?;

        let taken = self.ingest.accept(&caller, request.into()).await?;
        let runs = taken.runs.clone();
        let follow = self.follower.follow_accepted(taken.tenant, &taken.accepted, runs).await;
        self.ingest.notify_runners(&taken);

        Ok(Response::new(events(follow, Some(accepted(&taken.accepted)), until)))
    }

    async fn follow(&self, request: Request<FollowRequest>) -> Result<Response<Events>, Status> {
        let until = deadline::caller_timeout(request.metadata());
        let (caller, request) = holdfast_grpc::caller(request)?;
        let message = request.message_id.parse().map_err(Error::from)?;

        self.ingest.check_message(&caller, message, ConversationRight::Read).await?;
        let follow = self.follower.message(caller.tenant, message).await?;

        Ok(Response::new(events(follow, None, until)))
    }

    async fn cancel(
        &self,
        request: Request<CancelRequest>,
    ) -> Result<Response<CancelResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;

        let named = NamedSession { agent: &request.agent, session: &request.session };
        let cancelled = self.ingest.cancel(&caller, named).await?;

        Ok(Response::new(CancelResponse {
            running: matches!(cancelled, CancelResult::Running(_) | CancelResult::Waiting { .. }),
            queued: matches!(cancelled, CancelResult::Queued { .. }),
        }))
    }
}

/// Stream of the events of a message. It ends with the answer, or with an error at the caller's
/// deadline.
fn events(follow: FollowedMessage, first: Option<RunEvent>, patience: Option<Duration>) -> Events {
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

fn accepted(accepted: &Acceptance) -> RunEvent {
    let Acceptance { message, session, seq, duplicate, .. } = accepted;
    RunEvent {
        message_id: message.to_string(),
        session_id: session.to_string(),
        run_id: String::new(),
        step: 0,
        event: Some(run_event::Event::Accepted(pb::Accepted { seq: *seq, duplicate: *duplicate })),
    }
}

fn event_of(follow: &FollowedMessage, event: Event) -> RunEvent {
    use run_event::Event as E;

    let Event { run, step, kind: what } = event;
    let event = match what {
        EventKind::StepStarted { again } => E::StepStarted(pb::StepStarted { again }),
        EventKind::Text(text) => E::Text(pb::TextDelta { text }),
        EventKind::Thinking(text) => E::Thinking(pb::TextDelta { text }),
        EventKind::ToolStarted { call, tool } => {
            E::ToolStarted(pb::ToolStarted { call_id: call, tool })
        }
        EventKind::ToolEnded { call, failed } => {
            E::ToolEnded(pb::ToolEnded { call_id: call, failed })
        }
        EventKind::Approval(awaited) => E::ApprovalRequested(pb::ApprovalRequested {
            approval_id: awaited.approval.to_string(),
            slug: awaited.approval.slug(),
            tool: awaited.tool,
            summary: awaited.summary,
            subject: awaited.subject,
            pattern: awaited.pattern,
            left_ms: awaited.left_ms,
        }),
        EventKind::Canvas(surfaces) => E::CanvasChanged(pb::CanvasChanged { surfaces }),
        EventKind::Progress(progress) => E::StepProgress(pb::StepProgress {
            behavior: progress.behavior,
            step: progress.step,
            todo: progress.todo,
            todos_done: progress.todos_done,
            todos: progress.todos,
            cost_micros: progress.cost_micros,
        }),
        EventKind::Done(finished) => E::Done(finished.into()),
    };
    RunEvent {
        message_id: follow.message().to_string(),
        session_id: follow.session().to_string(),
        run_id: run.map(|run| run.to_string()).unwrap_or_default(),
        step: step.unwrap_or_default(),
        event: Some(event),
    }
}

impl From<SendRequest> for InboundMessage {
    fn from(request: SendRequest) -> Self {
        let SendRequest { request_id, text, agent, session, attachments } = request;
        Self { request_id, text, agent, session, attachments, ..Self::default() }
    }
}

fn answer_to_send(accepted: &Acceptance) -> SendResponse {
    SendResponse {
        message_id: accepted.message.to_string(),
        session_id: accepted.session.to_string(),
        seq: accepted.seq,
        duplicate: accepted.duplicate,
    }
}

impl From<TurnResult> for pb::Done {
    fn from(finished: TurnResult) -> Self {
        // A message over gRPC offers no tools of a client.
        let TurnResult { outcome, text, reason, usage, model, calls: _ } = finished;
        let outcome = match outcome {
            TurnOutcome::Completed => pb::Outcome::Completed,
            TurnOutcome::Interrupted => pb::Outcome::Interrupted,
            TurnOutcome::Cancelled => pb::Outcome::Cancelled,
            TurnOutcome::Failed => pb::Outcome::Failed,
            TurnOutcome::Dead => pb::Outcome::Dead,
        };
        Self {
            outcome: outcome.into(),
            text,
            reason: reason.unwrap_or_default(),
            usage: Some(usage_message(usage)),
            model,
        }
    }
}
