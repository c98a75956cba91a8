//! Operations on connections to other services.

use holdfast_types::{AgentId, TenantId};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use super::check_limit;
use crate::{
    Actor, Connection, Directory, Error, NewConnection, Purpose, SecretUse,
    routing::AgentReference, store, tenant::check_name,
};

const MAX_CONNECTIONS: i64 = 1_000;

/// Connections of users to other services.
#[derive(Debug, Clone, Copy)]
pub struct Connections<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn connections(&self) -> Connections<'_> {
        Connections(self)
    }
}

impl Connections<'_> {
    /// Returns the tenant's connections, by name.
    pub async fn list(self, tenant: TenantId) -> Result<Vec<Connection>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let connections = store::connections::all(&mut tx).await?;
        tx.commit().await?;
        Ok(connections)
    }

    /// Returns the connections that an agent may use, by name.
    pub async fn of_agent(
        self,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Vec<Connection>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let connections = store::connections::of_agent(&mut tx, agent).await?;
        tx.commit().await?;
        Ok(connections)
    }

    /// Creates or replaces a connection.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed value, or if a stored secret would be sent to another
    /// service than it was given for; [`Error::NotFound`] if there is no such agent;
    /// [`Error::TooMany`] at the limit.
    pub async fn put(
        self,
        tenant: TenantId,
        actor: Actor,
        new: NewConnection,
    ) -> Result<Connection, Error> {
        new.check()?;
        let mut tx = self.0.begin_change(tenant).await?;
        let agent = match &new.agent {
            None => None,
            Some(named) => {
                let missing = || Error::not_found("agent", named);
                let wanted = AgentReference::parse(named).ok_or_else(missing)?;
                let found = store::agents::find(&mut tx, &wanted).await?;
                Some(found.ok_or_else(missing)?.id)
            }
        };
        let old = store::connections::get(&mut tx, &new.name).await?;
        match &old {
            None => check_limit(
                "connections",
                store::connections::count(&mut tx).await?,
                MAX_CONNECTIONS,
            )?,
            Some(old)
                if old.has_secret
                    && new.secret.is_none()
                    && (old.to.kind(), old.to.endpoint()) != (new.to.kind(), new.to.endpoint()) =>
            {
                return Err(Error::Invalid(
                    "the stored secret was given for another place: give the secret again"
                        .to_owned(),
                ));
            }
            Some(_) => {}
        }
        let sealed = match &new.secret {
            Some(secret) => {
                let data_key = self.0.data_key(&mut tx).await?;
                let purpose = Purpose::ConnectionSecret(&new.name);
                Some(data_key.seal(purpose, secret.expose_secret().as_bytes()).await?)
            }
            None => None,
        };
        let connection = Connection {
            name: new.name,
            to: new.to,
            agent,
            used_by: new.used_by,
            has_secret: sealed.is_some(),
            updated_at: Timestamp::UNIX_EPOCH,
        };
        let put = store::connections::put(&mut tx, &connection, sealed.as_deref()).await?;
        store::audit::record(&mut tx, actor, "connection.put", &put.name).await?;
        tx.commit().await?;
        Ok(put)
    }

    /// Deletes a connection and its secret.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such connection.
    pub async fn delete(self, tenant: TenantId, actor: Actor, name: &str) -> Result<(), Error> {
        check_name("connection", name)?;
        let mut tx = self.0.begin_change(tenant).await?;
        if !store::connections::delete(&mut tx, name).await? {
            return Err(Error::not_found("connection", name));
        }
        store::audit::record(&mut tx, actor, "connection.delete", name).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Returns a connection and its secret, as stored now; `None` if no secret is stored.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such connection, [`Error::Unsealable`] if its secret
    /// cannot be opened.
    pub async fn open(
        self,
        tenant: TenantId,
        name: &str,
    ) -> Result<(Connection, Option<SecretString>), Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let found = store::connections::get(&mut tx, name).await?;
        let connection = found.ok_or_else(|| Error::not_found("connection", name))?;
        let secret = match store::connections::secret(&mut tx, name).await? {
            Some(sealed) => {
                let data_key = self.0.data_key(&mut tx).await?;
                let purpose = Purpose::ConnectionSecret(name);
                Some(data_key.open_text(purpose, &sealed, SecretUse::Connection).await?)
            }
            None => None,
        };
        tx.commit().await?;
        Ok((connection, secret))
    }
}
