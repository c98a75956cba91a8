//! People who become one, and the identities by which a person is known.

use holdfast_pg::TenantTx;
use holdfast_types::PersonId;
use jiff_sqlx::Timestamp;

use crate::{Identity, PersonIdentity};

/// By what a person is known: sign-ins, invitations and keys, accounts on channels, users of programs,
/// and people who were merged into them.
pub(crate) async fn identities(
    tx: &mut TenantTx,
    person: PersonId,
) -> sqlx::Result<Vec<PersonIdentity>> {
    const SQL: &str = "
        select kind, value, proven_at from control.person_identities
        where tenant_id = $1 and person_id = $2
        union all
        select case channel when 'api' then 'api_user' else 'account' end, channel || ':' || peer, null
        from control.identities where tenant_id = $1 and canonical = $3
        union all
        select 'person', 'per_' || replace(person_id::text, '-', ''), null
        from control.people where tenant_id = $1 and merged_into = $2
        order by 1, 2";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<(String, String, Option<Timestamp>)> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(person.as_uuid())
        .bind(Identity::canonical_of_person(person))
        .fetch_all(tx.conn())
        .await?;
    let read = |(kind, value, proven_at): (_, _, Option<Timestamp>)| PersonIdentity {
        kind,
        value,
        proven_at: proven_at.map(Timestamp::to_jiff),
    };
    Ok(rows.into_iter().map(read).collect())
}

/// Gives what a person is known by and has to another person, and makes their sign-in lead there.
pub(crate) async fn merge(tx: &mut TenantTx, from: PersonId, into: PersonId) -> sqlx::Result<()> {
    const STATEMENTS: [&str; 6] = [
        "update control.people set merged_into = $3 where tenant_id = $1 and person_id = $2",
        "update control.people set merged_into = $3 where tenant_id = $1 and merged_into = $2",
        "update control.person_identities set person_id = $3 where tenant_id = $1 and person_id = $2 \
         and kind = 'key'",
        "update control.keys set person_id = $3 where tenant_id = $1 and person_id = $2",
        "update control.devices set person_id = $3 where tenant_id = $1 and person_id = $2",
        "update control.device_requests set person_id = $3 where tenant_id = $1 and person_id = $2",
    ];
    const ACCOUNTS: &str = "
        update control.identities set canonical = $3 where tenant_id = $1 and canonical = $2";
    let tenant = tx.tenant().as_uuid();
    for sql in STATEMENTS {
        holdfast_pg::query(sql)
            .bind(tenant)
            .bind(from.as_uuid())
            .bind(into.as_uuid())
            .execute(tx.conn())
            .await?;
    }
    holdfast_pg::query(ACCOUNTS)
        .bind(tenant)
        .bind(Identity::canonical_of_person(from))
        .bind(Identity::canonical_of_person(into))
        .execute(tx.conn())
        .await?;
    // They sign in again, with the rights that they have then.
    end_sessions(tx, from).await
}

/// Makes a merged person one of their own again. Returns whether they were merged into this one.
pub(crate) async fn separate(
    tx: &mut TenantTx,
    merged: PersonId,
    from: PersonId,
) -> sqlx::Result<bool> {
    const SQL: &str = "update control.people set merged_into = null \
                       where tenant_id = $1 and person_id = $2 and merged_into = $3";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(merged.as_uuid())
        .bind(from.as_uuid())
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Ends a person's sessions of the console, and their links.
async fn end_sessions(tx: &mut TenantTx, person: PersonId) -> sqlx::Result<()> {
    const SESSIONS: [&str; 2] = [
        "delete from control.console_sessions where tenant_id = $1 and holder_person = $2",
        "delete from control.console_links where tenant_id = $1 and holder_person = $2",
    ];
    let tenant = tx.tenant().as_uuid();
    for sql in SESSIONS {
        holdfast_pg::query(sql).bind(tenant).bind(person.as_uuid()).execute(tx.conn()).await?;
    }
    Ok(())
}

/// Deletes a person's record, with their identities, keys, devices and sessions of the console.
pub(crate) async fn delete(tx: &mut TenantTx, person: PersonId) -> sqlx::Result<()> {
    const RECORD: &str = "delete from control.people where tenant_id = $1 and person_id = $2";
    end_sessions(tx, person).await?;
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(RECORD).bind(tenant).bind(person.as_uuid()).execute(tx.conn()).await?;
    Ok(())
}
