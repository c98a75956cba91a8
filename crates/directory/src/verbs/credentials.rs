//! Operations on provider credentials and their statistics.

use holdfast_pg::TenantTx;
use holdfast_types::TenantId;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use super::check_limit;
use crate::{
    Actor, CredentialStats, CredentialSummary, Directory, Error, NewCredential, PROVIDER_KEY_NAME,
    Provider, ProviderCredentials, Purpose, SecretUse, provider::credential::SealedCredential,
    store, tenant::check_name,
};

/// Maximum number of credentials per provider.
const MAX_CREDENTIALS_PER_PROVIDER: usize = 20;

/// Keys and tokens of providers, and the renewal of tokens.
#[derive(Debug, Clone, Copy)]
pub struct Credentials<'d>(pub(super) &'d Directory);

impl Directory {
    #[must_use]
    pub const fn credentials(&self) -> Credentials<'_> {
        Credentials(self)
    }
}

impl Credentials<'_> {
    /// Returns the tenant's credentials by provider, with their statistics.
    pub async fn list(self, tenant: TenantId) -> Result<Vec<CredentialSummary>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let credentials = store::credentials::all(&mut tx).await?;
        tx.commit().await?;
        Ok(credentials)
    }

    /// Stores a credential of a provider. A credential of the same name is replaced, and its
    /// statistics are reset.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed value, [`Error::NotFound`] if there is no such provider,
    /// [`Error::TooMany`] at the limit.
    pub async fn put(
        self,
        tenant: TenantId,
        actor: Actor,
        new: &NewCredential,
    ) -> Result<(), Error> {
        new.check()?;
        let mut tx = self.0.begin_change(tenant).await?;
        let provider = provider_of(&mut tx, &new.provider).await?;
        let new = &match new.refresh {
            Some(_) => {
                let renewed_at = new.renewed_at.clone().check(provider.kind)?;
                NewCredential { renewed_at, ..new.clone() }
            }
            None => new.clone(),
        };
        let others = store::credentials::of_provider(&mut tx, &new.provider).await?;
        if others.iter().all(|other| other.name != new.name) {
            let (have, most) = (others.len(), MAX_CREDENTIALS_PER_PROVIDER);
            let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            check_limit("keys of one provider", number(have), number(most))?;
        }
        let data_key = self.0.data_key(&mut tx).await?;
        let purpose = Purpose::Credential { provider: &new.provider, name: &new.name };
        let sealed = data_key.seal(purpose, &SealedCredential::bytes(new)).await?;
        store::credentials::put(&mut tx, new, &sealed).await?;
        store::credentials::reset_stats(&mut tx, &new.provider, &new.name, now()).await?;
        let subject = format!("{}/{}", new.provider, new.name);
        store::audit::record(&mut tx, actor, "credential.put", subject).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Deletes a credential; the name `default` deletes the provider's own API key.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such credential.
    pub async fn delete(
        self,
        tenant: TenantId,
        actor: Actor,
        provider: &str,
        name: &str,
    ) -> Result<(), Error> {
        let subject = subject(provider, name)?;
        let mut tx = self.0.begin_change(tenant).await?;
        if !store::credentials::delete(&mut tx, provider, name).await? {
            return Err(Error::not_found("credential", subject));
        }
        store::audit::record(&mut tx, actor, "credential.delete", subject).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Stores which credentials of a provider are used, and with `strict` in which order. Without
    /// names all are used, the least recently used one first.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such provider or credential.
    pub async fn set_order(
        self,
        tenant: TenantId,
        actor: Actor,
        provider: &str,
        order: (&[String], bool),
    ) -> Result<(), Error> {
        check_name("provider", provider)?;
        let (names, strict) = order;
        let mut tx = self.0.begin_change(tenant).await?;
        let own = provider_of(&mut tx, provider).await?.has_key;
        let there = store::credentials::of_provider(&mut tx, provider).await?;
        let is_there = |name: &String| {
            there.iter().any(|one| one.name == *name && (*name != PROVIDER_KEY_NAME || own))
        };
        if let Some(missing) = names.iter().find(|name| !is_there(name)) {
            return Err(Error::not_found("credential", format!("{provider}/{missing}")));
        }
        store::credentials::order(&mut tx, provider, names, strict).await?;
        store::audit::record(&mut tx, actor, "credential.order", provider).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Resets the statistics of a credential, so that it is used again at once.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such credential.
    pub async fn enable(
        self,
        tenant: TenantId,
        actor: Actor,
        provider: &str,
        name: &str,
    ) -> Result<(), Error> {
        let subject = subject(provider, name)?;
        let mut tx = self.0.begin_change(tenant).await?;
        let all = store::credentials::all(&mut tx).await?;
        if !all.iter().any(|one| one.provider == provider && one.name == name) {
            return Err(Error::not_found("credential", subject));
        }
        store::credentials::reset_stats(&mut tx, provider, name, now()).await?;
        store::audit::record(&mut tx, actor, "credential.enable", subject).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Stores the statistics of a credential, unless newer ones are stored.
    pub async fn store_stats(
        self,
        tenant: TenantId,
        provider: &str,
        name: &str,
        remembered: &CredentialStats,
    ) -> Result<(), Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        store::credentials::store_stats(&mut tx, provider, name, remembered).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Returns a provider's credentials, decrypted. `own` is the API key that the provider was set
    /// up with.
    pub(crate) async fn load(
        self,
        tx: &mut TenantTx,
        provider: &str,
        own: Option<&SecretString>,
        usage: SecretUse,
    ) -> Result<ProviderCredentials, Error> {
        use holdfast_llm::credentials::{Credential, Profile};
        let rows = store::credentials::of_provider(tx, provider).await?;
        let mut keys = ProviderCredentials {
            order: rows.first().and_then(|row| row.names.clone()),
            strict: rows.first().and_then(|row| row.strict).unwrap_or_default(),
            ..ProviderCredentials::default()
        };
        let mut data_key = None;
        for row in rows {
            if let Some(remembered) = row.remembered() {
                keys.stats.insert(row.name.clone(), remembered);
            }
            let credential = match &row.secret {
                Some(sealed) => {
                    if data_key.is_none() {
                        data_key = Some(self.0.data_key(tx).await?);
                    }
                    let Some(data_key) = &data_key else { continue };
                    let purpose = Purpose::Credential { provider, name: &row.name };
                    let opened = data_key.open(purpose, sealed, usage).await?;
                    SealedCredential::open(opened.expose_secret(), row.kind()?, row.expires())?
                }
                None => match own {
                    Some(key) => Credential::ApiKey { key: key.clone() },
                    None => continue,
                },
            };
            let credential = match (credential, row.version) {
                (credential, Some(version)) => {
                    keys.versions.insert(row.name.clone(), version);
                    credential
                }
                // Without a version the token cannot be renewed, so its refresh token is useless.
                (Credential::OAuth { access, expires, .. }, None) => {
                    Credential::OAuth { access, refresh: None, expires }
                }
                (credential, None) => credential,
            };
            let (id, provider) = (row.name, provider.to_owned());
            keys.profiles.push(Profile { id, provider, credential });
        }
        Ok(keys)
    }
}

async fn provider_of(tx: &mut TenantTx, provider: &str) -> Result<Provider, Error> {
    let found = store::providers::get(tx, provider).await?;
    found.ok_or_else(|| Error::not_found("provider", provider))
}

fn subject(provider: &str, name: &str) -> Result<String, Error> {
    check_name("provider", provider)?;
    check_name("credential", name)?;
    Ok(format!("{provider}/{name}"))
}

pub(super) fn now() -> i64 {
    Timestamp::now().as_millisecond()
}
