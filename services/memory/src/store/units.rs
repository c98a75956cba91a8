//! `memory.units`: everything that can be searched.

use holdfast_pg::TenantTx;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{unit::Unit, viewer::Viewer};

/// Rows per statement.
const BATCH_SIZE: usize = 256;

/// Inserts units and queues them for embedding. Turns that exist already are skipped. Returns the
/// ids of the new units.
pub async fn insert(tx: &mut TenantTx, units: &[Unit]) -> sqlx::Result<Vec<Uuid>> {
    const SQL: &str = "
        with made as (
            insert into memory.units
                (tenant_id, unit_id, kind, source_id, agent_id, user_id, session, type, scope, author,
                 ref, place, path, headings, starts, ends, tags, text, group_safe, at, dated,
                 expires_at, terms, length, words, hash, provenance)
            select $1, unit_id, kind, source_id, agent_id, user_id, session, type, scope, author,
                   ref, place, path, headings, starts, ends, tags, text, group_safe, at, dated,
                   expires_at, terms, length, words, hash, provenance
            from jsonb_to_recordset($2) as r (
                unit_id uuid, kind smallint, source_id uuid, agent_id uuid, user_id text, session text,
                type text, scope smallint, author text, ref text, place integer, path text,
                headings text[], starts integer, ends integer, tags text[], text text,
                group_safe boolean, at timestamptz, dated boolean, expires_at timestamptz,
                terms integer, length integer, words tsvector, hash bytea, provenance jsonb)
            on conflict (ref, session, user_id, agent_id, tenant_id) where kind = 5 do nothing
            returning unit_id
        ), queued as (
            insert into memory.queue (tenant_id, unit_id) select $1, unit_id from made
        )
        select unit_id from made";

    let tenant = tx.tenant().as_uuid();
    let mut made = Vec::with_capacity(units.len());
    for part in units.chunks(BATCH_SIZE) {
        let ids: Vec<Uuid> = holdfast_pg::query_scalar(SQL)
            .bind(tenant)
            .bind(Json(part))
            .fetch_all(tx.conn())
            .await?;
        made.extend(ids);
    }
    Ok(made)
}

/// Deletes the units of an item or a document.
pub async fn remove_of(tx: &mut TenantTx, source: Uuid) -> sqlx::Result<u64> {
    const SQL: &str = "delete from memory.units where tenant_id = $1 and source_id = $2";
    let tenant = tx.tenant().as_uuid();
    Ok(holdfast_pg::query(SQL).bind(tenant).bind(source).execute(tx.conn()).await?.rows_affected())
}

pub async fn remove(tx: &mut TenantTx, units: &[Uuid]) -> sqlx::Result<u64> {
    const SQL: &str = "delete from memory.units where tenant_id = $1 and unit_id = any ($2)";
    let tenant = tx.tenant().as_uuid();
    Ok(holdfast_pg::query(SQL).bind(tenant).bind(units).execute(tx.conn()).await?.rows_affected())
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct LastTurn {
    pub place: i32,
    pub text: String,
}

/// Locks a conversation and returns its newest turn.
pub async fn last_turn(
    tx: &mut TenantTx,
    who: &Viewer,
    session: &str,
) -> sqlx::Result<Option<LastTurn>> {
    const LOCK: &str = "select pg_advisory_xact_lock(hashtextextended($1, 34))";
    const SQL: &str = "
        select place, text from memory.units
        where tenant_id = $1 and kind = 5 and session = $2 and agent_id = $3 and user_id = $4
        order by place desc limit 1";

    let tenant = tx.tenant();
    let whose = format!("{tenant}:{}:{}:{session}", who.agent, who.user);
    holdfast_pg::query(LOCK).bind(whose).execute(tx.conn()).await?;
    holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(session)
        .bind(who.agent)
        .bind(&who.user)
        .fetch_optional(tx.conn())
        .await
}

/// Records authors. Returns whether one of them is new.
pub async fn authors(tx: &mut TenantTx, who: &Viewer, names: &[String]) -> sqlx::Result<bool> {
    const SQL: &str = "
        insert into memory.authors (tenant_id, agent_id, user_id, name)
        select $1, $2, $3, name from unnest($4::text[]) as n (name)
        on conflict do nothing";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(who.agent)
        .bind(&who.user)
        .bind(names)
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Existing chunk of a document.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Chunk {
    pub unit_id: Uuid,
    /// Hash of its embedded text.
    pub hash: Vec<u8>,
}

/// Returns the chunks of a document, in order.
pub async fn chunks(tx: &mut TenantTx, document: Uuid) -> sqlx::Result<Vec<Chunk>> {
    const SQL: &str = "
        select unit_id, hash from memory.units
        where tenant_id = $1 and source_id = $2 order by place";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).bind(document).fetch_all(tx.conn()).await
}

/// New position of a chunk whose text did not change.
#[derive(Debug, Clone, serde::Serialize)]
pub struct ChunkPosition {
    pub unit_id: Uuid,
    /// New position and byte range.
    pub place: i32,
    pub starts: i32,
    pub ends: i32,
}

/// Updates the positions of kept chunks and the attributes of their document. Author and provenance
/// stay as they are, since the words are the same.
pub async fn move_chunks(
    tx: &mut TenantTx,
    moved: &[ChunkPosition],
    like: &Unit,
) -> sqlx::Result<()> {
    const UNITS: &str = "
        update memory.units u
        set place = r.place, starts = r.starts, ends = r.ends, group_safe = $3, at = $4, dated = $5,
            tags = $6, path = $7
        from jsonb_to_recordset($2) as r (unit_id uuid, place integer, starts integer, ends integer)
        where u.tenant_id = $1 and u.unit_id = r.unit_id";

    let tenant = tx.tenant().as_uuid();
    for part in moved.chunks(BATCH_SIZE) {
        holdfast_pg::query(UNITS)
            .bind(tenant)
            .bind(Json(part))
            .bind(like.group_safe)
            .bind(jiff_sqlx::Timestamp::from(like.at))
            .bind(like.dated)
            .bind(&like.tags)
            .bind(&like.path)
            .execute(tx.conn())
            .await?;
    }
    Ok(())
}
