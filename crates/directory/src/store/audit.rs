//! `control.audit`: append-only, written in the transaction of the change.

use std::fmt::Display;

use holdfast_pg::TenantTx;
use uuid::Uuid;

use crate::Actor;

/// Records an action. `subject` is an id or a name, never content.
pub(crate) async fn record(
    tx: &mut TenantTx,
    actor: Actor,
    action: &'static str,
    subject: impl Display,
) -> sqlx::Result<()> {
    const SQL: &str = "insert into control.audit (tenant_id, audit_id, actor, action, subject) \
                       values ($1, $2, $3, $4, $5)";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(Uuid::now_v7())
        .bind(actor.to_string())
        .bind(action)
        .bind(subject.to_string())
        .execute(tx.conn())
        .await?;
    Ok(())
}
