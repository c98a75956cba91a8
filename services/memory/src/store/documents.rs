//! `memory.documents`: workspace documents and knowledge base articles.

use holdfast_pg::{QueryBuilder, TenantTx};
use sqlx::types::Json;
use uuid::Uuid;

use super::{seen, visible_query};
use crate::{validation::Provenance, viewer::Viewer};

/// Document or article, without its text.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Document {
    pub document_id: Uuid,
    pub kind: i16,
    pub agent_id: Uuid,
    pub user_id: String,
    pub scope: i16,
    pub path: String,
    pub hash: String,
    pub group_safe: bool,
    pub dated: Option<jiff_sqlx::Timestamp>,
    pub tags: Vec<String>,
    pub version: i32,
    /// Highest version before this one.
    pub last_version: i32,
    pub provenance: Json<Provenance>,
    pub created_at: jiff_sqlx::Timestamp,
    pub updated_at: jiff_sqlx::Timestamp,
}

macro_rules! document {
    ($rest:literal) => {
        seen!(
            "select document_id, kind, agent_id, user_id, scope, path, hash, group_safe, dated, tags,
                    version, last_version, provenance, created_at, updated_at
             from memory.documents",
            $rest
        )
    };
}

/// Locks the path and returns its document, of exactly this agent and user.
pub async fn by_path(
    tx: &mut TenantTx,
    who: &Viewer,
    path: &str,
) -> sqlx::Result<Option<Document>> {
    const LOCK: &str = "select pg_advisory_xact_lock(hashtextextended($1, 37))";
    const SQL: &str = "
        select document_id, kind, agent_id, user_id, scope, path, hash, group_safe, dated, tags,
               version, last_version, provenance, created_at, updated_at
        from memory.documents
        where tenant_id = $1 and path = $2 and agent_id = $3 and user_id = $4 and kind = 6";
    let tenant = tx.tenant();
    let which = format!("{tenant}:{}:{}:{path}", who.agent, who.user);
    holdfast_pg::query(LOCK).bind(which).execute(tx.conn()).await?;
    holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(path)
        .bind(who.agent)
        .bind(&who.user)
        .fetch_optional(tx.conn())
        .await
}

/// Returns a document or an article that `who` may see. Does not lock it.
pub async fn get(
    tx: &mut TenantTx,
    who: &Viewer,
    kind: i16,
    id: Uuid,
) -> sqlx::Result<Option<Document>> {
    const SQL: &str = document!(" and document_id = $6 and kind = $7");
    let tenant = tx.tenant().as_uuid();
    visible_query(SQL, tenant, who).bind(id).bind(kind).fetch_optional(tx.conn()).await
}

/// Locks a document until the end of the transaction.
pub async fn lock(tx: &mut TenantTx, id: Uuid) -> sqlx::Result<()> {
    const SQL: &str =
        "select 1 from memory.documents where tenant_id = $1 and document_id = $2 for update";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(id).execute(tx.conn()).await?;
    Ok(())
}

/// Returns the article that a request created.
pub async fn of_request(tx: &mut TenantTx, request: &str) -> sqlx::Result<Option<Uuid>> {
    const SQL: &str =
        "select document_id from memory.documents where tenant_id = $1 and request = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).bind(request).fetch_optional(tx.conn()).await
}

/// Inserts or updates a document.
pub async fn put(
    tx: &mut TenantTx,
    document: &Document,
    request: Option<&str>,
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into memory.documents
            (tenant_id, document_id, kind, agent_id, user_id, scope, path, hash, group_safe, dated,
             tags, version, provenance, request)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
        on conflict (document_id, tenant_id) do update
        set path = excluded.path, hash = excluded.hash, group_safe = excluded.group_safe,
            dated = excluded.dated, tags = excluded.tags, version = excluded.version,
            last_version = greatest(documents.last_version, documents.version),
            provenance = excluded.provenance, updated_at = clock_timestamp()";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(document.document_id)
        .bind(document.kind)
        .bind(document.agent_id)
        .bind(&document.user_id)
        .bind(document.scope)
        .bind(&document.path)
        .bind(&document.hash)
        .bind(document.group_safe)
        .bind(document.dated)
        .bind(&document.tags)
        .bind(document.version)
        .bind(&document.provenance)
        .bind(request)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Deletes a document; the caller deletes its units. Returns whether it existed.
pub async fn remove(tx: &mut TenantTx, id: Uuid) -> sqlx::Result<bool> {
    const SQL: &str = "delete from memory.documents where tenant_id = $1 and document_id = $2";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL).bind(tenant).bind(id).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}

#[derive(Debug, Clone, Default)]
pub struct DocumentFilter {
    pub kind: i16,
    pub path_prefix: String,
    pub scope: Option<i16>,
    pub tags: Vec<String>,
    pub limit: i64,
    pub after: Option<Uuid>,
}

pub async fn list(
    tx: &mut TenantTx,
    who: &Viewer,
    which: &DocumentFilter,
) -> sqlx::Result<Vec<Document>> {
    let select = document!("").split("$1").next().unwrap_or_default();
    let mut query = QueryBuilder::new(select);
    query.push_bind(tx.tenant().as_uuid()).push(" and kind = ").push_bind(which.kind);
    if !who.everything {
        query.push(" and agent_id = any (").push_bind(who.agents());
        query.push(") and user_id = any (").push_bind(who.users()).push(")");
        if who.group {
            query.push(" and group_safe");
        }
    }
    if !which.path_prefix.is_empty() {
        query.push(" and starts_with(path, ").push_bind(which.path_prefix.clone()).push(")");
    }
    if let Some(scope) = which.scope {
        query.push(" and scope = ").push_bind(scope);
    }
    if !which.tags.is_empty() {
        query.push(" and tags && ").push_bind(which.tags.clone());
    }
    if let Some(after) = which.after {
        query.push(" and document_id < ").push_bind(after);
    }
    query.push(" and version > 0 order by document_id desc limit ").push_bind(which.limit);
    query.build_query_as().fetch_all(tx.conn()).await
}

/// Returns the number of chunks, and of those that wait for embedding, by document.
pub async fn progress(
    tx: &mut TenantTx,
    documents: &[Uuid],
) -> sqlx::Result<Vec<(Uuid, i64, i64)>> {
    const SQL: &str = "
        select u.source_id, count(*), count(q.unit_id)
        from memory.units u
        left join memory.queue q on q.unit_id = u.unit_id and q.tenant_id = $1
        where u.tenant_id = $1 and u.source_id = any ($2)
        group by 1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).bind(documents).fetch_all(tx.conn()).await
}
