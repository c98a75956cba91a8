//! Asking a runner to look at an MCP server: it reaches what agents reach, as they reach it.
//!
//! Unlike all else here somebody waits for the answer. It is asked by a person, who is told when
//! nobody answers.

use std::time::Duration;

use async_nats::{RequestErrorKind, Subscriber};
use bytes::Bytes;
use futures::StreamExt as _;
use holdfast_types::TenantId;
use serde::{Deserialize, Serialize};
use tracing::debug;

use crate::{Bus, Error, Subject, bus::headers};

/// Which server to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpProbe {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name.
    pub server: String,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpProbed {
    /// Its tools.
    pub tools: Vec<McpProbedTool>,
    /// Why it could not be used.
    pub error: Option<String>,
}

/// A tool of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpProbedTool {
    /// What agents call it.
    pub name: String,
    /// What its server says that it does.
    pub description: String,
    /// Its server says that it changes nothing.
    pub reads: bool,
}

/// Questions for runners; each goes to one of them.
#[derive(Debug)]
pub struct McpProbes {
    bus: Bus,
    subscriber: Subscriber,
}

/// A question, and the way back.
#[derive(Debug)]
pub struct McpAsked {
    /// The question.
    pub probe: McpProbe,
    bus: Bus,
    reply: async_nats::Subject,
}

impl McpProbes {
    /// The next one; `None` once the process' connection has been closed for good.
    pub async fn next(&mut self) -> Option<McpAsked> {
        loop {
            let message = self.subscriber.next().await?;
            let probe = serde_json::from_slice(&message.payload);
            match (probe, message.reply) {
                (Ok(probe), Some(reply)) => {
                    return Some(McpAsked { probe, bus: self.bus.clone(), reply });
                }
                (Ok(_), None) => debug!("nobody waits for what an mcp server is asked"),
                (Err(error), _) => debug!(%error, "a question is not understood"),
            }
        }
    }
}

impl McpAsked {
    /// Answers. Who does not wait any more need not know.
    pub async fn answer(self, probed: &McpProbed) {
        if let Ok(payload) = serde_json::to_vec(probed)
            && let Err(error) = self.bus.client.publish(self.reply, Bytes::from(payload)).await
        {
            debug!(%error, "an answer was not sent");
        }
    }
}

impl Bus {
    /// Asks some runner what a server offers.
    ///
    /// # Errors
    ///
    /// If no runner answers in time.
    pub async fn probe_mcp(
        &self,
        probe: &McpProbe,
        patience: Duration,
    ) -> Result<McpProbed, Error> {
        let away = |error: anyhow::Error| Error::Unavailable(Some(error));
        let payload = serde_json::to_vec(probe).map_err(|error| Error::Refused(error.into()))?;
        let request = async_nats::Request::new()
            .payload(Bytes::from(payload))
            .headers(headers())
            .timeout(Some(patience));
        let subject = self.prefixed(&Subject::probe_mcp());
        let answer = self.client.send_request(subject, request).await;
        let answer = answer.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => away(anyhow::anyhow!("no runner is there")),
            _ => away(error.into()),
        })?;
        serde_json::from_slice(&answer.payload).map_err(|error| Error::Refused(error.into()))
    }

    /// What runners are asked about servers; each question goes to one of them.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn mcp_probes(&self) -> Result<McpProbes, Error> {
        let subject = self.prefixed(&Subject::probe_mcp());
        let subscriber = self.client.queue_subscribe(subject, "runners".to_owned()).await;
        let subscriber = subscriber.map_err(|error| Error::Unavailable(Some(error.into())))?;
        Ok(McpProbes { bus: self.clone(), subscriber })
    }
}
