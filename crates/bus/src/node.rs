//! Requests to a node, answered by the gateway that holds its connection.
//!
//! Unlike with other questions, it matters whether the request was received at all: a command that
//! certainly did not reach its node may be sent again, one that may have reached it must not.

use std::time::Duration;

use async_nats::RequestErrorKind;
use bytes::Bytes;
use holdfast_types::{NodeId, NodeReached, NodeWish, TenantId};
use tracing::debug;

use crate::{Bus, Error, Questions, Subject, bus::headers};

impl Bus {
    /// Sends a request to a node and waits up to `patience` for the answer.
    pub async fn ask_node(
        &self,
        tenant: TenantId,
        node: NodeId,
        wish: &NodeWish,
        patience: Duration,
    ) -> NodeReached {
        if !self.is_connected() {
            return NodeReached::Away;
        }
        let Ok(payload) = serde_json::to_vec(wish) else { return NodeReached::Away };
        let request = async_nats::Request::new()
            .payload(Bytes::from(payload))
            .headers(headers())
            .timeout(Some(patience));
        let subject = self.prefixed(&Subject::node(tenant, node));
        let answer = match self.client.send_request(subject, request).await {
            Ok(answer) => answer,
            Err(error) => match error.kind() {
                RequestErrorKind::NoResponders => return NodeReached::Nobody,
                _ => return NodeReached::Silent,
            },
        };
        match serde_json::from_slice(&answer.payload) {
            Ok(said) => NodeReached::Said(said),
            Err(error) => {
                debug!(%error, "an answer is not understood");
                NodeReached::Silent
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
