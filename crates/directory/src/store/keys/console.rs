//! `control.console_sessions` and `control.console_links`.

use holdfast_pg::{SystemTx, TenantTx};
use holdfast_types::{KeyId, PersonId, TenantId};
use jiff_sqlx::{Timestamp, ToSqlx as _};
use uuid::Uuid;

use super::approver::{ApproverLookup, columns, from_columns};
use crate::{ConsoleRights, ConsoleSession, Error, LinkOrigin, SignInMethod};

/// Columns that the rows of both tables have.
#[derive(sqlx::FromRow)]
struct RightsRow {
    holder_key: Option<Uuid>,
    holder_person: Option<Uuid>,
    scopes: Option<Vec<String>>,
    name: String,
}

impl RightsRow {
    fn read(self) -> Result<ConsoleRights, Error> {
        let holder = from_columns(self.holder_key, self.holder_person)?;
        Ok(ConsoleRights { holder, scopes: self.scopes, name: self.name })
    }
}

#[derive(sqlx::FromRow)]
struct Row {
    session_id: Uuid,
    #[sqlx(flatten)]
    rights: RightsRow,
    method: String,
    created_at: Timestamp,
    used_at: Timestamp,
    expires_at: Timestamp,
}

impl Row {
    fn read(self) -> Result<ConsoleSession, Error> {
        Ok(ConsoleSession {
            id: self.session_id,
            rights: self.rights.read()?,
            method: SignInMethod::parse(&self.method)?,
            created_at: self.created_at.to_jiff(),
            used_at: self.used_at.to_jiff(),
            expires_at: self.expires_at.to_jiff(),
        })
    }
}

/// Tenant of a session; `None` if there is no such session.
pub(crate) async fn find(tx: &mut SystemTx, session: Uuid) -> sqlx::Result<Option<TenantId>> {
    const SQL: &str = "select tenant_id from control.find_console_session($1)";
    let found: Option<Uuid> =
        holdfast_pg::query_scalar(SQL).bind(session).fetch_optional(tx.conn()).await?;
    Ok(found.map(TenantId::from))
}

/// Tenant of a link; `None` if there is no such link.
pub(crate) async fn find_link(tx: &mut SystemTx, link: Uuid) -> sqlx::Result<Option<TenantId>> {
    const SQL: &str = "select tenant_id from control.find_console_link($1)";
    let found: Option<Uuid> =
        holdfast_pg::query_scalar(SQL).bind(link).fetch_optional(tx.conn()).await?;
    Ok(found.map(TenantId::from))
}

/// Columns of a session that its authentication needs, and of its holder as they are now.
#[derive(sqlx::FromRow)]
pub(crate) struct SessionLookup {
    pub(crate) digest: Vec<u8>,
    pub(crate) scopes: Option<Vec<String>>,
    pub(crate) name: String,
    pub(crate) used_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    pub(crate) checked_at: Option<Timestamp>,
    #[sqlx(flatten)]
    pub(crate) holder: ApproverLookup,
}

/// Reads a session with the rights of its holder.
pub(crate) async fn look_up(
    tx: &mut TenantTx,
    session: Uuid,
) -> sqlx::Result<Option<SessionLookup>> {
    const SQL: &str = "
        select s.digest, s.scopes, s.name, s.used_at, s.expires_at, c.checked_at,
               s.holder_key as approver_key, s.holder_person as approver_person, k.scopes as key_scopes,
               k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
                   and kp.disabled_at is null as key_live,
               kp.person_id as key_person, kp.role as key_role,
               p.role, p.operates, p.disabled_at is null and (s.via_key is null or
                   k.revoked_at is null and (k.expires_at is null or k.expires_at > now())) as person_live,
               t.rate, (t.limits ->> 'concurrent_calls')::bigint as concurrent_calls,
               t.state as tenant_state
        from control.console_sessions s
        join control.tenants t using (tenant_id)
        left join control.keys k on k.tenant_id = s.tenant_id
            and k.key_id = coalesce(s.holder_key, s.via_key)
        left join control.people kp on kp.tenant_id = k.tenant_id and kp.person_id = k.person_id
        left join control.people p on p.tenant_id = s.tenant_id and p.person_id = s.holder_person
        left join control.provider_sign_ins c on c.tenant_id = s.tenant_id
            and c.person_id = s.holder_person
        where s.tenant_id = $1 and s.session_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).bind(session).fetch_optional(tx.conn()).await
}

