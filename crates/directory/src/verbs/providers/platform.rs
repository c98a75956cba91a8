//! Operations on the providers and keys of the installation.

use std::collections::BTreeMap;

use holdfast_llm::credentials::{Credential, Profile};
use holdfast_pg::TenantTx;
use secrecy::ExposeSecret as _;

use crate::{
    CredentialStats, Directory, Error, NewPlatformKey, PLATFORM_KEY_PREFIX, PlatformProvider,
    ProviderCredentials, ProviderKind, Purpose, SecretUse, store::providers::platform as store,
    tenant::check_name, verbs::credentials::now,
};

/// Maximum number of keys of one provider.
const MAX_KEYS_PER_PROVIDER: usize = 20;

/// Maximum number of the installation's providers.
const MAX_PROVIDERS: usize = 50;

/// Keys of the installation.
#[derive(Debug, Clone, Copy)]
pub struct PlatformKeys<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn platform_keys(&self) -> PlatformKeys<'_> {
        PlatformKeys(self)
    }
}

/// Keys of the installation for a tenant, and where they are sent.
pub(crate) struct PlatformAccess {
    pub(crate) kind: ProviderKind,
    pub(crate) base_url: String,
    pub(crate) keys: ProviderCredentials,
}

impl PlatformKeys<'_> {
    /// Returns the installation's providers with their keys, without the secrets.
    pub async fn list(self) -> Result<Vec<PlatformProvider>, Error> {
        let mut tx = self.0.pools.system().await?;
        let providers = store::all(&mut tx, None).await?;
        tx.finish_reading();
        Ok(providers)
    }

    /// Stores a key in the place of one of the same name, and creates or changes its provider.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed value, or if other keys would be sent to another place
    /// than they were given for, or at the limit.
    pub async fn put(self, new: &NewPlatformKey) -> Result<PlatformProvider, Error> {
        let mut tx = self.0.pools.system().await?;
        store::lock(&mut tx).await?;
        let all = store::all(&mut tx, None).await?;
        let providers = all.len();
        let before = all.into_iter().find(|one| one.name == new.provider);
        let is_known = before.is_some();
        let provider = new.check(before)?;
        let is_new_key = provider.keys.iter().all(|key| key.name != new.name);
        if !is_known && providers >= MAX_PROVIDERS {
            return Err(Error::Invalid(format!(
                "the platform has {MAX_PROVIDERS} providers at most: remove the keys of one first"
            )));
        }
        if is_new_key && provider.keys.len() >= MAX_KEYS_PER_PROVIDER {
            return Err(Error::Invalid(format!(
                "a provider of the platform has {MAX_KEYS_PER_PROVIDER} keys at most: remove one first"
            )));
        }
        let which = (new.provider.as_str(), new.name.as_str());
        let purpose = Purpose::PlatformKey { provider: &new.provider, name: &new.name };
        let key = new.key.expose_secret().as_bytes();
        let sealed = self.0.seal()?.of_platform().seal(purpose, key).await?;
        store::put(&mut tx, &provider).await?;
        store::put_key(&mut tx, which, &sealed, now()).await?;
        let stored = store::all(&mut tx, Some(&new.provider)).await?.pop();
        tx.commit().await?;
        Ok(stored.unwrap_or(provider))
    }

    /// Deletes a key, and its provider with the last one.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such key.
    pub async fn delete(self, provider: &str, name: &str) -> Result<(), Error> {
        check_name("provider", provider)?;
        check_name("key", name)?;
        let mut tx = self.0.pools.system().await?;
        store::lock(&mut tx).await?;
        if !store::delete_key(&mut tx, provider, name).await? {
            return Err(Error::not_found("platform key", format!("{provider}/{name}")));
        }
        Ok(tx.commit().await?)
    }

    /// Stores the statistics of a key, unless newer ones are stored. `key` is its id among the keys
    /// of a provider.
    pub async fn store_stats(
        self,
        provider: &str,
        key: &str,
        remembered: &CredentialStats,
    ) -> Result<(), Error> {
        let Some(name) = key.strip_prefix(PLATFORM_KEY_PREFIX) else { return Ok(()) };
        let mut tx = self.0.pools.system().await?;
        store::store_stats(&mut tx, (provider, name), remembered).await?;
        Ok(tx.commit().await?)
    }

    /// Seals the keys with the current key-encryption key. `resealed` counts those that were sealed
    /// with another one.
    ///
    /// # Errors
    ///
    /// [`Error::Unsealable`] if a key was sealed with neither of the two, [`Error::MissingSecret`] if
    /// only the secrets service has the key-encryption key.
    pub async fn reseal(self, resealed: &mut u64) -> Result<(), Error> {
        let mut tx = self.0.pools.system().await?;
        for (provider, name, sealed) in store::sealed(&mut tx).await? {
            let which = (provider.as_str(), name.as_str());
            let keys = self.0.seal()?.local()?;
            if let Some(sealed) = keys.reseal_platform_key(which, &sealed).await? {
                store::reseal(&mut tx, which, &sealed).await?;
                *resealed += 1;
            }
        }
        Ok(tx.commit().await?)
    }

    /// Returns the keys of a provider that the tenant's plan allows; `None` if there are none.
    pub(crate) async fn load(
        self,
        tx: &mut TenantTx,
        provider: &str,
        usage: SecretUse,
    ) -> Result<Option<PlatformAccess>, Error> {
        let rows = store::keys_for(tx, provider).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let (kind, base_url) = (first.kind()?, first.base_url.clone());
        let (mut profiles, mut stats) = (Vec::new(), BTreeMap::new());
        for row in rows {
            let purpose = Purpose::PlatformKey { provider, name: &row.name };
            let key = self.0.seal()?.of_platform().open_text(purpose, &row.secret, usage).await?;
            let id = format!("{PLATFORM_KEY_PREFIX}{}", row.name);
            if let Some(remembered) = row.remembered() {
                stats.insert(id.clone(), remembered);
            }
            let credential = Credential::ApiKey { key };
            profiles.push(Profile { id, provider: provider.to_owned(), credential });
        }
        let keys = ProviderCredentials { profiles, stats, ..ProviderCredentials::default() };
        Ok(Some(PlatformAccess { kind, base_url, keys }))
    }
}
