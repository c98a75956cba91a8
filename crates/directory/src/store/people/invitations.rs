//! `control.invitations`.

use holdfast_pg::{SystemTx, TenantTx};
use holdfast_types::TenantId;
use jiff_sqlx::{Timestamp, ToSqlx as _};
use uuid::Uuid;

use crate::{Error, Invitation};

#[derive(sqlx::FromRow)]
struct Row {
    invitation_id: Uuid,
    name: String,
    role: String,
    invited_by: String,
    inviter: String,
    created_at: Timestamp,
    expires_at: Timestamp,
}

impl Row {
    fn read(self) -> Result<Invitation, Error> {
        Ok(Invitation {
            id: self.invitation_id.into(),
            name: self.name,
            role: self.role.parse().map_err(|error| Error::corrupt("role", error))?,
            invited_by: self.invited_by,
            inviter: self.inviter,
            created_at: self.created_at.to_jiff(),
            expires_at: self.expires_at.to_jiff(),
        })
    }
}

/// Tenant of an invitation; `None` if there is no such one.
pub(crate) async fn find(tx: &mut SystemTx, id: Uuid) -> sqlx::Result<Option<TenantId>> {
    const SQL: &str = "select tenant_id from control.find_invitation($1)";
    let found: Option<Uuid> =
        holdfast_pg::query_scalar(SQL).bind(id).fetch_optional(tx.conn()).await?;
    Ok(found.map(TenantId::from))
}

pub(crate) async fn insert(
    tx: &mut TenantTx,
    invitation: &Invitation,
    digest: &[u8],
) -> sqlx::Result<()> {
    const SQL: &str = "insert into control.invitations \
                       (tenant_id, invitation_id, digest, name, role, invited_by, expires_at) \
                       values ($1, $2, $3, $4, $5, $6, $7)";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(invitation.id.as_uuid())
        .bind(digest)
        .bind(&invitation.name)
        .bind(invitation.role.as_str())
        .bind(&invitation.invited_by)
        .bind(invitation.expires_at.to_sqlx())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Digest of an invitation's secret; `None` if it was accepted or revoked, or has expired.
pub(crate) async fn digest(tx: &mut TenantTx, id: Uuid) -> sqlx::Result<Option<Vec<u8>>> {
    const SQL: &str = "select digest from control.invitations \
                       where tenant_id = $1 and invitation_id = $2 and expires_at > now()";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).bind(id).fetch_optional(tx.conn()).await
}

/// Deletes an invitation, and returns it. Of concurrent calls one gets it.
pub(crate) async fn take(tx: &mut TenantTx, id: Uuid) -> Result<Option<Invitation>, Error> {
    const SQL: &str = "delete from control.invitations \
                       where tenant_id = $1 and invitation_id = $2 \
                       returning invitation_id, name, role, invited_by, '' as inviter, \
                                 created_at, expires_at";
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(id).fetch_optional(tx.conn()).await?;
    row.map(Row::read).transpose()
}

/// Deletes the invitations of a key or a person who may do nothing any more.
pub(crate) async fn delete_by(tx: &mut TenantTx, inviter: &str) -> sqlx::Result<()> {
    const SQL: &str = "delete from control.invitations where tenant_id = $1 and invited_by = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(inviter).execute(tx.conn()).await?;
    Ok(())
}

/// Invitations that have not expired, the newest first.
pub(crate) async fn all(tx: &mut TenantTx) -> Result<Vec<Invitation>, Error> {
    const SQL: &str = "
        select i.invitation_id, i.name, i.role, i.invited_by, i.created_at, i.expires_at,
               coalesce(p.name, k.name, '') as inviter
        from control.invitations i
        left join control.keys k on k.tenant_id = i.tenant_id
            and i.invited_by = 'key_' || replace(k.key_id::text, '-', '')
        left join control.people p on p.tenant_id = i.tenant_id
            and i.invited_by = 'per_' || replace(p.person_id::text, '-', '')
        where i.tenant_id = $1 and i.expires_at > now()
        order by i.invitation_id desc";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    rows.into_iter().map(Row::read).collect()
}

/// Deletes invitations that have expired, and returns the number of the others.
pub(crate) async fn prune(tx: &mut TenantTx) -> sqlx::Result<i64> {
    const PRUNE: &str =
        "delete from control.invitations where tenant_id = $1 and expires_at <= now()";
    const COUNT: &str = "select count(*) from control.invitations where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(PRUNE).bind(tenant).execute(tx.conn()).await?;
    holdfast_pg::query_scalar(COUNT).bind(tenant).fetch_one(tx.conn()).await
}
