//! How secrets are kept: each tenant has a data key, and the platform's key-encryption key seals those.
//!
//! XChaCha20-Poly1305 with a random nonce. The associated data names the
//! tenant and the very field that a value is for, so that whoever can write to
//! the database still cannot have one tenant's secret, or another field's,
//! opened in another's place.
//!
//! A sealed value is: one byte of format, 24 of nonce, then what was encrypted.

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
const NONCE: usize = 24;

type Key = SecretBox<[u8; 32]>;

/// What a [`Kek`] is asked for, which may need a network.
pub type Sealing<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Error>> + Send + 'a>>;

/// The platform's key-encryption key, wherever it is kept.
///
/// Both directions are given the associated data, and must refuse to open what
/// was sealed with other.
pub trait Kek: fmt::Debug + Send + Sync + 'static {
    /// Seals a data key.
    fn seal<'a>(&'a self, context: &'a [u8], data_key: &'a [u8]) -> Sealing<'a>;

    /// Opens a data key.
    fn open<'a>(&'a self, context: &'a [u8], sealed: &'a [u8]) -> Sealing<'a>;
}

/// A key-encryption key that this process holds itself.
struct LocalKek(Key);

impl Kek for LocalKek {
    fn seal<'a>(&'a self, context: &'a [u8], data_key: &'a [u8]) -> Sealing<'a> {
        Box::pin(async move { encrypt(&self.0, context, data_key) })
    }

    fn open<'a>(&'a self, context: &'a [u8], sealed: &'a [u8]) -> Sealing<'a> {
        Box::pin(
            async move { decrypt(&self.0, context, sealed).ok_or(Error::Sealed("a data key")) },
        )
    }
}

impl fmt::Debug for LocalKek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalKek(***)")
    }
}

/// What a secret is for. It is part of what is authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// The API key of the provider of that name.
    ProviderKey(&'a str),
    /// A further key of a provider.
    Credential {
        /// Which provider.
        provider: &'a str,
        /// Which key.
        name: &'a str,
    },
    /// The secrets of that channel account.
    AccountSecrets(AccountId),
    /// The headers or variables of the MCP server of that name.
    McpSecrets(&'a str),
    /// The secret of the connection of that name.
    ConnectionSecret(&'a str),
    /// A variable of the skill of that name.
    SkillEnv {
        /// Which skill, in lower case.
        skill: &'a str,
        /// Which variable.
        name: &'a str,
    },
}

/// Seals and opens tenants' data keys. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Seal {
    kek: Arc<dyn Kek>,
}

impl Seal {
    /// With a key-encryption key of 32 bytes, in base64.
    ///
    /// # Errors
    ///
    /// If it is not that.
    pub fn new(kek: &SecretString) -> Result<Self, Error> {
        let bytes = STANDARD.decode(kek.expose_secret().trim()).map_err(|_| Error::Kek)?;
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| Error::Kek)?;
        Ok(Self::with(LocalKek(SecretBox::new(Box::new(bytes)))))
    }

    /// With a key-encryption key that is kept elsewhere.
    #[must_use]
    pub fn with(kek: impl Kek) -> Self {
        Self { kek: Arc::new(kek) }
    }

    /// Makes a new tenant's data key; returns what is to be stored.
    ///
    /// # Errors
    ///
    /// If the key-encryption key cannot be used now.
    pub async fn new_data_key(&self, tenant: TenantId) -> Result<Vec<u8>, Error> {
        let key: Key = SecretBox::new(Box::new(rand::random()));
        self.kek.seal(&context(tenant, "data-key", b""), key.expose_secret()).await
    }

    /// Opens a tenant's data key.
    ///
    /// # Errors
    ///
    /// If it is another tenant's, or was sealed with another key-encryption key.
    pub async fn data_key(&self, tenant: TenantId, sealed: &[u8]) -> Result<DataKey, Error> {
        let key = self.kek.open(&context(tenant, "data-key", b""), sealed).await?;
        let key: [u8; 32] = key.try_into().map_err(|_| Error::Sealed("a data key"))?;
        Ok(DataKey { tenant, key: SecretBox::new(Box::new(key)) })
    }
}

/// A tenant's data key, open.
pub struct DataKey {
    tenant: TenantId,
    key: Key,
}

impl DataKey {
    /// Seals a secret for one purpose.
    ///
    /// # Errors
    ///
    /// If it is too large, which is beyond anything that is stored.
    pub fn seal(&self, purpose: Purpose<'_>, secret: &[u8]) -> Result<Vec<u8>, Error> {
        encrypt(&self.key, &self.context(purpose), secret)
    }

    /// Opens a secret that was sealed for that purpose.
    ///
    /// # Errors
    ///
    /// If it was sealed for another, by another, or is damaged.
    pub fn open(&self, purpose: Purpose<'_>, sealed: &[u8]) -> Result<Vec<u8>, Error> {
        let what = match purpose {
            Purpose::ProviderKey(_) => "a provider's key",
            Purpose::Credential { .. } => "a credential",
            Purpose::AccountSecrets(_) => "a channel account's secrets",
            Purpose::McpSecrets(_) => "an mcp server's secrets",
            Purpose::ConnectionSecret(_) => "a connection's secret",
            Purpose::SkillEnv { .. } => "a skill's variable",
        };
        decrypt(&self.key, &self.context(purpose), sealed).ok_or(Error::Sealed(what))
    }

    fn context(&self, purpose: Purpose<'_>) -> Vec<u8> {
        match purpose {
            Purpose::ProviderKey(name) => context(self.tenant, "provider-key", name.as_bytes()),
            Purpose::Credential { provider, name } => {
                // Neither has a zero in it.
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
                // Neither has a zero in it.
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

/// The tenant's id has one length and the field's word no zero, so no two contexts are alike.
fn context(tenant: TenantId, field: &str, row: &[u8]) -> Vec<u8> {
    [b"holdfast\0", tenant.as_uuid().as_bytes().as_slice(), field.as_bytes(), b"\0", row].concat()
}

fn encrypt(key: &Key, context: &[u8], secret: &[u8]) -> Result<Vec<u8>, Error> {
    let nonce: [u8; NONCE] = rand::random();
    let sealed = XChaCha20Poly1305::new(&(*key.expose_secret()).into())
        .encrypt(&XNonce::from(nonce), Payload { msg: secret, aad: context })
        .map_err(|_| Error::Sealed("a secret"))?;
    Ok([&[FORMAT], nonce.as_slice(), &sealed].concat())
}

fn decrypt(key: &Key, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (format, rest) = sealed.split_first()?;
    let (nonce, sealed) = rest.split_first_chunk::<NONCE>()?;
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
            assert!(matches!(key.open(wrong, &sealed), Err(Error::Sealed(_))), "{wrong:?}");
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
        assert!(matches!(now(seal().data_key(theirs, &sealed)), Err(Error::Sealed(_))));
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
            assert!(matches!(Seal::new(&kek.into()), Err(Error::Kek)), "{kek}");
        }
    }

    #[test]
    fn nothing_secret_is_shown() {
        let shown = format!("{:?} {:?}", seal(), data_key(TenantId::generate()));

        assert!(shown.contains("LocalKek(***)") && !shown.contains("[1, 1"), "{shown}");
    }
}
