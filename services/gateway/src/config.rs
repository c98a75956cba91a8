//! Settings of the gateway.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::ensure;
use holdfast_kit::{
    config::{Mesh, Proxies, Secrets, Tls},
    telemetry,
};
use serde::{Deserialize, Serialize};
use tracing::warn;

/// All settings of the gateway: its own table, and those that all services share.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub gateway: Gateway,
    pub database: holdfast_pg::Config,
    pub nats: holdfast_bus::Config,
    pub redis: holdfast_lock::Config,
    pub telemetry: telemetry::Config,
    /// Secret and addresses for calls between the platform's services.
    pub mesh: Mesh,
    /// Proxies in front of HTTP, WebSocket and gRPC.
    pub proxies: Proxies,
    /// Certificate of both servers and of calls to other services.
    pub tls: Tls,
    /// Keys that encrypt stored secrets.
    pub secrets: Secrets,
    /// Limits of jobs and reminders.
    pub schedules: holdfast_schedule::store::Rules,
    pub skills: holdfast_skills::Config,
    /// Addresses of providers that tenants choose.
    pub egress: holdfast_egress::Config,
    /// Models that speak and transcribe.
    pub audio: holdfast_llm::audio::AudioConfig,
    /// Identity providers whose people may sign in.
    pub oidc: crate::oidc::config::Oidc,
}

/// The table `[gateway]`: servers and limits.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gateway {
    /// Listen address of HTTP: the OpenAI-compatible API, health, metrics.
    ///
    /// If others can reach the address, it needs `tls.certificate`, or a TLS proxy in front of it and
    /// `tls.allow_plain`: keys travel unencrypted otherwise.
    pub http: SocketAddr,

    /// Listen address of gRPC.
    pub grpc: SocketAddr,

    /// Whether gRPC reflection answers callers without a key. Without the setting it does if `grpc`
    /// is an address of this machine only.
    pub reflection: Option<bool>,

    /// Time for open calls to finish after SIGTERM.
    ///
    /// Keep it below the pod's `terminationGracePeriodSeconds`, or Kubernetes kills the process
    /// first. Nothing is lost then: a caller can follow its message again.
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,

    /// Maximum size of a request, in bytes. Requests with pictures to the OpenAI-compatible API, and
    /// those with files, archives, articles or skills over gRPC, have higher fixed limits.
    pub body_limit: usize,

    /// Maximum size of all requests that are being read, in bytes. Further ones are refused and may
    /// be repeated.
    pub body_bytes: u64,

    /// Maximum size of one tenant's requests that are being read, in bytes.
    ///
    /// Keep it well below `body_bytes`, or one tenant can block all others.
    pub body_bytes_per_tenant: u64,

    /// Maximum text of a message, in bytes.
    pub text_limit: usize,

    /// Timeout for a request's body to arrive. Over gRPC, a large one has more: a second for each 64
    /// kB.
    #[serde(with = "humantime_serde")]
    pub body_timeout: Duration,

    /// Maximum wait for the answer of an HTTP call that does not stream.
    ///
    /// The turn goes on after that; a request with the same `Idempotency-Key` gets its answer.
    #[serde(with = "humantime_serde")]
    pub answer_timeout: Duration,

    /// Time window of the rate limit. A tenant may use the rate of a whole window in one burst.
    ///
    /// A rate of 6,000 per minute and a window of 10 s allow a burst of 1,000.
    #[serde(with = "humantime_serde")]
    pub rate_window: Duration,

    /// Maximum number of open calls, streams included.
    pub calls: u32,

    /// Maximum number of open calls of one tenant, streams included.
    ///
    /// Keep it well below `calls`, or one tenant can block all others.
    pub calls_per_tenant: u32,

    /// Interval of keep-alive comments on a stream without events.
    #[serde(with = "humantime_serde")]
    pub heartbeat: Duration,

    pub websocket: WebSocket,

    pub console: Console,

    pub docs: Docs,

    /// Origins of web pages that may call `/mcp`, such as `https://app.example.com:443`.
    ///
    /// Requests from other web pages are refused. Programs send no origin and are not affected.
    pub mcp_origins: Vec<String>,

    /// Origins of web pages that may call the HTTP API from a browser, such as
    /// `https://app.example.com`, or `*` for all. Empty allows none.
    pub cors_origins: Vec<String>,
}

