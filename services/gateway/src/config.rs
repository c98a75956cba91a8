//! What an operator may choose about the gateway.

use std::{net::SocketAddr, time::Duration};

use anyhow::ensure;
use holdfast_kit::{
    config::{Mesh, Secrets},
    telemetry,
};
use serde::{Deserialize, Serialize};
use tracing::warn;

/// Everything that the gateway reads: its own table, and those that all services share.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The doors.
    pub gateway: Gateway,
    /// Postgres.
    pub database: holdfast_pg::Config,
    /// NATS.
    pub nats: holdfast_bus::Config,
    /// Redis.
    pub redis: holdfast_lock::Config,
    /// Logs and spans.
    pub telemetry: telemetry::Config,
    /// How the platform's own services trust each other.
    pub mesh: Mesh,
    /// What secrets are sealed with.
    pub secrets: Secrets,
    /// What jobs and reminders may be.
    pub schedules: holdfast_jobs::Rules,
    /// Where skills come from.
    pub skills: holdfast_skills::Config,
}

/// The doors: the table `[gateway]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gateway {
    /// Where to listen for HTTP: the OpenAI-compatible API, health, metrics.
    ///
    /// The listener speaks no TLS. On an address that others can reach, put it behind something
    /// that does: keys travel in the clear otherwise.
    pub http: SocketAddr,

    /// Where to listen for gRPC. The same goes for it.
    pub grpc: SocketAddr,

    /// How long to let calls in flight finish after SIGTERM.
    ///
    /// Keep it below the pod's `terminationGracePeriodSeconds`, or Kubernetes kills the process
    /// first. Nothing is lost either way: a caller follows its message again.
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,

    /// The most bytes of one request.
    pub body_limit: usize,

    /// The most bytes of one message's text.
    pub text_limit: usize,

    /// How long a request's body may take to arrive.
    #[serde(with = "humantime_serde")]
    pub body_timeout: Duration,

    /// How long an HTTP call that does not stream may wait for its answer.
    ///
    /// The turn goes on after that; the same `Idempotency-Key` brings its answer.
    #[serde(with = "humantime_serde")]
    pub answer_timeout: Duration,

    /// Over how much time a tenant's rate is levelled: so much of it may be used at once.
    ///
    /// A rate of 6,000 a minute and 10 s make a burst of 1,000.
    #[serde(with = "humantime_serde")]
    pub rate_window: Duration,

    /// Calls that may be open at once, streams included.
    pub calls: u32,

    /// Calls that one tenant may have open at once, streams included.
    ///
    /// Keep it well below `calls`, or one tenant can shut the door for all.
    pub calls_per_tenant: u32,

    /// How often a stream that has nothing to say shows that it lives.
    #[serde(with = "humantime_serde")]
    pub heartbeat: Duration,

    /// The origins of web pages that may call `/mcp`, as `https://app.example.com:443`.
    ///
    /// A request that a browser sends for another page is refused; programs send no origin.
    pub mcp_origins: Vec<String>,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            http: SocketAddr::from(([127, 0, 0, 1], 18789)),
            grpc: SocketAddr::from(([127, 0, 0, 1], 18790)),
            shutdown_grace: Duration::from_secs(25),
            body_limit: 1024 * 1024,
            text_limit: 256 * 1024,
            body_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(600),
            rate_window: Duration::from_secs(10),
            calls: 10_000,
            calls_per_tenant: 1_000,
            heartbeat: Duration::from_secs(15),
            mcp_origins: Vec::new(),
        }
    }
}

impl Config {
    /// Refuses what cannot work together, and warns of what is unwise.
    ///
    /// # Errors
    ///
    /// With the setting to change.
    pub fn check(&self) -> anyhow::Result<()> {
        let Gateway { body_limit, text_limit, calls, calls_per_tenant, .. } = self.gateway;
        ensure!(
            text_limit <= body_limit,
            "`gateway.text_limit` is {text_limit} bytes, and no request may have more than \
             `gateway.body_limit`, {body_limit}: raise the one or lower the other"
        );
        for (setting, zero) in [
            ("text_limit", text_limit == 0),
            ("calls", calls == 0),
            ("calls_per_tenant", calls_per_tenant == 0),
            ("rate_window", self.gateway.rate_window.is_zero()),
            ("heartbeat", self.gateway.heartbeat.is_zero()),
            ("answer_timeout", self.gateway.answer_timeout.is_zero()),
            ("body_timeout", self.gateway.body_timeout.is_zero()),
        ] {
            ensure!(!zero, "`gateway.{setting}` is 0, and nobody could get in: raise it");
        }
        for (setting, address) in [("http", self.gateway.http), ("grpc", self.gateway.grpc)] {
            if !address.ip().is_loopback() {
                warn!(
                    %address,
                    "`gateway.{setting}` can be reached by others and speaks no tls; \
                     keep something that does in front of it"
                );
            }
        }
        if calls_per_tenant > calls / 2 {
            warn!(
                calls,
                calls_per_tenant, "one tenant may take most of the calls that may be open"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_usable_and_on_loopback() {
        let config = Config::default();

        config.check().unwrap();
        assert!(config.gateway.http.ip().is_loopback() && config.gateway.grpc.ip().is_loopback());
    }

    #[test]
    fn what_cannot_work_together_is_refused_with_the_setting_to_change() {
        let mut config = Config::default();
        config.gateway.text_limit = config.gateway.body_limit + 1;
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("`gateway.text_limit`"), "{error}");

        let mut config = Config::default();
        config.gateway.calls = 0;
        assert!(config.check().unwrap_err().to_string().contains("`gateway.calls` is 0"));
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut config = Config::default();
        config.secrets.pepper = "pepper-of-the-day".into();
        config.mesh.secret = "secret-of-the-mesh".into();

        let shown = holdfast_kit::config::print(&config);

        assert!(!shown.contains("of-the-"), "{shown}");
    }
}
