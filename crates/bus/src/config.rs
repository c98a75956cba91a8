//! Where NATS is, and how much it may keep.

use std::time::Duration;

use holdfast_kit::config;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// Where NATS is: the table `[nats]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `nats://[user:password@]host:port`, or `tls://` for TLS; several are separated by commas.
    #[serde(serialize_with = "config::masked")]
    pub url: SecretString,

    /// What every subject and stream begins with: for installations, or tests, that share a NATS.
    ///
    /// Letters, digits, `-` and `_`.
    pub prefix: String,

    /// How long one try to connect may take.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,

    /// The most bytes of events that JetStream keeps; the oldest go first.
    ///
    /// This is what holds when many sessions are noisy. One session is held by a number of
    /// messages too, so that it cannot push out the others'.
    pub events_max_bytes: u64,

    /// How long an event is kept.
    #[serde(with = "humantime_serde")]
    pub events_max_age: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: "nats://127.0.0.1:4222".into(),
            prefix: String::new(),
            connect_timeout: Duration::from_secs(2),
            events_max_bytes: 256 * 1024 * 1024,
            events_max_age: Duration::from_secs(7 * 24 * 3600),
        }
    }
}
