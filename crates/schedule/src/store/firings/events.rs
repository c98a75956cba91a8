//! Events of jobs, written to the outbox of events in the transaction of what they tell of.

use holdfast_pg::Connection;
use serde_json::{Value, json};
use sqlx::types::Json;
use uuid::Uuid;

use crate::store::{Error, FiringRef, Outcome, log::column};

/// Family of the events.
pub(super) const EVENT_FAMILY: &str = "jobs";

/// A row of the outbox: ids and words, never what was said.
#[derive(Clone)]
pub(crate) struct OutboxEvent {
    pub tenant: Uuid,
    /// `None` if there is no session.
    pub session: Option<Uuid>,
    pub name: &'static str,
    pub payload: Value,
}

impl OutboxEvent {
    /// The end of a firing; `class` is the error, as a word.
    pub fn ended(
        firing: FiringRef,
        (outcome, class): (Outcome, Option<&str>),
        session: Option<Uuid>,
    ) -> Self {
        let name = match outcome {
            Outcome::Ok => "job.succeeded",
            Outcome::Error => "job.failed",
            Outcome::Skipped => "job.skipped",
        };
        let payload = json!({
            "job": firing.job.to_string(),
            "slot": firing.slot.to_string(),
            "reason": class.unwrap_or_default(),
        });
        Self { tenant: firing.tenant.as_uuid(), session, name, payload }
    }
}

/// Inserts events of jobs into the outbox.
pub(crate) async fn publish(conn: &mut Connection, events: &[OutboxEvent]) -> Result<(), Error> {
    insert(conn, EVENT_FAMILY, events).await
}

/// Inserts events of a family; the nil session id stands for no session.
pub(super) async fn insert(
    conn: &mut Connection,
    family: &str,
    events: &[OutboxEvent],
) -> Result<(), Error> {
    const SQL: &str = "
        insert into session.events (tenant_id, family, session_id, name, payload)
        select tenant_id, $5, session_id, name, payload
        from unnest($1::uuid[], $2::uuid[], $3::text[], $4::jsonb[])
             as e (tenant_id, session_id, name, payload)";

    if events.is_empty() {
        return Ok(());
    }
    holdfast_pg::query(SQL)
        .bind(column(events, |one| one.tenant))
        .bind(column(events, |one| one.session.unwrap_or_default()))
        .bind(column(events, |one| one.name))
        .bind(column(events, |one| Json(one.payload.clone())))
        .bind(family)
        .execute(conn)
        .await?;
    Ok(())
}
