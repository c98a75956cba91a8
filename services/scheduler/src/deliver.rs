//! Delivers firings as messages to inboxes, and records the outcomes. Tenants take turns.
//!
//! The message is written before the firing is recorded as delivered. If the replica crashes in
//! between, another one delivers the firing again under the same idempotency key, which stores
//! nothing new.

use std::{collections::HashMap, time::Duration};

use futures::{
    StreamExt as _,
    stream::{self, FuturesUnordered},
};
use holdfast_bus::{Control, ControlKind};
use holdfast_kit::{Backoff, trace};
use holdfast_schedule::store::{
    DeliveryReport, Error as JobsError, FinishedFiring, Firing, Job, Outcome, PostponedFiring,
    Refused,
};
use holdfast_session::{Acceptance, Error as SessionError, MessageWithSettings, NewMessage};
use holdfast_types::{Fault as _, JobId, QueueMode, SCHEDULE_SOURCE, Source, TenantId};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, error, info_span, warn};

use crate::{
    backlog::Backlog,
    clock::ClaimedBatch,
    context::Ctx,
    failure::{FailureKind, retry_delay},
    fire::{self, EndCondition, FiringMessage, FiringOutcome},
    meter,
    queue::{Part, Queue},
    settle::CANCEL_GRACE,
};

/// Number of firings above which recorded outcomes are not batched further.
const MAX_RECORDED_TOGETHER: usize = 4_000;

/// Maximum number of a tenant's firings that are prepared concurrently.
const MAX_CONCURRENT_PREPARATIONS: usize = 8;

/// Delays between attempts to record outcomes. After the last attempt the firings are handed out
/// again.
const RECORD_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
const MAX_RECORD_ATTEMPTS: u32 = 5;

/// Maximum number of wake-ups sent at once. Each woken runner claims as many sessions as it has
/// capacity for.
const MAX_WAKE_UPS: usize = 16;

#[derive(Debug, Clone)]
pub struct Deliver {
    pub ctx: Ctx,
    pub slots: usize,
    /// Period in which claimed firings belong to this replica.
    pub handover: Duration,
    pub backlog: Backlog,
}

