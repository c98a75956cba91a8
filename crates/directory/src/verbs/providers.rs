//! Operations on providers.

use holdfast_types::TenantId;
use secrecy::ExposeSecret as _;

use super::{check_limit, credentials::now};
use crate::{
    Actor, Directory, Error, NewProvider, PROVIDER_KEY_NAME, Provider, Purpose, store,
    tenant::check_name,
};

const MAX_PROVIDERS: i64 = 50;

/// Model providers.
#[derive(Debug, Clone, Copy)]
pub struct Providers<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn providers(&self) -> Providers<'_> {
        Providers(self)
    }
}

impl Providers<'_> {
    /// Returns the tenant's providers, by name.
    pub async fn list(self, tenant: TenantId) -> Result<Vec<Provider>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let providers = store::providers::all(&mut tx).await?;
        tx.commit().await?;
        Ok(providers)
    }

    /// Creates or replaces a provider.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed value, or if a stored key would be sent to another URL
    /// than it was given for; [`Error::TooMany`] at the limit.
    pub async fn put(
        self,
        tenant: TenantId,
        actor: Actor,
        new: NewProvider,
    ) -> Result<Provider, Error> {
        let new = new.check()?;
        let mut tx = self.0.begin_change(tenant).await?;
        let old = store::providers::get(&mut tx, &new.name).await?;
        match &old {
            None => {
                check_limit("providers", store::providers::count(&mut tx).await?, MAX_PROVIDERS)?
            }
            Some(old) if old.has_key && new.api_key.is_none() && old.base_url != new.base_url => {
                return Err(Error::Invalid(
                    "the stored API key was given for another `base_url`: give the key again"
                        .to_owned(),
                ));
            }
            Some(_) => {}
        }
        if new.default_model.is_some() {
            store::providers::clear_default_model(&mut tx).await?;
        }
        let sealed = match &new.api_key {
            Some(key) => {
                let data_key = self.0.data_key(&mut tx).await?;
                let purpose = Purpose::ProviderKey(&new.name);
                Some(data_key.seal(purpose, key.expose_secret().as_bytes())?)
            }
            None => None,
        };
        let provider = Provider {
            has_key: sealed.is_some() || old.is_some_and(|old| old.has_key),
            name: new.name,
            kind: new.kind,
            base_url: new.base_url,
            default_model: new.default_model,
        };
        store::providers::put(&mut tx, &provider, sealed.as_deref()).await?;
        if sealed.is_some() {
            // The statistics belong to the previous key.
            store::credentials::reset_stats(&mut tx, &provider.name, PROVIDER_KEY_NAME, now())
                .await?;
        }
        store::audit::record(&mut tx, actor, "provider.put", &provider.name).await?;
        tx.commit().await?;
        Ok(provider)
    }

    /// Deletes a provider and its key.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such provider.
    pub async fn delete(self, tenant: TenantId, actor: Actor, name: &str) -> Result<(), Error> {
        check_name("provider", name)?;
        let mut tx = self.0.begin_change(tenant).await?;
        if !store::providers::delete(&mut tx, name).await? {
            return Err(Error::not_found("provider", name));
        }
        store::audit::record(&mut tx, actor, "provider.delete", name).await?;
        tx.commit().await?;
        Ok(())
    }
}
