//! Nodes: setting them up, knowing them by their tokens, and which connection of one counts.

use holdfast_types::{NodeId, TenantId};
use secrecy::SecretString;
use subtle::ConstantTimeEq as _;

use super::check_room;
use crate::{
    Actor, Directory, Error, KnownNode, NewNode, Node, NodeConnection, NodeSelf, TenantState,
    store, token,
};

/// Nodes of a tenant that may connect.
const MOST: i64 = 200;

/// How a connection of a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeStanding {
    /// It counts.
    Counts,
    /// A newer one took its place.
    Replaced,
    /// The node's token was ended.
    Revoked,
}

impl Directory {
    /// Whether a text has the form of a node's token.
    #[must_use]
    pub fn is_node_token(text: &str) -> bool {
        token::read_node(text).is_some()
    }

    /// Whose node a token is of.
    ///
    /// # Errors
    ///
    /// If it is not known, was revoked, or its tenant is suspended.
    pub async fn authenticate_node(&self, text: &str) -> Result<KnownNode, Error> {
        let (node, secret) = token::read_node(text).ok_or(Error::UnknownKey)?;
        let mut tx = self.pools.system().await?;
        let found = store::nodes::find(&mut tx, node).await?;
        tx.commit().await?;
        let found = found.ok_or(Error::UnknownKey)?;
        let digest = token::digest(&self.pepper, &secret);
        if !bool::from(digest.as_slice().ct_eq(&found.digest)) {
            return Err(Error::UnknownKey);
        }
        if !found.live {
            return Err(Error::EndedKey);
        }
        if TenantState::parse(&found.tenant_state)? != TenantState::Active {
            return Err(Error::Suspended);
        }
        let (tenant, rate) = (found.tenant(), found.rate.unsigned_abs());
        Ok(KnownNode { tenant, node, name: found.name, rate })
    }

    /// Sets a node up; its token is shown this once.
    ///
    /// # Errors
    ///
    /// If what is asked could never work, the name is another node's, or the tenant has too many.
    pub async fn create_node(
        &self,
        tenant: TenantId,
        actor: Actor,
        new: NewNode,
    ) -> Result<(Node, SecretString), Error> {
        new.check()?;
        let mut tx = self.change(tenant).await?;
        check_room("nodes", store::nodes::count(&mut tx).await?, MOST)?;
        if store::nodes::get(&mut tx, None, &new.name).await?.is_some() {
            return Err(Error::taken("a node", new.name));
        }
        let (id, secret) = (NodeId::generate(), token::generate());
        let digest = token::digest(&self.pepper, &secret);
        let node = store::nodes::insert(&mut tx, id, &digest, &new).await?;
        store::audit::record(&mut tx, actor, "node.create", node.id).await?;
        tx.commit().await?;
        Ok((node, token::write_node(id, &secret)))
    }

    /// The tenant's nodes, revoked ones too, in the order in which they were made.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub async fn nodes(&self, tenant: TenantId) -> Result<Vec<Node>, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let nodes = store::nodes::all(&mut tx).await?;
        tx.commit().await?;
        Ok(nodes)
    }

    /// A node by its id, or one that is not revoked by its name.
    ///
    /// # Errors
    ///
    /// If the tenant has none of that name or id.
    pub async fn node(&self, tenant: TenantId, named: &str) -> Result<Node, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let node = store::nodes::get(&mut tx, named.parse().ok(), named).await?;
        tx.commit().await?;
        node.ok_or_else(|| Error::not_found("node", named))
    }

    /// Ends a node's token, and frees its name.
    ///
    /// # Errors
    ///
    /// If the tenant has none of that name or id.
    pub async fn revoke_node(
        &self,
        tenant: TenantId,
        actor: Actor,
        named: &str,
    ) -> Result<NodeId, Error> {
        let mut tx = self.change(tenant).await?;
        let node = store::nodes::get(&mut tx, named.parse().ok(), named).await?;
        let node = node.ok_or_else(|| Error::not_found("node", named))?;
        store::nodes::revoke(&mut tx, node.id).await?;
        store::audit::record(&mut tx, actor, "node.revoke", node.id).await?;
        tx.commit().await?;
        Ok(node.id)
    }

    /// Notes that a node has connected; any other connection of it counts no more.
    ///
    /// # Errors
    ///
    /// If it was revoked.
    pub async fn node_came(
        &self,
        known: &KnownNode,
        connection: NodeConnection,
        said: NodeSelf,
    ) -> Result<(), Error> {
        let mut tx = self.pools.tenant(known.tenant).await?;
        let came = store::nodes::came(&mut tx, known.node, connection, &said.within()).await?;
        tx.commit().await?;
        if came { Ok(()) } else { Err(Error::EndedKey) }
    }

    /// Notes that a connection has ended, if it still counted.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub async fn node_left(
        &self,
        known: &KnownNode,
        connection: NodeConnection,
    ) -> Result<(), Error> {
        let mut tx = self.pools.tenant(known.tenant).await?;
        store::nodes::left(&mut tx, known.node, connection).await?;
        Ok(tx.commit().await?)
    }

    /// Whether a connection still counts.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub async fn node_stands(
        &self,
        known: &KnownNode,
        connection: NodeConnection,
    ) -> Result<NodeStanding, Error> {
        let mut tx = self.pools.tenant(known.tenant).await?;
        let found = store::nodes::stands(&mut tx, known.node).await?;
        tx.commit().await?;
        Ok(match found {
            None | Some((_, false)) => NodeStanding::Revoked,
            Some((Some(counts), true)) if counts == connection => NodeStanding::Counts,
            Some((_, true)) => NodeStanding::Replaced,
        })
    }
}
