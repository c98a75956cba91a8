//! Calls of the gateway. Each runs as a task, whose results come back as updates.

use std::time::Duration;

use holdfast_kit::Backoff;
use holdfast_proto::gateway::v1::{
    ApprovalRequested, CancelRequest, Decision, FollowRequest, GetHistoryRequest,
    GetSessionRequest, ListApprovalsRequest, ListSessionsRequest, ResolveApprovalRequest,
    SendRequest, run_event::Event,
};
use jiff::Timestamp;
use tokio::{sync::mpsc, task::JoinHandle, time::sleep};
use tonic::{Code, Response, Status, Streaming};

use super::state::{Poll, Update};
use crate::{chat, client::Client, error::Error};

/// Number of journal entries that are loaded.
const HISTORY_LIMIT: u32 = 300;
const SESSION_LIMIT: u32 = 200;
const RECONNECT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// The session that is shown, and where its updates go.
#[derive(Debug, Clone)]
pub struct Network {
    pub client: Client,
    pub session: String,
    /// Number of the shown session: updates of an earlier one are dropped.
    pub view: u64,
    pub updates: mpsc::UnboundedSender<(u64, Update)>,
}

impl Network {
    fn tell(&self, update: Update) {
        // Nobody listens any more when the interface has ended.
        drop(self.updates.send((self.view, update)));
    }

    fn message(&self, text: String) -> SendRequest {
        SendRequest {
            request_id: format!("tui-{}", uuid::Uuid::now_v7().simple()),
            text,
            session: self.session.clone(),
            ..SendRequest::default()
        }
    }

    /// Sends a message, and follows its turn to the end.
    pub fn send(&self, text: String) -> JoinHandle<()> {
        let network = self.clone();
        let message = network.message(text);
        tokio::spawn(async move { network.follow_turn(Some(message), None).await })
    }

    /// Follows the turn of an accepted message.
    pub fn follow(&self, message_id: String) -> JoinHandle<()> {
        let network = self.clone();
        tokio::spawn(async move { network.follow_turn(None, Some(message_id)).await })
    }

    /// Streams the events of a turn, on as many connections as it takes. Sending again under the
    /// same request id is safe: the message is accepted once.
    async fn follow_turn(self, message: Option<SendRequest>, mut accepted: Option<String>) {
        let mut losses = 0;
        loop {
            let status = match self.events(message.as_ref(), accepted.as_deref()).await {
                Ok(mut events) => loop {
                    match events.message().await {
                        Ok(Some(event)) => {
                            losses = 0;
                            accepted = Some(event.message_id.clone()).filter(|id| !id.is_empty());
                            let is_last = matches!(event.event, Some(Event::Done(_)));
                            self.tell(Update::Event(Box::new(event)));
                            if is_last {
                                return;
                            }
                        }
                        Ok(None) => {
                            break Status::unavailable("the gateway ended the stream early");
                        }
                        Err(status) => break status,
                    }
                },
                Err(status) => status,
            };
            if !chat::is_connection_failure(&status) {
                let error = self.client.error(status);
                return self.tell(Update::TurnFailed(error.to_string()));
            }
            self.tell(Update::Lost);
            sleep(RECONNECT_BACKOFF.cap(losses)).await;
            losses += 1;
        }
    }

    async fn events(
        &self,
        message: Option<&SendRequest>,
        accepted: Option<&str>,
    ) -> Result<Streaming<holdfast_proto::gateway::v1::RunEvent>, Status> {
        let mut messages = self.client.messages();
        let events = match (accepted, message) {
            (None, Some(message)) => messages.stream(self.client.request(message.clone())).await,
            (accepted, _) => {
                let message_id = accepted.unwrap_or_default().to_owned();
                messages.follow(self.client.request(FollowRequest { message_id })).await
            }
        };
        events.map(Response::into_inner)
    }

    /// Runs a call, and tells what came of it.
    fn spawn(
        &self,
        call: impl Future<Output = Result<Option<Update>, Error>> + Send + 'static,
        failed: fn(String) -> Update,
    ) {
        let network = self.clone();
        tokio::spawn(async move {
            match call.await {
                Ok(Some(update)) => network.tell(update),
                Ok(None) => {}
                Err(error) => network.tell(failed(error.to_string())),
            }
        });
    }

