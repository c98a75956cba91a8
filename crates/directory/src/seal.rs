//! Encryption of stored secrets: each tenant has a data key, sealed by the installation's
//! key-encryption key.
//!
//! XChaCha20-Poly1305 with a random nonce. The associated data names the tenant and the purpose of a
//! value. So a person with write access to the database cannot have a secret of another tenant or
//! for another purpose decrypted.
//!
//! A process seals and opens with the key-encryption key of its settings ([`LocalSeal`]), or asks the
//! secrets service, which does that with the same code.
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

mod cipher;
mod kek;
mod local;
mod purpose;
mod remote;
mod request_key;

use std::sync::Arc;

use holdfast_grpc::SecretsClient;
use holdfast_kit::config::Secrets;
use holdfast_types::TenantId;
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};

pub(crate) use self::purpose::SecretUse;
pub use self::{local::LocalSeal, purpose::Purpose, request_key::KeyPurpose};
use self::{purpose::no_tenant, remote::RemoteSeal};
use crate::Error;

/// Seals and opens secrets. Clones share the key, or the connection and the cache.
#[derive(Debug, Clone)]
pub(crate) enum Seal {
    /// With the key-encryption key.
    Local(LocalSeal),
    /// With a key that only the secrets service has.
    Remote(Arc<RemoteSeal>),
}

impl Seal {
    /// Uses the secrets service if there is a client of it, else the key of the settings.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidKek`].
    pub(crate) fn new(secrets: &Secrets, client: Option<SecretsClient>) -> Result<Self, Error> {
        match client {
            Some(client) => Ok(Self::Remote(Arc::new(RemoteSeal::new(client)))),
            None => LocalSeal::new(secrets).map(Self::Local),
        }
    }

    /// Returns the key-encryption key.
    ///
    /// # Errors
    ///
    /// [`Error::MissingSecret`] if only the secrets service has it.
    pub(crate) const fn local(&self) -> Result<&LocalSeal, Error> {
        match self {
            Self::Local(seal) => Ok(seal),
            Self::Remote(_) => Err(Error::MissingSecret("secrets.kek")),
        }
    }

    /// Creates the data key of a new tenant, and returns it sealed.
    ///
    /// # Errors
    ///
    /// If the key-encryption key is not available.
    pub(crate) async fn new_data_key(&self, tenant: TenantId) -> Result<Vec<u8>, Error> {
        match self {
            Self::Local(seal) => seal.new_data_key(tenant).await,
            Self::Remote(seal) => seal.new_data_key(tenant).await,
        }
    }

    /// Returns the keys of a purpose that follow from this secret and each key-encryption key.
    ///
    /// # Errors
    ///
    /// If the key-encryption key is not available.
    pub(crate) async fn signing_keys(
        &self,
        purpose: KeyPurpose,
        secret: &[u8],
    ) -> Result<Vec<[u8; 32]>, Error> {
        match self {
            Self::Local(seal) => seal.signing_keys(purpose, secret).await,
            Self::Remote(seal) => seal.signing_keys(purpose, secret).await,
        }
    }

    /// Uses a tenant's sealed data key.
    pub(crate) const fn with_data_key(&self, tenant: TenantId, sealed: Vec<u8>) -> DataKey<'_> {
        DataKey { seal: self, tenant, sealed }
    }

    /// For keys of the installation, which need no data key.
    pub(crate) fn of_platform(&self) -> DataKey<'_> {
        self.with_data_key(no_tenant(), Vec::new())
    }
}

/// A tenant's sealed data key, with what can use it.
#[derive(Debug)]
pub(crate) struct DataKey<'s> {
    seal: &'s Seal,
    tenant: TenantId,
    sealed: Vec<u8>,
}

