//! `control.devices` and `control.device_requests`.

use holdfast_pg::{SystemTx, TenantTx};
use holdfast_types::{PersonId, TenantId};
use jiff_sqlx::Timestamp;
use uuid::Uuid;

use super::approver::{ApproverLookup, columns, from_columns};
use crate::{Approver, Device, DeviceProfile, DeviceRequest, DeviceUser, Error};

/// Fields that the rows of both tables have.
#[derive(sqlx::FromRow)]
struct ProfileRow {
    device_id: String,
    public_key: Vec<u8>,
    name: String,
    platform: String,
    family: String,
    client_id: String,
    client_mode: String,
}

impl ProfileRow {
    fn read(self) -> Result<DeviceProfile, Error> {
        let key = self.public_key.try_into();
        let corrupt = |_| Error::corrupt("key of a device", anyhow::anyhow!("not 32 bytes"));
        Ok(DeviceProfile {
            id: self.device_id,
            public_key: key.map_err(corrupt)?,
            name: self.name,
            platform: self.platform,
            family: self.family,
            client_id: self.client_id,
            client_mode: self.client_mode,
        })
    }
}

#[derive(sqlx::FromRow)]
struct Row {
    #[sqlx(flatten)]
    profile: ProfileRow,
    scopes: Vec<String>,
    approver_key: Option<Uuid>,
    approver_person: Option<Uuid>,
    paired_by: Option<String>,
    person_id: Option<Uuid>,
    token_id: Uuid,
    issued_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
    approved_at: Timestamp,
}

impl Row {
    fn read(self) -> Result<Device, Error> {
        Ok(Device {
            profile: self.profile.read()?,
            scopes: self.scopes,
            approver: from_columns(self.approver_key, self.approver_person)?,
            asked_by: user(self.paired_by, self.person_id),
            token: self.token_id,
            issued_at: self.issued_at.map(Timestamp::to_jiff),
            revoked_at: self.revoked_at.map(Timestamp::to_jiff),
            approved_at: self.approved_at.to_jiff(),
        })
    }
}

/// With whose credential a device asked.
fn user(id: Option<String>, person: Option<Uuid>) -> Option<DeviceUser> {
    id.map(|id| DeviceUser { id, person: person.map(PersonId::from) })
}

/// Columns of a device, as [`Row`] reads them.
macro_rules! device {
    ($sql:literal) => {
        concat!(
            $sql,
            " device_id, public_key, name, platform, family, client_id, client_mode, scopes, \
             approver_key, approver_person, paired_by, person_id, token_id, issued_at, revoked_at, \
             approved_at"
        )
    };
    ($sql:literal, $rest:literal) => {
        concat!(device!($sql), " ", $rest)
    };
}

/// Tenant of a token; `None` if there is no such token.
pub(crate) async fn find(tx: &mut SystemTx, token: Uuid) -> sqlx::Result<Option<TenantId>> {
    const SQL: &str = "select tenant_id from control.find_device($1)";
    let found: Option<Uuid> =
        holdfast_pg::query_scalar(SQL).bind(token).fetch_optional(tx.conn()).await?;
    Ok(found.map(TenantId::from))
}

/// Fields of a device that its authentication needs, and of its approver as they are now.
#[derive(sqlx::FromRow)]
pub(crate) struct DeviceLookup {
    pub(crate) device_id: String,
    pub(crate) name: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) digest: Option<Vec<u8>>,
    /// Whether the token is not revoked.
    pub(crate) live: bool,
    pub(crate) person_id: Option<Uuid>,
    #[sqlx(flatten)]
    pub(crate) approver: ApproverLookup,
}

/// Reads a device with the rights of its approver. A person who has not signed in for so many days
/// may have left the identity provider.
pub(crate) async fn look_up(
    tx: &mut TenantTx,
    token: Uuid,
    days: i32,
) -> sqlx::Result<Option<DeviceLookup>> {
    const SQL: &str = "
        select d.device_id, d.name, d.scopes, d.digest, d.approver_key, d.approver_person,
               d.revoked_at is null and dp.disabled_at is null as live, d.person_id, k.scopes as key_scopes,
               k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
                   and kp.disabled_at is null as key_live,
               kp.person_id as key_person, kp.role as key_role, p.role, p.operates,
               p.disabled_at is null and p.seen_at > now() - make_interval(days => $3) as person_live,
               t.rate, (t.limits ->> 'concurrent_calls')::bigint as concurrent_calls,
               t.state as tenant_state
        from control.devices d
        join control.tenants t using (tenant_id)
        left join control.keys k on k.tenant_id = d.tenant_id and k.key_id = d.approver_key
        left join control.people kp on kp.tenant_id = k.tenant_id and kp.person_id = k.person_id
        left join control.people p on p.tenant_id = d.tenant_id and p.person_id = d.approver_person
        left join control.people dp on dp.tenant_id = d.tenant_id and dp.person_id = d.person_id
        where d.tenant_id = $1 and d.token_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).bind(token).bind(days).fetch_optional(tx.conn()).await
}

