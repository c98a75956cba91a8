//! `control.people` and `control.person_identities`.

pub(crate) mod invitations;
pub(crate) mod merging;
pub(crate) mod provider_sign_ins;

use std::collections::HashMap;

use holdfast_pg::TenantTx;
use holdfast_types::{PersonId, TenantRole};
use jiff_sqlx::Timestamp;
use uuid::Uuid;

use crate::{Error, Person, PersonChanges, SignIn};

#[derive(sqlx::FromRow)]
struct Row {
    person_id: Uuid,
    issuer: String,
    subject: String,
    name: String,
    role: String,
    created_at: Timestamp,
    seen_at: Timestamp,
    disabled_at: Option<Timestamp>,
    zone: Option<String>,
    language: Option<String>,
    invited_by: Option<String>,
    merged_into: Option<Uuid>,
    operates: bool,
}

impl Row {
    fn read(self) -> Result<Person, Error> {
        Ok(Person {
            id: self.person_id.into(),
            issuer: self.issuer,
            subject: self.subject,
            name: self.name,
            role: self.role.parse().map_err(|error| Error::corrupt("role", error))?,
            created_at: self.created_at.to_jiff(),
            seen_at: self.seen_at.to_jiff(),
            disabled_at: self.disabled_at.map(Timestamp::to_jiff),
            zone: self.zone,
            language: self.language,
            invited_by: self.invited_by,
            merged_into: self.merged_into.map(PersonId::from),
            operates: self.operates,
        })
    }
}

/// A query whose columns are those of [`Row`].
macro_rules! person {
    ($before:literal, $after:literal) => {
        concat!(
            $before,
            " person_id, issuer, subject, name, role, created_at, seen_at, disabled_at, zone, \
             language, invited_by, merged_into, operates ",
            $after
        )
    };
}

pub(crate) async fn by_subject(
    tx: &mut TenantTx,
    issuer: &str,
    subject: &str,
) -> Result<Option<Person>, Error> {
    const SQL: &str = person!(
        "select",
        "from control.people \
                       where tenant_id = $1 and issuer = $2 and subject = $3"
    );
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(issuer)
        .bind(subject)
        .fetch_optional(tx.conn())
        .await?;
    row.map(Row::read).transpose()
}

/// Stores a sign-in: a new person, or name, role and time of a known one.
pub(crate) async fn put(tx: &mut TenantTx, said: &SignIn) -> Result<Person, Error> {
    const SQL: &str = person!(
        "
        insert into control.people as p (tenant_id, person_id, issuer, subject, name, role)
        values ($1, $2, $3, $4, $5, $6)
        on conflict on constraint people_subject_key do update
            set name = excluded.name, role = excluded.role, seen_at = now()
        returning",
        ""
    );
    let tenant = tx.tenant().as_uuid();
    let row: Row = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(PersonId::generate().as_uuid())
        .bind(&said.issuer)
        .bind(&said.subject)
        .bind(&said.name)
        .bind(said.role.as_str())
        .fetch_one(tx.conn())
        .await?;
    row.read()
}

/// Stores a person who was invited, or the first owner of a tenant; a known one stays as they are.
pub(crate) async fn put_invited(
    tx: &mut TenantTx,
    said: &SignIn,
    invited_by: &str,
) -> Result<Person, Error> {
    const SQL: &str = "insert into control.people \
                       (tenant_id, person_id, issuer, subject, name, role, invited_by) \
                       values ($1, $2, $3, $4, $5, $6, $7) \
                       on conflict on constraint people_subject_key do nothing";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(PersonId::generate().as_uuid())
        .bind(&said.issuer)
        .bind(&said.subject)
        .bind(&said.name)
        .bind(said.role.as_str())
        .bind(invited_by)
        .execute(tx.conn())
        .await?;
    let person = by_subject(tx, &said.issuer, &said.subject).await?;
    person.ok_or_else(|| Error::not_found("person", &said.subject))
}

/// Makes a person one who operates the installation, with this name. One who does already keeps theirs.
pub(crate) async fn set_operates(tx: &mut TenantTx, id: PersonId, name: &str) -> sqlx::Result<()> {
    const SQL: &str = "update control.people set operates = true, name = $3 \
                       where tenant_id = $1 and person_id = $2 and not operates";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(id.as_uuid()).bind(name).execute(tx.conn()).await?;
    Ok(())
}

