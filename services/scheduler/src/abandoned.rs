//! Abandoned firings: those whose delivery was attempted too often by replicas that then died.
//!
//! The last replica may have written the message to the inbox and died before it recorded that.
//! Such a firing counts as delivered. If it ended as an error instead, a job with a single slot
//! would be retried under another key, and its message would be delivered twice.

use std::time::Duration;

use holdfast_jobs::{ABANDONED, Delivered, Error, Firing, JobKind, Outcome, Refused};
use holdfast_types::Source;
use tracing::warn;

use crate::{deliver::SOURCE, fire::Ctx};

/// Maximum duration of an abandoned firing that was delivered, from now. Not read from its job,
/// since reading the job may be what makes replicas die.
const PATIENCE: Duration = Duration::from_secs(7_200);

#[derive(Debug)]
pub struct Abandoned {
    pub ctx: Ctx,
}

impl Abandoned {
    /// Marks these firings as delivered if their messages are in their inboxes, or else as refused.
    /// Returns the number of refused ones.
    pub async fn part(&self, firings: &[Firing]) -> Result<u64, Error> {
        let source = Source::Internal(SOURCE.to_owned());
        let (mut delivered, mut refused) = (Vec::new(), Vec::new());
        for firing in firings {
            let (id, tenant) = (firing.id, firing.id.tenant);
            match self.ctx.sessions.accepted(tenant, &source, &id.idem_key()).await {
                Ok(Some(accepted)) => delivered.push(Delivered {
                    firing: id,
                    run: None,
                    lease: PATIENCE,
                    message: Some((accepted.session, accepted.seq)),
                    arrives: firing.kind == JobKind::Reminder,
                }),
                Ok(None) => {
                    warn!(tenant.id = %tenant, job.id = %id.job, "nobody survived to deliver a firing");
                    let (outcome, class) = (Outcome::Error, ABANDONED.to_owned());
                    refused.push(Refused { firing: *firing, outcome, class });
                }
                // The firing stays as it is; the next sweep finds it again.
                Err(error) => warn!(%error, "an inbox cannot be asked for an abandoned firing"),
            }
        }
        self.ctx.jobs.delivered(&delivered).await?;
        self.ctx.jobs.refused(&refused).await
    }
}