    /// Sends a message into a turn that runs.
    pub fn queue(&self, text: String) {
        let (client, message) = (self.client.clone(), self.message(text));
        let call = async move {
            let sent = client.messages().send(client.request(message)).await;
            Ok(Some(Update::Queued(client.answer(sent)?.message_id)))
        };
        self.spawn(call, Update::Failed);
    }

    pub fn cancel(&self) {
        let (client, session) = (self.client.clone(), self.session.clone());
        let call = async move {
            let request = client.request(CancelRequest { session, agent: String::new() });
            client.answer(client.messages().cancel(request).await).map(|_| None)
        };
        self.spawn(call, Update::Failed);
    }

    pub fn decide(&self, approval: String, decision: Decision) {
        let client = self.client.clone();
        let call = async move {
            let request = ResolveApprovalRequest {
                approval: approval.clone(),
                decision: decision.into(),
                ..Default::default()
            };
            let decided = client.approvals().resolve_approval(client.request(request)).await;
            client.answer(decided).map(|_| Some(Update::Decided(approval)))
        };
        self.spawn(call, Update::Failed);
    }

    pub fn list_sessions(&self) {
        let client = self.client.clone();
        let call = async move {
            let request = ListSessionsRequest { limit: SESSION_LIMIT, ..Default::default() };
            let listed = client.sessions().list_sessions(client.request(request)).await;
            Ok(Some(Update::Sessions(client.answer(listed)?.sessions)))
        };
        self.spawn(call, Update::Failed);
    }

    pub fn load_history(&self) {
        let (client, session) = (self.client.clone(), self.session.clone());
        let call = async move {
            let request = GetHistoryRequest { session, limit: HISTORY_LIMIT, ..Default::default() };
            let history = client.sessions().get_history(client.request(request)).await;
            match client.answer(history) {
                Ok(history) => Ok(Some(Update::History(history.entries))),
                // Nothing was said in it yet.
                Err(Error::Refused(status)) if status.code() == Code::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.spawn(call, Update::Failed);
    }

    /// Asks for the state of the session.
    pub fn poll(&self) {
        let (client, session) = (self.client.clone(), self.session.clone());
        self.spawn(async move { poll(&client, session).await.map(Some) }, Update::Unreachable);
    }
}

async fn poll(client: &Client, session: String) -> Result<Update, Error> {
    let request = client.request(GetSessionRequest { session: session.clone() });
    let found = match client.answer(client.sessions().get_session(request).await) {
        Ok(found) => found.session.unwrap_or_default(),
        Err(Error::Refused(status)) if status.code() == Code::NotFound => {
            return Ok(Update::Polled(Poll::default()));
        }
        Err(error) => return Err(error),
    };
    let request = GetHistoryRequest { session, limit: 1, ..Default::default() };
    let newest = client.sessions().get_history(client.request(request)).await;
    let newest = client.answer(newest)?.entries.last().map_or(0, |entry| entry.seq);
    let mut approvals = Vec::new();
    if found.approvals > 0 {
        let request = ListApprovalsRequest {
            state: "pending".to_owned(),
            session_id: found.id,
            ..ListApprovalsRequest::default()
        };
        let listed = client.approvals().list_approvals(client.request(request)).await;
        let listed = client.answer(listed)?.approvals;
        approvals.extend(listed.into_iter().map(|approval| ApprovalRequested {
            left_ms: left_ms(approval.expires_at.as_ref()),
            approval_id: approval.id,
            slug: approval.slug,
            tool: approval.tool,
            summary: approval.summary,
            subject: approval.subject,
            pattern: approval.pattern,
        }));
    }
    let is_running = found.state == "RUNNING" || found.approvals > 0;
    Ok(Update::Polled(Poll { newest, approvals, is_running }))
}

fn left_ms(until: Option<&prost_types::Timestamp>) -> u64 {
    let until = until.and_then(|at| Timestamp::new(at.seconds, at.nanos).ok());
    let left = until.map(|at| at.duration_since(Timestamp::now()));
    left.and_then(|left| u64::try_from(left.as_millis()).ok()).unwrap_or_default()
}
