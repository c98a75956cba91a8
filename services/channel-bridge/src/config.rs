//! What an operator may choose about the bridge.

use std::{net::SocketAddr, time::Duration};

use anyhow::ensure;
use holdfast_kit::{
    config::{Mesh, Secrets},
    telemetry,
};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use tracing::warn;

/// Everything that the bridge reads: its own table, and those that all services share.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The channels.
    pub bridge: Bridge,
    /// Postgres.
    pub database: holdfast_pg::Config,
    /// NATS.
    pub nats: holdfast_bus::Config,
    /// Redis.
    pub redis: holdfast_lock::Config,
    /// Logs and spans.
    pub telemetry: telemetry::Config,
    /// How the platform's own services trust each other, and where the gateway is.
    pub mesh: Mesh,
    /// What secrets are sealed with.
    pub secrets: Secrets,
}

/// The channels: the table `[bridge]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bridge {
    /// Where to listen for HTTP: platforms' calls, health, metrics.
    ///
    /// The listener speaks no TLS. On an address that others can reach, put it behind something
    /// that does, and let through `/telegram/` and `/webhook/` only.
    pub listen: SocketAddr,

    /// Where platforms find `listen` on the Internet: `https://bridge.example.com`.
    ///
    /// Telegram accounts in mode `webhook` are registered with it. Without it they have to be
    /// registered by hand.
    pub public_url: Option<String>,

    /// Telegram.
    pub telegram: Telegram,

    /// Signed webhooks.
    pub webhook: Webhook,

    /// Replies that are sent at once, on each kind of channel.
    ///
    /// Each holds a little memory and, now and then, a connection to the database. One account
    /// has a quarter of them at most, so that none that is slow holds up all others.
    pub deliver_slots: u32,

    /// For how long a reply that surely was not sent is tried again, before it is given up.
    #[serde(with = "humantime_serde")]
    pub give_up_after: Duration,

    /// How often accounts are read again: after so long a change counts.
    #[serde(with = "humantime_serde")]
    pub refresh: Duration,

    /// How long to let sends at hand finish after SIGTERM.
    ///
    /// Keep it above the 20 s that one send may take, and below the pod's
    /// `terminationGracePeriodSeconds`. A send that is cut off becomes `unknown`.
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,
}

/// Telegram: the table `[bridge.telegram]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Telegram {
    /// The server of the Bot API that accounts use which name none of their own.
    pub api_base: String,

    /// How long one call waits for updates. Telegram allows up to 50 s.
    #[serde(with = "humantime_serde")]
    pub poll_timeout: Duration,
}

/// Signed webhooks: the table `[bridge.webhook]`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Webhook {
    /// Lets tenants' URLs lead to private, loopback and link-local addresses.
    ///
    /// Only where every tenant is trusted: it lets them call whatever this process can reach.
    /// It goes for a Telegram account's own `api_base` too.
    pub allow_private: bool,
}

impl Default for Bridge {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 18792)),
            public_url: None,
            telegram: Telegram::default(),
            webhook: Webhook::default(),
            deliver_slots: 32,
            give_up_after: Duration::from_secs(3600),
            refresh: Duration::from_secs(2),
            shutdown_grace: Duration::from_secs(25),
        }
    }
}

impl Default for Telegram {
    fn default() -> Self {
        Self {
            api_base: "https://api.telegram.org".to_owned(),
            poll_timeout: Duration::from_secs(25),
        }
    }
}

impl Config {
    /// Refuses what cannot work, and warns of what is unwise.
    ///
    /// # Errors
    ///
    /// With the setting to change.
    pub fn check(&self) -> anyhow::Result<()> {
        let bridge = &self.bridge;
        for (setting, zero) in [
            ("deliver_slots", bridge.deliver_slots == 0),
            ("refresh", bridge.refresh.is_zero()),
            ("telegram.poll_timeout", bridge.telegram.poll_timeout < Duration::from_secs(1)),
        ] {
            ensure!(!zero, "`bridge.{setting}` is too small: give it 1 or `1s` at least");
        }
        ensure!(
            bridge.telegram.poll_timeout <= Duration::from_secs(50),
            "`bridge.telegram.poll_timeout` is {:?}, and telegram waits 50 s at most",
            bridge.telegram.poll_timeout
        );
        check_url("telegram.api_base", &bridge.telegram.api_base)?;
        if let Some(url) = &bridge.public_url {
            check_url("public_url", url)?;
        }
        if !bridge.listen.ip().is_loopback() {
            warn!(
                address = %bridge.listen,
                "`bridge.listen` can be reached by others and speaks no tls; \
                 keep something that does in front of it"
            );
        }
        Ok(())
    }
}

fn check_url(setting: &str, url: &str) -> anyhow::Result<()> {
    let is_web = Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    ensure!(is_web, "`bridge.{setting}` is `{url}`, which is no address: write `https://host`");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_usable_on_loopback_and_closed_to_private_addresses() {
        let config = Config::default();

        config.check().unwrap();
        assert!(config.bridge.listen.ip().is_loopback());
        assert!(!config.bridge.webhook.allow_private);
    }

    #[test]
    fn what_cannot_work_is_refused_with_the_setting_to_change() {
        let refused = |change: fn(&mut Bridge)| {
            let mut config = Config::default();
            change(&mut config.bridge);
            config.check().unwrap_err().to_string()
        };

        assert!(refused(|b| b.deliver_slots = 0).contains("`bridge.deliver_slots`"));
        assert!(refused(|b| b.refresh = Duration::ZERO).contains("`bridge.refresh`"));
        assert!(refused(|b| b.telegram.api_base = "telegram".into()).contains("api_base"));
        assert!(refused(|b| b.public_url = Some("ftp://x".into())).contains("public_url"));
        let long = refused(|b| b.telegram.poll_timeout = Duration::from_secs(60));
        assert!(long.contains("50 s at most"), "{long}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut config = Config::default();
        config.secrets.kek = "kek-of-the-day".into();
        config.mesh.secret = "secret-of-the-mesh".into();

        let shown = holdfast_kit::config::print(&config);

        assert!(!shown.contains("of-the-"), "{shown}");
    }
}
