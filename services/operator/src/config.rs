//! Settings of the operator.

use std::{net::SocketAddr, time::Duration};

use anyhow::ensure;
use holdfast_kit::{
    config::{Tls, masked},
    telemetry,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

/// All settings that the operator reads: its own table, and the shared tables.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub operator: Operator,
    pub telemetry: telemetry::Config,
    pub tls: Tls,
}

/// Settings of the reconciliation: the table `[operator]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Operator {
    /// Address of the HTTP server: health, metrics.
    pub listen: SocketAddr,

    /// gRPC address of the gateway.
    pub gateway_url: String,

    /// API key with the scope `platform`.
    #[serde(serialize_with = "masked")]
    pub key: SecretString,

    /// Namespace with the resources. Empty: that of the kubeconfig or the pod.
    pub namespace: String,

    /// Namespace of the lease. Empty: that of the kubeconfig or the pod.
    pub lease_namespace: String,

    /// Name of the lease. Of the operators with the same lease one acts.
    pub lease: String,

    /// Time after which another operator takes over from one that died. It is renewed every third
    /// of it.
    #[serde(with = "humantime_serde")]
    pub lease_duration: Duration,

    /// Interval in which each resource is compared with the gateway, to correct changes by hand.
    #[serde(with = "humantime_serde")]
    pub resync: Duration,

    /// Maximum delay between attempts for a resource that cannot be applied.
    #[serde(with = "humantime_serde")]
    pub retry_max: Duration,

    /// Number of resources of each kind that are reconciled concurrently.
    pub concurrency: u16,

    /// Maximum time for reconciliations in progress to finish after SIGTERM.
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,
}

impl Default for Operator {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 18795)),
            gateway_url: "http://127.0.0.1:18790".to_owned(),
            key: SecretString::default(),
            namespace: String::new(),
            lease_namespace: String::new(),
            lease: "holdfast-operator".to_owned(),
            lease_duration: Duration::from_secs(15),
            resync: Duration::from_secs(300),
            retry_max: Duration::from_secs(60),
            concurrency: 16,
            shutdown_grace: Duration::from_secs(25),
        }
    }
}

impl Config {
    /// Rejects settings that cannot work.
    ///
    /// # Errors
    ///
    /// If a setting is missing or out of range; the error names it.
    pub fn check(&self) -> anyhow::Result<()> {
        let own = &self.operator;
        ensure!(
            !own.key.expose_secret().is_empty(),
            "`operator.key` is empty: give it an API key with the scope `platform` \
             (`holdfast keys create operator --scope platform`)"
        );
        for (setting, time) in [
            ("lease_duration", own.lease_duration),
            ("resync", own.resync),
            ("retry_max", own.retry_max),
        ] {
            ensure!(
                time >= Duration::from_secs(1),
                "`operator.{setting}` is {time:?}: give it `1s` at least"
            );
        }
        ensure!(own.concurrency > 0, "`operator.concurrency` is 0: give it 1 at least");
        ensure!(!own.lease.is_empty(), "`operator.lease` is empty: name a lease");
        self.tls.check_listener("operator.listen", own.listen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused_with_the_setting_to_change() {
        let mut usable = Config::default();
        usable.operator.key = "hf_1_2".into();
        usable.check().unwrap();
        for (change, setting) in [
            ((|o| o.key = SecretString::default()) as fn(&mut Operator), "`operator.key`"),
            (|o| o.lease_duration = Duration::ZERO, "`operator.lease_duration`"),
            (|o| o.resync = Duration::ZERO, "`operator.resync`"),
            (|o| o.retry_max = Duration::ZERO, "`operator.retry_max`"),
            (|o| o.concurrency = 0, "`operator.concurrency`"),
            (|o| o.lease.clear(), "`operator.lease`"),
        ] {
            let mut config = usable.clone();
            change(&mut config.operator);
            let refused = config.check().unwrap_err().to_string();
            assert!(refused.contains(setting), "{refused}");
        }
    }
}
