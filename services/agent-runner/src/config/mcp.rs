//! Configuration of MCP servers: the table `[runner.mcp]`.

use std::time::Duration;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpConfig {
    pub enabled: bool,

    /// Servers that may be reached by HTTP although they are not on the public Internet:
    /// `host:port`, or `host` for any port. Applies to all tenants.
    pub allow: Vec<String>,

    /// Time limit for connecting, and for listing tools.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,

    /// Time for which a list of tools is used, unless the server reports a change.
    #[serde(with = "humantime_serde")]
    pub refresh: Duration,

    /// Delay before a failed server is tried again to list its tools.
    #[serde(with = "humantime_serde")]
    pub retry: Duration,

    /// Idle time after which a connection or a process is ended.
    #[serde(with = "humantime_serde")]
    pub idle: Duration,

    /// Maximum number of HTTP connections.
    pub connections: usize,

    /// Maximum number of HTTP connections of one tenant.
    pub connections_per_tenant: usize,

    /// Maximum number of servers that run as processes.
    pub processes: usize,

    /// Maximum number of processes of one tenant.
    pub processes_per_tenant: usize,
}

impl Default for McpConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            allow: Vec::new(),
            connect_timeout: Duration::from_secs(15),
            refresh: Duration::from_mins(10),
            retry: Duration::from_secs(30),
            idle: Duration::from_mins(5),
            connections: 256,
            connections_per_tenant: 64,
            processes: 16,
            processes_per_tenant: 4,
        }
    }
}

impl McpConfig {
    /// Checks values that make no sense.
    ///
    /// # Errors
    ///
    /// Names the setting to change.
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
            ("connections_per_tenant", self.connections_per_tenant),
            ("processes", self.processes),
            ("processes_per_tenant", self.processes_per_tenant),
        ] {
            ensure!(most > 0, "`runner.mcp.{name}` is 0: to use no server, set `enabled = false`");
        }
        Ok(())
    }
}
