//! Reminders that failed: who runs the platform reads of it in the log, and whoever listens to the
//! tenant's events hears of it (spec REM-010).

use serde_json::{Value, json};
use sqlx::{PgConnection, types::Json};
use tracing::warn;
use uuid::Uuid;

use crate::{Error, FiringRef, close::Closing, log::column};

/// The family of the events.
const FAMILY: &str = "reminders";
/// What happened.
const FAILED: &str = "reminder.failed";

/// A reminder's firing that ended in an error.
pub(crate) struct Failure {
    firing: FiringRef,
    /// The conversation that it was for; none, if it never got there.
    session: Option<Uuid>,
    /// Why, in a word.
    class: String,
    /// Whether it is tried again.
    again: bool,
}

impl Failure {
    pub fn of(one: &Closing, session: Option<Uuid>, again: bool) -> Self {
        Self { firing: one.id, session, class: one.class.clone().unwrap_or_default(), again }
    }

    /// Ids and words; never what it was to remind of.
    fn payload(&self) -> Value {
        json!({
            "job": self.firing.job.to_string(),
            "slot": self.firing.slot.to_string(),
            "reason": self.class,
            "again": self.again,
        })
    }
}

/// Puts events on their way, under the id of no session where none was reached.
pub(crate) async fn tell(conn: &mut PgConnection, failures: &[Failure]) -> Result<(), Error> {
    const SQL: &str = "
        insert into session.events (tenant_id, family, session_id, name, payload)
        select tenant_id, $4, session_id, $5, payload
        from unnest($1::uuid[], $2::uuid[], $3::jsonb[]) as f (tenant_id, session_id, payload)";

    if failures.is_empty() {
        return Ok(());
    }
    sqlx::query(SQL)
        .bind(column(failures, |one| one.firing.tenant.as_uuid()))
        .bind(column(failures, |one| one.session.unwrap_or_default()))
        .bind(column(failures, |one| Json(one.payload())))
        .bind(FAMILY)
        .bind(FAILED)
        .execute(conn)
        .await?;
    Ok(())
}

/// Says so in the log, once it is on record.
pub(crate) fn warn(failures: &[Failure]) {
    for Failure { firing, class, again, .. } in failures {
        let (tenant, job) = (firing.tenant, firing.job);
        warn!(tenant.id = %tenant, job.id = %job, reason = class, again, "a reminder failed");
    }
}
