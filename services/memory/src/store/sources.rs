//! `memory.sources`: conversations that article versions came from.

use holdfast_pg::TenantTx;
use serde::Serialize;
use sqlx::{AssertSqlSafe, types::Json};
use uuid::Uuid;

use super::forget::Erase;
use crate::validation::Provenance;

#[derive(Debug, Clone)]
pub struct Conversations {
    /// Condition on a row `s` of the table; `$2` is the session or the user.
    named: &'static str,
    subject: String,
    /// Agents and users to restrict to; `None` means all.
    whose: Option<(Vec<Uuid>, Vec<String>)>,
    /// Only versions written up to this time; `None` means all.
    until: Option<jiff_sqlx::Timestamp>,
}

impl Conversations {
    /// Returns the conversations that an erasure covers; `None` for erasures of items and agents.
    pub fn of(what: &Erase) -> Option<Self> {
        let (named, subject, whose) = match what {
            Erase::Session(session, whose) => ("s.session = $2", session, whose.clone()),
            Erase::User(user) => ("s.user_id = $2", user, None),
            Erase::Item(_) | Erase::Turns(..) | Erase::Agent(_) => return None,
        };
        Some(Self { named, subject: subject.clone(), whose, until: None })
    }

    /// Restricts to versions written up to `until`.
    pub fn up_to(self, until: jiff_sqlx::Timestamp) -> Self {
        Self { until: Some(until), ..self }
    }

    /// Returns the condition on a row `s`, with `$1` to `$6`; `$1` is the tenant.
    fn condition(&self) -> String {
        format!(
            "s.tenant_id = $1 and {}
             and ($3 or (s.user_id = any ($5) and exists (
                 select from memory.documents d
                 where d.tenant_id = $1 and d.document_id = s.document_id and d.agent_id = any ($4))))
             and ($6::timestamptz is null or exists (
                 select from memory.versions v
                 where v.tenant_id = $1 and v.document_id = s.document_id and v.version = s.version
                   and v.created_at <= $6))",
            self.named
        )
    }
}

macro_rules! bound {
    ($tx:ident, $of:ident, $sql:ident, $query:ident) => {{
        let (agents, users) = $of.whose.clone().unwrap_or_default();
        holdfast_pg::$query(AssertSqlSafe($sql))
            .bind($tx.tenant().as_uuid())
            .bind($of.subject.clone())
            .bind($of.whose.is_none())
            .bind(agents)
            .bind(users)
            .bind($of.until)
    }};
}

/// Article version that came from one of the conversations.
#[derive(Debug, Clone, sqlx::FromRow, Serialize)]
pub struct SourcedVersion {
    pub document_id: Uuid,
    pub version: i32,
    /// The version is kept, without names.
    pub approved: bool,
    pub provenance: Json<Provenance>,
}

/// Records the conversation that a version came from; nothing if it came from none.
pub async fn put(
    tx: &mut TenantTx,
    (document, version): (Uuid, i32),
    (session, user): (&str, &str),
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into memory.sources (tenant_id, document_id, version, session, user_id)
        select $1, $2, $3, $4, $5 where $4 <> '' or $5 <> ''
        on conflict do nothing";
    let tenant = tx.tenant().as_uuid();
    let insert = holdfast_pg::query(SQL).bind(tenant).bind(document).bind(version);
    insert.bind(session).bind(user).execute(tx.conn()).await?;
    Ok(())
}

/// Copies the sources of the previous version, whose text the new one keeps.
pub async fn copy_sources(
    tx: &mut TenantTx,
    document: Uuid,
    (before, version): (i32, i32),
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into memory.sources (tenant_id, document_id, version, session, user_id)
        select tenant_id, document_id, $4, session, user_id from memory.sources
        where tenant_id = $1 and document_id = $2 and version = $3
        on conflict do nothing";
    let tenant = tx.tenant().as_uuid();
    let insert = holdfast_pg::query(SQL).bind(tenant).bind(document).bind(before).bind(version);
    insert.execute(tx.conn()).await?;
    Ok(())
}

/// Locks the articles that came from these conversations. Returns their ids.
pub async fn lock(tx: &mut TenantTx, of: &Conversations) -> sqlx::Result<Vec<Uuid>> {
    let sql = format!(
        "select document_id from memory.documents
         where tenant_id = $1
           and document_id in (select s.document_id from memory.sources s where {})
         order by document_id for update",
        of.condition()
    );
    bound!(tx, of, sql, query_scalar).fetch_all(tx.conn()).await
}

