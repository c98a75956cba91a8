//! Encryption of stored secrets: each tenant has a data key, sealed by the installation's
//! key-encryption key.
//!
//! XChaCha20-Poly1305 with a random nonce. The associated data names the tenant and the field of a
//! value. So a person with write access to the database cannot have a secret of another tenant or
//! another field decrypted.
//!
//! Formats of a sealed value, after a byte with the number of the format:
//!
//! | format | fields | used for |
//! |---|---|---|
//! | 1 | 24 bytes of nonce, the ciphertext | secrets; data keys while there is one key-encryption key |
//! | 2 | 4 bytes of the key's id, 24 bytes of nonce, the ciphertext | data keys, during and after a rotation |
//!
//! Services of versions before format 2 cannot read it, so it is written only once an installation
//! has a second key-encryption key.

mod request_key;

pub(crate) use request_key::KeyPurpose;

use std::{fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chacha20poly1305::{
    KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use holdfast_types::{AccountId, TenantId};
use secrecy::{ExposeSecret as _, SecretBox, SecretString};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::Error;

const FORMAT: u8 = 1;
const FORMAT_WITH_KEY_ID: u8 = 2;
const NONCE_BYTES: usize = 24;
const KEY_ID_BYTES: usize = 4;

type Key = SecretBox<[u8; 32]>;

/// Public name of a key: a part of its hash.
type KeyId = [u8; KEY_ID_BYTES];

/// Key-encryption key of the installation, and during a rotation another one.
struct Kek {
    current: Key,
    previous: Option<Key>,
}

impl Kek {
    fn keys(&self) -> impl Iterator<Item = &Key> {
        [&self.current].into_iter().chain(&self.previous)
    }

    fn seal(&self, context: &[u8], data_key: &[u8]) -> Result<Vec<u8>, Error> {
        if self.previous.is_none() {
            return encrypt(&self.current, context, data_key);
        }
        let id = key_id(&self.current);
        let sealed = encrypt(&self.current, &context_with_key(context, id), data_key)?;
        Ok([&[FORMAT_WITH_KEY_ID], id.as_slice(), &sealed].concat())
    }

    fn open(&self, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>, Error> {
        let opened = match key_id_of(sealed) {
            Some((id, sealed)) => self
                .keys()
                .find(|key| key_id(key) == id)
                .and_then(|key| decrypt(key, &context_with_key(context, id), sealed)),
            None => self.keys().find_map(|key| decrypt(key, context, sealed)),
        };
        opened.ok_or(Error::Unsealable("a data key"))
    }

    /// Whether a value was sealed with the current key, as far as the value tells.
    fn is_current(&self, sealed: &[u8]) -> bool {
        key_id_of(sealed).is_some_and(|(id, _)| id == key_id(&self.current))
    }
}

impl fmt::Debug for Kek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kek(***)")
    }
}

/// Purpose of a secret, part of the associated data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose<'a> {
    /// API key of the provider with this name.
    ProviderKey(&'a str),
    /// Headers of the provider with this name.
    ProviderHeaders(&'a str),
    /// A further credential of a provider.
    Credential { provider: &'a str, name: &'a str },
    /// Secrets of the channel account.
    AccountSecrets(AccountId),
    /// Headers or environment variables of the MCP server with this name.
    McpSecrets(&'a str),
    /// Secret of the connection with this name.
    ConnectionSecret(&'a str),
    /// Secret of the webhook for events with this id.
    EventWebhook(Uuid),
    /// Refresh token of the person with this id.
    RefreshToken(Uuid),
    /// An environment variable of a skill.
    SkillEnv {
        /// Name of the skill, in lower case.
        skill: &'a str,
        name: &'a str,
    },
}

/// Seals and opens tenants' data keys. Clones share the key.
#[derive(Debug, Clone)]
pub(crate) struct Seal {
    kek: Arc<Kek>,
}

impl Seal {
    /// Uses a key-encryption key of 32 bytes, in base64. `previous` is another one with which values
    /// may be sealed, or empty.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidKek`] if a text is anything else.
    pub(crate) fn new(kek: &SecretString, previous: &SecretString) -> Result<Self, Error> {
        let previous = match previous.expose_secret() {
            "" => None,
            _ => Some(parse_key(previous)?),
        };
        Ok(Self { kek: Arc::new(Kek { current: parse_key(kek)?, previous }) })
    }

    /// Creates the data key of a new tenant, and returns it sealed.
    ///
    /// # Errors
    ///
    /// If the key-encryption key is not available.
    pub(crate) fn new_data_key(&self, tenant: TenantId) -> Result<Vec<u8>, Error> {
        let key: Key = SecretBox::new(Box::new(rand::random()));
        self.kek.seal(&context(tenant, "data-key", b""), key.expose_secret())
    }

    /// Opens a tenant's data key.
    ///
    /// # Errors
    ///
    /// If it belongs to another tenant, or was sealed with another key-encryption key.
    pub(crate) fn data_key(&self, tenant: TenantId, sealed: &[u8]) -> Result<DataKey, Error> {
        let key = self.kek.open(&context(tenant, "data-key", b""), sealed)?;
        let key: [u8; 32] = key.try_into().map_err(|_| Error::Unsealable("a data key"))?;
        Ok(DataKey { tenant, key: SecretBox::new(Box::new(key)) })
    }

    /// Seals a key of the installation, by its provider and name.
    ///
    /// # Errors
    ///
    /// If the secret is too large, which stored secrets never are.
    pub(crate) fn seal_platform_key(
        &self,
        which: (&str, &str),
        secret: &[u8],
    ) -> Result<Vec<u8>, Error> {
        self.kek.seal(&platform_context(which), secret)
    }

    /// Returns the keys of a purpose that follow from this secret and each key-encryption key.
    pub(crate) fn signing_keys(&self, purpose: KeyPurpose, secret: &[u8]) -> Vec<[u8; 32]> {
        let keys = self.kek.keys();
        keys.map(|key| request_key::derive(key.expose_secret(), purpose, secret)).collect()
    }

    /// Opens a key of the installation.
    ///
    /// # Errors
    ///
    /// If it was sealed as another one, or with another key-encryption key.
    pub(crate) fn open_platform_key(
        &self,
        which: (&str, &str),
        sealed: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let opened = self.kek.open(&platform_context(which), sealed);
        opened.map_err(|_| Error::Unsealable("a key of the platform"))
    }

    /// Returns a key of the installation sealed with the current key-encryption key; `None` if it is
    /// already.
    ///
    /// # Errors
    ///
    /// As [`open_platform_key`](Self::open_platform_key).
    pub(crate) fn reseal_platform_key(
        &self,
        which: (&str, &str),
        sealed: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        if self.kek.is_current(sealed) {
            return Ok(None);
        }
        let secret = SecretBox::new(Box::new(self.open_platform_key(which, sealed)?));
        self.seal_platform_key(which, secret.expose_secret()).map(Some)
    }

    /// Returns a tenant's data key sealed with the current key-encryption key; `None` if it is
    /// already.
    ///
    /// # Errors
    ///
    /// As [`data_key`](Self::data_key).
    pub(crate) fn reseal(&self, tenant: TenantId, sealed: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if self.kek.is_current(sealed) {
            return Ok(None);
        }
        let DataKey { key, .. } = self.data_key(tenant, sealed)?;
        let context = context(tenant, "data-key", b"");
        self.kek.seal(&context, key.expose_secret()).map(Some)
    }
}

fn parse_key(text: &SecretString) -> Result<Key, Error> {
    let bytes = STANDARD.decode(text.expose_secret().trim()).map_err(|_| Error::InvalidKek)?;
    let bytes: [u8; 32] = bytes.try_into().map_err(|_| Error::InvalidKek)?;
    Ok(SecretBox::new(Box::new(bytes)))
}

fn key_id(key: &Key) -> KeyId {
    let hash = Sha256::new().chain_update(b"holdfast key id\0").chain_update(key.expose_secret());
    let hash: [u8; 32] = hash.finalize().into();
    let mut id = KeyId::default();
    id.copy_from_slice(&hash[..KEY_ID_BYTES]);
    id
}

/// Splits a value of format 2 into the id of its key and the rest, which has the form of format 1.
fn key_id_of(sealed: &[u8]) -> Option<(KeyId, &[u8])> {
    let (id, rest) = sealed.strip_prefix(&[FORMAT_WITH_KEY_ID])?.split_first_chunk()?;
    Some((*id, rest))
}

fn context_with_key(context: &[u8], id: KeyId) -> Vec<u8> {
    [context, b"\0key\0", id.as_slice()].concat()
}

/// An open data key of a tenant.
pub(crate) struct DataKey {
    tenant: TenantId,
    key: Key,
}

impl DataKey {
    /// Seals a secret for one purpose.
    ///
    /// # Errors
    ///
    /// If the secret is too large, which stored secrets never are.
    pub(crate) fn seal(&self, purpose: Purpose<'_>, secret: &[u8]) -> Result<Vec<u8>, Error> {
        encrypt(&self.key, &self.context(purpose), secret)
    }

    /// Opens a secret that was sealed for this purpose.
    ///
    /// # Errors
    ///
    /// If the secret was sealed for another purpose or tenant, or is damaged.
    pub(crate) fn open(&self, purpose: Purpose<'_>, sealed: &[u8]) -> Result<Vec<u8>, Error> {
        let what = match purpose {
            Purpose::ProviderKey(_) => "a provider's key",
            Purpose::Credential { .. } => "a credential",
            Purpose::AccountSecrets(_) => "a channel account's secrets",
            Purpose::ProviderHeaders(_) => "a provider's headers",
            Purpose::McpSecrets(_) => "an mcp server's secrets",
            Purpose::ConnectionSecret(_) => "a connection's secret",
            Purpose::EventWebhook(_) => "the secret of a webhook for events",
            Purpose::RefreshToken(_) => "a person's refresh token",
            Purpose::SkillEnv { .. } => "a skill's variable",
        };
        decrypt(&self.key, &self.context(purpose), sealed).ok_or(Error::Unsealable(what))
    }

    fn context(&self, purpose: Purpose<'_>) -> Vec<u8> {
        match purpose {
            Purpose::ProviderKey(name) => context(self.tenant, "provider-key", name.as_bytes()),
            Purpose::Credential { provider, name } => {
                // Names contain no zero byte, so the separator is unambiguous.
                let row = [provider.as_bytes(), b"\0", name.as_bytes()].concat();
                context(self.tenant, "auth-profile", &row)
            }
            Purpose::AccountSecrets(account) => {
                context(self.tenant, "account-secrets", account.as_uuid().as_bytes())
            }
            Purpose::ProviderHeaders(name) => {
                context(self.tenant, "provider-headers", name.as_bytes())
            }
            Purpose::McpSecrets(name) => context(self.tenant, "mcp-secrets", name.as_bytes()),
            Purpose::ConnectionSecret(name) => {
                context(self.tenant, "connection-secret", name.as_bytes())
            }
            Purpose::EventWebhook(id) => context(self.tenant, "event-webhook", id.as_bytes()),
            Purpose::RefreshToken(id) => context(self.tenant, "refresh-token", id.as_bytes()),
            Purpose::SkillEnv { skill, name } => {
                // Names contain no zero byte, so the separator is unambiguous.
                let row = [skill.as_bytes(), b"\0", name.as_bytes()].concat();
                context(self.tenant, "skill-env", &row)
            }
        }
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataKey").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

/// Builds the associated data. The tenant's id has a fixed length and the field contains no zero
/// byte, so no two contexts are equal.
fn context(tenant: TenantId, field: &str, row: &[u8]) -> Vec<u8> {
    [b"holdfast\0", tenant.as_uuid().as_bytes().as_slice(), field.as_bytes(), b"\0", row].concat()
}

/// Associated data of a key of the installation. Names contain no zero byte.
fn platform_context((provider, name): (&str, &str)) -> Vec<u8> {
    [b"holdfast-platform-key\0", provider.as_bytes(), b"\0", name.as_bytes()].concat()
}

fn encrypt(key: &Key, context: &[u8], secret: &[u8]) -> Result<Vec<u8>, Error> {
    let nonce: [u8; NONCE_BYTES] = rand::random();
    let sealed = XChaCha20Poly1305::new(&(*key.expose_secret()).into())
        .encrypt(&XNonce::from(nonce), Payload { msg: secret, aad: context })
        .map_err(|_| Error::Unsealable("a secret"))?;
    Ok([&[FORMAT], nonce.as_slice(), &sealed].concat())
}

fn decrypt(key: &Key, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (format, rest) = sealed.split_first()?;
    let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>()?;
    if *format != FORMAT {
        return None;
    }
    XChaCha20Poly1305::new(&(*key.expose_secret()).into())
        .decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: context })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kek(byte: u8) -> SecretString {
        STANDARD.encode([byte; 32]).into()
    }

    fn seal() -> Seal {
        Seal::new(&kek(1), &"".into()).unwrap()
    }

    fn data_key(tenant: TenantId) -> DataKey {
        let sealed = seal().new_data_key(tenant).unwrap();
        seal().data_key(tenant, &sealed).unwrap()
    }

    #[test]
    fn a_secret_opens_only_for_its_own_purpose() {
        let key = data_key(TenantId::generate());
        let account = AccountId::generate();
        let (provider, other) = (Purpose::ProviderKey("openai"), Purpose::ProviderKey("other"));
        let secrets = Purpose::AccountSecrets(account);

        let sealed = key.seal(provider, b"sk-1").unwrap();

        assert_eq!(key.open(provider, &sealed).unwrap(), b"sk-1");
        for wrong in [other, secrets, Purpose::AccountSecrets(AccountId::generate())] {
            assert!(matches!(key.open(wrong, &sealed), Err(Error::Unsealable(_))), "{wrong:?}");
        }
    }

    #[test]
    fn no_two_things_that_are_sealed_open_in_each_others_place() {
        let key = data_key(TenantId::generate());
        let (provider, name) = ("a", "b");
        let purposes = [
            Purpose::ProviderKey("a"),
            Purpose::ProviderKey("b"),
            Purpose::Credential { provider, name },
            Purpose::Credential { provider, name: "c" },
            Purpose::Credential { provider: "c", name },
            Purpose::AccountSecrets(AccountId::generate()),
            Purpose::AccountSecrets(AccountId::generate()),
            Purpose::ProviderHeaders("a"),
            Purpose::ProviderHeaders("b"),
            Purpose::McpSecrets("a"),
            Purpose::McpSecrets("b"),
            Purpose::ConnectionSecret("a"),
            Purpose::ConnectionSecret("b"),
            Purpose::SkillEnv { skill: "a", name: "b" },
            Purpose::SkillEnv { skill: "b", name: "a" },
        ];

        for (at, purpose) in purposes.into_iter().enumerate() {
            let sealed = key.seal(purpose, b"sk-1").unwrap();
            for (other, place) in purposes.into_iter().enumerate() {
                assert_eq!(key.open(place, &sealed).is_ok(), at == other, "{purpose:?} {place:?}");
            }
        }
    }

    #[test]
    fn a_data_key_opens_only_for_its_own_tenant() {
        let (ours, theirs) = (TenantId::generate(), TenantId::generate());

        let sealed = seal().new_data_key(ours).unwrap();

        assert!(seal().data_key(ours, &sealed).is_ok());
        assert!(matches!(seal().data_key(theirs, &sealed), Err(Error::Unsealable(_))));
    }

    #[test]
    fn a_data_key_opens_under_both_keys_of_a_rotation_and_is_resealed_once() {
        let tenant = TenantId::generate();
        let old = seal().new_data_key(tenant).unwrap();
        let rotating = Seal::new(&kek(2), &kek(1)).unwrap();
        let rotated = Seal::new(&kek(2), &"".into()).unwrap();

        let new = rotating.reseal(tenant, &old).unwrap().unwrap();

        assert!(rotating.data_key(tenant, &old).is_ok());
        assert!(rotating.data_key(tenant, &new).is_ok());
        assert!(rotated.data_key(tenant, &new).is_ok());
        assert!(rotated.data_key(tenant, &old).is_err());
        assert!(seal().data_key(tenant, &new).is_err());
        assert_eq!(rotating.reseal(tenant, &new).unwrap(), None);
        let key = |seal: &Seal, sealed: &[u8]| {
            *seal.data_key(tenant, sealed).unwrap().key.expose_secret()
        };
        assert_eq!(key(&seal(), &old), key(&rotated, &new));
        for at in 0..new.len() {
            let mut changed = new.clone();
            changed[at] ^= 1;
            assert!(rotating.data_key(tenant, &changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_platform_key_opens_only_as_itself_and_is_resealed_in_a_rotation() {
        let sealed = seal().seal_platform_key(("openai", "a"), b"sk-1").unwrap();
        let rotating = Seal::new(&kek(2), &kek(1)).unwrap();
        let rotated = Seal::new(&kek(2), &"".into()).unwrap();

        assert_eq!(seal().open_platform_key(("openai", "a"), &sealed).unwrap(), b"sk-1");
        for other in [("openai", "b"), ("other", "a"), ("openaia", ""), ("", "openaia")] {
            assert!(seal().open_platform_key(other, &sealed).is_err(), "{other:?}");
        }
        assert!(seal().data_key(TenantId::generate(), &sealed).is_err());
        let new = rotating.reseal_platform_key(("openai", "a"), &sealed).unwrap().unwrap();
        assert_eq!(rotated.open_platform_key(("openai", "a"), &new).unwrap(), b"sk-1");
        assert!(rotated.open_platform_key(("openai", "a"), &sealed).is_err());
        assert_eq!(rotating.reseal_platform_key(("openai", "a"), &new).unwrap(), None);
    }

    #[test]
    fn the_same_key_does_not_open_another_tenants_value() {
        // Even if two tenants had the same data key by some mistake.
        let ours = data_key(TenantId::generate());
        let key = SecretBox::new(Box::new(*ours.key.expose_secret()));
        let theirs = DataKey { tenant: TenantId::generate(), key };
        let purpose = Purpose::ProviderKey("openai");

        let sealed = ours.seal(purpose, b"sk-1").unwrap();

        assert!(theirs.open(purpose, &sealed).is_err());
    }

    #[test]
    fn what_was_changed_does_not_open() {
        let key = data_key(TenantId::generate());
        let purpose = Purpose::ProviderKey("openai");
        let sealed = key.seal(purpose, b"sk-1").unwrap();

        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(key.open(purpose, &changed).is_err(), "byte {at}");
            assert!(key.open(purpose, &sealed[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn the_same_secret_never_looks_the_same() {
        let key = data_key(TenantId::generate());
        let seal = || key.seal(Purpose::ProviderKey("openai"), b"sk-1").unwrap();

        assert_ne!(seal(), seal());
    }

    #[test]
    fn a_key_encryption_key_of_another_length_is_refused() {
        for kek in ["", "short", &STANDARD.encode([1; 31]), &STANDARD.encode([1; 33])] {
            let kek = kek.into();
            assert!(matches!(Seal::new(&kek, &"".into()), Err(Error::InvalidKek)));
            if !kek.expose_secret().is_empty() {
                assert!(matches!(Seal::new(&self::kek(1), &kek), Err(Error::InvalidKek)));
            }
        }
    }

    #[test]
    fn nothing_secret_is_shown() {
        let shown = format!("{:?} {:?}", seal(), data_key(TenantId::generate()));

        assert!(shown.contains("Kek(***)") && !shown.contains("[1, 1"), "{shown}");
    }
}