/// The table `[gateway.websocket]`: the WebSocket gateway.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebSocket {
    /// Listen address of a port of its own. Without the setting it is served on `gateway.http`, at
    /// `/` and `/ws`.
    pub listen: Option<SocketAddr>,

    /// Maximum number of open connections that have shaken hands.
    pub connections: u32,

    /// Maximum number of open connections of one tenant.
    ///
    /// Keep it well below `connections`, or one tenant can block all others.
    pub connections_per_tenant: u32,

    /// Maximum number of connections that have not shaken hands: anybody can open them.
    pub handshakes: u32,

    /// The same for one client address, or one IPv6 network with a prefix of 64 bits.
    ///
    /// Keep it well below `handshakes`, or one address can block all others.
    pub handshakes_per_address: u32,

    /// Time from the opening of a connection to the end of its handshake.
    #[serde(with = "humantime_serde")]
    pub handshake_timeout: Duration,

    /// Maximum size of a frame after the handshake, in bytes. Before it, a frame has 64 kB at most.
    pub max_payload: usize,

    /// Bytes that may wait to be sent on one connection. A client that reads slower is disconnected.
    pub send_buffer: usize,

    /// Interval of the events `tick`, of pings and of checks of the credential.
    #[serde(with = "humantime_serde")]
    pub tick_interval: Duration,
}

/// The table `[gateway.console]`: the web console.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Console {
    /// Whether `/console` is served.
    pub enabled: bool,

    /// Directory with the built console, as `web/dist`, instead of the one in the binary.
    pub dir: Option<PathBuf>,

    /// Address at which people reach the gateway, such as `https://holdfast.example.com`. It is the
    /// beginning of sign-in links and of the redirect address of identity providers. Without it the
    /// host of each request is.
    pub url: Option<String>,

    /// Time without a call after which a session ends.
    #[serde(with = "humantime_serde")]
    pub idle_timeout: Duration,

    /// Time since its sign-in after which a session ends; 30 days at most.
    #[serde(with = "humantime_serde")]
    pub session_lifetime: Duration,

    /// Time since a session's sign-in in which it may make sign-in links and invite people.
    #[serde(with = "humantime_serde")]
    pub link_sign_in_age: Duration,

    /// Time after which the identity provider of a session's person is asked about them again.
    #[serde(with = "humantime_serde")]
    pub provider_check_interval: Duration,

    /// Time after which a session ends that was begun at an identity provider without a refresh token.
    #[serde(with = "humantime_serde")]
    pub unchecked_lifetime: Duration,
}

impl Default for Console {
    fn default() -> Self {
        Self {
            enabled: true,
            dir: None,
            url: None,
            idle_timeout: Duration::from_secs(12 * 3600),
            session_lifetime: Duration::from_secs(7 * 24 * 3600),
            link_sign_in_age: Duration::from_secs(15 * 60),
            provider_check_interval: Duration::from_secs(10 * 60),
            unchecked_lifetime: Duration::from_secs(12 * 3600),
        }
    }
}

/// The table `[gateway.docs]`: the documentation.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Docs {
    /// Whether `/docs` is served.
    pub enabled: bool,

    /// Directory with the built documentation, as `book/dist`, instead of the one in the binary.
    pub dir: Option<PathBuf>,
}

impl Default for Docs {
    fn default() -> Self {
        Self { enabled: true, dir: None }
    }
}

impl Console {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !self.idle_timeout.is_zero() && self.idle_timeout <= self.session_lifetime,
            "`gateway.console.idle_timeout` is more than 0 and at most \
             `gateway.console.session_lifetime`: change one of them"
        );
        ensure!(
            self.session_lifetime <= MAX_SESSION_LIFETIME,
            "`gateway.console.session_lifetime` is 30 days at most"
        );
        if let Some(url) = &self.url {
            let authority = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
            ensure!(
                authority.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#'])),
                "`gateway.console.url` is `{url}`: write scheme and host only, such as \
                 `https://holdfast.example.com`"
            );
        }
        Ok(())
    }
}

/// Maximum lifetime of a session of the console. A person's role is read again at each sign-in only.
const MAX_SESSION_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

