//! Operations on nodes: creation, authentication, and tracking of the current connection.

use std::time::Instant;

use holdfast_types::{NodeId, TenantId};
use secrecy::SecretString;
use tracing::debug;

use super::check_limit;
use crate::{
    Actor, AuthenticatedNode, Directory, Error, NewNode, Node, NodeConnection, NodeReport,
    TenantState,
    node::CachedNode,
    store,
    token::{self, DigestPepper},
};

/// Maximum number of nodes of a tenant that are not revoked.
const MAX_NODES: i64 = 200;

/// State of a node's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeConnectionState {
    Current,
    /// A newer connection replaced it.
    Replaced,
    Revoked,
}

/// Nodes.
#[derive(Debug, Clone, Copy)]
pub struct Nodes<'d>(&'d Directory);

impl Directory {
    /// Whether a text has the form of a node token.
    #[must_use]
    pub fn is_node_token(text: &str) -> bool {
        token::read_node(text).is_some()
    }

    #[must_use]
    pub const fn nodes(&self) -> Nodes<'_> {
        Nodes(self)
    }
}

impl Nodes<'_> {
    /// Returns the node of a token.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownKey`], [`Error::KeyNotActive`] if revoked, or [`Error::TenantSuspended`].
    pub async fn authenticate(self, text: &str) -> Result<AuthenticatedNode, Error> {
        let (node, secret) = token::read_node(text).ok_or(Error::UnknownKey)?;
        let known = match self.0.nodes.get(&node) {
            Some(known) => known,
            None if self.0.unknown.get(&node.as_uuid()).is_some() => {
                return Err(Error::UnknownKey);
            }
            None => {
                let _slot = self.0.lookup_slot(node.as_uuid(), &secret).await?;
                self.look_up(node).await?
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
            // The token is valid, and the next use tries again.
            debug!(error = &error as &dyn std::error::Error, "a node's token was not hashed again");
        }
        Ok(known.who)
    }

    /// Replaces a digest of the previous pepper.
    async fn rehash(self, known: &CachedNode, secret: &token::Secret) -> Result<(), Error> {
        let digest = self.0.peppers.digest(secret)?;
        let mut tx = self.0.pools.tenant(known.who.tenant).await?;
        store::nodes::replace_digest(&mut tx, known.who.node, &known.digest, &digest).await?;
        tx.commit().await?;
        self.0.nodes.forget(&known.who.node);
        Ok(())
    }

    async fn look_up(self, node: NodeId) -> Result<CachedNode, Error> {
        let begun = Instant::now();
        let mut tx = self.0.pools.system().await?;
        let found = store::nodes::find(&mut tx, node).await?;
        tx.commit().await?;
        let Some(found) = found else {
            self.0.unknown.put(node.as_uuid(), (), begun);
            return Err(Error::UnknownKey);
        };
        let known = CachedNode {
            live: found.live,
            active: TenantState::parse(&found.tenant_state)? == TenantState::Active,
            who: AuthenticatedNode {
                tenant: found.tenant(),
                node,
                rate: found.rate.unsigned_abs(),
                concurrent_calls: found.concurrent_calls.and_then(|most| u32::try_from(most).ok()),
                name: found.name,
            },
            digest: found.digest,
        };
        self.0.nodes.put(node, known.clone(), begun);
        Ok(known)
    }

    /// Creates a node; the returned token cannot be read again.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed name, [`Error::Taken`] if the name is used,
    /// [`Error::TooMany`] at the limit.
    pub async fn create(
        self,
        tenant: TenantId,
        actor: Actor,
        new: NewNode,
    ) -> Result<(Node, SecretString), Error> {
        new.check()?;
        let mut tx = self.0.begin_change(tenant).await?;
        check_limit("nodes", store::nodes::count(&mut tx).await?, MAX_NODES)?;
        if store::nodes::get(&mut tx, None, &new.name).await?.is_some() {
            return Err(Error::taken("a node", new.name));
        }
        let id = NodeId::generate();
        let (secret, digest) = self.0.peppers.generate(id.as_uuid())?;
        let node = store::nodes::insert(&mut tx, id, &digest, &new).await?;
        store::audit::record(&mut tx, actor, "node.create", node.id).await?;
        tx.commit().await?;
        Ok((node, token::write_node(id, &secret)))
    }

    /// Returns the tenant's nodes in the order of creation, including revoked ones.
    pub async fn list(self, tenant: TenantId) -> Result<Vec<Node>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let nodes = store::nodes::all(&mut tx).await?;
        tx.commit().await?;
        Ok(nodes)
    }

    /// Returns the node with this id, or the one with this name that is not revoked.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such node.
    pub async fn get(self, tenant: TenantId, named: &str) -> Result<Node, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let node = store::nodes::get(&mut tx, named.parse().ok(), named).await?;
        tx.commit().await?;
        node.ok_or_else(|| Error::not_found("node", named))
    }

    /// Revokes a node's token, and frees its name.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such node.
    pub async fn revoke(
        self,
        tenant: TenantId,
        actor: Actor,
        named: &str,
    ) -> Result<NodeId, Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        let node = store::nodes::get(&mut tx, named.parse().ok(), named).await?;
        let node = node.ok_or_else(|| Error::not_found("node", named))?;
        store::nodes::revoke(&mut tx, node.id).await?;
        store::audit::record(&mut tx, actor, "node.revoke", node.id).await?;
        tx.commit().await?;
        self.0.nodes.forget(&node.id);
        Ok(node.id)
    }

    /// Records a node's connection, which replaces any other connection of the node.
    ///
    /// # Errors
    ///
    /// [`Error::KeyNotActive`] if the node was revoked.
    pub async fn record_connection(
        self,
        known: &AuthenticatedNode,
        connection: NodeConnection,
        said: NodeReport,
    ) -> Result<(), Error> {
        let mut tx = self.0.pools.tenant(known.tenant).await?;
        let came = store::nodes::connect(&mut tx, known.node, connection, &said.truncate()).await?;
        tx.commit().await?;
        if came { Ok(()) } else { Err(Error::KeyNotActive) }
    }

    /// Records the end of a connection, if it is the current one.
    pub async fn record_disconnection(
        self,
        known: &AuthenticatedNode,
        connection: NodeConnection,
    ) -> Result<(), Error> {
        let mut tx = self.0.pools.tenant(known.tenant).await?;
        store::nodes::disconnect(&mut tx, known.node, connection).await?;
        Ok(tx.commit().await?)
    }

    /// Returns whether a connection is the current one.
    pub async fn connection_state(
        self,
        known: &AuthenticatedNode,
        connection: NodeConnection,
    ) -> Result<NodeConnectionState, Error> {
        let mut tx = self.0.pools.tenant(known.tenant).await?;
        let found = store::nodes::connection_state(&mut tx, known.node).await?;
        tx.commit().await?;
        Ok(match found {
            None | Some((_, false)) => NodeConnectionState::Revoked,
            Some((Some(counts), true)) if counts == connection => NodeConnectionState::Current,
            Some((_, true)) => NodeConnectionState::Replaced,
        })
    }
}