impl DataKey<'_> {
    /// Seals a secret for one purpose.
    ///
    /// # Errors
    ///
    /// [`Error::Unsealable`] if the data key cannot be opened.
    pub(crate) async fn seal(&self, purpose: Purpose<'_>, secret: &[u8]) -> Result<Vec<u8>, Error> {
        let data_key = (self.tenant, self.sealed.as_slice());
        match self.seal {
            Seal::Local(seal) => seal.seal(data_key, purpose, secret).await,
            Seal::Remote(seal) => seal.seal(data_key, purpose, secret).await,
        }
    }

    /// Opens a secret that was sealed for this purpose.
    ///
    /// # Errors
    ///
    /// [`Error::Unsealable`] if the secret was sealed for another purpose or tenant, or is damaged.
    pub(crate) async fn open(
        &self,
        purpose: Purpose<'_>,
        sealed: &[u8],
        usage: SecretUse,
    ) -> Result<SecretSlice<u8>, Error> {
        let data_key = (self.tenant, self.sealed.as_slice());
        match self.seal {
            Seal::Local(seal) => seal.open(data_key, purpose, sealed).await,
            Seal::Remote(seal) => seal.open(data_key, (purpose, usage), sealed).await,
        }
    }

    /// Opens a secret that is a text.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and if the secret is no text.
    pub(crate) async fn open_text(
        &self,
        purpose: Purpose<'_>,
        sealed: &[u8],
        usage: SecretUse,
    ) -> Result<SecretString, Error> {
        let opened = self.open(purpose, sealed, usage).await?;
        let text = str::from_utf8(opened.expose_secret());
        text.map(SecretString::from).map_err(|_| Error::Unsealable(purpose.description()))
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use holdfast_types::AccountId;

    use super::*;

    const OPENAI: Purpose<'_> = Purpose::ProviderKey("openai");

    fn kek(byte: u8) -> SecretString {
        STANDARD.encode([byte; 32]).into()
    }

    fn with_keys(kek: SecretString, previous_kek: SecretString) -> Result<Seal, Error> {
        Seal::new(&Secrets { kek, previous_kek, ..Secrets::default() }, None)
    }

    fn seal() -> Seal {
        with_keys(kek(1), "".into()).unwrap()
    }

    /// The text of a secret; `None` if it cannot be unsealed.
    async fn open(key: &DataKey<'_>, purpose: Purpose<'_>, sealed: &[u8]) -> Option<String> {
        let opened = key.open_text(purpose, sealed, SecretUse::McpServers).await;
        assert!(matches!(opened, Ok(_) | Err(Error::Unsealable(_))), "{opened:?}");
        opened.ok().map(|opened| opened.expose_secret().to_owned())
    }

    async fn new_data_key(seal: &Seal) -> DataKey<'_> {
        let tenant = TenantId::generate();
        seal.with_data_key(tenant, seal.new_data_key(tenant).await.unwrap())
    }

    #[tokio::test]
    async fn no_two_things_that_are_sealed_open_in_each_others_place() {
        let seal = seal();
        let key = new_data_key(&seal).await;
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
            Purpose::PlatformKey { provider, name },
            Purpose::PlatformKey { provider, name: "c" },
            Purpose::PlatformKey { provider: "ab", name: "" },
        ];

        for (at, purpose) in purposes.into_iter().enumerate() {
            let sealed = key.seal(purpose, b"sk-1").await.unwrap();
            for (other, place) in purposes.into_iter().enumerate() {
                let opened = open(&key, place, &sealed).await;
                assert_eq!(opened.is_some(), at == other, "{purpose:?} {place:?}");
            }
        }
    }

    #[test]
    fn a_purpose_arrives_at_the_secrets_service_as_it_was_sent() {
        for purpose in [
            Purpose::ProviderKey("a"),
            Purpose::ProviderHeaders("a"),
            Purpose::Credential { provider: "a", name: "b" },
            Purpose::AccountSecrets(AccountId::generate()),
            Purpose::McpSecrets("a"),
            Purpose::ConnectionSecret("a"),
            Purpose::EventWebhook(uuid::Uuid::now_v7()),
            Purpose::RefreshToken(uuid::Uuid::now_v7()),
            Purpose::SkillEnv { skill: "a", name: "b" },
            Purpose::PlatformKey { provider: "a", name: "b" },
        ] {
            assert_eq!(Purpose::from_message(&purpose.to_message()), Some(purpose));
        }
        let ambiguous = Purpose::Credential { provider: "a\0b", name: "c" }.to_message();
        assert_eq!(Purpose::from_message(&ambiguous), None);
    }

    #[tokio::test]
    async fn a_data_key_serves_only_its_own_tenant() {
        let seal = seal();
        let ours = new_data_key(&seal).await;
        let theirs = seal.with_data_key(TenantId::generate(), ours.sealed.clone());

        let sealed = ours.seal(OPENAI, b"sk-1").await.unwrap();

        assert_eq!(open(&ours, OPENAI, &sealed).await.unwrap(), "sk-1");
        assert_eq!(open(&theirs, OPENAI, &sealed).await, None);
        assert!(matches!(theirs.seal(OPENAI, b"sk-1").await, Err(Error::Unsealable(_))));
    }

    #[test]
    fn the_same_key_does_not_open_another_tenants_value() {
        // Even if two tenants had the same data key by some mistake.
        let (key, ours) = (cipher::Key::generate(), TenantId::generate());

        let sealed = key.encrypt(&OPENAI.context(ours), b"sk-1").unwrap();

        assert!(key.decrypt(&OPENAI.context(ours), &sealed).is_some());
        assert!(key.decrypt(&OPENAI.context(TenantId::generate()), &sealed).is_none());
    }

    #[tokio::test]
    async fn a_data_key_opens_under_both_keys_of_a_rotation_and_is_resealed_once() {
        let tenant = TenantId::generate();
        let before = seal();
        let rotating = with_keys(kek(2), kek(1)).unwrap();
        let rotated = with_keys(kek(2), "".into()).unwrap();
        let old = before.new_data_key(tenant).await.unwrap();
        let key = before.with_data_key(tenant, old.clone());
        let sealed = key.seal(OPENAI, b"sk-1").await.unwrap();

        let new = rotating.local().unwrap().reseal(tenant, &old).await.unwrap().unwrap();

        for (seal, data_key, opens) in [
            (&rotating, &old, true),
            (&rotating, &new, true),
            (&rotated, &new, true),
            (&rotated, &old, false),
            (&before, &new, false),
        ] {
            let key = seal.with_data_key(tenant, data_key.clone());
            assert_eq!(open(&key, OPENAI, &sealed).await.is_some(), opens);
        }
        assert_eq!(rotating.local().unwrap().reseal(tenant, &new).await.unwrap(), None);
        for at in 0..new.len() {
            let mut changed = new.clone();
            changed[at] ^= 1;
            let key = rotating.with_data_key(tenant, changed);
            assert_eq!(open(&key, OPENAI, &sealed).await, None, "byte {at}");
        }
    }

    #[tokio::test]
    async fn a_platform_key_is_resealed_in_a_rotation() {
        let (which, purpose) =
            (("openai", "a"), Purpose::PlatformKey { provider: "openai", name: "a" });
        let sealed = seal().of_platform().seal(purpose, b"sk-1").await.unwrap();
        let rotating = with_keys(kek(2), kek(1)).unwrap();
        let rotated = with_keys(kek(2), "".into()).unwrap();
        let keys = rotating.local().unwrap();

        let new = keys.reseal_platform_key(which, &sealed).await.unwrap().unwrap();

        assert_eq!(open(&seal().of_platform(), purpose, &sealed).await.unwrap(), "sk-1");
        assert_eq!(open(&rotated.of_platform(), purpose, &new).await.unwrap(), "sk-1");
        assert_eq!(open(&rotated.of_platform(), purpose, &sealed).await, None);
        assert_eq!(keys.reseal_platform_key(which, &new).await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_was_changed_does_not_open() {
        let seal = seal();
        let key = new_data_key(&seal).await;
        let sealed = key.seal(OPENAI, b"sk-1").await.unwrap();

        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(open(&key, OPENAI, &changed).await, None, "byte {at}");
            assert_eq!(open(&key, OPENAI, &sealed[..at]).await, None, "cut at {at}");
        }
    }

    #[tokio::test]
    async fn the_same_secret_never_looks_the_same() {
        let seal = seal();
        let key = new_data_key(&seal).await;

        assert_ne!(
            key.seal(OPENAI, b"sk-1").await.unwrap(),
            key.seal(OPENAI, b"sk-1").await.unwrap()
        );
    }

    #[test]
    fn a_key_encryption_key_of_another_length_is_refused() {
        for kek in ["", "short", &STANDARD.encode([1; 31]), &STANDARD.encode([1; 33])] {
            assert!(matches!(with_keys(kek.into(), "".into()), Err(Error::InvalidKek)));
            if !kek.is_empty() {
                assert!(matches!(with_keys(self::kek(1), kek.into()), Err(Error::InvalidKek)));
            }
        }
    }

    #[tokio::test]
    async fn nothing_secret_is_shown() {
        let seal = seal();
        let key = new_data_key(&seal).await;
        let sealed = key.seal(OPENAI, b"sk-1").await.unwrap();
        let opened = key.open(OPENAI, &sealed, SecretUse::Skills).await.unwrap();

        let shown = format!("{seal:?} {opened:?}");

        assert!(shown.contains("Key(***)") && !shown.contains("[1, 1"), "{shown}");
        assert!(!shown.contains("115"), "{shown}");
    }
}