impl Default for WebSocket {
    fn default() -> Self {
        Self {
            listen: None,
            connections: 12_000,
            connections_per_tenant: 2_000,
            handshakes: 2_000,
            handshakes_per_address: 50,
            handshake_timeout: Duration::from_secs(10),
            max_payload: 25 * 1024 * 1024,
            send_buffer: 2 * 1024 * 1024,
            tick_interval: Duration::from_secs(30),
        }
    }
}

impl Gateway {
    pub(crate) fn has_reflection(&self) -> bool {
        self.reflection.unwrap_or_else(|| self.grpc.ip().is_loopback())
    }
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            http: SocketAddr::from(([127, 0, 0, 1], 18789)),
            grpc: SocketAddr::from(([127, 0, 0, 1], 18790)),
            reflection: None,
            shutdown_grace: Duration::from_secs(25),
            body_limit: 1024 * 1024,
            body_bytes: 512 * 1024 * 1024,
            body_bytes_per_tenant: 128 * 1024 * 1024,
            text_limit: 256 * 1024,
            body_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(600),
            rate_window: Duration::from_secs(10),
            calls: 10_000,
            calls_per_tenant: 1_000,
            heartbeat: Duration::from_secs(15),
            websocket: WebSocket::default(),
            console: Console::default(),
            docs: Docs::default(),
            mcp_origins: Vec::new(),
            cors_origins: Vec::new(),
        }
    }
}

/// Size of the largest request of all, an agent's archive, in bytes.
const MIN_TENANT_BODY_BYTES: u64 = 80 * 1024 * 1024;

impl Config {
    /// Checks combinations of settings, and logs a warning for unwise ones.
    ///
    /// # Errors
    ///
    /// Names the setting to change.
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
            ("websocket.connections", self.gateway.websocket.connections == 0),
            ("websocket.handshakes", self.gateway.websocket.handshakes == 0),
            (
                "websocket.handshakes_per_address",
                self.gateway.websocket.handshakes_per_address == 0,
            ),
            ("websocket.handshake_timeout", self.gateway.websocket.handshake_timeout.is_zero()),
            ("websocket.max_payload", self.gateway.websocket.max_payload == 0),
            ("websocket.tick_interval", self.gateway.websocket.tick_interval.is_zero()),
        ] {
            ensure!(!zero, "`gateway.{setting}` is 0, and nobody could get in: raise it");
        }
        let Gateway { body_bytes, body_bytes_per_tenant, .. } = self.gateway;
        ensure!(
            body_bytes_per_tenant >= MIN_TENANT_BODY_BYTES && body_bytes >= body_bytes_per_tenant,
            "`gateway.body_bytes_per_tenant` is {body_bytes_per_tenant} bytes: it must be at least \
             {MIN_TENANT_BODY_BYTES}, an archive, and at most `gateway.body_bytes`"
        );
        self.oidc.check()?;
        self.gateway.console.check()?;
        for (setting, address) in [("http", self.gateway.http), ("grpc", self.gateway.grpc)] {
            self.tls.check_listener(&format!("gateway.{setting}"), address)?;
        }
        if let Some(address) = self.gateway.websocket.listen {
            self.tls.check_listener("gateway.websocket.listen", address)?;
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
    fn contracts_are_shown_to_this_machine_only_unless_it_is_set() {
        let mut gateway = Gateway::default();
        assert!(gateway.has_reflection());

        gateway.grpc = "10.0.0.7:18790".parse().unwrap();
        assert!(!gateway.has_reflection());
        gateway.reflection = Some(true);
        assert!(gateway.has_reflection());
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

        let mut config = Config::default();
        config.gateway.grpc = "10.0.0.7:18790".parse().unwrap();
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("`gateway.grpc` is `10.0.0.7:18790`"), "{error}");

        let mut config = Config::default();
        config.gateway.body_bytes_per_tenant = 1024;
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("`gateway.body_bytes_per_tenant`"), "{error}");
    }

    #[tokio::test]
    async fn a_gateway_without_a_pepper_does_not_start() {
        let refused = crate::App::connect(Config::default()).await.map(drop).unwrap_err();

        assert!(refused.to_string().starts_with("`secrets.pepper` is not set"), "{refused}");
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
