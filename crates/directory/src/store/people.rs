//! `control.people`.

use holdfast_pg::TenantTx;
use holdfast_types::PersonId;
use jiff_sqlx::Timestamp;
use uuid::Uuid;

use crate::{Error, Person, SignIn};

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
        })
    }
}

pub(crate) async fn by_subject(
    tx: &mut TenantTx,
    issuer: &str,
    subject: &str,
) -> Result<Option<Person>, Error> {
    const SQL: &str = "select person_id, issuer, subject, name, role, created_at, seen_at, \
                       disabled_at from control.people \
                       where tenant_id = $1 and issuer = $2 and subject = $3";
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
    const SQL: &str = "
        insert into control.people as p (tenant_id, person_id, issuer, subject, name, role)
        values ($1, $2, $3, $4, $5, $6)
        on conflict on constraint people_subject_key do update
            set name = excluded.name, role = excluded.role, seen_at = now()
        returning person_id, issuer, subject, name, role, created_at, seen_at, disabled_at";
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

pub(crate) async fn count(tx: &mut TenantTx) -> sqlx::Result<i64> {
    const SQL: &str = "select count(*) from control.people where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).fetch_one(tx.conn()).await
}

pub(crate) async fn one(tx: &mut TenantTx, id: PersonId) -> Result<Option<Person>, Error> {
    const SQL: &str = "select person_id, issuer, subject, name, role, created_at, seen_at, \
                       disabled_at from control.people where tenant_id = $1 and person_id = $2";
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
    const SQL: &str = "select person_id, issuer, subject, name, role, created_at, seen_at, \
                       disabled_at from control.people \
                       where tenant_id = $1 and ($2::uuid is null or person_id > $2) \
                       order by person_id limit $3";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(after.map(PersonId::as_uuid))
        .bind(limit)
        .fetch_all(tx.conn())
        .await?;
    rows.into_iter().map(Row::read).collect()
}

/// Refuses a person, or accepts them again.
pub(crate) async fn set_disabled(
    tx: &mut TenantTx,
    id: PersonId,
    disabled: bool,
) -> Result<Option<Person>, Error> {
    const SQL: &str = "
        update control.people
        set disabled_at = case when $3 then coalesce(disabled_at, now()) end
        where tenant_id = $1 and person_id = $2
        returning person_id, issuer, subject, name, role, created_at, seen_at, disabled_at";
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(disabled)
        .fetch_optional(tx.conn())
        .await?;
    row.map(Row::read).transpose()
}
