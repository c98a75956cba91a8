//! Options of the channel bridge.

use std::{net::SocketAddr, time::Duration};

use anyhow::ensure;
use holdfast_kit::{
    config::{Mesh, Proxies, Secrets, Tls},
    telemetry,
};
use reqwest::Url;
use serde::{Deserialize, Serialize};

/// All options of the service: its own table, and those that all services share.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub bridge: Bridge,
    pub database: holdfast_pg::Config,
    pub nats: holdfast_bus::Config,
    pub redis: holdfast_lock::Config,
    pub telemetry: telemetry::Config,
    /// Secret that the services share, and the gateway's address.
    pub mesh: Mesh,
    /// Proxies in front of the server.
    pub proxies: Proxies,
    /// Certificate of the server and of calls to the gateway.
    pub tls: Tls,
    /// Keys that encrypt the stored secrets.
    pub secrets: Secrets,
    /// Addresses that tenants choose for their webhooks and Bot API servers.
    pub egress: holdfast_egress::Config,
}

/// Options of the table `[bridge]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bridge {
    /// Address for HTTP: calls of platforms, health, metrics.
    ///
    /// If others can reach the address, put a proxy in front of it that passes the paths of channels
    /// only: `/telegram/`, `/webhook/`, `/slack/`,
    /// `/matrix/`, `/whatsapp/`, `/widget/`.
    pub listen: SocketAddr,

    /// URL at which platforms reach `listen` from the Internet: `https://bridge.example.com`.
    ///
    /// Telegram accounts in mode `webhook` are registered with it. Without it they have to be
    /// registered by hand.
    pub public_url: Option<String>,

    pub telegram: Telegram,
    pub discord: Discord,
    pub slack: Slack,

    /// Replies that are sent at once, on each kind of channel.
    ///
    /// Each uses a little memory and, now and then, a connection to the database. One account uses
    /// a quarter of them at most, so that a slow one does not block all others.
    pub deliver_slots: u32,

    /// Time for which a reply that certainly was not sent is retried.
    #[serde(with = "humantime_serde")]
    pub give_up_after: Duration,

    /// Interval at which accounts are read again. A change takes effect after at most this time.
    #[serde(with = "humantime_serde")]
    pub refresh: Duration,

    /// Time for sends in progress to finish after SIGTERM.
    ///
    /// Keep it above the duration of a send (normally below 20 s; 45 s at most, for files), and
    /// 10 s below the pod's `terminationGracePeriodSeconds`. A send that is cut off becomes
    /// `unknown`.
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,
}

/// Options of the table `[bridge.telegram]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Telegram {
    /// Server of the Bot API for accounts that name none of their own.
    pub api_base: String,

    /// Time that one call waits for updates. Telegram allows up to 50 s.
    #[serde(with = "humantime_serde")]
    pub poll_timeout: Duration,
}

/// Options of the table `[bridge.discord]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Discord {
    /// Base URL of the API, with its version.
    pub api_base: String,
}

/// Options of the table `[bridge.slack]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slack {
    /// Base URL of the Web API.
    pub api_base: String,
}

impl Default for Discord {
    fn default() -> Self {
        Self { api_base: "https://discord.com/api/v10".to_owned() }
    }
}

impl Default for Slack {
    fn default() -> Self {
        Self { api_base: "https://slack.com/api".to_owned() }
    }
}

impl Default for Bridge {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 18792)),
            public_url: None,
            telegram: Telegram::default(),
            discord: Discord::default(),
            slack: Slack::default(),
            deliver_slots: 32,
            give_up_after: Duration::from_secs(3600),
            refresh: Duration::from_secs(2),
            shutdown_grace: Duration::from_secs(50),
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
    /// Refuses settings that cannot work, and warns of unwise ones.
    ///
    /// # Errors
    ///
    /// Names the setting to change.
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
        check_url("discord.api_base", &bridge.discord.api_base)?;
        check_url("slack.api_base", &bridge.slack.api_base)?;
        if let Some(url) = &bridge.public_url {
            check_url("public_url", url)?;
        }
        self.tls.check_listener("bridge.listen", bridge.listen)
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
    use crate::deliver::SEND_TIMEOUT;

    #[test]
    fn the_defaults_are_usable_on_loopback_and_closed_to_private_addresses() {
        let config = Config::default();

        config.check().unwrap();
        assert!(config.bridge.shutdown_grace > SEND_TIMEOUT, "no send is cut off");
        assert!(config.bridge.listen.ip().is_loopback());
        assert!(config.egress.allow.is_empty());
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
