//! Operations on MCP servers.

use std::collections::BTreeMap;

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, TenantId};
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use super::check_limit;
use crate::{
    Actor, DataKey, Directory, Error, McpServer, NewMcpServer, OpenMcpServer, Purpose, SecretUse,
    mcp::check_name, routing::AgentReference, store,
};

const MAX_SERVERS: i64 = 32;

/// MCP servers.
#[derive(Debug, Clone, Copy)]
pub struct McpServers<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn mcp_servers(&self) -> McpServers<'_> {
        McpServers(self)
    }
}

impl McpServers<'_> {
    /// Returns the tenant's MCP servers, by name.
    pub async fn list(self, tenant: TenantId) -> Result<Vec<McpServer>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let servers = store::mcp_servers::all(&mut tx).await?;
        tx.commit().await?;
        Ok(servers)
    }

    /// Returns one MCP server.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such server.
    pub async fn get(self, tenant: TenantId, name: &str) -> Result<McpServer, Error> {
        check_name(name)?;
        let mut tx = self.0.pools.tenant(tenant).await?;
        let server = store::mcp_servers::get(&mut tx, name).await?;
        tx.commit().await?;
        server.ok_or_else(|| Error::not_found("mcp server", name))
    }

    /// Returns the enabled MCP servers with their secrets, by name.
    ///
    /// # Errors
    ///
    /// [`Error::Unsealable`] if secrets cannot be opened.
    pub async fn open(self, tenant: TenantId) -> Result<Vec<OpenMcpServer>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let stored = store::mcp_servers::enabled(&mut tx).await?;
        let has_secrets = stored.iter().any(|(_, sealed)| sealed.is_some());
        let key = match has_secrets {
            true => Some(self.0.data_key(&mut tx).await?),
            false => None,
        };
        tx.commit().await?;
        let mut servers = Vec::with_capacity(stored.len());
        for (server, sealed) in stored {
            let secrets = match (&key, sealed) {
                (Some(key), Some(sealed)) => unseal(key, &server.name, &sealed).await?,
                _ => Vec::new(),
            };
            servers.push(OpenMcpServer { server, secrets });
        }
        Ok(servers)
    }

    /// Creates or replaces an MCP server.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed value, or if stored secrets would be sent to another
    /// server than they were given for; [`Error::NotFound`] if there is no such agent;
    /// [`Error::TooMany`] at the limit.
    pub async fn put(
        self,
        tenant: TenantId,
        actor: Actor,
        new: NewMcpServer,
    ) -> Result<McpServer, Error> {
        new.check()?;
        let mut tx = self.0.begin_change(tenant).await?;
        let old = store::mcp_servers::get(&mut tx, &new.name).await?;
        let kept = old.as_ref().map(|old| old.secret_names.clone()).unwrap_or_default();
        match &old {
            None => {
                check_limit("mcp servers", store::mcp_servers::count(&mut tx).await?, MAX_SERVERS)?
            }
            Some(old)
                if new.secrets.is_none()
                    && !kept.is_empty()
                    && !old.transport.is_same_server(&new.transport) =>
            {
                return Err(Error::Invalid(
                    "the stored headers or variables were given for another server: give them \
                     again"
                        .to_owned(),
                ));
            }
            Some(_) => {}
        }
        let agents = find_agents(&mut tx, &new.agents).await?;
        let sealed = match &new.secrets {
            None => None,
            Some(secrets) if secrets.is_empty() => Some(None),
            Some(secrets) => {
                let key = self.0.data_key(&mut tx).await?;
                Some(Some(seal(&key, &new.name, secrets).await?))
            }
        };
        let server = McpServer {
            secret_names: match new.secrets {
                None => kept,
                Some(secrets) => secrets.into_keys().collect(),
            },
            name: new.name,
            transport: new.transport,
            agents,
            enabled: new.enabled,
            harmless: new.harmless,
            version: Uuid::now_v7(),
        };
        let secrets = sealed.as_ref().map(Option::as_deref);
        store::mcp_servers::put(&mut tx, &server, secrets).await?;
        store::audit::record(&mut tx, actor, "mcp_server.put", &server.name).await?;
        tx.commit().await?;
        Ok(server)
    }

    /// Deletes an MCP server and its secrets.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such server.
    pub async fn delete(self, tenant: TenantId, actor: Actor, name: &str) -> Result<(), Error> {
        check_name(name)?;
        let mut tx = self.0.begin_change(tenant).await?;
        if !store::mcp_servers::delete(&mut tx, name).await? {
            return Err(Error::not_found("mcp server", name));
        }
        store::audit::record(&mut tx, actor, "mcp_server.delete", name).await?;
        tx.commit().await?;
        Ok(())
    }
}

async fn find_agents(tx: &mut TenantTx, named: &[String]) -> Result<Option<Vec<AgentId>>, Error> {
    if named.is_empty() {
        return Ok(None);
    }
    let mut agents = Vec::with_capacity(named.len());
    for name in named {
        let missing = || Error::not_found("agent", name);
        let wanted = AgentReference::parse(name).ok_or_else(missing)?;
        agents.push(store::agents::find(tx, &wanted).await?.ok_or_else(missing)?.id);
    }
    Ok(Some(agents))
}

async fn seal(
    key: &DataKey<'_>,
    server: &str,
    secrets: &BTreeMap<String, SecretString>,
) -> Result<Vec<u8>, Error> {
    let open: BTreeMap<&str, &str> =
        secrets.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
    let json = serde_json::to_vec(&open).map_err(|error| Error::corrupt("secrets", error))?;
    key.seal(Purpose::McpSecrets(server), &json).await
}

async fn unseal(
    key: &DataKey<'_>,
    server: &str,
    sealed: &[u8],
) -> Result<Vec<(String, SecretString)>, Error> {
    let json = key.open(Purpose::McpSecrets(server), sealed, SecretUse::McpServers).await?;
    let open: BTreeMap<String, SecretString> = serde_json::from_slice(json.expose_secret())
        .map_err(|_| Error::Unsealable("an mcp server's secrets"))?;
    Ok(open.into_iter().collect())
}
