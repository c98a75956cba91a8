//! Encryption of stored secrets: each tenant has a data key, sealed by the installation's
//! key-encryption key.
//!
//! XChaCha20-Poly1305 with a random nonce. The associated data names the tenant and the field of a
//! value. So a person with write access to the database cannot have a secret of another tenant or
//! another field decrypted.
//!
//! Format of a sealed value: one byte of format version, 24 bytes of nonce, then the ciphertext.

use std::{fmt, pin::Pin, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chacha20poly1305::{
    KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use holdfast_types::{AccountId, TenantId};
use secrecy::{ExposeSecret as _, SecretBox, SecretString};

use crate::Error;

const FORMAT: u8 = 1;
const NONCE_BYTES: usize = 24;

type Key = SecretBox<[u8; 32]>;

/// Result of a [`Kek`] operation, which may need the network.
pub type KekFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Error>> + Send + 'a>>;

/// Key-encryption key of the installation.
///
/// Both operations get the associated data; `open` must refuse a value that was sealed with other
/// data.
pub trait Kek: fmt::Debug + Send + Sync + 'static {
    fn seal<'a>(&'a self, context: &'a [u8], data_key: &'a [u8]) -> KekFuture<'a>;

    fn open<'a>(&'a self, context: &'a [u8], sealed: &'a [u8]) -> KekFuture<'a>;
}

/// A key-encryption key in this process.
struct LocalKek(Key);

impl Kek for LocalKek {
    fn seal<'a>(&'a self, context: &'a [u8], data_key: &'a [u8]) -> KekFuture<'a> {
        Box::pin(async move { encrypt(&self.0, context, data_key) })
    }

    fn open<'a>(&'a self, context: &'a [u8], sealed: &'a [u8]) -> KekFuture<'a> {
        Box::pin(
            async move { decrypt(&self.0, context, sealed).ok_or(Error::Unsealable("a data key")) },
        )
    }
}

impl fmt::Debug for LocalKek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalKek(***)")
    }
}

/// Purpose of a secret, part of the associated data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// API key of the provider with this name.
    ProviderKey(&'a str),
    /// A further credential of a provider.
    Credential { provider: &'a str, name: &'a str },
    /// Secrets of the channel account.
    AccountSecrets(AccountId),
    /// Headers or environment variables of the MCP server with this name.
    McpSecrets(&'a str),
    /// Secret of the connection with this name.
    ConnectionSecret(&'a str),
    /// An environment variable of a skill.
    SkillEnv {
        /// Name of the skill, in lower case.
        skill: &'a str,
        name: &'a str,
    },
}

/// Seals and opens tenants' data keys. Clones share the key.
#[derive(Debug, Clone)]
pub struct Seal {
    kek: Arc<dyn Kek>,
}

impl Seal {
    /// Uses a key-encryption key of 32 bytes, in base64.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidKek`] if the text is anything else.
    pub fn new(kek: &SecretString) -> Result<Self, Error> {
        let bytes = STANDARD.decode(kek.expose_secret().trim()).map_err(|_| Error::InvalidKek)?;
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| Error::InvalidKek)?;
        Ok(Self::with(LocalKek(SecretBox::new(Box::new(bytes)))))
    }

    /// Uses a key-encryption key that another component holds.
    #[must_use]
    pub fn with(kek: impl Kek) -> Self {
        Self { kek: Arc::new(kek) }
    }

    /// Creates the data key of a new tenant, and returns it sealed.
    ///
    /// # Errors
    ///
    /// If the key-encryption key is not available.
    pub async fn new_data_key(&self, tenant: TenantId) -> Result<Vec<u8>, Error> {
        let key: Key = SecretBox::new(Box::new(rand::random()));
        self.kek.seal(&context(tenant, "data-key", b""), key.expose_secret()).await
    }

    /// Opens a tenant's data key.
    ///
    /// # Errors
    ///
    /// If it belongs to another tenant, or was sealed with another key-encryption key.
    pub async fn data_key(&self, tenant: TenantId, sealed: &[u8]) -> Result<DataKey, Error> {
        let key = self.kek.open(&context(tenant, "data-key", b""), sealed).await?;
        let key: [u8; 32] = key.try_into().map_err(|_| Error::Unsealable("a data key"))?;
        Ok(DataKey { tenant, key: SecretBox::new(Box::new(key)) })
    }
}

/// An open data key of a tenant.
pub struct DataKey {
    tenant: TenantId,
    key: Key,
}

impl DataKey {
    /// Seals a secret for one purpose.
    ///
    /// # Errors
    ///
    /// If the secret is too large, which stored secrets never are.
    pub fn seal(&self, purpose: Purpose<'_>, secret: &[u8]) -> Result<Vec<u8>, Error> {
        encrypt(&self.key, &self.context(purpose), secret)
    }

    /// Opens a secret that was sealed for this purpose.
    ///
    /// # Errors
    ///
    /// If the secret was sealed for another purpose or tenant, or is damaged.
    pub fn open(&self, purpose: Purpose<'_>, sealed: &[u8]) -> Result<Vec<u8>, Error> {
        let what = match purpose {
            Purpose::ProviderKey(_) => "a provider's key",
            Purpose::Credential { .. } => "a credential",
            Purpose::AccountSecrets(_) => "a channel account's secrets",
            Purpose::McpSecrets(_) => "an mcp server's secrets",
            Purpose::ConnectionSecret(_) => "a connection's secret",
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
            Purpose::McpSecrets(name) => context(self.tenant, "mcp-secrets", name.as_bytes()),
            Purpose::ConnectionSecret(name) => {
                context(self.tenant, "connection-secret", name.as_bytes())
            }
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
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn seal() -> Seal {
        Seal::new(&STANDARD.encode([1; 32]).into()).unwrap()
    }

    /// The local key never waits.
    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("the local key waited"),
        }
    }

    fn data_key(tenant: TenantId) -> DataKey {
        let sealed = now(seal().new_data_key(tenant)).unwrap();
        now(seal().data_key(tenant, &sealed)).unwrap()
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

        let sealed = now(seal().new_data_key(ours)).unwrap();

        assert!(now(seal().data_key(ours, &sealed)).is_ok());
        assert!(matches!(now(seal().data_key(theirs, &sealed)), Err(Error::Unsealable(_))));
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
            assert!(matches!(Seal::new(&kek.into()), Err(Error::InvalidKek)), "{kek}");
        }
    }

    #[test]
    fn nothing_secret_is_shown() {
        let shown = format!("{:?} {:?}", seal(), data_key(TenantId::generate()));

        assert!(shown.contains("LocalKek(***)") && !shown.contains("[1, 1"), "{shown}");
    }
}
