//! What an operator may choose about MCP servers: the table `[runner.mcp]`.

use std::time::Duration;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

/// The table `[runner.mcp]`: others' tools for agents.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mcp {
    /// Whether MCP servers are used at all.
    pub enabled: bool,

    /// Servers that may be reached by HTTP though they are not on the public Internet:
    /// `host:port`, or `host` for any port. Every tenant may then reach them.
    pub allow: Vec<String>,

    /// How long a server may take to connect, and to list its tools.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,

    /// For how long a list of tools is believed, unless the server says that it has changed.
    #[serde(with = "humantime_serde")]
    pub refresh: Duration,

    /// For how long a server that could not be used is not tried again to list its tools.
    #[serde(with = "humantime_serde")]
    pub retry: Duration,

    /// After how long without a call a connection, or a process, is ended.
    #[serde(with = "humantime_serde")]
    pub idle: Duration,

    /// Connections by HTTP at a time.
    pub connections: usize,

    /// Servers that run as processes at a time.
    pub processes: usize,

    /// Of those, one tenant's.
    pub processes_per_tenant: usize,
}

impl Default for Mcp {
    fn default() -> Self {
        Self {
            enabled: true,
            allow: Vec::new(),
            connect_timeout: Duration::from_secs(15),
            refresh: Duration::from_mins(10),
            retry: Duration::from_secs(30),
            idle: Duration::from_mins(5),
            connections: 256,
            processes: 16,
            processes_per_tenant: 4,
        }
    }
}

impl Mcp {
    /// Checks what makes no sense.
    ///
    /// # Errors
    ///
    /// With the setting to change.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        for (name, time) in [
            ("connect_timeout", self.connect_timeout),
            ("refresh", self.refresh),
            ("idle", self.idle),
        ] {
            ensure!(!time.is_zero(), "`runner.mcp.{name}` is 0: write 1m, say");
        }
        for (name, most) in [
            ("connections", self.connections),
            ("processes", self.processes),
            ("processes_per_tenant", self.processes_per_tenant),
        ] {
            ensure!(most > 0, "`runner.mcp.{name}` is 0: to use no server, set `enabled = false`");
        }
        Ok(())
    }
}
