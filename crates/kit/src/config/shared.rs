//! Tables that several services read and no other crate owns.

use std::time::Duration;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::masked;

/// Addresses and credentials that the platform's services use to call each other: the table
/// `[mesh]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mesh {
    /// Key with which the services sign their calls to each other. The same in all services, from a
    /// `Secret`.
    #[serde(serialize_with = "masked")]
    pub secret: SecretString,

    /// Largest difference between the clocks of two services at which they accept each other's
    /// calls. A call that somebody records can be repeated for as long.
    #[serde(with = "humantime_serde")]
    pub clock_tolerance: Duration,

    /// URL of the gateway's gRPC server.
    pub gateway_url: String,

    /// URL of the memory service's gRPC server.
    pub memory_url: String,
}

/// Keys that encrypt and hash secrets: the table `[secrets]`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Secrets {
    /// Key-encryption key: 32 bytes in base64. Without it no encrypted secret can be read.
    #[serde(serialize_with = "masked")]
    pub kek: SecretString,

    /// Key for the hashes of API keys. A change makes all existing API keys invalid.
    #[serde(serialize_with = "masked")]
    pub pepper: SecretString,
}

impl Default for Mesh {
    fn default() -> Self {
        Self {
            secret: "".into(),
            clock_tolerance: Duration::from_secs(300),
            gateway_url: "http://127.0.0.1:18790".to_owned(),
            memory_url: "http://127.0.0.1:18794".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::print;

    #[derive(Default, Serialize)]
    struct Config {
        mesh: Mesh,
        secrets: Secrets,
    }

    #[test]
    fn they_show_no_secret_and_what_is_unset() {
        let unset = print(&Config::default());
        let secrets = Secrets { kek: "kek-of-the-day".into(), pepper: "pepper-of-the-day".into() };
        let mesh = Mesh { secret: "secret-of-the-mesh".into(), ..Mesh::default() };

        let set = print(&Config { mesh, secrets });

        assert!(!set.contains("of-the-"), "{set}");
        assert_eq!(set.matches("********").count(), 3, "{set}");
        assert!(!unset.contains('*') && unset.contains("http://127.0.0.1:18790"), "{unset}");
    }
}