/// Failure of a delivery of several firings.
#[derive(Debug, thiserror::Error)]
enum DeliveryError {
    #[error("jobs cannot be read")]
    Jobs(#[from] JobsError),
    #[error("inboxes cannot be written")]
    Sessions(#[from] SessionError),
}

/// Outcomes of firings, to be recorded together.
#[derive(Debug, Default)]
struct FiringResults {
    delivered: Vec<DeliveryReport>,
    ended: Vec<FinishedFiring>,
    refused: Vec<Refused>,
    postponed: Vec<PostponedFiring>,
    /// Number of wake-ups to send to runners.
    wakes: usize,
}

impl Deliver {
    /// Delivers firings until the sender is dropped. When `stop` is cancelled, gives back the
    /// firings whose delivery has not begun.
    pub async fn run(self, mut handed: UnboundedReceiver<ClaimedBatch>, stop: CancellationToken) {
        let (ends, ended) = unbounded_channel();
        // Outcomes are recorded while other batches are delivered.
        let saying = tokio::spawn(self.clone().record_all(ended));
        let mut queue = Queue::default();
        let mut parts = FuturesUnordered::new();
        let mut is_open = true;
        loop {
            if stop.is_cancelled() {
                let firings = queue.drain();
                let said = FiringResults {
                    postponed: postpone_all(&firings, Duration::ZERO),
                    ..FiringResults::default()
                };
                let _ = ends.send((said, firings));
            }
            while parts.len() < self.slots
                && let Some(part) = queue.take()
            {
                parts.push(self.deliver(part));
            }
            tokio::select! {
                more = handed.recv(), if is_open => match more {
                    Some(more) => queue.add(more),
                    None => is_open = false,
                },
                Some((said, part)) = parts.next() => {
                    queue.done(part.tenant);
                    // The receiver ends only after this sender is dropped.
                    let _ = ends.send((said, part.firings));
                }
                else => break,
            }
        }
        drop(parts);
        drop(ends);
        if let Err(error) = saying.await {
            warn!(%error, "saying what became of firings failed: they are handed out again");
        }
    }

    /// Records outcomes, as many together as are available.
    async fn record_all(self, mut ended: UnboundedReceiver<(FiringResults, Vec<Firing>)>) {
        while let Some((mut said, mut firings)) = ended.recv().await {
            while firings.len() < MAX_RECORDED_TOGETHER
                && let Ok((more, others)) = ended.try_recv()
            {
                said.add(more);
                firings.extend(others);
            }
            self.record(said).await;
            self.backlog.done(&firings);
        }
    }

    async fn deliver(&self, part: Part) -> (FiringResults, Part) {
        let count = part.firings.len();
        let span = info_span!("fire", tenant.id = %part.tenant, count);
        let said = async {
            match self.still_owned(&part).await {
                Ok(ours) => self.deliver_to(part.tenant, &ours).await,
                Err(error) => FiringResults::of_failure(&part.firings, &error),
            }
        };
        let said = said.instrument(span).await;
        meter::delivered(part.age());
        (said, part)
    }

    /// Returns the firings of a part that still belong to this replica. Firings that were claimed a
    /// moment ago for the first time need no check.
    async fn still_owned(&self, part: &Part) -> Result<Vec<Firing>, JobsError> {
        if !part.is_again && part.age() < self.handover / 2 {
            return Ok(part.firings.clone());
        }
        self.ctx.jobs.begin_delivery(&part.firings).await
    }

    /// Delivers a tenant's firings together, and one by one if together they fail for good: one of
    /// them may be the cause.
    async fn deliver_to(&self, tenant: TenantId, firings: &[Firing]) -> FiringResults {
        let error = match self.try_deliver_to(tenant, firings).await {
            Ok(results) => return results,
            Err(error) => error,
        };
        if firings.len() == 1 || FailureKind::of(&error) == FailureKind::Transient {
            return FiringResults::of_failure(firings, &error);
        }
        let mut results = FiringResults::default();
        for firing in firings.chunks(1) {
            results.add(match self.try_deliver_to(tenant, firing).await {
                Ok(result) => result,
                Err(error) => FiringResults::of_failure(firing, &error),
            });
        }
        results
    }

    /// Idempotent: each message is stored once for its firing.
    async fn try_deliver_to(
        &self,
        tenant: TenantId,
        firings: &[Firing],
    ) -> Result<FiringResults, DeliveryError> {
        let mut ids: Vec<JobId> = firings.iter().map(|firing| firing.id.job).collect();
        ids.sort_unstable();
        ids.dedup();
        let jobs = self.ctx.jobs.load(tenant, &ids).await?;
        let jobs: HashMap<JobId, Job> = jobs.into_iter().map(|job| (job.id, job)).collect();
        let mut said = FiringResults::default();
        let (mut errands, mut openings) = (Vec::new(), Vec::new());
        let ctx = &self.ctx;
        let fates: Vec<_> = firings
            .iter()
            // A deleted job's firings are deleted with it.
            .filter_map(|firing| Some((firing, jobs.get(&firing.id.job)?)))
            .map(
                |(firing, job)| async move { (firing, job, fire::prepare(ctx, firing, job).await) },
            )
            .collect();
        let mut fates = stream::iter(fates).buffered(MAX_CONCURRENT_PREPARATIONS);
        while let Some((firing, job, fate)) = fates.next().await {
            match fate {
                FiringOutcome::Message(errand) => {
                    let (opening, ends, mode) = opening(firing, job, *errand);
                    openings.push(opening);
                    errands.push((firing, ends, mode));
                }
                FiringOutcome::Done { outcome, class } => said.end(firing, outcome, class),
                FiringOutcome::Refused(class) => said.refuse(firing, class),
                FiringOutcome::RetryAfter(after) => said.postpone(firing, after),
            }
        }
        if openings.is_empty() {
            return Ok(said);
        }
        let answers = ctx.sessions.ingest_many(tenant, &openings).await?;
        for (((firing, ends, mode), answer), opening) in
            errands.into_iter().zip(answers).zip(&openings)
        {
            self.record_inbox_answer(tenant, firing, (ends, mode), answer, opening, &mut said)
                .await;
        }
        Ok(said)
    }

    /// Records the inbox's answer to a message.
    async fn record_inbox_answer(
        &self,
        tenant: TenantId,
        firing: &Firing,
        (ends, mode): (EndCondition, QueueMode),
        answer: Result<Acceptance, SessionError>,
        opening: &MessageWithSettings,
        said: &mut FiringResults,
    ) {
        let message = &opening.message;
        let answer = match answer {
            // The message was delivered before, when the job had another text. That one counts.
            Err(SessionError::RequestReused(_)) => {
                match self
                    .ctx
                    .sessions
                    .views()
                    .find_accepted(tenant, &message.source, &message.idem_key)
                    .await
                {
                    Ok(Some(accepted)) => Ok(accepted),
                    Ok(None) => return said.postpone(firing, retry_delay(firing)),
                    Err(error) => Err(error),
                }
            }
            answer => answer,
        };
        match answer {
            Ok(accepted) => {
                said.wakes += usize::from(accepted.wake.is_some());
                if let Some(running) = accepted.running {
                    let kind = match mode {
                        QueueMode::Interrupt => ControlKind::Interrupt,
                        QueueMode::Steer
                        | QueueMode::Followup
                        | QueueMode::Collect
                        | QueueMode::SteerBacklog => ControlKind::Input,
                    };
                    let control = Control { session: accepted.session, kind, epoch: running.epoch };
                    self.ctx.bus.control(running.owner, &control);
                }
                said.deliver(firing, ends, &accepted);
            }
            Err(SessionError::SessionFull { retry_after, .. }) => {
                said.postpone(firing, retry_after)
            }
            Err(error) if error.kind().is_transient() => said.postpone(firing, retry_delay(firing)),
            Err(error) => {
                let class = match FailureKind::of(&error) {
                    FailureKind::Permanent(class) => class,
                    FailureKind::Transient => "refused",
                };
                let error = &error as &dyn std::error::Error;
                warn!(error, job.id = %firing.id.job, "a firing was refused by its session");
                said.refuse(firing, class);
            }
        }
    }

    /// Wakes runners and records outcomes. If recording fails, the firings are handed out again,
    /// under the same keys.
    async fn record(&self, said: FiringResults) {
        let bus = &self.ctx.bus;
        for _ in 0..said.wakes.min(MAX_WAKE_UPS) {
            bus.wake_run(0);
        }
        for tries in 0..MAX_RECORD_ATTEMPTS {
            match self.try_record(&said).await {
                Ok(()) => return,
                Err(error) if tries + 1 == MAX_RECORD_ATTEMPTS => {
                    let error = &error as &dyn std::error::Error;
                    warn!(
                        error,
                        "what became of firings is not recorded: they are handed out again"
                    );
                }
                Err(error) => {
                    debug!(%error, "what became of firings is not recorded yet");
                    sleep(RECORD_BACKOFF.delay(tries)).await;
                }
            }
        }
    }

    /// Idempotent: outcomes that are already recorded change nothing.
    async fn try_record(&self, said: &FiringResults) -> Result<(), JobsError> {
        let jobs = &self.ctx.jobs;
        // Ended firings first, since the next one of their job may wait for them.
        jobs.finish(&said.ended).await?;
        jobs.mark_delivered(&said.delivered).await?;
        jobs.refuse(&said.refused).await?;
        jobs.postpone(&said.postponed).await?;
        Ok(())
    }
}

fn postpone_all(firings: &[Firing], after: Duration) -> Vec<PostponedFiring> {
    firings.iter().map(|firing| PostponedFiring { firing: *firing, after }).collect()
}

/// Converts a firing's message to the inbox's form. It continues the trace in which its job was made
/// if the job has no further slot; recurring jobs would make traces without an end.
fn opening(
    firing: &Firing,
    job: &Job,
    errand: FiringMessage,
) -> (MessageWithSettings, EndCondition, QueueMode) {
    let span = info_span!("firing", job.id = %job.id);
    if let (None, Some(parent)) = (job.next_slot, &job.trace) {
        trace::continue_from(&span, parent);
    }
    let message = NewMessage {
        key: errand.key,
        agent: errand.agent,
        label: None,
        source: Source::Internal(SCHEDULE_SOURCE.to_owned()),
        idem_key: firing.id.idem_key(),
        body: errand.body,
        target: errand.target,
        mode: errand.mode,
        debounce: Duration::ZERO,
        trace: span.in_scope(trace::current),
    };
    (MessageWithSettings { message, settings: errand.settings }, errand.end_condition, errand.mode)
}

impl FiringResults {
    /// Returns the results of firings that failed together: refused for good, or postponed.
    fn of_failure(firings: &[Firing], error: &(dyn std::error::Error + 'static)) -> Self {
        let (mut results, count) = (Self::default(), firings.len());
        match FailureKind::of(error) {
            FailureKind::Permanent(class) => {
                error!(error, count, class, "firings cannot be delivered");
                firings.iter().for_each(|firing| results.refuse(firing, class));
            }
            FailureKind::Transient => {
                warn!(error, count, "firings cannot be delivered yet; trying again");
                firings.iter().for_each(|firing| results.postpone(firing, retry_delay(firing)));
            }
        }
        results
    }

    fn add(&mut self, other: Self) {
        self.delivered.extend(other.delivered);
        self.ended.extend(other.ended);
        self.refused.extend(other.refused);
        self.postponed.extend(other.postponed);
        self.wakes += other.wakes;
    }

    fn deliver(&mut self, firing: &Firing, ends: EndCondition, accepted: &Acceptance) {
        match ends {
            EndCondition::Accepted => self.end(firing, Outcome::Ok, None),
            EndCondition::Recorded(within) => {
                meter::fired(firing.kind, "delivered");
                let (firing, run, lease) = (firing.id, None, within);
                self.delivered.push(DeliveryReport {
                    firing,
                    run,
                    lease,
                    message: None,
                    arrives: false,
                });
            }
            EndCondition::Answered(within) | EndCondition::Arrived(within) => {
                meter::fired(firing.kind, "delivered");
                self.delivered.push(DeliveryReport {
                    firing: firing.id,
                    run: None,
                    lease: within + CANCEL_GRACE,
                    message: Some((accepted.session, accepted.seq)),
                    arrives: matches!(ends, EndCondition::Arrived(_)),
                });
            }
        }
    }

    fn end(&mut self, firing: &Firing, outcome: Outcome, class: Option<&'static str>) {
        meter::fired(firing.kind, "done");
        let class = class.map(str::to_owned);
        self.ended.push(FinishedFiring { firing: firing.id, outcome, class, took: None });
    }

    fn refuse(&mut self, firing: &Firing, class: &str) {
        meter::fired(firing.kind, "refused");
        self.refused.push(Refused {
            firing: *firing,
            outcome: Outcome::Error,
            class: class.to_owned(),
        });
    }

    fn postpone(&mut self, firing: &Firing, after: Duration) {
        meter::fired(firing.kind, "postponed");
        self.postponed.push(PostponedFiring { firing: *firing, after });
    }
}
