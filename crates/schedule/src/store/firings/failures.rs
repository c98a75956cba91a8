//! Failed reminders: reported to operators in the log and to the tenant's event subscribers (spec
//! REM-010).

use holdfast_pg::Connection;
use serde_json::{Value, json};
use tracing::warn;
use uuid::Uuid;

use super::{
    close::FiringEnd,
    events::{self, OutboxEvent},
};
use crate::store::{Error, FiringRef};

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

    fn event(&self) -> OutboxEvent {
        OutboxEvent {
            tenant: self.firing.tenant.as_uuid(),
            session: self.session,
            name: EVENT_REMINDER_FAILED,
            payload: self.payload(),
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
    let events: Vec<_> = failures.iter().map(Failure::event).collect();
    events::insert(conn, EVENT_FAMILY, &events).await
}

/// Logs the failures; called after the commit.
pub(crate) fn log_failures(failures: &[Failure]) {
    for Failure { firing, class, will_retry: again, .. } in failures {
        let (tenant, job) = (firing.tenant, firing.job);
        warn!(tenant.id = %tenant, job.id = %job, reason = class, again, "a reminder failed");
    }
}
