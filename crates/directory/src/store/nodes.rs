//! `control.nodes`.

use holdfast_pg::{SystemTx, TenantTx};
use holdfast_types::{ConnectionScope, NodeId, TenantId};
use uuid::Uuid;

use crate::{Error, NewNode, Node, NodeConnection, NodeReport};

#[derive(sqlx::FromRow)]
struct Row {
    node_id: Uuid,
    name: String,
    used_by: String,
    platform: String,
    version: String,
    commands: Vec<String>,
    connection: Option<Uuid>,
    last_seen_at: Option<jiff_sqlx::Timestamp>,
    created_at: jiff_sqlx::Timestamp,
    revoked_at: Option<jiff_sqlx::Timestamp>,
}

impl Row {
    fn read(self) -> Result<Node, Error> {
        let corrupt = |error| Error::corrupt("node", anyhow::Error::from(error));
        Ok(Node {
            id: self.node_id.into(),
            name: self.name,
            used_by: self.used_by.parse::<ConnectionScope>().map_err(corrupt)?,
            report: NodeReport {
                platform: self.platform,
                version: self.version,
                commands: self.commands,
            },
            may_be_connected: self.connection.is_some() && self.revoked_at.is_none(),
            last_seen_at: self.last_seen_at.map(jiff_sqlx::Timestamp::to_jiff),
            created_at: self.created_at.to_jiff(),
            revoked_at: self.revoked_at.map(jiff_sqlx::Timestamp::to_jiff),
        })
    }
}

/// Fields of a node that can be read before its tenant is known.
#[derive(sqlx::FromRow)]
pub(crate) struct NodeLookup {
    tenant_id: Uuid,
    pub(crate) name: String,
    pub(crate) digest: Vec<u8>,
    pub(crate) rate: i32,
    pub(crate) concurrent_calls: Option<i64>,
    pub(crate) live: bool,
    pub(crate) tenant_state: String,
}

impl NodeLookup {
    pub(crate) fn tenant(&self) -> TenantId {
        self.tenant_id.into()
    }
}

pub(crate) async fn find(tx: &mut SystemTx, node: NodeId) -> sqlx::Result<Option<NodeLookup>> {
    const SQL: &str = "select tenant_id, name, digest, rate, live, tenant_state, concurrent_calls \
         from control.find_node_with_limits($1)";
    holdfast_pg::query_as(SQL).bind(node.as_uuid()).fetch_optional(tx.conn()).await
}

pub(crate) async fn insert(
    tx: &mut TenantTx,
    id: NodeId,
    digest: &[u8],
    new: &NewNode,
) -> Result<Node, Error> {
    const SQL: &str = "insert into control.nodes (tenant_id, node_id, name, used_by, digest) \
                       values ($1, $2, $3, $4, $5) \
                       returning node_id, name, used_by, platform, version, commands, connection, \
                       last_seen_at, created_at, revoked_at";
    let tenant = tx.tenant().as_uuid();
    let row: Row = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(&new.name)
        .bind(new.used_by.to_string())
        .bind(digest)
        .fetch_one(tx.conn())
        .await?;
    row.read()
}

/// Returns all nodes in the order of creation, including revoked ones.
pub(crate) async fn all(tx: &mut TenantTx) -> Result<Vec<Node>, Error> {
    const SQL: &str = "select node_id, name, used_by, platform, version, commands, connection, \
                       last_seen_at, created_at, revoked_at \
                       from control.nodes where tenant_id = $1 order by node_id";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    rows.into_iter().map(Row::read).collect()
}

/// Returns the node with this id, or the one with this name that is not revoked.
pub(crate) async fn get(
    tx: &mut TenantTx,
    id: Option<NodeId>,
    name: &str,
) -> Result<Option<Node>, Error> {
    const SQL: &str = "select node_id, name, used_by, platform, version, commands, connection, \
                       last_seen_at, created_at, revoked_at \
                       from control.nodes where tenant_id = $1 \
                       and (node_id = $2 or (name = $3 and revoked_at is null))";
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(id.map(NodeId::as_uuid))
        .bind(name)
        .fetch_optional(tx.conn())
        .await?;
    row.map(Row::read).transpose()
}

/// Replaces the digest of a node's token, if it still is `old`.
pub(crate) async fn replace_digest(
    tx: &mut TenantTx,
    id: NodeId,
    old: &[u8],
    new: &[u8],
) -> sqlx::Result<()> {
    const SQL: &str = "update control.nodes set digest = $4 \
                       where tenant_id = $1 and node_id = $2 and digest = $3";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(old)
        .bind(new)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Returns the number of nodes that are not revoked.
pub(crate) async fn count(tx: &mut TenantTx) -> sqlx::Result<i64> {
    const SQL: &str =
        "select count(*) from control.nodes where tenant_id = $1 and revoked_at is null";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).fetch_one(tx.conn()).await
}

/// Revokes a node; a revoked node keeps its time of revocation.
pub(crate) async fn revoke(tx: &mut TenantTx, id: NodeId) -> sqlx::Result<()> {
    const SQL: &str = "update control.nodes set revoked_at = coalesce(revoked_at, now()) \
                       where tenant_id = $1 and node_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(id.as_uuid()).execute(tx.conn()).await?;
    Ok(())
}

/// Stores a connection in place of any other. Returns whether the node may connect.
pub(crate) async fn connect(
    tx: &mut TenantTx,
    id: NodeId,
    connection: NodeConnection,
    said: &NodeReport,
) -> sqlx::Result<bool> {
    const SQL: &str = "update control.nodes set connection = $3, platform = $4, version = $5, \
                       commands = $6, last_seen_at = now() \
                       where tenant_id = $1 and node_id = $2 and revoked_at is null";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(connection)
        .bind(&said.platform)
        .bind(&said.version)
        .bind(&said.commands)
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Clears a connection, if it is the current one.
pub(crate) async fn disconnect(
    tx: &mut TenantTx,
    id: NodeId,
    connection: NodeConnection,
) -> sqlx::Result<()> {
    const SQL: &str = "update control.nodes set connection = null, last_seen_at = now() \
                       where tenant_id = $1 and node_id = $2 and connection = $3";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(connection)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Returns the current connection, and whether the node may connect.
pub(crate) async fn connection_state(
    tx: &mut TenantTx,
    id: NodeId,
) -> sqlx::Result<Option<(Option<NodeConnection>, bool)>> {
    const SQL: &str = "select connection, revoked_at is null from control.nodes \
                       where tenant_id = $1 and node_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).bind(id.as_uuid()).fetch_optional(tx.conn()).await
}
