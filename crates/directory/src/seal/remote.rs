//! Sealing and opening by the secrets service.
//!
//! Opened values are cached for [`CACHE_TTL`], so that a session in use costs no further calls. The key
//! of an entry is a hash of the purpose, the data key and the sealed value, which are read from the
//! database each time: a value that was replaced or deleted there is never found.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast_grpc::SecretsClient;
use holdfast_proto::secrets::v1 as pb;
use holdfast_types::TenantId;
use secrecy::{ExposeSecret as _, SecretSlice};
use sha2::{Digest as _, Sha256};

use super::{
    purpose::{Purpose, SecretUse, no_tenant},
    request_key::KeyPurpose,
};
use crate::{Error, cache::Cache};

/// Time for which an opened value is kept in memory.
const CACHE_TTL: Duration = Duration::from_secs(60);

/// Maximum number of opened values in memory.
const MAX_CACHED_VALUES: usize = 1_000;

/// Size above which an opened value is not kept, in bytes.
const MAX_CACHED_BYTES: usize = 16 * 1024;

/// Client of the secrets service with a cache.
#[derive(Debug)]
pub(crate) struct RemoteSeal {
    client: SecretsClient,
    opened: Arc<Cache<[u8; 32], SecretSlice<u8>>>,
}

impl RemoteSeal {
    pub(super) fn new(client: SecretsClient) -> Self {
        Self { client, opened: Arc::new(Cache::new(CACHE_TTL, MAX_CACHED_VALUES)) }
    }

    pub(super) async fn new_data_key(&self, tenant: TenantId) -> Result<Vec<u8>, Error> {
        Ok(self.client.create_data_key(tenant, pb::CreateDataKeyRequest {}).await?.data_key)
    }

    pub(super) async fn seal(
        &self,
        (tenant, data_key): (TenantId, &[u8]),
        purpose: Purpose<'_>,
        secret: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let request = pb::SealRequest {
            purpose: Some(purpose.to_message()),
            data_key: data_key.to_vec(),
            value: secret.to_vec(),
        };
        Ok(self.client.seal(tenant, request).await?.sealed)
    }

    pub(super) async fn open(
        &self,
        (tenant, data_key): (TenantId, &[u8]),
        (purpose, usage): (Purpose<'_>, SecretUse),
        sealed: &[u8],
    ) -> Result<SecretSlice<u8>, Error> {
        let key = cache_key([&purpose.context(tenant), data_key, sealed]);
        if let Some(opened) = self.opened.get(&key) {
            return Ok(opened);
        }
        let asked_at = Instant::now();
        let request = pb::OpenRequest {
            purpose: Some(purpose.to_message()),
            data_key: data_key.to_vec(),
            sealed: sealed.to_vec(),
            r#use: usage.to_string(),
        };
        let opened = self.client.open(tenant, request).await?.value;
        let opened = opened.map(SecretSlice::from);
        let opened = opened.ok_or(Error::Unsealable(purpose.description()))?;
        if opened.expose_secret().len() <= MAX_CACHED_BYTES {
            self.opened.put(key, opened.clone(), asked_at);
            self.drop_expired_later();
        }
        Ok(opened)
    }

    pub(super) async fn signing_keys(
        &self,
        purpose: KeyPurpose,
        secret: &[u8],
    ) -> Result<Vec<[u8; 32]>, Error> {
        let purpose = purpose.to_message().into();
        let request = pb::DeriveSigningKeysRequest { secret: secret.to_vec(), purpose };
        let keys = self.client.derive_signing_keys(no_tenant(), request).await?.keys;
        let keys = keys.into_iter().map(<[u8; 32]>::try_from).collect::<Result<_, _>>();
        keys.map_err(|_| Error::Unsealable("a signing key"))
    }

    /// Removes expired values also if no other is opened.
    fn drop_expired_later(&self) {
        let opened = Arc::downgrade(&self.opened);
        tokio::spawn(async move {
            tokio::time::sleep(CACHE_TTL).await;
            if let Some(opened) = opened.upgrade() {
                opened.forget_expired();
            }
        });
    }
}

/// Hash of a list of texts, each with its length.
fn cache_key(parts: [&[u8]; 3]) -> [u8; 32] {
    let hash = parts.iter().fold(Sha256::new(), |hash, part| {
        hash.chain_update(part.len().to_be_bytes()).chain_update(part)
    });
    hash.finalize().into()
}
