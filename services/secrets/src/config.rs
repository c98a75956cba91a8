//! Configuration of the secrets service.

use std::{net::SocketAddr, time::Duration};

use anyhow::ensure;
use holdfast_kit::{
    config::{Mesh, Secrets, Tls},
    telemetry,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub secrets_service: SecretsService,
    pub telemetry: telemetry::Config,
    /// The key-encryption key, and during a rotation another one.
    pub secrets: Secrets,
    /// Keys of the services that may call.
    pub mesh: Mesh,
    /// Certificate of the server, and authorities of its callers.
    pub tls: Tls,
}

/// Settings of the table `[secrets_service]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecretsService {
    /// Address for gRPC, and for health and metrics over HTTP/1.1.
    ///
    /// Only services of the mesh call it. Block all others by a network policy.
    pub listen: SocketAddr,

    /// Time for calls in progress to finish after SIGTERM.
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,
}

impl Default for SecretsService {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 18796)),
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// Refuses settings that cannot work.
    ///
    /// # Errors
    ///
    /// Names the setting to change.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.tls.certificate.is_none() || self.tls.authorities.is_some(),
            "`tls.authorities` is not set: only services call this one, and their certificates are \
             verified by it"
        );
        self.tls.check_listener("secrets_service.listen", self.secrets_service.listen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_on_loopback_and_secrets_are_not_shown() {
        let mut config = Config::default();
        config.secrets.kek = "kek-of-the-day".into();
        config.mesh.caller_keys = "gateway=key-of-the-day".into();

        config.check().unwrap();
        let shown = holdfast_kit::config::print(&config);

        assert!(config.secrets_service.listen.ip().is_loopback());
        assert!(!shown.contains("of-the-day"), "{shown}");
    }
}