/// Returns the versions that came from these conversations.
pub async fn versions(tx: &mut TenantTx, of: &Conversations) -> sqlx::Result<Vec<SourcedVersion>> {
    let sql = format!(
        "select v.document_id, v.version, v.approved, v.provenance from memory.versions v
         where v.tenant_id = $1 and (v.document_id, v.version) in
             (select s.document_id, s.version from memory.sources s where {})
         order by 1, 2",
        of.condition()
    );
    bound!(tx, of, sql, query_as).fetch_all(tx.conn()).await
}

/// Returns the units that these versions created: a unit has its version's provenance.
pub async fn units(
    tx: &mut TenantTx,
    articles: &[Uuid],
    brought: &[SourcedVersion],
) -> sqlx::Result<Vec<Uuid>> {
    const SQL: &str = "
        select u.unit_id from memory.units u
        where u.tenant_id = $1 and u.source_id = any ($2) and (u.source_id, u.provenance) in (
            select r.document_id, r.provenance
            from jsonb_to_recordset($3) as r (document_id uuid, provenance jsonb))";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL)
        .bind(tenant)
        .bind(articles)
        .bind(Json(brought))
        .fetch_all(tx.conn())
        .await
}

pub async fn remove_versions(tx: &mut TenantTx, gone: &[&SourcedVersion]) -> sqlx::Result<()> {
    const SQL: &str = "
        delete from memory.versions v
        using jsonb_to_recordset($2) as r (document_id uuid, version integer)
        where v.tenant_id = $1 and v.document_id = r.document_id and v.version = r.version";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(Json(gone)).execute(tx.conn()).await?;
    Ok(())
}

/// Removes names and locations of speakers from the provenance of kept versions; a web page's
/// address stays, since it names nobody.
pub async fn remove_names(tx: &mut TenantTx, stay: &[&SourcedVersion]) -> sqlx::Result<()> {
    const SQL: &str = r#"
        update memory.versions v
        set provenance = case v.provenance->>'kind'
            when 'user' then jsonb_set(v.provenance - 'locator', '{name}', '"somebody"')
            else v.provenance - 'locator' end
        from jsonb_to_recordset($2) as r (document_id uuid, version integer)
        where v.tenant_id = $1 and v.document_id = r.document_id and v.version = r.version
          and v.provenance->>'kind' in ('agent', 'user')"#;
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(Json(stay)).execute(tx.conn()).await?;
    Ok(())
}

/// Deletes the source rows of these conversations. Returns how many.
pub async fn remove(tx: &mut TenantTx, of: &Conversations) -> sqlx::Result<u64> {
    let sql = format!("delete from memory.sources s where {}", of.condition());
    Ok(bound!(tx, of, sql, query).execute(tx.conn()).await?.rows_affected())
}

/// Counts the remaining rows: of these conversations, of the deleted versions, and articles without
/// any version.
pub async fn left(
    tx: &mut TenantTx,
    of: &Conversations,
    gone: &[&SourcedVersion],
    articles: &[Uuid],
) -> sqlx::Result<[(&'static str, i64); 3]> {
    const VERSIONS: &str = "
        select count(*) from memory.versions v
        join jsonb_to_recordset($2) as r (document_id uuid, version integer) using (document_id, version)
        where v.tenant_id = $1";
    const DOCUMENTS: &str = "
        select count(*) from memory.documents d
        where d.tenant_id = $1 and d.document_id = any ($2) and not exists (
            select from memory.versions v
            where v.tenant_id = $1 and v.document_id = d.document_id)";
    let tenant = tx.tenant().as_uuid();
    let sql = format!("select count(*) from memory.sources s where {}", of.condition());
    let sources = bound!(tx, of, sql, query_scalar).fetch_one(tx.conn()).await?;
    let versions = holdfast_pg::query_scalar(VERSIONS).bind(tenant).bind(Json(gone));
    let versions = versions.fetch_one(tx.conn()).await?;
    let documents = holdfast_pg::query_scalar(DOCUMENTS).bind(tenant).bind(articles);
    let documents = documents.fetch_one(tx.conn()).await?;
    Ok([("sources", sources), ("versions", versions), ("documents", documents)])
}