/// Digest of a link's secret; `None` if the link was used, or has expired.
pub(crate) async fn link_digest(tx: &mut TenantTx, link: Uuid) -> sqlx::Result<Option<Vec<u8>>> {
    const SQL: &str = "select digest from control.console_links \
                       where tenant_id = $1 and link_id = $2 and expires_at > now()";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).bind(link).fetch_optional(tx.conn()).await
}

/// From when a session's sign-in is, and its end.
pub(crate) async fn origin(tx: &mut TenantTx, session: Uuid) -> sqlx::Result<Option<LinkOrigin>> {
    const SQL: &str = "select coalesce(signed_in_at, created_at), expires_at, via_key \
                       from control.console_sessions where tenant_id = $1 and session_id = $2";
    let tenant = tx.tenant().as_uuid();
    let row: Option<(Timestamp, Timestamp, Option<Uuid>)> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(session).fetch_optional(tx.conn()).await?;
    Ok(row.map(|(signed_in_at, expires_at, via_key)| LinkOrigin {
        signed_in_at: Some(signed_in_at.to_jiff()),
        expires_at: Some(expires_at.to_jiff()),
        via_key: via_key.map(KeyId::from),
    }))
}

#[derive(sqlx::FromRow)]
struct LinkRow {
    #[sqlx(flatten)]
    rights: RightsRow,
    signed_in_at: Option<Timestamp>,
    session_expires_at: Option<Timestamp>,
    via_key: Option<Uuid>,
}

/// Deletes a link that has not expired, and returns its rights. Of concurrent calls one gets them.
pub(crate) async fn take_link(
    tx: &mut TenantTx,
    link: Uuid,
) -> Result<Option<(ConsoleRights, LinkOrigin)>, Error> {
    const SQL: &str = "delete from control.console_links \
                       where tenant_id = $1 and link_id = $2 and expires_at > now() \
                       returning holder_key, holder_person, scopes, name, via_key, signed_in_at, \
                                 session_expires_at";
    let tenant = tx.tenant().as_uuid();
    let row: Option<LinkRow> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(link).fetch_optional(tx.conn()).await?;
    let Some(row) = row else { return Ok(None) };
    let origin = LinkOrigin {
        signed_in_at: row.signed_in_at.map(Timestamp::to_jiff),
        expires_at: row.session_expires_at.map(Timestamp::to_jiff),
        via_key: row.via_key.map(KeyId::from),
    };
    Ok(Some((row.rights.read()?, origin)))
}

