//! `memory.items`: memories, values, facts and events.

use holdfast_pg::{QueryBuilder, SystemTx, TenantTx};
use holdfast_types::TenantId;
use jiff::Timestamp;
use sqlx::types::Json;
use uuid::Uuid;

use super::{seen, visible_query};
use crate::{validation::Provenance, viewer::Viewer};

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Item {
    pub item_id: Uuid,
    pub kind: i16,
    pub agent_id: Uuid,
    pub user_id: String,
    pub session: String,
    #[sqlx(rename = "type")]
    pub of_type: String,
    pub subject: String,
    pub predicate: String,
    pub content: String,
    pub confidence: Option<f64>,
    pub importance: Option<f64>,
    pub tags: Vec<String>,
    pub group_safe: bool,
    pub active: bool,
    pub at: jiff_sqlx::Timestamp,
    pub expires_at: Option<jiff_sqlx::Timestamp>,
    pub provenance: Json<Provenance>,
    pub superseded_by: Option<Uuid>,
    pub superseded_at: Option<jiff_sqlx::Timestamp>,
    pub created_at: jiff_sqlx::Timestamp,
}

macro_rules! item {
    ($rest:literal) => {
        seen!(
            "select item_id, kind, agent_id, user_id, session, type, subject, predicate, content,
                    confidence, importance, tags, group_safe, active, at, expires_at, provenance,
                    superseded_by, superseded_at, created_at
             from memory.items",
            $rest
        )
    };
}

