//! Requests to a node, answered by the gateway that holds its connection.
//!
//! Unlike with other questions, it matters whether the request was received at all: a command that
//! certainly did not reach its node may be sent again, one that may have reached it must not.

use std::time::Duration;

use async_nats::RequestErrorKind;
use bytes::Bytes;
use holdfast_types::{NodeId, NodeRequest, NodeRequestOutcome, TenantId};
use tracing::debug;

use crate::{Bus, Error, Questions, Subject, bus::headers};

impl Bus {
    /// Sends a request to a node and waits up to `patience` for the answer.
    pub async fn ask_node(
        &self,
        tenant: TenantId,
        node: NodeId,
        wish: &NodeRequest,
        patience: Duration,
    ) -> NodeRequestOutcome {
        if !self.is_connected() {
            return NodeRequestOutcome::BusUnavailable;
        }
        let Ok(payload) = serde_json::to_vec(wish) else {
            return NodeRequestOutcome::BusUnavailable;
        };
        let request = async_nats::Request::new()
            .payload(Bytes::from(payload))
            .headers(headers())
            .timeout(Some(patience));
        let subject = self.prefixed(&Subject::node(tenant, node));
        let answer = match self.client.send_request(subject, request).await {
            Ok(answer) => answer,
            Err(error) => match error.kind() {
                RequestErrorKind::NoResponders => return NodeRequestOutcome::NotConnected,
                _ => return NodeRequestOutcome::NoAnswer,
            },
        };
        match serde_json::from_slice(&answer.payload) {
            Ok(said) => NodeRequestOutcome::Answered(said),
            Err(error) => {
                debug!(%error, "an answer is not understood");
                NodeRequestOutcome::NoAnswer
            }
        }
    }

    /// Subscribes to the requests to a node. Called by the gateway that holds its connection.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn node_questions(&self, tenant: TenantId, node: NodeId) -> Result<Questions, Error> {
        self.questions(&Subject::node(tenant, node)).await
    }
}
