//! `memory.versions`: versions of articles.

use std::collections::BTreeMap;

use holdfast_pg::TenantTx;
use sqlx::types::Json;
use uuid::Uuid;

use crate::validation::Provenance;

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Version {
    pub document_id: Uuid,
    pub version: i32,
    pub title: String,
    pub text: String,
    pub tags: Vec<String>,
    pub provenance: Json<Provenance>,
    pub author: String,
    pub confidence: Option<f64>,
    pub masked: Json<BTreeMap<String, u64>>,
    /// The article is for the whole tenant, and a maintainer wrote or accepted this version.
    pub approved: bool,
    pub created_at: jiff_sqlx::Timestamp,
}

pub async fn insert(tx: &mut TenantTx, version: &Version) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into memory.versions
            (tenant_id, document_id, version, title, text, tags, provenance, author, confidence, masked,
             approved)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(version.document_id)
        .bind(version.version)
        .bind(&version.title)
        .bind(&version.text)
        .bind(&version.tags)
        .bind(&version.provenance)
        .bind(&version.author)
        .bind(version.confidence)
        .bind(&version.masked)
        .bind(version.approved)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Returns a version; 0 means the newest.
pub async fn get(tx: &mut TenantTx, id: Uuid, version: i32) -> sqlx::Result<Option<Version>> {
    const SQL: &str = "
        select document_id, version, title, text, tags, provenance, author, confidence, masked,
               approved, created_at
        from memory.versions
        where tenant_id = $1 and document_id = $2 and ($3 = 0 or version = $3)
        order by version desc limit 1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).bind(id).bind(version).fetch_optional(tx.conn()).await
}

/// Returns all versions, newest first, without texts.
pub async fn all(tx: &mut TenantTx, id: Uuid) -> sqlx::Result<Vec<Version>> {
    const SQL: &str = "
        select document_id, version, title, '' as text, tags, provenance, author, confidence, masked,
               approved, created_at
        from memory.versions
        where tenant_id = $1 and document_id = $2
        order by version desc limit 1000";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).bind(id).fetch_all(tx.conn()).await
}