/// Stores that a person was seen now, if that was not stored within an hour.
pub(crate) async fn touch(tx: &mut TenantTx, id: PersonId) -> sqlx::Result<()> {
    const SQL: &str = "update control.people set seen_at = now() where tenant_id = $1 \
                       and person_id = $2 and seen_at < now() - interval '1 hour'";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(id.as_uuid()).execute(tx.conn()).await?;
    Ok(())
}

/// Stores by what a person is known besides. An identity that somebody has already stays theirs.
pub(crate) async fn add_identity(
    tx: &mut TenantTx,
    person: PersonId,
    kind: &'static str,
    value: &str,
) -> sqlx::Result<()> {
    const SQL: &str = "insert into control.person_identities (tenant_id, kind, value, person_id) \
                       values ($1, $2, $3, $4) on conflict do nothing";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(kind)
        .bind(value)
        .bind(person.as_uuid())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Roles of the people who are known by an account on a channel, or as a user of programs; not of those
/// who are refused.
pub(crate) async fn roles_by_identity(
    tx: &mut TenantTx,
) -> Result<HashMap<PersonId, TenantRole>, Error> {
    const SQL: &str = "
        select distinct p.person_id, p.role
        from control.identities i
        join control.people p on p.tenant_id = i.tenant_id
             and p.person_id = control.id_of('per', substr(i.canonical, length('=person:') + 1))
        where i.tenant_id = $1 and starts_with(i.canonical, '=person:per_') and p.disabled_at is null";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<(Uuid, String)> =
        holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    let read = |(id, role): (Uuid, String)| {
        let role = role.parse().map_err(|error| Error::corrupt("role", error))?;
        Ok((PersonId::from(id), role))
    };
    rows.into_iter().map(read).collect()
}

pub(crate) async fn count(tx: &mut TenantTx) -> sqlx::Result<i64> {
    const SQL: &str = "select count(*) from control.people where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).fetch_one(tx.conn()).await
}

pub(crate) async fn one(tx: &mut TenantTx, id: PersonId) -> Result<Option<Person>, Error> {
    const SQL: &str =
        person!("select", "from control.people where tenant_id = $1 and person_id = $2");
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .fetch_optional(tx.conn())
        .await?;
    row.map(Row::read).transpose()
}

/// People after `after`, in the order of their first sign-in.
pub(crate) async fn page(
    tx: &mut TenantTx,
    after: Option<PersonId>,
    limit: i64,
) -> Result<Vec<Person>, Error> {
    const SQL: &str = person!(
        "select",
        "from control.people \
                       where tenant_id = $1 and ($2::uuid is null or person_id > $2) \
                       and merged_into is null \
                       order by person_id limit $3"
    );
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(after.map(PersonId::as_uuid))
        .bind(limit)
        .fetch_all(tx.conn())
        .await?;
    rows.into_iter().map(Row::read).collect()
}

/// Changes a person's record.
pub(crate) async fn update(
    tx: &mut TenantTx,
    id: PersonId,
    changes: &PersonChanges,
) -> Result<Option<Person>, Error> {
    const SQL: &str = person!(
        "
        update control.people
        set name = coalesce($3, name), role = coalesce($6, role),
            zone = case when $4::text is null then zone else nullif($4, '') end,
            language = case when $5::text is null then language else nullif($5, '') end
        where tenant_id = $1 and person_id = $2
        returning",
        ""
    );
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(&changes.name)
        .bind(&changes.zone)
        .bind(&changes.language)
        .bind(changes.role.map(TenantRole::as_str))
        .fetch_optional(tx.conn())
        .await?;
    row.map(Row::read).transpose()
}

/// Refuses a person, or accepts them again.
pub(crate) async fn set_disabled(
    tx: &mut TenantTx,
    id: PersonId,
    disabled: bool,
) -> Result<Option<Person>, Error> {
    const SQL: &str = person!(
        "
        update control.people
        set disabled_at = case when $3 then coalesce(disabled_at, now()) end
        where tenant_id = $1 and person_id = $2
        returning",
        ""
    );
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(disabled)
        .fetch_optional(tx.conn())
        .await?;
    row.map(Row::read).transpose()
}