/// The tenant's devices, in the order of their approval.
pub(crate) async fn all(tx: &mut TenantTx) -> Result<Vec<Device>, Error> {
    const SQL: &str = device!(
        "select",
        "from control.devices where tenant_id = $1 order by approved_at, device_id"
    );
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    rows.into_iter().map(Row::read).collect()
}

pub(crate) async fn one(tx: &mut TenantTx, device: &str) -> Result<Option<Device>, Error> {
    const SQL: &str =
        device!("select", "from control.devices where tenant_id = $1 and device_id = $2");
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(device).fetch_optional(tx.conn()).await?;
    row.map(Row::read).transpose()
}

pub(crate) async fn count(tx: &mut TenantTx) -> sqlx::Result<i64> {
    const SQL: &str = "select count(*) from control.devices where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).fetch_one(tx.conn()).await
}

/// Pairs a device, or gives a paired one other scopes and another approver. Its token stays, unless it
/// was revoked.
pub(crate) async fn put(
    tx: &mut TenantTx,
    profile: &DeviceProfile,
    scopes: &[String],
    (approver, user): (Approver, Option<&DeviceUser>),
) -> Result<Device, Error> {
    const SQL: &str = device!(
        "insert into control.devices as d (tenant_id, device_id, public_key, name, platform, \
             family, client_id, client_mode, scopes, approver_key, approver_person, token_id, \
             paired_by, person_id) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) \
         on conflict (tenant_id, device_id) do update set \
             name = excluded.name, platform = excluded.platform, family = excluded.family, \
             client_id = excluded.client_id, client_mode = excluded.client_mode, \
             scopes = excluded.scopes, approver_key = excluded.approver_key, \
             approver_person = excluded.approver_person, paired_by = excluded.paired_by, \
             person_id = excluded.person_id, approved_at = now(), revoked_at = null, \
             token_id = case when d.revoked_at is null then d.token_id else excluded.token_id end, \
             digest = case when d.revoked_at is null then d.digest end, \
             issued_at = case when d.revoked_at is null then d.issued_at end \
         returning"
    );
    let tenant = tx.tenant().as_uuid();
    let (key, person) = columns(approver);
    let row: Row = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(&profile.id)
        .bind(&profile.public_key[..])
        .bind(&profile.name)
        .bind(&profile.platform)
        .bind(&profile.family)
        .bind(&profile.client_id)
        .bind(&profile.client_mode)
        .bind(scopes)
        .bind(key)
        .bind(person)
        .bind(Uuid::now_v7())
        .bind(user.map(|user| &user.id))
        .bind(user.and_then(|user| user.person).map(PersonId::as_uuid))
        .fetch_one(tx.conn())
        .await?;
    row.read()
}

/// Gives a device further scopes; its token stays.
pub(crate) async fn set_scopes(
    tx: &mut TenantTx,
    device: &str,
    scopes: &[String],
) -> sqlx::Result<()> {
    const SQL: &str =
        "update control.devices set scopes = $3 where tenant_id = $1 and device_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(device).bind(scopes).execute(tx.conn()).await?;
    Ok(())
}

