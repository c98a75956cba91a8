//! Operations on API keys.

pub(super) mod console;
pub(super) mod devices;

use std::time::Instant;

use holdfast_pg::TenantTx;
use holdfast_types::{AgentName, KeyId, PersonId, TenantId};
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use tracing::debug;

use super::check_limit;
use crate::{
    Actor, Directory, Error, Key, KeyPrincipal, NewKey, TenantState,
    key::CachedKey,
    routing::AgentReference,
    store,
    token::{self, DigestPepper, Peppers},
};

/// Maximum number of usable keys of a tenant.
const MAX_USABLE_KEYS: i64 = 1_000;

/// API keys.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn keys(&self) -> Keys<'_> {
        Keys(self)
    }
}

impl Keys<'_> {
    /// Returns the tenant and the scopes of an API key.
    ///
    /// Only a caller with the whole key learns that the key is revoked or the tenant is suspended.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownKey`], [`Error::KeyNotActive`] if revoked or expired, or [`Error::TenantSuspended`].
    pub async fn authenticate(self, token: &str) -> Result<KeyPrincipal, Error> {
        let (id, secret) = token::read(token).ok_or(Error::UnknownKey)?;
        let known = match self.0.keys.get(&id) {
            Some(known) => known,
            None if self.0.unknown.get(&id.as_uuid()).is_some() => return Err(Error::UnknownKey),
            None => {
                let _slot = self.0.lookup_slot(id.as_uuid(), &secret).await?;
                self.look_up(id).await?
            }
        };
        let pepper = self.0.peppers.pepper_of(&known.digest, &secret)?.ok_or(Error::UnknownKey)?;
        if !known.live {
            return Err(Error::KeyNotActive);
        }
        if !known.active {
            return Err(Error::TenantSuspended);
        }
        if pepper == DigestPepper::Previous
            && let Err(error) = self.rehash(&known, &secret).await
        {
            // The key is valid, and the next use tries again.
            debug!(error = &error as &dyn std::error::Error, "a key was not hashed again");
        }
        Ok(known.who)
    }

    /// Replaces a digest of the previous pepper.
    async fn rehash(self, known: &CachedKey, secret: &token::Secret) -> Result<(), Error> {
        let digest = self.0.peppers.digest(secret)?;
        let mut tx = self.0.pools.tenant(known.who.tenant).await?;
        store::keys::replace_digest(&mut tx, known.who.key, &known.digest, &digest).await?;
        tx.commit().await?;
        self.0.keys.forget(&known.who.key);
        Ok(())
    }

    async fn look_up(self, id: KeyId) -> Result<CachedKey, Error> {
        let begun = Instant::now();
        let mut tx = self.0.pools.system().await?;
        let found = store::keys::find(&mut tx, id).await?;
        tx.commit().await?;
        let Some(found) = found else {
            self.0.unknown.put(id.as_uuid(), (), begun);
            return Err(Error::UnknownKey);
        };
        let person = found.person()?;
        let known = CachedKey {
            digest: found.digest,
            live: found.live,
            active: TenantState::parse(&found.tenant_state)? == TenantState::Active,
            who: KeyPrincipal {
                tenant: found.tenant_id.into(),
                key: id,
                name: found.name,
                person,
                agent: found.agent.as_deref().map(AgentName::new),
                origins: found.origins,
                scopes: found.scopes,
                rate: found.rate.unsigned_abs(),
                concurrent_calls: found.concurrent_calls.and_then(|most| u32::try_from(most).ok()),
            },
        };
        self.0.keys.put(id, known.clone(), begun);
        Ok(known)
    }

    /// Creates a key; the returned secret cannot be read again.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed value, [`Error::TooMany`] at the limit, [`Error::NotFound`] if
    /// the tenant has no such person.
    pub async fn create(
        self,
        tenant: TenantId,
        actor: Actor,
        new: NewKey,
    ) -> Result<(Key, SecretString), Error> {
        let new = new.check()?;
        let mut tx = self.0.begin_change(tenant).await?;
        check_limit("usable keys", store::keys::count(&mut tx).await?, MAX_USABLE_KEYS)?;
        if let Some(person) = new.person
            && store::people::one(&mut tx, person).await?.is_none()
        {
            return Err(Error::not_found("person", person));
        }
        if let Some(agent) = new.agent
            && store::agents::find(&mut tx, &AgentReference::Id(agent)).await?.is_none()
        {
            return Err(Error::not_found("agent", agent));
        }
        let (key, secret) = insert(&mut tx, &self.0.peppers, &new).await?;
        store::audit::record(&mut tx, actor, "key.create", key.id).await?;
        tx.commit().await?;
        Ok((key, secret))
    }

    /// Makes a key that is nobody's a person's.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such key, or it is somebody's.
    pub async fn give_to(self, tenant: TenantId, id: KeyId, person: PersonId) -> Result<(), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        if !store::keys::set_person(&mut tx, id, person).await? {
            return Err(Error::not_found("key that is nobody's", id));
        }
        store::people::add_identity(&mut tx, person, "key", &id.to_string()).await?;
        store::audit::record(&mut tx, Actor::Operator, "key.give", id).await?;
        tx.commit().await?;
        self.0.keys.forget(&id);
        Ok(())
    }

    /// Returns the tenant's keys in the order of creation, including revoked and expired ones.
    pub async fn list(self, tenant: TenantId) -> Result<Vec<Key>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let keys = store::keys::all(&mut tx).await?;
        tx.commit().await?;
        Ok(keys)
    }

    /// Returns a key, which may be revoked or expired.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such key.
    pub async fn get(self, tenant: TenantId, id: KeyId) -> Result<Key, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let key = store::keys::one(&mut tx, id).await?;
        tx.commit().await?;
        key.ok_or_else(|| Error::not_found("key", id))
    }

    /// Revokes a key: in this process at once, in others within 5 s.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such key.
    pub async fn revoke(self, tenant: TenantId, actor: Actor, id: KeyId) -> Result<(), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        if !store::keys::revoke(&mut tx, id).await? {
            return Err(Error::not_found("key", id));
        }
        store::people::invitations::delete_by(&mut tx, &id.to_string()).await?;
        store::audit::record(&mut tx, actor, "key.revoke", id).await?;
        tx.commit().await?;
        self.0.keys.forget(&id);
        Ok(())
    }
}

/// Stores a new key, and returns it with its text form.
pub(super) async fn insert(
    tx: &mut TenantTx,
    peppers: &Peppers,
    new: &NewKey,
) -> Result<(Key, SecretString), Error> {
    let id = KeyId::generate();
    let (secret, digest) = peppers.generate(id.as_uuid())?;
    let expires_at = match new.lifetime {
        Some(life) => {
            let life = SignedDuration::try_from(life);
            let at = life.and_then(|life| Timestamp::now().checked_add(life));
            Some(at.map_err(|error| Error::Invalid(format!("the key's lifetime: {error}")))?)
        }
        None => None,
    };
    let key = store::keys::insert(tx, id, &digest, new, expires_at).await?;
    if let Some(person) = new.person {
        store::people::add_identity(tx, person, "key", &id.to_string()).await?;
    }
    Ok((key, token::write(id, &secret)))
}
