//! Signatures of the commands that runners send to people's machines.
//!
//! A command passes NATS and a gateway on its way. Neither has to be trusted: a runner signs the
//! command for one node, and the node verifies it with the key that it was told when it first
//! connected.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use holdfast_kit::config;
use holdfast_proto::gateway::v1::{NodeCommand, SignedNodeCommand};
use prost::Message as _;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;

use crate::{InvalidMeshKey, context::MIN_SECRET_BYTES};

/// Time in which a command must reach its node; it also allows for clocks that differ.
const COMMAND_LIFETIME: Duration = Duration::from_secs(300);

/// Purpose of the key, in its derivation.
const KEY_LABEL: &[u8] = b"holdfast node key 1";

/// Beginning of what is signed.
const SIGNED_LABEL: &[u8] = b"holdfast node command 1\0";

/// Reason why a node refuses a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNodeCommand {
    #[error("the command is not signed: update the installation's runners and gateways")]
    Unsigned,
    #[error("the command's signature is wrong: this installation did not send it")]
    Forged,
    #[error("the command is for another machine")]
    WrongNode,
    #[error(
        "the command has expired, or was sent before this program started: is this machine's clock \
         right?"
    )]
    Expired,
    #[error("the command was received before")]
    Replayed,
}

/// Signs the commands of a runner.
#[derive(Debug)]
pub struct NodeCommandSigner(Ed25519KeyPair);

impl NodeCommandSigner {
    /// `None` without a secret, in which case nodes cannot be used.
    ///
    /// # Errors
    ///
    /// If the secret is too short.
    pub fn new(mesh: &config::Mesh) -> Result<Option<Self>, InvalidMeshKey> {
        match mesh.node_key.expose_secret().is_empty() {
            false => Self::from_secret("mesh.node_key", &mesh.node_key),
            true => Self::from_secret("mesh.secret", &mesh.secret),
        }
    }

    fn from_secret(
        setting: &'static str,
        secret: &SecretString,
    ) -> Result<Option<Self>, InvalidMeshKey> {
        let secret = secret.expose_secret().as_bytes();
        let weak = || InvalidMeshKey::Weak { setting, bytes: secret.len() };
        match secret.len() {
            0 => return Ok(None),
            1..MIN_SECRET_BYTES => return Err(weak()),
            MIN_SECRET_BYTES.. => {}
        }
        let seed = Hmac::<Sha256>::new_from_slice(secret).map_err(|_| weak())?;
        let seed = seed.chain_update(KEY_LABEL).finalize().into_bytes();
        let key = Ed25519KeyPair::from_seed_unchecked(seed.as_slice()).map_err(|_| weak())?;
        Ok(Some(Self(key)))
    }

    /// Public key, which gateways tell nodes.
    #[must_use]
    pub fn public_key(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    /// Signs a command that is sent now; sets its times.
    #[must_use]
    pub fn sign(&self, command: NodeCommand) -> SignedNodeCommand {
        let issued_at_ms = now_ms();
        let lifetime = u64::try_from(COMMAND_LIFETIME.as_millis()).unwrap_or(u64::MAX);
        let expires_at_ms = issued_at_ms.saturating_add(lifetime);
        let command = NodeCommand { issued_at_ms, expires_at_ms, ..command }.encode_to_vec();
        let signature = self.0.sign(&[SIGNED_LABEL, &command].concat());
        SignedNodeCommand { command, signature: signature.as_ref().to_vec() }
    }
}

/// Returns the public key that a gateway tells nodes; empty without a secret.
///
/// # Errors
///
/// If the setting is no key, or the secret too short.
pub fn node_public_key(mesh: &config::Mesh) -> Result<Vec<u8>, InvalidMeshKey> {
    if mesh.node_public_key.is_empty() {
        let signer = NodeCommandSigner::new(mesh)?;
        return Ok(signer.map(|signer| signer.public_key().to_vec()).unwrap_or_default());
    }
    let key = BASE64_STANDARD.decode(mesh.node_public_key.trim()).unwrap_or_default();
    if key.len() == 32 { Ok(key) } else { Err(InvalidMeshKey::MalformedPublicKey) }
}

/// Machine that receives commands, and the key of those who may send them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeIdentity {
    pub tenant: String,
    pub node: String,
    pub command_key: Vec<u8>,
    /// Start of the node's program, in milliseconds since 1970. It remembers no earlier commands.
    pub started_at_ms: u64,
}

