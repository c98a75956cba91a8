//! Tables that several services read and no other crate owns.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::masked;
use crate::{Network, is_public};

/// Proxies in front of the listeners: the table `[proxies]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Proxies {
    /// Networks of the proxies whose `X-Forwarded-For` names the client and whose `X-Forwarded-Proto`
    /// names its scheme. Without the setting every peer in a private network is believed, for its last
    /// address; an empty list believes nobody.
    pub trusted: Option<Vec<Network>>,
}

impl Proxies {
    /// Whether a peer with this address is a proxy that may name its clients.
    #[must_use]
    pub fn trusts(&self, peer: IpAddr) -> bool {
        match &self.trusted {
            Some(networks) => networks.iter().any(|network| network.contains(peer)),
            None => !is_public(peer),
        }
    }
}

/// Addresses and credentials that the platform's services use to call each other: the table
/// `[mesh]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mesh {
    /// Secret from which the key of each service follows that has none of its own: whoever knows it
    /// can call as any of them. The same in all services, from a `Secret`.
    #[serde(serialize_with = "masked")]
    pub secret: SecretString,

    /// Secret before a rotation, or the next one before it is used: calls signed with it are
    /// accepted too.
    #[serde(serialize_with = "masked")]
    pub previous_secret: SecretString,

    /// Key with which this service alone signs its calls, instead of one that follows from `secret`.
    /// The services that it calls need it in their `caller_keys`.
    #[serde(serialize_with = "masked")]
    pub key: SecretString,

    /// Keys of the services that call this one, as `channel-bridge=…,agent-runner=…`. A service in
    /// this list is accepted with its own key only. It may be listed twice, with the key before a
    /// rotation and the one after it.
    #[serde(serialize_with = "masked")]
    pub caller_keys: SecretString,

    /// Whether calls of services of the version before are accepted, which are bound to no service
    /// and no method. Only while an installation is updated; the version after this one will not
    /// have it.
    pub accept_version_1: bool,

    /// Secret of the key with which runners sign commands to nodes, instead of one that follows from
    /// `secret`. For runners only.
    #[serde(serialize_with = "masked")]
    pub node_key: SecretString,

    /// `node_key` before a rotation, or the next one before it is used: nodes that know one of the
    /// two accept the other.
    #[serde(serialize_with = "masked")]
    pub previous_node_key: SecretString,

    /// Public key to `node_key`, in base64, as a runner logs it at its start. For gateways. During a
    /// rotation it holds both public keys, each signed with the other.
    pub node_public_key: String,

    /// Largest difference between the clocks of two services at which they accept each other's
    /// calls. The called service remembers calls for twice as long and refuses them a second time.
    #[serde(with = "humantime_serde")]
    pub clock_tolerance: Duration,

    /// URL of the gateway's gRPC server.
    pub gateway_url: String,

    /// URL of the memory service's gRPC server.
    pub memory_url: String,

    /// URL of the secrets service's gRPC server, which encrypts and decrypts for this service.
    /// Without it this service does so itself, with `secrets.kek`.
    pub secrets_url: String,

    /// Key with which this service signs its calls to the secrets service, which has it in its
    /// `caller_keys`. Without it they are signed like other calls, and services that this one calls
    /// could make them too: they know `key`.
    #[serde(serialize_with = "masked")]
    pub secrets_key: SecretString,
}

/// Keys that encrypt and hash secrets: the table `[secrets]`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Secrets {
    /// Key-encryption key: 32 bytes in base64. Without it no encrypted secret can be read. Not for
    /// services that call the secrets service (`mesh.secrets_url`).
    #[serde(serialize_with = "masked")]
    pub kek: SecretString,

    /// Key-encryption key before a rotation, or the next one before it is used: what is encrypted
    /// with it can be read too.
    #[serde(serialize_with = "masked")]
    pub previous_kek: SecretString,

    /// Key for the hashes of API keys and node tokens, at least 16 bytes. A change makes all of them
    /// invalid that are not used while `previous_pepper` is the old one.
    #[serde(serialize_with = "masked")]
    pub pepper: SecretString,

    /// Pepper before a rotation, or the next one before it is used. A key that is used is hashed
    /// again with `pepper`.
    #[serde(serialize_with = "masked")]
    pub previous_pepper: SecretString,
}

/// Certificates of a service: the table `[tls]`. The files are in PEM, and are read again when they
/// change.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// File with the certificate of this service, and those between it and its authority. With it,
    /// all listeners of the service speak TLS. Services that this one calls are shown it, too.
    pub certificate: Option<PathBuf>,

    /// File with the private key of `certificate`.
    pub private_key: Option<PathBuf>,

    /// File with the certificates of the authorities whose services this one trusts. With it, a
    /// service with a `certificate` accepts calls of other services only if they show a certificate
    /// of these authorities. Without it, called services are verified by the machine's authorities.
    pub authorities: Option<PathBuf>,

    /// Whether the certificate of a calling service may have any name. Otherwise one of its names must
    /// be the service's: `agent-runner`, or `…-agent-runner`, followed by nothing or by a domain.
    pub allow_any_name: bool,

    /// Whether listeners without a certificate may have addresses that other machines can reach,
    /// and other services may be called there by `http://`.
    pub allow_plain: bool,
}

impl Mesh {
    /// Whether calls between services can be signed and verified.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        let keys = [&self.secret, &self.key, &self.caller_keys];
        keys.into_iter().any(|key| !key.expose_secret().is_empty())
    }
}

impl Default for Mesh {
    fn default() -> Self {
        Self {
            secret: "".into(),
            previous_secret: "".into(),
            key: "".into(),
            caller_keys: "".into(),
            accept_version_1: false,
            node_key: "".into(),
            previous_node_key: "".into(),
            node_public_key: String::new(),
            clock_tolerance: Duration::from_secs(300),
            gateway_url: "http://127.0.0.1:18790".to_owned(),
            memory_url: "http://127.0.0.1:18794".to_owned(),
            secrets_url: String::new(),
            secrets_key: "".into(),
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
        let secrets = Secrets {
            kek: "kek-of-the-day".into(),
            previous_kek: "kek-of-the-night".into(),
            pepper: "pepper-of-the-day".into(),
            previous_pepper: "pepper-of-the-night".into(),
        };
        let mesh = Mesh {
            secret: "secret-of-the-mesh".into(),
            previous_secret: "secret-of-the-past".into(),
            key: "key-of-the-service".into(),
            caller_keys: "a=key-of-the-caller".into(),
            node_key: "key-of-the-runners".into(),
            previous_node_key: "key-of-the-runners-before".into(),
            secrets_key: "key-of-the-opener".into(),
            ..Mesh::default()
        };

        let set = print(&Config { mesh, secrets });

        assert!(!set.contains("of-the-"), "{set}");
        assert_eq!(set.matches("********").count(), 11, "{set}");
        assert!(!unset.contains('*') && unset.contains("http://127.0.0.1:18790"), "{unset}");
    }
}