/// Stores the digest of a device's first token since its approval or its last rotation. Returns
/// whether it had none, and may have one.
pub(crate) async fn issue(
    tx: &mut TenantTx,
    device: &str,
    token: Uuid,
    digest: &[u8],
) -> sqlx::Result<bool> {
    const SQL: &str = "
        update control.devices set token_id = $3, digest = $4, issued_at = now()
        where tenant_id = $1 and device_id = $2 and digest is null and revoked_at is null";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(device)
        .bind(token)
        .bind(digest)
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Replaces the digest of a device's token, if it still is `old`.
pub(crate) async fn replace_digest(
    tx: &mut TenantTx,
    device: &str,
    old: &[u8],
    new: &[u8],
) -> sqlx::Result<()> {
    const SQL: &str = "update control.devices set digest = $4 \
                       where tenant_id = $1 and device_id = $2 and digest = $3";
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query(SQL).bind(tenant).bind(device).bind(old).bind(new);
    query.execute(tx.conn()).await?;
    Ok(())
}

/// Ends a device's token; it may be issued another one.
pub(crate) async fn rotate(
    tx: &mut TenantTx,
    device: &str,
    scopes: &[String],
) -> Result<Option<Device>, Error> {
    const SQL: &str = device!(
        "update control.devices \
         set scopes = $3, token_id = $4, digest = null, issued_at = null, revoked_at = null \
         where tenant_id = $1 and device_id = $2 \
         returning"
    );
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(device)
        .bind(scopes)
        .bind(Uuid::now_v7())
        .fetch_optional(tx.conn())
        .await?;
    row.map(Row::read).transpose()
}

/// Ends a device's token. No other one is issued before a rotation.
pub(crate) async fn revoke(tx: &mut TenantTx, device: &str) -> Result<Option<Device>, Error> {
    const SQL: &str = device!(
        "update control.devices set revoked_at = coalesce(revoked_at, now()) \
         where tenant_id = $1 and device_id = $2 \
         returning"
    );
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(device).fetch_optional(tx.conn()).await?;
    row.map(Row::read).transpose()
}

pub(crate) async fn remove(tx: &mut TenantTx, device: &str) -> sqlx::Result<()> {
    const SQL: &str = "delete from control.devices where tenant_id = $1 and device_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(device).execute(tx.conn()).await?;
    Ok(())
}

#[derive(sqlx::FromRow)]
struct RequestRow {
    request_id: Uuid,
    #[sqlx(flatten)]
    profile: ProfileRow,
    scopes: Vec<String>,
    asked_by: Option<String>,
    person_id: Option<Uuid>,
    requested_at: Timestamp,
    expires_at: Timestamp,
    is_paired: bool,
}

impl RequestRow {
    fn read(self) -> Result<DeviceRequest, Error> {
        Ok(DeviceRequest {
            id: self.request_id,
            profile: self.profile.read()?,
            scopes: self.scopes,
            asked_by: user(self.asked_by, self.person_id),
            requested_at: self.requested_at.to_jiff(),
            expires_at: self.expires_at.to_jiff(),
            is_paired: self.is_paired,
        })
    }
}

/// Query for requests that wait for a decision; the parameter is a further condition.
macro_rules! request {
    ($which:literal) => {
        concat!(
            "select r.request_id, r.device_id, r.public_key, r.name, r.platform, r.family, \
                    r.client_id, r.client_mode, r.scopes, r.asked_by, r.person_id, r.requested_at, r.expires_at, \
                    exists (select 1 from control.devices d where d.tenant_id = r.tenant_id \
                            and d.device_id = r.device_id) as is_paired \
             from control.device_requests r \
             where r.tenant_id = $1 and r.rejected_at is null and r.expires_at > now() ",
            $which
        )
    };
}

/// Requests that wait for a decision, the oldest first.
pub(crate) async fn requests(tx: &mut TenantTx) -> Result<Vec<DeviceRequest>, Error> {
    const SQL: &str = request!("order by r.requested_at, r.request_id");
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<RequestRow> =
        holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    rows.into_iter().map(RequestRow::read).collect()
}

pub(crate) async fn request(tx: &mut TenantTx, id: Uuid) -> Result<Option<DeviceRequest>, Error> {
    const SQL: &str = request!("and r.request_id = $2");
    let tenant = tx.tenant().as_uuid();
    let row: Option<RequestRow> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(id).fetch_optional(tx.conn()).await?;
    row.map(RequestRow::read).transpose()
}

/// Deletes requests that have expired, and returns the number of the others.
pub(crate) async fn prune_requests(tx: &mut TenantTx) -> sqlx::Result<i64> {
    const PRUNE: &str =
        "delete from control.device_requests where tenant_id = $1 and expires_at <= now()";
    const COUNT: &str = "select count(*) from control.device_requests where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(PRUNE).bind(tenant).execute(tx.conn()).await?;
    holdfast_pg::query_scalar(COUNT).bind(tenant).fetch_one(tx.conn()).await
}

/// Stores a request in place of an earlier one of the device. Returns its id and whether it is new;
/// `None` if the earlier one was rejected and has not expired. The same request again keeps its id.
pub(crate) async fn put_request(
    tx: &mut TenantTx,
    profile: &DeviceProfile,
    (scopes, user): (&[String], &DeviceUser),
    minutes: i32,
) -> sqlx::Result<Option<(Uuid, bool)>> {
    const SQL: &str = "
        insert into control.device_requests as r (tenant_id, request_id, device_id, public_key, name,
            platform, family, client_id, client_mode, scopes, expires_at, asked_by, person_id)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, now() + make_interval(mins => $11), $12, $13)
        on conflict on constraint device_requests_device do update set
            name = excluded.name, platform = excluded.platform, family = excluded.family,
            client_id = excluded.client_id, client_mode = excluded.client_mode,
            request_id = case when r.scopes = excluded.scopes
                                   and r.asked_by is not distinct from excluded.asked_by
                         then r.request_id else excluded.request_id end,
            asked_by = excluded.asked_by, person_id = excluded.person_id,
            scopes = excluded.scopes, expires_at = excluded.expires_at
        where r.rejected_at is null
        returning request_id, request_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(Uuid::now_v7())
        .bind(&profile.id)
        .bind(&profile.public_key[..])
        .bind(&profile.name)
        .bind(&profile.platform)
        .bind(&profile.family)
        .bind(&profile.client_id)
        .bind(&profile.client_mode)
        .bind(scopes)
        .bind(minutes)
        .bind(&user.id)
        .bind(user.person.map(PersonId::as_uuid))
        .fetch_optional(tx.conn())
        .await
}

/// Marks a request as rejected until it expires.
pub(crate) async fn reject_request(tx: &mut TenantTx, id: Uuid) -> sqlx::Result<()> {
    const SQL: &str = "update control.device_requests set rejected_at = now() \
                       where tenant_id = $1 and request_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(id).execute(tx.conn()).await?;
    Ok(())
}

/// Deletes the request of a device that was decided upon.
pub(crate) async fn delete_request(tx: &mut TenantTx, device: &str) -> sqlx::Result<()> {
    const SQL: &str = "delete from control.device_requests where tenant_id = $1 and device_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(device).execute(tx.conn()).await?;
    Ok(())
}
