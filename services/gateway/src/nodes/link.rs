//! One connection of a node.
//!
//! Runners send requests over the bus. The link passes them to the node under a number, and the
//! answers back. It stores nothing: if the gateway dies, the node connects to another one, and the
//! runner repeats its request with the same key.
//!
//! **What can go wrong.** Two connections of one node, at two gateways, would both receive each
//! request. So the directory records which one is valid; the other one is told to check, and also
//! checks at intervals.

use std::{collections::HashMap, time::Duration};

use holdfast_bus::{Questions, Responder};
use holdfast_directory::{AuthenticatedNode, NodeConnection, NodeConnectionState};
use holdfast_proto::gateway::v1::{
    AttachRequest, AttachResponse, NodeWelcome, attach_request, attach_response,
};
use holdfast_types::{NodeReply, NodeRequest};
use tokio::{
    sync::mpsc::Sender,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use tracing::{debug, info, warn};
use uuid::Uuid;

use super::{NODE_QUERY_TIMEOUT, convert};
use crate::{Error, control::State};

/// Timeout for a node's hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval at which a connection checks that it is still the valid one.
const VALIDITY_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Time that a node has for an answer, in addition to the wait in the request.
const ANSWER_MARGIN: Duration = Duration::from_secs(10);

/// Maximum wait in a request.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Maximum number of requests that wait for a node's answers.
const MAX_OPEN_REQUESTS: usize = 64;

#[derive(Debug)]
pub(super) struct NodeLink {
    state: State,
    known: AuthenticatedNode,
    id: NodeConnection,
    connected_since: String,
    asks: Sender<Result<AttachResponse, Status>>,
    next_id: u64,
    pending: HashMap<u64, PendingRequest>,
}

/// Request that waits for the node's answer.
#[derive(Debug)]
struct PendingRequest {
    asker: Responder,
    sent_at: Instant,
    deadline: Instant,
}

impl NodeLink {
    pub(super) fn new(
        state: State,
        known: AuthenticatedNode,
        asks: Sender<Result<AttachResponse, Status>>,
    ) -> Self {
        let since = jiff::Timestamp::now().round(jiff::Unit::Second);
        let since = since.map(|at| at.to_string()).unwrap_or_default();
        Self {
            state,
            known,
            id: Uuid::now_v7(),
            connected_since: since,
            asks,
            next_id: 0,
            pending: HashMap::new(),
        }
    }

    /// Serves the connection until it ends, and tells the node why.
    pub(super) async fn run(mut self, mut said: Streaming<AttachRequest>, stop: CancellationToken) {
        let ended = match self.accept_hello(&mut said).await {
            Ok(questions) => {
                info!(node.id = %self.known.node, "a node is connected");
                metrics::gauge!("holdfast_gateway_nodes").increment(1.0);
                let ended = self.serve(questions, said, stop).await;
                metrics::gauge!("holdfast_gateway_nodes").decrement(1.0);
                info!(node.id = %self.known.node, "a node is gone");
                ended
            }
            Err(status) => Some(status),
        };
        for (_, open) in self.pending.drain() {
            open.asker.answer(&NodeReply::Gone).await;
        }
        if let Err(error) =
            self.state.directory.nodes().record_disconnection(&self.known, self.id).await
        {
            debug!(error = &error as &dyn std::error::Error, "a node's end was not noted");
        }
        if let Some(status) = ended {
            // The node may have disconnected already.
            drop(self.asks.send(Err(status)).await);
        }
    }

    /// Receives the node's hello, replaces an older connection, and subscribes to requests.
    async fn accept_hello(
        &mut self,
        said: &mut Streaming<AttachRequest>,
    ) -> Result<Questions, Status> {
        let Ok(first) = timeout(HELLO_TIMEOUT, said.message()).await else {
            return Err(Status::deadline_exceeded("the node has not said hello in time"));
        };
        let hello = convert::hello_of(first?.and_then(|first| first.said));
        let hello = hello.map_err(Status::invalid_argument)?;
        let came =
            self.state.directory.nodes().record_connection(&self.known, self.id, hello).await;
        came.map_err(Error::from)?;
        let (tenant, node) = (self.known.tenant, self.known.node);
        // An older connection notices here that it was replaced.
        drop(self.state.bus.ask_node(tenant, node, &NodeRequest::Look, NODE_QUERY_TIMEOUT).await);
        let questions = self.state.bus.node_questions(tenant, node).await;
        let questions = questions.map_err(|error| {
            warn!(error = &error as &dyn std::error::Error, "a node cannot be listened for");
            Status::unavailable("the gateway cannot listen for the node: connect again")
        })?;
        // A newer connection may have replaced this one meanwhile.
        self.check_validity().await?;
        let welcome = NodeWelcome {
            id: node.to_string(),
            name: self.known.name.clone(),
            tenant_id: tenant.to_string(),
            command_key: self.state.node_command_key.to_vec(),
        };
        let asked = Some(attach_response::Asked::Welcome(welcome));
        let sent = self.asks.send(Ok(AttachResponse { asked })).await;
        sent.map_err(|_| Status::cancelled("the node is gone"))?;
        Ok(questions)
    }

    /// Passes on requests and answers. Returns the status to send to the node, or `None` if the
    /// node disconnected.
    async fn serve(
        &mut self,
        mut questions: Questions,
        mut said: Streaming<AttachRequest>,
        stop: CancellationToken,
    ) -> Option<Status> {
        let mut looks = interval(VALIDITY_CHECK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lapses = interval(Duration::from_secs(1));
        lapses.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let done = tokio::select! {
                () = stop.cancelled() => Err(Status::unavailable("the gateway is stopping")),
                question = questions.next::<NodeRequest>() => match question {
                    Some((wish, asker)) => self.pass_on(wish, asker).await,
                    None => Err(Status::unavailable("the gateway has lost its bus")),
                },
                message = said.message() => match message {
                    Ok(Some(message)) => {
                        self.pass_answer(message).await;
                        Ok(())
                    }
                    Ok(None) => return None,
                    Err(status) => {
                        debug!(code = ?status.code(), "a node's connection broke");
                        return None;
                    }
                },
                _ = looks.tick() => self.check_validity().await,
                _ = lapses.tick() => {
                    self.expire_requests().await;
                    Ok(())
                }
            };
            if let Err(status) = done {
                return Some(status);
            }
        }
    }

    /// Passes a request to the node, or answers it here.
    async fn pass_on(&mut self, wish: NodeRequest, asker: Responder) -> Result<(), Status> {
        let waits = match &wish {
            NodeRequest::Here => {
                asker.answer(&NodeReply::Here { since: self.connected_since.clone() }).await;
                return Ok(());
            }
            NodeRequest::Look => {
                let looked = self.check_validity().await;
                // The asker learns that this connection has checked.
                asker.answer(&NodeReply::Gone).await;
                return looked;
            }
            NodeRequest::Ping => 0,
            NodeRequest::Run { wait_ms, .. } | NodeRequest::Recall { wait_ms, .. } => *wait_ms,
        };
        let busy = || NodeReply::Refused("too much is asked of it at once: try again".to_owned());
        if self.pending.len() >= MAX_OPEN_REQUESTS {
            asker.answer(&busy()).await;
            return Ok(());
        }
        let id = self.next_id;
        self.next_id += 1;
        let Some(ask) = convert::request_of(id, wish) else { return Ok(()) };
        if self.asks.try_send(Ok(ask)).is_err() {
            asker.answer(&busy()).await;
            return Ok(());
        }
        let asked = Instant::now();
        let until = asked + Duration::from_millis(waits).min(MAX_WAIT) + ANSWER_MARGIN;
        self.pending.insert(id, PendingRequest { asker, sent_at: asked, deadline: until });
        Ok(())
    }

    /// Passes an answer to the asker.
    async fn pass_answer(&mut self, message: AttachRequest) {
        let Some(attach_request::Said::Answer(answer)) = message.said else { return };
        let Some(what) = answer.what else { return };
        let Some(open) = self.pending.remove(&answer.id) else { return };
        let millis = u64::try_from(open.sent_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        open.asker.answer(&convert::answer_of(what, millis)).await;
    }

    /// Answers requests that timed out.
    async fn expire_requests(&mut self) {
        let now = Instant::now();
        let late: Vec<u64> = self
            .pending
            .iter()
            .filter(|(_, open)| open.deadline <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            if let Some(open) = self.pending.remove(&id) {
                open.asker.answer(&NodeReply::Gone).await;
            }
        }
    }

    /// Checks that this connection is still the valid one. If the directory cannot be reached, it
    /// counts as valid.
    async fn check_validity(&self) -> Result<(), Status> {
        match self.state.directory.nodes().connection_state(&self.known, self.id).await {
            Ok(NodeConnectionState::Current) => Ok(()),
            Ok(NodeConnectionState::Replaced) => Err(Status::aborted(
                "a newer connection of this node took the place of this one: two programs use the \
                 same token",
            )),
            Ok(NodeConnectionState::Revoked) => {
                Err(Status::unauthenticated("the node's token was revoked: ask for another"))
            }
            Err(error) => {
                debug!(error = &error as &dyn std::error::Error, "a node could not be looked up");
                Ok(())
            }
        }
    }
}
