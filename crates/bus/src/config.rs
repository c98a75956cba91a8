//! NATS settings.

use std::{path::PathBuf, time::Duration};

use holdfast_kit::config;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// NATS address and limits: the table `[nats]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `nats://[user:password@]host:port`, or `tls://` for TLS; several are separated by commas.
    #[serde(serialize_with = "config::masked")]
    pub url: SecretString,

    /// File with the certificates of the authorities by which the servers are verified, in PEM. With
    /// it, all connections need TLS. Without it, those of the machine are used.
    pub authorities: Option<PathBuf>,

    /// File with the certificate that is shown to servers that ask for one, in PEM.
    pub certificate: Option<PathBuf>,

    /// File with the private key of `certificate`.
    pub private_key: Option<PathBuf>,

    /// Seed of an NKey to log in with, instead of what `url` has: `SU…`.
    #[serde(serialize_with = "config::masked")]
    pub nkey: SecretString,

    /// Content of a credentials file to log in with, as `nsc` makes it, instead of what `url` has.
    #[serde(serialize_with = "config::masked")]
    pub credentials: SecretString,

    /// Prefix of all subjects and streams, for installations or tests that share a NATS.
    ///
    /// Letters, digits, `-` and `_`.
    pub prefix: String,

    /// Maximum duration of one connection attempt.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,

    /// Maximum number of messages that wait in one subscription of a process. Further ones are
    /// dropped and counted: what they tell is found by a poll or in the journal.
    pub subscription_capacity: usize,

    /// Maximum size of all events in JetStream, in bytes; the oldest are deleted first.
    ///
    /// This limits the sum over many noisy sessions. A single session is also limited by a number
    /// of messages, so that it cannot displace the events of others.
    pub events_max_bytes: u64,

    /// Time after which an event is deleted.
    #[serde(with = "humantime_serde")]
    pub events_max_age: Duration,

    /// Number of NATS servers that keep each event: 1 to 5, odd, and at most as many as the cluster
    /// has. With 3, events survive the loss of any one server.
    pub events_replicas: usize,
}

impl Config {
    /// Name of the stream of events.
    pub(crate) fn stream(&self) -> String {
        match self.prefix.as_str() {
            "" => "EVENTS".to_owned(),
            prefix => format!("{prefix}_EVENTS"),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: "nats://127.0.0.1:4222".into(),
            authorities: None,
            certificate: None,
            private_key: None,
            nkey: "".into(),
            credentials: "".into(),
            prefix: String::new(),
            connect_timeout: Duration::from_secs(2),
            subscription_capacity: 4096,
            events_max_bytes: 256 * 1024 * 1024,
            events_max_age: Duration::from_secs(7 * 24 * 3600),
            events_replicas: 1,
        }
    }
}