impl NodeIdentity {
    /// Returns a command that was sent to this node and has not expired. Whether its key is new is
    /// for the caller to find out.
    ///
    /// # Errors
    ///
    /// [`InvalidNodeCommand`] otherwise.
    pub fn verify(
        &self,
        signed: Option<SignedNodeCommand>,
    ) -> Result<NodeCommand, InvalidNodeCommand> {
        use InvalidNodeCommand::{Expired, Forged, Unsigned, WrongNode};

        let SignedNodeCommand { command, signature } = signed.ok_or(Unsigned)?;
        UnparsedPublicKey::new(&ED25519, &self.command_key)
            .verify(&[SIGNED_LABEL, &command].concat(), &signature)
            .map_err(|_| Forged)?;
        let command = NodeCommand::decode(command.as_slice()).map_err(|_| Forged)?;
        if command.tenant_id != self.tenant || command.node_id != self.node {
            return Err(WrongNode);
        }
        if command.expires_at_ms <= now_ms() || command.issued_at_ms < self.started_at_ms {
            return Err(Expired);
        }
        Ok(command)
    }
}

/// Returns the current time in milliseconds since 1970.
#[must_use]
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mesh(secret: &str) -> config::Mesh {
        config::Mesh { secret: secret.into(), ..config::Mesh::default() }
    }

    fn signer(secret: &str) -> NodeCommandSigner {
        NodeCommandSigner::new(&mesh(secret)).unwrap().unwrap()
    }

    fn identity() -> NodeIdentity {
        let command_key = node_public_key(&mesh("0123456789abcdef")).unwrap();
        let (tenant, node) = ("ten_1".to_owned(), "nod_1".to_owned());
        NodeIdentity { tenant, node, command_key, started_at_ms: 0 }
    }

    fn command() -> NodeCommand {
        NodeCommand {
            tenant_id: "ten_1".to_owned(),
            node_id: "nod_1".to_owned(),
            script: "ls".to_owned(),
            ..NodeCommand::default()
        }
    }

    #[test]
    fn only_a_command_of_a_runner_for_this_node_is_valid_and_only_for_a_while() {
        use InvalidNodeCommand::{Expired, Forged, Unsigned, WrongNode};

        let signer = signer("0123456789abcdef");
        let node = identity();
        let signed = signer.sign(command());
        let mut changed = signed.clone();
        *changed.command.last_mut().unwrap() ^= 1;
        let other_tenant = NodeCommand { tenant_id: "ten_2".to_owned(), ..command() };
        let other_node = NodeCommand { node_id: "nod_2".to_owned(), ..command() };
        let late = NodeIdentity { started_at_ms: now_ms() + 1_000, ..node.clone() };

        assert_eq!(node.verify(Some(signed.clone())).unwrap().script, "ls");
        assert_eq!(late.verify(Some(signed)), Err(Expired));
        assert_eq!(node.verify(None), Err(Unsigned));
        assert_eq!(node.verify(Some(changed)), Err(Forged));
        let theirs = self::signer("fedcba9876543210").sign(command());
        assert_eq!(node.verify(Some(theirs)), Err(Forged));
        for other in [other_tenant, other_node] {
            assert_eq!(node.verify(Some(signer.sign(other))), Err(WrongNode));
        }
        let expired = NodeCommand { expires_at_ms: now_ms() - 1, ..command() }.encode_to_vec();
        let signature = signer.0.sign(&[SIGNED_LABEL, &expired].concat()).as_ref().to_vec();
        let expired = SignedNodeCommand { command: expired, signature };
        assert_eq!(node.verify(Some(expired)), Err(Expired));
    }

    #[test]
    fn a_gateway_without_the_runners_secret_knows_the_public_key_only() {
        let runner = config::Mesh { node_key: "of the runners alone".into(), ..mesh("") };
        let key = NodeCommandSigner::new(&runner).unwrap().unwrap().public_key().to_vec();
        let told = config::Mesh { node_public_key: BASE64_STANDARD.encode(&key), ..mesh("") };

        assert_eq!(node_public_key(&told), Ok(key));
        assert_eq!(node_public_key(&mesh("")), Ok(Vec::new()));
        let wrong = config::Mesh { node_public_key: "AAAA".to_owned(), ..mesh("") };
        assert_eq!(node_public_key(&wrong), Err(InvalidMeshKey::MalformedPublicKey));
        let weak = config::Mesh { node_key: "short".into(), ..mesh("0123456789abcdef") };
        assert!(NodeCommandSigner::new(&weak).is_err());
    }
}
