//! Abandoned firings: those whose delivery was attempted too often by replicas that then died.
//!
//! The last replica may have written the message to the inbox and died before it recorded that.
//! Such a firing counts as delivered. If it ended as an error instead, a job with a single slot
//! would be retried under another key, and its message would be delivered twice.

use std::time::Duration;

use holdfast_schedule::store::{
    CLASS_ABANDONED, DeliveryReport, Error, Firing, JobKind, Outcome, Refused,
};
use holdfast_types::{SCHEDULE_SOURCE, Source};
use tracing::warn;

use crate::context::Ctx;

/// Maximum duration of an abandoned firing that was delivered, from now. Not read from its job,
/// since reading the job may be what makes replicas die.
const MAX_RUN_DURATION: Duration = Duration::from_secs(7_200);

#[derive(Debug)]
pub struct AbandonedFirings {
    pub ctx: Ctx,
}

impl AbandonedFirings {
    /// Marks these firings as delivered if their messages are in their inboxes, or else as refused.
    /// Returns the number of refused ones.
    pub async fn settle_abandoned(&self, firings: &[Firing]) -> Result<u64, Error> {
        let source = Source::Internal(SCHEDULE_SOURCE.to_owned());
        let (mut delivered, mut refused) = (Vec::new(), Vec::new());
        for firing in firings {
            let (id, tenant) = (firing.id, firing.id.tenant);
            match self.ctx.sessions.views().find_accepted(tenant, &source, &id.idem_key()).await {
                Ok(Some(accepted)) => delivered.push(DeliveryReport {
                    firing: id,
                    run: None,
                    lease: MAX_RUN_DURATION,
                    message: Some((accepted.session, accepted.seq)),
                    arrives: firing.kind == JobKind::Reminder,
                }),
                Ok(None) => {
                    warn!(tenant.id = %tenant, job.id = %id.job, "nobody survived to deliver a firing");
                    let (outcome, class) = (Outcome::Error, CLASS_ABANDONED.to_owned());
                    refused.push(Refused { firing: *firing, outcome, class });
                }
                // The firing stays as it is; the next sweep finds it again.
                Err(error) => warn!(
                    error = &error as &dyn std::error::Error,
                    "an inbox cannot be asked for an abandoned firing"
                ),
            }
        }
        self.ctx.jobs.mark_delivered(&delivered).await?;
        self.ctx.jobs.refuse(&refused).await
    }
}
