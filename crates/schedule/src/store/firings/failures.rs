//! Failed reminders: reported to operators in the log and to the tenant's event subscribers (spec
//! REM-010).

use holdfast_pg::Connection;
use serde_json::{Value, json};
use sqlx::types::Json;
use tracing::warn;
use uuid::Uuid;

use super::close::FiringEnd;
use crate::store::{Error, FiringRef, log::column};

/// Family of the published events.
const EVENT_FAMILY: &str = "reminders";
/// Name of the published event.
const EVENT_REMINDER_FAILED: &str = "reminder.failed";

pub(crate) struct Failure {
    firing: FiringRef,
    /// Session of the reminder; `None` if the message never reached one.
    session: Option<Uuid>,
    class: String,
    /// Whether there will be a retry.
    will_retry: bool,
}

impl Failure {
    pub fn of(one: &FiringEnd, session: Option<Uuid>, again: bool) -> Self {
        Self {
            firing: one.id,
            session,
            class: one.class.clone().unwrap_or_default(),
            will_retry: again,
        }
    }

    /// Returns ids and the error class; never the reminder's text.
    fn payload(&self) -> Value {
        json!({
            "job": self.firing.job.to_string(),
            "slot": self.firing.slot.to_string(),
            "reason": self.class,
            "again": self.will_retry,
        })
    }
}

/// Inserts the events into the outbox; the nil session id stands for no session.
pub(crate) async fn publish(conn: &mut Connection, failures: &[Failure]) -> Result<(), Error> {
    const SQL: &str = "
        insert into session.events (tenant_id, family, session_id, name, payload)
        select tenant_id, $4, session_id, $5, payload
        from unnest($1::uuid[], $2::uuid[], $3::jsonb[]) as f (tenant_id, session_id, payload)";

    if failures.is_empty() {
        return Ok(());
    }
    holdfast_pg::query(SQL)
        .bind(column(failures, |one| one.firing.tenant.as_uuid()))
        .bind(column(failures, |one| one.session.unwrap_or_default()))
        .bind(column(failures, |one| Json(one.payload())))
        .bind(EVENT_FAMILY)
        .bind(EVENT_REMINDER_FAILED)
        .execute(conn)
        .await?;
    Ok(())
}

/// Logs the failures; called after the commit.
pub(crate) fn log_failures(failures: &[Failure]) {
    for Failure { firing, class, will_retry: again, .. } in failures {
        let (tenant, job) = (firing.tenant, firing.job);
        warn!(tenant.id = %tenant, job.id = %job, reason = class, again, "a reminder failed");
    }
}
