//! Operations on chains: the tenant's own, and the built-in one.

use holdfast_types::{Chain, SHIPPED_CHAIN_NAME, TenantId};

use super::check_limit;
use crate::{Actor, Directory, Error, NamedChain, chain, store};

const MAX_CHAINS: i64 = 100;

/// Named chains.
#[derive(Debug, Clone, Copy)]
pub struct Chains<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn chains(&self) -> Chains<'_> {
        Chains(self)
    }
}

impl Chains<'_> {
    /// Returns the tenant's chains by name, and the built-in one unless the tenant has one of its
    /// name.
    pub async fn list(self, tenant: TenantId) -> Result<Vec<NamedChain>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let mut chains = store::chains::all(&mut tx).await?;
        tx.commit().await?;
        if chains.iter().all(|known| known.name != SHIPPED_CHAIN_NAME) {
            chains.push(NamedChain::shipped());
        }
        Ok(chains)
    }

    /// Returns a chain by its name.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such chain.
    pub async fn get(self, tenant: TenantId, name: &str) -> Result<NamedChain, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let found = store::chains::get(&mut tx, name).await?;
        tx.commit().await?;
        match found {
            Some(found) => Ok(found),
            None if name == SHIPPED_CHAIN_NAME => Ok(NamedChain::shipped()),
            None => Err(Error::not_found("chain", name)),
        }
    }

    /// Creates or replaces a chain. Runs in progress keep the definition they began with.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed chain, [`Error::TooMany`] at the limit.
    pub async fn put(
        self,
        tenant: TenantId,
        actor: Actor,
        name: &str,
        chain: &Chain,
    ) -> Result<NamedChain, Error> {
        chain::check(name, chain)?;
        let mut tx = self.0.begin_change(tenant).await?;
        if store::chains::get(&mut tx, name).await?.is_none() {
            check_limit("chains", store::chains::count(&mut tx).await?, MAX_CHAINS)?;
        }
        store::chains::put(&mut tx, name, chain).await?;
        store::audit::record(&mut tx, actor, "chain.put", name).await?;
        let stored = store::chains::get(&mut tx, name).await?;
        tx.commit().await?;
        stored.ok_or_else(|| Error::not_found("chain", name))
    }

    /// Deletes a chain of the tenant.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such chain.
    pub async fn delete(self, tenant: TenantId, actor: Actor, name: &str) -> Result<(), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        if !store::chains::delete(&mut tx, name).await? {
            return Err(Error::not_found("chain", name));
        }
        store::audit::record(&mut tx, actor, "chain.delete", name).await?;
        tx.commit().await?;
        Ok(())
    }
}
