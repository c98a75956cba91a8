//! The tables that several services read and no other crate owns.

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::masked;

/// How the platform's own services trust and find each other: the table `[mesh]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mesh {
    /// What the services sign their calls with; the same in all of them, from a `Secret`.
    #[serde(serialize_with = "masked")]
    pub secret: SecretString,

    /// Where the gateway's gRPC is, for the other services.
    pub gateway_url: String,

    /// Where the memory service's gRPC is, for the other services.
    pub memory_url: String,
}

/// What secrets are sealed with: the table `[secrets]`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Secrets {
    /// The key-encryption key: 32 bytes in base64. Without it nothing that is sealed can be read.
    #[serde(serialize_with = "masked")]
    pub kek: SecretString,

    /// What API keys are hashed with. Changing it makes every key invalid.
    #[serde(serialize_with = "masked")]
    pub pepper: SecretString,
}

impl Default for Mesh {
    fn default() -> Self {
        Self {
            secret: "".into(),
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