/// Inserts an item, with the request and position that created it.
pub async fn insert(
    tx: &mut TenantTx,
    item: &Item,
    request: Option<(&str, i32)>,
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into memory.items
            (tenant_id, item_id, kind, agent_id, user_id, session, type, subject, predicate, content,
             confidence, importance, tags, group_safe, at, expires_at, provenance, request, request_n)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(item.item_id)
        .bind(item.kind)
        .bind(item.agent_id)
        .bind(&item.user_id)
        .bind(&item.session)
        .bind(&item.of_type)
        .bind(&item.subject)
        .bind(&item.predicate)
        .bind(&item.content)
        .bind(item.confidence)
        .bind(item.importance)
        .bind(&item.tags)
        .bind(item.group_safe)
        .bind(item.at)
        .bind(item.expires_at)
        .bind(&item.provenance)
        .bind(request.map(|(request, _)| request))
        .bind(request.map_or(0, |(_, n)| n))
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Returns the items that a request created, with their positions.
pub async fn of_request(tx: &mut TenantTx, request: &str) -> sqlx::Result<Vec<(i32, Uuid)>> {
    const SQL: &str = "
        select request_n, item_id from memory.items
        where tenant_id = $1 and request = $2 order by request_n";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).bind(request).fetch_all(tx.conn()).await
}

/// Locks a key, or a subject and predicate, and returns its current item.
pub async fn current(
    tx: &mut TenantTx,
    who: &Viewer,
    kind: i16,
    key: (&str, &str),
) -> sqlx::Result<Option<Uuid>> {
    const LOCK: &str = "select pg_advisory_xact_lock(hashtextextended($1, 35))";
    const SQL: &str = "
        select item_id from memory.items
        where tenant_id = $1 and kind = $2 and agent_id = $3 and user_id = $4 and subject = $5
          and predicate = $6 and superseded_at is null and kind in (2, 3)";
    let tenant = tx.tenant();
    let (subject, predicate) = key;
    let what = format!("{tenant}:{}:{}:{kind}:{subject}\n{predicate}", who.agent, who.user);
    holdfast_pg::query(LOCK).bind(what).execute(tx.conn()).await?;
    holdfast_pg::query_scalar(SQL)
        .bind(tenant.as_uuid())
        .bind(kind)
        .bind(who.agent)
        .bind(&who.user)
        .bind(subject)
        .bind(predicate)
        .fetch_optional(tx.conn())
        .await
}

pub async fn supersede(tx: &mut TenantTx, old: Uuid, by: Uuid) -> sqlx::Result<()> {
    const SQL: &str = "
        update memory.items set superseded_by = $3, superseded_at = clock_timestamp()
        where tenant_id = $1 and item_id = $2 and superseded_at is null";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(old).bind(by).execute(tx.conn()).await?;
    Ok(())
}

/// Returns an item that `who` may see.
pub async fn get(tx: &mut TenantTx, who: &Viewer, id: Uuid) -> sqlx::Result<Option<Item>> {
    const SQL: &str = item!(" and item_id = $6");
    let tenant = tx.tenant().as_uuid();
    visible_query(SQL, tenant, who).bind(id).fetch_optional(tx.conn()).await
}

/// Locks an item until the end of the transaction.
pub async fn lock(tx: &mut TenantTx, id: Uuid) -> sqlx::Result<()> {
    const SQL: &str = "select 1 from memory.items where tenant_id = $1 and item_id = $2 for update";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(id).execute(tx.conn()).await?;
    Ok(())
}

pub async fn contents(tx: &mut TenantTx, ids: &[Uuid]) -> sqlx::Result<Vec<(Uuid, String)>> {
    const SQL: &str = "
        select item_id, content from memory.items where tenant_id = $1 and item_id = any ($2)";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).bind(ids).fetch_all(tx.conn()).await
}

/// Returns the current value of a key. The user's own takes precedence over the shared one, then
/// the agent's own over that of all agents.
pub async fn by_key(tx: &mut TenantTx, who: &Viewer, key: &str) -> sqlx::Result<Option<Item>> {
    const SQL: &str = item!(
        " and kind = 2 and subject = $6 and superseded_at is null and active and content <> 'null'
            and (expires_at is null or expires_at > now())
          order by user_id desc, agent_id desc limit 1"
    );
    let tenant = tx.tenant().as_uuid();
    visible_query(SQL, tenant, who).bind(key.to_owned()).fetch_optional(tx.conn()).await
}

/// Hides an item from search and lists, or shows it again.
pub async fn set_active(tx: &mut TenantTx, id: Uuid, active: Active) -> sqlx::Result<()> {
    const SQL: &str = "update memory.items set active = $3 where tenant_id = $1 and item_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(id)
        .bind(active == Active::Yes)
        .execute(tx.conn())
        .await?;
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Active {
    Yes,
    /// The item is stored, but hidden.
    No,
}

#[derive(Debug, Clone, Default)]
pub struct ItemFilter {
    /// Only items of exactly this agent.
    pub of_agent: Option<Uuid>,
    /// Only items of exactly this user.
    pub of_user: Option<String>,
    pub kinds: Vec<i16>,
    pub of_type: String,
    pub session: String,
    pub subject: String,
    pub key_prefix: String,
    pub history: bool,
    pub limit: i64,
    pub after: Option<Uuid>,
}

pub async fn list(tx: &mut TenantTx, who: &Viewer, which: &ItemFilter) -> sqlx::Result<Vec<Item>> {
    let mut query = QueryBuilder::new(item!("").split("$1").next().unwrap_or_default());
    query.push_bind(tx.tenant().as_uuid());
    if !who.everything {
        query.push(" and agent_id = any (").push_bind(who.agents());
        query.push(") and user_id = any (").push_bind(who.users()).push(")");
        if who.group {
            query.push(" and group_safe");
        }
    }
    if let Some(agent) = which.of_agent {
        query.push(" and agent_id = ").push_bind(agent);
    }
    if let Some(user) = &which.of_user {
        query.push(" and user_id = ").push_bind(user.clone());
    }
    if !which.kinds.is_empty() {
        query.push(" and kind = any (").push_bind(which.kinds.clone()).push(")");
    }
    for (column, value) in
        [("type", &which.of_type), ("session", &which.session), ("subject", &which.subject)]
    {
        if !value.is_empty() {
            query.push(" and ").push(column).push(" = ").push_bind(value.clone());
        }
    }
    if !which.key_prefix.is_empty() {
        query.push(" and starts_with(subject, ").push_bind(which.key_prefix.clone()).push(")");
    }
    if !which.history {
        query.push(
            " and superseded_at is null and active and (kind <> 2 or content <> 'null')
              and (expires_at is null or expires_at > now())",
        );
    }
    if let Some(after) = which.after {
        query.push(" and item_id < ").push_bind(after);
    }
    query.push(" and kind > 0 order by item_id desc limit ").push_bind(which.limit);
    query.build_query_as().fetch_all(tx.conn()).await
}

/// Converts a timestamp for binding.
pub fn to_column(at: Timestamp) -> jiff_sqlx::Timestamp {
    at.into()
}

/// Hides expired items and deletes their units. At most 500 per call.
pub async fn expire(tx: &mut TenantTx) -> sqlx::Result<u64> {
    const SQL: &str = "
        with past as (
            update memory.items set active = false
            where item_id in (
                select item_id from memory.items
                where tenant_id = $1 and active and expires_at <= now() limit 500)
              and tenant_id = $1
            returning item_id
        )
        delete from memory.units u using past
        where u.tenant_id = $1 and u.source_id = past.item_id";
    let tenant = tx.tenant().as_uuid();
    Ok(holdfast_pg::query(SQL).bind(tenant).execute(tx.conn()).await?.rows_affected())
}

/// Returns the tenants with expired items.
pub async fn expiring(tx: &mut SystemTx) -> sqlx::Result<Vec<TenantId>> {
    const SQL: &str = "
        select distinct tenant_id from (
            select tenant_id from memory.items
            where expires_at <= now() and expires_at is not null and active
            order by expires_at limit 500) past";
    let found: Vec<Uuid> = holdfast_pg::query_scalar(SQL).fetch_all(tx.conn()).await?;
    Ok(found.into_iter().map(TenantId::from).collect())
}
