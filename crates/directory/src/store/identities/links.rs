//! `control.link_codes` and `control.link_attempts`.

use holdfast_pg::TenantTx;
use holdfast_types::Target;
use sqlx::types::Json;

use crate::{CodeOrigin, Error, Identity, IssuedLink};

type CodeRow = (
    String,
    String,
    String,
    String,
    Vec<String>,
    Vec<String>,
    Json<Option<Target>>,
    Option<Vec<u8>>,
);

/// Stores a code; an earlier one of the account is replaced. Codes that expired long ago are deleted.
pub(crate) async fn put(
    tx: &mut TenantTx,
    hash: &[u8],
    link: &IssuedLink,
    lifetime_seconds: f64,
) -> sqlx::Result<jiff::Timestamp> {
    const OLD: &str = "delete from control.link_codes \
                       where tenant_id = $1 and expires_at < clock_timestamp() - interval '1 hour'";
    const PUT: &str = "
        insert into control.link_codes
            (tenant_id, code_hash, channel, account, peer, person, former, roles, target, expires_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, clock_timestamp() + $10 * interval '1 second')
        on conflict on constraint link_codes_account_key do update
            set code_hash = excluded.code_hash, person = excluded.person, former = excluded.former,
                roles = excluded.roles, target = excluded.target,
                expires_at = excluded.expires_at, used_by = null
        returning expires_at";
    let tenant = tx.tenant().as_uuid();
    let (channel, account, peer) = link.origin.row();
    let target = match &link.origin {
        CodeOrigin::Account { target, .. } => Some(target),
        CodeOrigin::Person(_) => None,
    };
    holdfast_pg::query(OLD).bind(tenant).execute(tx.conn()).await?;
    let expires_at: jiff_sqlx::Timestamp = holdfast_pg::query_scalar(PUT)
        .bind(tenant)
        .bind(hash)
        .bind(channel)
        .bind(account)
        .bind(peer)
        .bind(&link.person)
        .bind(&link.former)
        .bind(&link.roles)
        .bind(Json(target))
        .bind(lifetime_seconds)
        .fetch_one(tx.conn())
        .await?;
    Ok(expires_at.to_jiff())
}

/// Returns a code that can be used by this account, and whether the account has used it before.
/// Locks it.
pub(crate) async fn usable(
    tx: &mut TenantTx,
    hash: &[u8],
    by: &[u8],
) -> Result<Option<(IssuedLink, bool)>, Error> {
    const SQL: &str = "
        select channel, account, peer, person, former, roles, target, used_by
        from control.link_codes
        where tenant_id = $1 and code_hash = $2
          and (used_by is null and expires_at > clock_timestamp() or used_by = $3)
        for update";
    let tenant = tx.tenant().as_uuid();
    let row: Option<CodeRow> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(hash)
        .bind(by)
        .fetch_optional(tx.conn())
        .await?;
    let Some((channel, account, peer, person, former, roles, target, used_by)) = row else {
        return Ok(None);
    };
    // A code whose person cannot be read counts as unknown.
    let origin = CodeOrigin::from_row((channel, account, peer), target.0);
    Ok(origin.map(|origin| (IssuedLink { origin, person, former, roles }, used_by.is_some())))
}

pub(crate) async fn mark_used(tx: &mut TenantTx, hash: &[u8], by: &[u8]) -> sqlx::Result<()> {
    const SQL: &str =
        "update control.link_codes set used_by = $3 where tenant_id = $1 and code_hash = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(hash).bind(by).execute(tx.conn()).await?;
    Ok(())
}

/// Returns how many unknown codes an account has sent within the time.
pub(crate) async fn failures(tx: &mut TenantTx, by: &[u8], within: f64) -> sqlx::Result<i32> {
    const SQL: &str = "
        select coalesce(sum(failures), 0)::integer from control.link_attempts
        where tenant_id = $1 and account_hash = $2
          and since > clock_timestamp() - $3 * interval '1 second'";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).bind(by).bind(within).fetch_one(tx.conn()).await
}

/// Counts an unknown code, and forgets those before the time.
pub(crate) async fn add_failure(tx: &mut TenantTx, by: &[u8], within: f64) -> sqlx::Result<()> {
    const OLD: &str = "
        delete from control.link_attempts
        where tenant_id = $1 and since <= clock_timestamp() - $2 * interval '1 second'";
    const ADD: &str = "
        insert into control.link_attempts as a (tenant_id, account_hash, failures)
        values ($1, $2, 1)
        on conflict (tenant_id, account_hash) do update set failures = a.failures + 1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(OLD).bind(tenant).bind(within).execute(tx.conn()).await?;
    holdfast_pg::query(ADD).bind(tenant).bind(by).execute(tx.conn()).await?;
    Ok(())
}

/// Deletes the codes that link to a person.
pub(crate) async fn forget(tx: &mut TenantTx, person: &str) -> sqlx::Result<()> {
    const SQL: &str = "delete from control.link_codes where tenant_id = $1 and person = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(person).execute(tx.conn()).await?;
    Ok(())
}

/// Returns the canonical of an account; `None` if it has no row of its own.
pub(crate) async fn canonical(
    tx: &mut TenantTx,
    channel: &str,
    peer: &str,
) -> sqlx::Result<Option<String>> {
    const SQL: &str = "select canonical from control.identities \
                       where tenant_id = $1 and channel = $2 and peer = $3";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL)
        .bind(tenant)
        .bind(channel)
        .bind(peer)
        .fetch_optional(tx.conn())
        .await
}

/// Returns the accounts with this canonical.
pub(crate) async fn accounts_of(tx: &mut TenantTx, canonical: &str) -> sqlx::Result<Vec<Identity>> {
    const SQL: &str = "select channel, peer from control.identities \
                       where tenant_id = $1 and canonical = $2 order by channel, peer";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<(String, String)> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(canonical).fetch_all(tx.conn()).await?;
    let read = |(channel, peer)| Identity { channel, peer, canonical: canonical.to_owned() };
    Ok(rows.into_iter().map(read).collect())
}
