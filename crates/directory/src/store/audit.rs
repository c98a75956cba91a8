//! `control.audit`: append-only, written in the transaction of the change. In a call of the gateway
//! triggers add request, method, and the rows before and after (migration 0083).

use std::fmt::Display;

use holdfast_pg::TenantTx;
use jiff_sqlx::ToSqlx as _;
use serde_json::Value;
use sqlx::types::Json;
use uuid::{NoContext, Timestamp, Uuid};

use crate::{Actor, AuditEvent, AuditFilter, CallOutcome, channel::concealed};

/// Assumed difference between the clocks of the gateway and the database, in seconds.
const MAX_CLOCK_DIFFERENCE: u64 = 300;

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

/// Records how a call ended. A successful call of which a row exists gets no other.
pub(crate) async fn record_outcome(tx: &mut TenantTx, call: &CallOutcome<'_>) -> sqlx::Result<()> {
    // Rows of the call are newer than its beginning, except for a difference between clocks.
    const SQL: &str = "
        insert into control.audit
            (tenant_id, audit_id, actor, action, subject, request_id, method, outcome, via)
        select $1, $2, $3, $4, $5, $6, $4, $7, $9
        where $7 <> 'ok' or not exists (
            select from control.audit
            where tenant_id = $1 and audit_id > $8 and request_id = $6)";
    let tenant = tx.tenant().as_uuid();
    let begun = call.request.get_timestamp().map_or(0, |at| at.to_unix().0);
    let after = Timestamp::from_unix(NoContext, begun.saturating_sub(MAX_CLOCK_DIFFERENCE), 0);
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(Uuid::now_v7())
        .bind(call.actor)
        .bind(call.method)
        .bind(call.subject)
        .bind(call.request.simple().to_string())
        .bind(call.outcome)
        .bind(Uuid::new_v7(after))
        .bind(&call.via)
        .execute(tx.conn())
        .await?;
    Ok(())
}

#[derive(sqlx::FromRow)]
struct Row {
    audit_id: Uuid,
    created_at: jiff_sqlx::Timestamp,
    actor: String,
    actor_name: String,
    via: String,
    subject_name: String,
    invited_by: String,
    inviter_name: String,
    action: String,
    subject: String,
    method: String,
    request_id: String,
    outcome: String,
    changes: Option<Json<Value>>,
}

impl Row {
    fn read(self) -> AuditEvent {
        AuditEvent {
            id: self.audit_id,
            created_at: self.created_at.to_jiff(),
            actor: self.actor,
            actor_name: self.actor_name,
            action: self.action,
            subject: self.subject,
            method: self.method,
            request_id: self.request_id,
            outcome: self.outcome,
            via: self.via,
            subject_name: self.subject_name,
            invited_by: self.invited_by,
            inviter_name: self.inviter_name,
            // Older versions stored secrets in the settings of channel accounts.
            changes: self.changes.map_or(Value::Null, |changes| concealed(&changes.0)),
        }
    }
}

/// Returns the events that a filter selects, newest first.
pub(crate) async fn page(tx: &mut TenantTx, filter: &AuditFilter) -> sqlx::Result<Vec<AuditEvent>> {
    const SQL: &str = "
        select a.audit_id, a.created_at, a.actor, a.action, a.subject, a.outcome, a.changes,
               coalesce(a.method, '') as method, coalesce(a.request_id, '') as request_id,
               coalesce(a.via, '') as via,
               coalesce(control.name_of(a.tenant_id, a.actor), '') as actor_name,
               coalesce(control.name_of(a.tenant_id, split_part(a.subject, ' ', 1)), '') as subject_name,
               coalesce(p.invited_by, '') as invited_by,
               coalesce(control.name_of(a.tenant_id, p.invited_by), '') as inviter_name
        from control.audit a
        left join control.people p on p.tenant_id = a.tenant_id
            and p.person_id = control.id_of('per', a.actor)
        where a.tenant_id = $1
          and ($2::uuid is null or a.audit_id < $2)
          and ($3 = '' or a.actor = $3)
          and ($4 = '' or starts_with(a.action, $4) or starts_with(a.method, $4))
          and ($5 = '' or a.subject = $5)
          and ($6 = '' or a.outcome = $6)
          and ($7 = '' or a.request_id = $7)
          and ($8::timestamptz is null or a.created_at >= $8)
          and ($9::timestamptz is null or a.created_at < $9)
        order by a.audit_id desc limit $10";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(filter.before)
        .bind(&filter.actor)
        .bind(&filter.action)
        .bind(&filter.subject)
        .bind(&filter.outcome)
        .bind(&filter.request_id)
        .bind(filter.since.map(|at| at.to_sqlx()))
        .bind(filter.until.map(|at| at.to_sqlx()))
        .bind(filter.limit)
        .fetch_all(tx.conn())
        .await?;
    Ok(rows.into_iter().map(Row::read).collect())
}
