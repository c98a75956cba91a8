//! Sealing and opening with the key-encryption key.

use std::sync::Arc;

use holdfast_kit::config::Secrets;
use holdfast_types::TenantId;
use secrecy::{ExposeSecret as _, SecretSlice};

use super::{
    cipher::Key,
    kek::{ConfiguredKek, KeyEncryption},
    purpose::{Purpose, data_key_context, no_tenant},
    request_key::KeyPurpose,
};
use crate::Error;

/// Seals and opens secrets with the key-encryption key. Clones share the key.
#[derive(Debug, Clone)]
pub struct LocalSeal {
    kek: Arc<dyn KeyEncryption>,
}

impl LocalSeal {
    /// Uses `secrets.kek`, and opens values of `secrets.previous_kek`, too.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidKek`] if one of them is not 32 bytes in base64.
    pub fn new(secrets: &Secrets) -> Result<Self, Error> {
        Ok(Self { kek: Arc::new(ConfiguredKek::new(secrets)?) })
    }

    /// Creates the data key of a new tenant, and returns it sealed.
    ///
    /// # Errors
    ///
    /// If the key-encryption key is not available.
    pub async fn new_data_key(&self, tenant: TenantId) -> Result<Vec<u8>, Error> {
        self.kek.seal(&data_key_context(tenant), Key::generate().expose()).await
    }

    /// Seals a secret for one purpose with the data key of a tenant.
    ///
    /// # Errors
    ///
    /// [`Error::Unsealable`] if the data key belongs to another tenant, or was sealed with another
    /// key-encryption key.
    pub async fn seal(
        &self,
        (tenant, data_key): (TenantId, &[u8]),
        purpose: Purpose<'_>,
        secret: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let context = purpose.context(tenant);
        if purpose.is_of_platform() {
            return self.kek.seal(&context, secret).await;
        }
        self.data_key(tenant, data_key).await?.encrypt(&context, secret)
    }

    /// Opens a secret that was sealed for this purpose with the data key of this tenant.
    ///
    /// # Errors
    ///
    /// [`Error::Unsealable`] if the secret was sealed for another purpose or tenant or with another
    /// key, or is damaged.
    pub async fn open(
        &self,
        (tenant, data_key): (TenantId, &[u8]),
        purpose: Purpose<'_>,
        sealed: &[u8],
    ) -> Result<SecretSlice<u8>, Error> {
        let context = purpose.context(tenant);
        let opened = if purpose.is_of_platform() {
            self.kek.open(&context, sealed).await?
        } else {
            self.data_key(tenant, data_key).await?.decrypt(&context, sealed)
        };
        opened.map(SecretSlice::from).ok_or(Error::Unsealable(purpose.description()))
    }

    /// Returns the keys of a purpose that follow from this secret and each key-encryption key.
    ///
    /// # Errors
    ///
    /// If the key-encryption key is not available.
    pub async fn signing_keys(
        &self,
        purpose: KeyPurpose,
        secret: &[u8],
    ) -> Result<Vec<[u8; 32]>, Error> {
        self.kek.signing_keys(purpose, secret).await
    }

    /// Returns a key of the installation sealed with the current key-encryption key; `None` if it is
    /// already.
    ///
    /// # Errors
    ///
    /// [`Error::Unsealable`] if it was sealed as another one, or with another key-encryption key.
    pub(crate) async fn reseal_platform_key(
        &self,
        (provider, name): (&str, &str),
        sealed: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        if self.kek.is_current(sealed) {
            return Ok(None);
        }
        let purpose = Purpose::PlatformKey { provider, name };
        let nobody = (no_tenant(), [].as_slice());
        let secret = self.open(nobody, purpose, sealed).await?;
        self.seal(nobody, purpose, secret.expose_secret()).await.map(Some)
    }

    /// Returns a tenant's data key sealed with the current key-encryption key; `None` if it is
    /// already.
    ///
    /// # Errors
    ///
    /// [`Error::Unsealable`] if it belongs to another tenant, or was sealed with another
    /// key-encryption key.
    pub(crate) async fn reseal(
        &self,
        tenant: TenantId,
        sealed: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        if self.kek.is_current(sealed) {
            return Ok(None);
        }
        let key = self.data_key(tenant, sealed).await?;
        self.kek.seal(&data_key_context(tenant), key.expose()).await.map(Some)
    }

    async fn data_key(&self, tenant: TenantId, sealed: &[u8]) -> Result<Key, Error> {
        let key = self.kek.open(&data_key_context(tenant), sealed).await?;
        let key = key.and_then(|key| key.try_into().ok());
        key.map(Key::new).ok_or(Error::Unsealable("a data key"))
    }
}
