//! Firings that nobody who delivered them survived: are they in their inboxes?
//!
//! Whoever died may have written the message, and not lived to say so. Such a firing has come: given
//! up as an error, what has only one slot were tried again under another key, and came twice.

use std::time::Duration;

use holdfast_jobs::{ABANDONED, Delivered, Error, Firing, JobKind, Outcome, Refused};
use holdfast_types::Source;
use tracing::warn;

use crate::{deliver::SOURCE, fire::Ctx};

/// How long one that has come may take from now. What its job says of that is not asked: whatever is
/// read of it may be what nobody survives.
const PATIENCE: Duration = Duration::from_secs(7_200);

/// Parts with what is delivered no more.
#[derive(Debug)]
pub struct Abandoned {
    pub ctx: Ctx,
}

impl Abandoned {
    /// Says of these firings that they have come, or gives them up, and says how many the latter are.
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
                // It stays as it is, and is asked for again.
                Err(error) => warn!(%error, "an inbox cannot be asked for an abandoned firing"),
            }
        }
        self.ctx.jobs.delivered(&delivered).await?;
        self.ctx.jobs.refused(&refused).await
    }
}
