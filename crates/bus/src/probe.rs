//! Probes of MCP servers. A runner performs them, since its network is the one that agents use.
//!
//! A person waits for the result, and gets an error if no runner answers.

use std::time::Duration;

use holdfast_types::TenantId;
use serde::{Deserialize, Serialize};

use crate::{Bus, Error, Questions, Subject, question::RUNNERS_GROUP};

/// Request to connect to an MCP server and list its tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpProbe {
    pub tenant: TenantId,
    pub server: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpProbeResult {
    pub tools: Vec<McpProbeTool>,
    /// Tools of the server that agents cannot use.
    #[serde(default)]
    pub omitted: Vec<McpOmittedTool>,
    /// Reason why the server could not be used.
    pub error: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpProbeTool {
    /// Name under which agents call the tool.
    pub name: String,
    /// Description that the server gives.
    pub description: String,
    /// Whether the server declares the tool read-only.
    pub reads: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpOmittedTool {
    /// Name of the tool on its server; empty for those that the server was not asked for.
    pub name: String,
    pub reason: String,
}

impl Bus {
    /// Asks one runner of the tenant's pool to probe an MCP server. An empty `pool` is the default
    /// one.
    ///
    /// # Errors
    ///
    /// If no runner answers in time.
    pub async fn probe_mcp(
        &self,
        pool: &str,
        probe: &McpProbe,
        patience: Duration,
    ) -> Result<McpProbeResult, Error> {
        let mut answers = self.ask(&Subject::probe_mcp(pool), probe, patience, 1).await?;
        answers.pop().ok_or_else(|| {
            Error::Unavailable(Some(anyhow::anyhow!("no runner is there, or none answers")))
        })
    }

    /// Subscribes to the probes of a pool. Each [`McpProbe`] goes to one runner, which answers with an
    /// [`McpProbeResult`].
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn mcp_probes(&self, pool: &str) -> Result<Questions, Error> {
        self.questions_in_group(&Subject::probe_mcp(pool), RUNNERS_GROUP).await
    }
}
