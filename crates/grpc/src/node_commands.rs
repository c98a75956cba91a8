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

/// Beginning of the signature of one key over another.
const ENDORSED_LABEL: &[u8] = b"holdfast node key endorsement 1\0";

/// Lengths of a public key and of a signature, in bytes.
const KEY_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;

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

    /// The signer with the other key of a rotation.
    fn previous(mesh: &config::Mesh) -> Result<Option<Self>, InvalidMeshKey> {
        match mesh.node_key.expose_secret().is_empty() {
            false => Self::from_secret("mesh.previous_node_key", &mesh.previous_node_key),
            true => Self::from_secret("mesh.previous_secret", &mesh.previous_secret),
        }
    }

    fn endorse(&self, other: &Self) -> Vec<u8> {
        self.0.sign(&[ENDORSED_LABEL, other.public_key()].concat()).as_ref().to_vec()
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

/// Returns what a gateway tells nodes of the public keys, as [`NodeCommandKeys`] reads it; empty
/// without a secret.
///
/// # Errors
///
/// If the setting is no key, or the secret too short.
pub fn node_public_key(mesh: &config::Mesh) -> Result<Vec<u8>, InvalidMeshKey> {
    if mesh.node_public_key.is_empty() {
        let Some(signer) = NodeCommandSigner::new(mesh)? else { return Ok(Vec::new()) };
        let current = signer.public_key();
        return Ok(match NodeCommandSigner::previous(mesh)? {
            Some(other) if other.public_key() != current => {
                let (by_other, by_current) = (other.endorse(&signer), signer.endorse(&other));
                [current, other.public_key(), &by_other, &by_current].concat()
            }
            Some(_) | None => current.to_vec(),
        });
    }
    let keys = BASE64_STANDARD.decode(mesh.node_public_key.trim()).unwrap_or_default();
    match NodeCommandKeys::parse(&keys) {
        Some(_) => Ok(keys),
        None => Err(InvalidMeshKey::MalformedPublicKey),
    }
}

/// Public keys with which commands are signed, as a gateway tells them: the current one, and during
/// a rotation the other one, each signed with the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCommandKeys {
    current: Vec<u8>,
    other: Option<OtherKey>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct OtherKey {
    key: Vec<u8>,
    /// Signature of the other key over the current one.
    by_other: Vec<u8>,
    /// Signature of the current key over the other one.
    by_current: Vec<u8>,
}

impl NodeCommandKeys {
    /// `None` if the bytes are neither one key nor the two of a rotation.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (current, rest) = bytes.split_at_checked(KEY_BYTES)?;
        let current = current.to_vec();
        if rest.is_empty() {
            return Some(Self { current, other: None });
        }
        let (key, rest) = rest.split_at_checked(KEY_BYTES)?;
        let (by_other, by_current) = rest.split_at_checked(SIGNATURE_BYTES)?;
        let (key, by_other) = (key.to_vec(), by_other.to_vec());
        let is_whole = by_current.len() == SIGNATURE_BYTES;
        let other = OtherKey { key, by_other, by_current: by_current.to_vec() };
        is_whole.then_some(Self { current, other: Some(other) })
    }

    #[must_use]
    pub fn current(&self) -> &[u8] {
        &self.current
    }

    /// Keys whose commands a node accepts that knows the key `known`; `None` if `known` vouches for
    /// none of them.
    #[must_use]
    pub fn accepted_by(&self, known: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut keys = vec![self.current.clone()];
        match &self.other {
            Some(other) if known == self.current => {
                if is_endorsed(&self.current, &other.key, &other.by_current) {
                    keys.push(other.key.clone());
                }
            }
            Some(other) if known == other.key => {
                if !is_endorsed(&other.key, &self.current, &other.by_other) {
                    return None;
                }
                keys.push(other.key.clone());
            }
            Some(_) | None if known == self.current => {}
            Some(_) | None => return None,
        }
        Some(keys)
    }
}

/// Whether `key` has signed the key `other`.
fn is_endorsed(key: &[u8], other: &[u8], signature: &[u8]) -> bool {
    let text = [ENDORSED_LABEL, other].concat();
    UnparsedPublicKey::new(&ED25519, key).verify(&text, signature).is_ok()
}

/// Machine that receives commands, and the key of those who may send them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeIdentity {
    pub tenant: String,
    pub node: String,
    /// One key, or the two of a rotation.
    pub command_keys: Vec<Vec<u8>>,
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
        let text = [SIGNED_LABEL, &command].concat();
        let is_signed = self
            .command_keys
            .iter()
            .any(|key| UnparsedPublicKey::new(&ED25519, key).verify(&text, &signature).is_ok());
        if !is_signed {
            return Err(Forged);
        }
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
        let command_keys = vec![node_public_key(&mesh("0123456789abcdef")).unwrap()];
        let (tenant, node) = ("ten_1".to_owned(), "nod_1".to_owned());
        NodeIdentity { tenant, node, command_keys, started_at_ms: 0 }
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
    fn a_key_vouches_for_the_other_one_of_a_rotation_and_no_other() {
        let rotating = |key: &str, previous: &str| config::Mesh {
            node_key: key.into(),
            previous_node_key: previous.into(),
            ..mesh("")
        };
        let (old, new) = ("the old key of runners", "the new key of runners");
        let told =
            |mesh: &config::Mesh| NodeCommandKeys::parse(&node_public_key(mesh).unwrap()).unwrap();
        let public = |key: &str| told(&rotating(key, "")).current().to_vec();
        let both = told(&rotating(new, old));

        assert_eq!(both.current(), public(new));
        for known in [old, new] {
            let accepted = both.accepted_by(&public(known)).unwrap();
            assert_eq!(accepted, [public(new), public(old)]);
        }
        assert_eq!(both.accepted_by(&public("the key of a stranger")), None);
        assert_eq!(told(&rotating(new, "")).accepted_by(&public(old)), None);
        // A gateway that is taken over knows the public keys and has neither secret.
        let theirs = node_public_key(&rotating("the key of a stranger", new)).unwrap();
        let mut forged = theirs.clone();
        forged[KEY_BYTES..2 * KEY_BYTES].copy_from_slice(&public(old));
        assert_eq!(NodeCommandKeys::parse(&forged).unwrap().accepted_by(&public(old)), None);
        assert_eq!(NodeCommandKeys::parse(&theirs[..100]), None);
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
