//! Operations on providers.

pub mod platform;

use std::collections::BTreeMap;

use holdfast_types::TenantId;
use secrecy::{ExposeSecret as _, SecretString};

use super::{check_limit, credentials::now};
use crate::{
    Actor, DataKey, Directory, Error, NewProvider, PROVIDER_KEY_NAME, Provider, Purpose, SecretUse,
    store::{self, providers::SealedSecrets},
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
    /// [`Error::Invalid`] for a malformed value, or if a stored key or header would be sent to
    /// another URL than it was given for; [`Error::TooMany`] at the limit.
    pub async fn put(
        self,
        tenant: TenantId,
        actor: Actor,
        new: NewProvider,
    ) -> Result<Provider, Error> {
        let new = new.check()?;
        let mut tx = self.0.begin_change(tenant).await?;
        let old = store::providers::get(&mut tx, &new.name).await?;
        // Without a base URL the kind decides where requests go.
        let goes_elsewhere = |old: &Provider| {
            old.base_url != new.base_url || (new.base_url.is_empty() && old.kind != new.kind)
        };
        match &old {
            None => {
                check_limit("providers", store::providers::count(&mut tx).await?, MAX_PROVIDERS)?
            }
            Some(old) if old.has_key && new.api_key.is_none() && goes_elsewhere(old) => {
                return Err(Error::Invalid(
                    "the stored API key was given for another `base_url` or kind: give the key again"
                        .to_owned(),
                ));
            }
            Some(old)
                if new.headers.is_none() && !old.header_names.is_empty() && goes_elsewhere(old) =>
            {
                return Err(Error::Invalid(
                    "the stored headers were given for another `base_url` or kind: give them again"
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
                Some(data_key.seal(purpose, key.expose_secret().as_bytes()).await?)
            }
            None => None,
        };
        let headers = match &new.headers {
            None => None,
            Some(headers) if headers.is_empty() => Some(None),
            Some(headers) => {
                let data_key = self.0.data_key(&mut tx).await?;
                Some(Some(seal_headers(&data_key, &new.name, headers).await?))
            }
        };
        let (had_key, stored_names, stored_body) = match old {
            Some(old) => (old.has_key, old.header_names, old.extra_body),
            None => Default::default(),
        };
        let provider = Provider {
            has_key: sealed.is_some() || had_key,
            header_names: match new.headers {
                Some(headers) => headers.into_keys().collect(),
                None => stored_names,
            },
            extra_body: new.extra_body.unwrap_or(stored_body),
            name: new.name,
            kind: new.kind,
            base_url: new.base_url,
            default_model: new.default_model,
        };
        let secrets = SealedSecrets {
            api_key: sealed.as_deref(),
            headers: headers.as_ref().map(Option::as_deref),
        };
        store::providers::put(&mut tx, &provider, secrets).await?;
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

async fn seal_headers(
    key: &DataKey<'_>,
    provider: &str,
    headers: &BTreeMap<String, SecretString>,
) -> Result<Vec<u8>, Error> {
    let open: BTreeMap<&str, &str> =
        headers.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
    let json = serde_json::to_vec(&open).map_err(|error| Error::corrupt("headers", error))?;
    key.seal(Purpose::ProviderHeaders(provider), &json).await
}

/// Opens the headers of a provider.
pub(super) async fn open_headers(
    key: &DataKey<'_>,
    provider: &str,
    sealed: &[u8],
    usage: SecretUse,
) -> Result<BTreeMap<String, SecretString>, Error> {
    let json = key.open(Purpose::ProviderHeaders(provider), sealed, usage).await?;
    serde_json::from_slice(json.expose_secret())
        .map_err(|_| Error::Unsealable("a provider's headers"))
}
