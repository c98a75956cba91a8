//! Asking a runner to look at an MCP server: it reaches what agents reach, as they reach it.
//!
//! It is asked by a person, who is told when nobody answers.

use std::time::Duration;

use holdfast_types::TenantId;
use serde::{Deserialize, Serialize};

use crate::{Bus, Error, Questions, Subject};

/// Who answers: each question goes to one of them.
const RUNNERS: &str = "runners";

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
        let mut answers = self.ask(&Subject::probe_mcp(), probe, patience, 1).await?;
        answers.pop().ok_or_else(|| {
            Error::Unavailable(Some(anyhow::anyhow!("no runner is there, or none answers")))
        })
    }

    /// What runners are asked about servers, as [`McpProbe`]s: each is answered by a
    /// [`McpProbed`], and goes to one runner.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn mcp_probes(&self) -> Result<Questions, Error> {
        self.questions_of(&Subject::probe_mcp(), RUNNERS).await
    }
}