pub(crate) async fn insert(
    tx: &mut TenantTx,
    (session, digest): (Uuid, &[u8]),
    (rights, method): (&ConsoleRights, SignInMethod),
    (origin, expires_at): (LinkOrigin, jiff::Timestamp),
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into control.console_sessions (tenant_id, session_id, digest, holder_key,
            holder_person, scopes, name, method, expires_at, via_key, signed_in_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    let (tenant, (key, person)) = (tx.tenant().as_uuid(), columns(rights.holder));
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(session)
        .bind(digest)
        .bind(key)
        .bind(person)
        .bind(&rights.scopes)
        .bind(&rights.name)
        .bind(method.as_str())
        .bind(expires_at.to_sqlx())
        .bind(origin.via_key.map(KeyId::as_uuid))
        .bind(origin.signed_in_at.map(|at| at.to_sqlx()))
        .execute(tx.conn())
        .await?;
    Ok(())
}

pub(crate) async fn insert_link(
    tx: &mut TenantTx,
    (link, digest): (Uuid, &[u8]),
    (rights, origin): (&ConsoleRights, LinkOrigin),
    expires_at: jiff::Timestamp,
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into control.console_links (tenant_id, link_id, digest, holder_key, holder_person,
            scopes, name, expires_at, via_key, signed_in_at, session_expires_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    let (tenant, (key, person)) = (tx.tenant().as_uuid(), columns(rights.holder));
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(link)
        .bind(digest)
        .bind(key)
        .bind(person)
        .bind(&rights.scopes)
        .bind(&rights.name)
        .bind(expires_at.to_sqlx())
        .bind(origin.via_key.map(KeyId::as_uuid))
        .bind(origin.signed_in_at.map(|at| at.to_sqlx()))
        .bind(origin.expires_at.map(|at| at.to_sqlx()))
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Deletes sessions that have expired or were not used for so long, and returns the number of the
/// others.
pub(crate) async fn prune(tx: &mut TenantTx, idle_seconds: f64) -> sqlx::Result<i64> {
    const PRUNE: &str = "delete from control.console_sessions where tenant_id = $1 \
                         and (expires_at <= now() or used_at <= now() - make_interval(secs => $2))";
    const COUNT: &str = "select count(*) from control.console_sessions where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(PRUNE).bind(tenant).bind(idle_seconds).execute(tx.conn()).await?;
    holdfast_pg::query_scalar(COUNT).bind(tenant).fetch_one(tx.conn()).await
}

/// Deletes links that have expired, and returns the number of the others.
pub(crate) async fn prune_links(tx: &mut TenantTx) -> sqlx::Result<i64> {
    const PRUNE: &str =
        "delete from control.console_links where tenant_id = $1 and expires_at <= now()";
    const COUNT: &str = "select count(*) from control.console_links where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(PRUNE).bind(tenant).execute(tx.conn()).await?;
    holdfast_pg::query_scalar(COUNT).bind(tenant).fetch_one(tx.conn()).await
}

/// Sessions that have not expired, the newest first.
pub(crate) async fn all(
    tx: &mut TenantTx,
    idle_seconds: f64,
) -> Result<Vec<ConsoleSession>, Error> {
    const SQL: &str = "
        select session_id, holder_key, holder_person, scopes, name, method, created_at,
               used_at, expires_at
        from control.console_sessions
        where tenant_id = $1 and expires_at > now() and used_at > now() - make_interval(secs => $2)
        order by created_at desc, session_id";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(idle_seconds).fetch_all(tx.conn()).await?;
    rows.into_iter().map(Row::read).collect()
}

/// Stores that a session is used now.
pub(crate) async fn touch(tx: &mut TenantTx, session: Uuid) -> sqlx::Result<()> {
    const SQL: &str = "update control.console_sessions set used_at = now() \
                       where tenant_id = $1 and session_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(session).execute(tx.conn()).await?;
    Ok(())
}

/// Deletes the sessions of a person, and the links that would begin one.
pub(crate) async fn delete_of_person(tx: &mut TenantTx, person: PersonId) -> sqlx::Result<()> {
    const SESSIONS: &str =
        "delete from control.console_sessions where tenant_id = $1 and holder_person = $2";
    const LINKS: &str =
        "delete from control.console_links where tenant_id = $1 and holder_person = $2";
    let tenant = tx.tenant().as_uuid();
    for sql in [SESSIONS, LINKS] {
        holdfast_pg::query(sql).bind(tenant).bind(person.as_uuid()).execute(tx.conn()).await?;
    }
    Ok(())
}

/// Returns whether there was such a session.
pub(crate) async fn delete(tx: &mut TenantTx, session: Uuid) -> sqlx::Result<bool> {
    const SQL: &str =
        "delete from control.console_sessions where tenant_id = $1 and session_id = $2";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL).bind(tenant).bind(session).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}
