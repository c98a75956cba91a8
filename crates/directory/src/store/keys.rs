//! `control.keys`.

mod approver;
pub(crate) mod console;
pub(crate) mod devices;
pub(crate) mod requests;

use holdfast_pg::{SystemTx, TenantTx};
use holdfast_types::{AgentId, AgentName, KeyId, PersonId, TenantRole};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use uuid::Uuid;

use crate::{Error, Key, NewKey, key::FIRST_KEY_NAME};

/// What is read of a key, as `k`.
macro_rules! columns {
    () => {
        "k.key_id, k.name, k.scopes, k.created_at, k.expires_at, k.revoked_at, k.person_id, k.origins, \
         (select a.name from control.agents a \
          where a.tenant_id = k.tenant_id and a.agent_id = k.agent_id) as agent"
    };
}

#[derive(sqlx::FromRow)]
struct Row {
    key_id: Uuid,
    name: String,
    scopes: Vec<String>,
    created_at: jiff_sqlx::Timestamp,
    expires_at: Option<jiff_sqlx::Timestamp>,
    revoked_at: Option<jiff_sqlx::Timestamp>,
    person_id: Option<Uuid>,
    agent: Option<String>,
    origins: Vec<String>,
}

impl Row {
    fn read(self) -> Key {
        Key {
            id: self.key_id.into(),
            name: self.name,
            scopes: self.scopes,
            created_at: self.created_at.to_jiff(),
            expires_at: self.expires_at.map(jiff_sqlx::Timestamp::to_jiff),
            revoked_at: self.revoked_at.map(jiff_sqlx::Timestamp::to_jiff),
            person: self.person_id.map(PersonId::from),
            agent: self.agent.as_deref().map(AgentName::new),
            origins: self.origins,
        }
    }
}

/// Fields of a key that can be read before its tenant is known.
#[derive(sqlx::FromRow)]
pub(crate) struct KeyLookup {
    pub(crate) tenant_id: Uuid,
    pub(crate) name: String,
    pub(crate) digest: Vec<u8>,
    pub(crate) scopes: Vec<String>,
    pub(crate) rate: i32,
    pub(crate) concurrent_calls: Option<i64>,
    pub(crate) live: bool,
    pub(crate) tenant_state: String,
    pub(crate) person_id: Option<Uuid>,
    role: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) origins: Vec<String>,
}

impl KeyLookup {
    /// Person whose the key is, with their role.
    pub(crate) fn person(&self) -> Result<Option<(PersonId, TenantRole)>, Error> {
        let (Some(person), Some(role)) = (self.person_id, &self.role) else { return Ok(None) };
        let role = role.parse().map_err(|error| Error::corrupt("role", error))?;
        Ok(Some((person.into(), role)))
    }
}

pub(crate) async fn find(tx: &mut SystemTx, key: KeyId) -> sqlx::Result<Option<KeyLookup>> {
    const SQL: &str = "select tenant_id, name, digest, scopes, rate, live, tenant_state, \
                              concurrent_calls, person_id, role, agent, origins \
                       from control.find_bound_key($1)";
    holdfast_pg::query_as(SQL).bind(key.as_uuid()).fetch_optional(tx.conn()).await
}

pub(crate) async fn insert(
    tx: &mut TenantTx,
    id: KeyId,
    digest: &[u8],
    new: &NewKey,
    expires_at: Option<Timestamp>,
) -> sqlx::Result<Key> {
    const SQL: &str = concat!(
        "insert into control.keys as k (tenant_id, key_id, name, digest, scopes, expires_at, \
                                        person_id, agent_id, origins) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9) returning ",
        columns!()
    );
    let tenant = tx.tenant().as_uuid();
    let row: Row = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(&new.name)
        .bind(digest)
        .bind(&new.scopes)
        .bind(expires_at.map(|at| at.to_sqlx()))
        .bind(new.person.map(PersonId::as_uuid))
        .bind(new.agent.map(AgentId::as_uuid))
        .bind(&new.origins)
        .fetch_one(tx.conn())
        .await?;
    Ok(row.read())
}

pub(crate) async fn all(tx: &mut TenantTx) -> sqlx::Result<Vec<Key>> {
    const SQL: &str = concat!(
        "select ",
        columns!(),
        " from control.keys k where k.tenant_id = $1 order by k.key_id"
    );
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

pub(crate) async fn one(tx: &mut TenantTx, id: KeyId) -> sqlx::Result<Option<Key>> {
    const SQL: &str = concat!(
        "select ",
        columns!(),
        " from control.keys k where k.tenant_id = $1 and k.key_id = $2"
    );
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(Row::read))
}

/// Returns the number of keys that can still be used.
pub(crate) async fn count(tx: &mut TenantTx) -> sqlx::Result<i64> {
    const SQL: &str = "select count(*) from control.keys where tenant_id = $1 \
                       and revoked_at is null and (expires_at is null or expires_at > now())";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).fetch_one(tx.conn()).await
}

/// Replaces the digest of a key's secret, if it still is `old`.
pub(crate) async fn replace_digest(
    tx: &mut TenantTx,
    id: KeyId,
    old: &[u8],
    new: &[u8],
) -> sqlx::Result<()> {
    const SQL: &str = "update control.keys set digest = $4 \
                       where tenant_id = $1 and key_id = $2 and digest = $3";
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

/// Makes the key that was made with the tenant a person's, if it is nobody's.
pub(crate) async fn give_first_key(tx: &mut TenantTx, person: PersonId) -> sqlx::Result<()> {
    const SQL: &str = "
        with given as (
            update control.keys set person_id = $2
            where tenant_id = $1 and name = $3 and person_id is null
            returning key_id)
        insert into control.person_identities (tenant_id, kind, value, person_id)
        select $1, 'key', 'key_' || replace(key_id::text, '-', ''), $2 from given
        on conflict do nothing";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(person.as_uuid())
        .bind(FIRST_KEY_NAME)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Makes a key that is nobody's a person's. Returns whether there was such a key.
pub(crate) async fn set_person(
    tx: &mut TenantTx,
    id: KeyId,
    person: PersonId,
) -> sqlx::Result<bool> {
    const SQL: &str = "update control.keys set person_id = $3 \
                       where tenant_id = $1 and key_id = $2 and person_id is null";
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query(SQL).bind(tenant).bind(id.as_uuid()).bind(person.as_uuid());
    Ok(query.execute(tx.conn()).await?.rows_affected() > 0)
}

/// Returns whether the key existed; a revoked key keeps its time of revocation.
pub(crate) async fn revoke(tx: &mut TenantTx, id: KeyId) -> sqlx::Result<bool> {
    const SQL: &str = "update control.keys set revoked_at = coalesce(revoked_at, now()) \
                       where tenant_id = $1 and key_id = $2";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL).bind(tenant).bind(id.as_uuid()).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}
