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
use holdfast_jobs::{
    Delivered, Ended, Error as JobsError, Firing, Job, Outcome, Postponed, Refused,
};
use holdfast_kit::{Backoff, trace};
use holdfast_session::{Accepted, Error as SessionError, NewMessage, Opening};
use holdfast_types::{Fault as _, JobId, QueueMode, Source, TenantId};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info_span, warn};

use crate::{
    backlog::Backlog,
    clock::Handed,
    fire::{self, Ctx, Ends, Errand, Fate},
    meter,
    queue::{Part, Queue},
    settle::GRACE,
};

/// Source name of these messages in the inbox.
pub const SOURCE: &str = "schedule";

/// Number of firings above which recorded outcomes are not batched further.
const MOST: usize = 4_000;

/// Maximum number of a tenant's firings that are prepared concurrently.
const AT_ONCE: usize = 8;

/// Delay before a firing is handed out again after a transient failure.
const AGAIN: Duration = Duration::from_secs(1);

/// Delays between attempts to record outcomes. After the last attempt the firings are handed out
/// again.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
const TRIES: u32 = 5;

/// Maximum number of wake-ups sent at once. Each woken runner claims as many sessions as it has
/// capacity for.
const MOST_WAKES: usize = 16;

#[derive(Debug, Clone)]
pub struct Deliver {
    pub ctx: Ctx,
    pub slots: usize,
    /// Period in which claimed firings belong to this replica.
    pub handover: Duration,
    pub backlog: Backlog,
}

/// Outcomes of firings, to be recorded together.
#[derive(Debug, Default)]
struct Said {
    delivered: Vec<Delivered>,
    ended: Vec<Ended>,
    refused: Vec<Refused>,
    postponed: Vec<Postponed>,
    /// Number of wake-ups to send to runners.
    wakes: usize,
}

impl Deliver {
    /// Delivers firings until the sender is dropped. When `stop` is cancelled, gives back the
    /// firings whose delivery has not begun.
    pub async fn run(self, mut handed: UnboundedReceiver<Handed>, stop: CancellationToken) {
        let (ends, ended) = unbounded_channel();
        // Outcomes are recorded while other batches are delivered.
        let saying = tokio::spawn(self.clone().say_all(ended));
        let mut queue = Queue::default();
        let mut parts = FuturesUnordered::new();
        let mut is_open = true;
        loop {
            if stop.is_cancelled() {
                let firings = queue.drain();
                let said = Said { postponed: later(&firings, Duration::ZERO), ..Said::default() };
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
    async fn say_all(self, mut ended: UnboundedReceiver<(Said, Vec<Firing>)>) {
        while let Some((mut said, mut firings)) = ended.recv().await {
            while firings.len() < MOST
                && let Ok((more, others)) = ended.try_recv()
            {
                said.add(more);
                firings.extend(others);
            }
            self.say(said).await;
            self.backlog.done(&firings);
        }
    }

    async fn deliver(&self, part: Part) -> (Said, Part) {
        let count = part.firings.len();
        let span = info_span!("fire", tenant.id = %part.tenant, count);
        let said = async {
            match self.begin(&part).await {
                Ok(ours) => self.deliver_to(part.tenant, &ours).await,
                Err(error) => {
                    warn!(%error, count, "firings cannot be taken up; trying again");
                    Said { postponed: later(&part.firings, AGAIN), ..Said::default() }
                }
            }
        };
        let said = said.instrument(span).await;
        meter::delivered(part.age());
        (said, part)
    }

    /// Returns the firings of a part that still belong to this replica. Firings that were claimed a
    /// moment ago for the first time need no check.
    async fn begin(&self, part: &Part) -> Result<Vec<Firing>, JobsError> {
        if !part.is_again && part.age() < self.handover / 2 {
            return Ok(part.firings.clone());
        }
        self.ctx.jobs.begun(&part.firings).await
    }

    async fn deliver_to(&self, tenant: TenantId, firings: &[Firing]) -> Said {
        let mut ids: Vec<JobId> = firings.iter().map(|firing| firing.id.job).collect();
        ids.sort_unstable();
        ids.dedup();
        let jobs: HashMap<JobId, Job> = match self.ctx.jobs.load(tenant, &ids).await {
            Ok(jobs) => jobs.into_iter().map(|job| (job.id, job)).collect(),
            Err(error) => {
                warn!(%error, count = firings.len(), "jobs cannot be read; trying again");
                return Said { postponed: later(firings, AGAIN), ..Said::default() };
            }
        };
        let mut said = Said::default();
        let (mut errands, mut openings) = (Vec::new(), Vec::new());
        let ctx = &self.ctx;
        let fates: Vec<_> = firings
            .iter()
            // A deleted job's firings are deleted with it.
            .filter_map(|firing| Some((firing, jobs.get(&firing.id.job)?)))
            .map(|(firing, job)| async move { (firing, fire::fate(ctx, firing, job).await) })
            .collect();
        let mut fates = stream::iter(fates).buffered(AT_ONCE);
        while let Some((firing, fate)) = fates.next().await {
            match fate {
                Fate::Message(errand) => {
                    let (opening, ends, mode) = opening(firing, *errand);
                    openings.push(opening);
                    errands.push((firing, ends, mode));
                }
                Fate::Done { outcome, class } => said.end(firing, outcome, class),
                Fate::Refused(class) => said.refuse(firing, class),
                Fate::Later(after) => said.postpone(firing, after),
            }
        }
        if openings.is_empty() {
            return said;
        }
        let answers = match ctx.sessions.ingest_many(tenant, &openings).await {
            Ok(answers) => answers,
            Err(error) => {
                warn!(%error, count = openings.len(), "inboxes cannot be written; trying again");
                for (firing, _, _) in errands {
                    said.postpone(firing, AGAIN);
                }
                return said;
            }
        };
        for (((firing, ends, mode), answer), opening) in
            errands.into_iter().zip(answers).zip(&openings)
        {
            self.hear(tenant, firing, (ends, mode), answer, opening, &mut said).await;
        }
        said
    }

    /// Records the inbox's answer to a message.
    async fn hear(
        &self,
        tenant: TenantId,
        firing: &Firing,
        (ends, mode): (Ends, QueueMode),
        answer: Result<Accepted, SessionError>,
        opening: &Opening,
        said: &mut Said,
    ) {
        let message = &opening.message;
        let answer = match answer {
            // The message was delivered before, when the job had another text. That one counts.
            Err(SessionError::RequestReused(_)) => {
                match self.ctx.sessions.accepted(tenant, &message.source, &message.idem_key).await {
                    Ok(Some(accepted)) => Ok(accepted),
                    Ok(None) => return said.postpone(firing, AGAIN),
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
                        QueueMode::Steer | QueueMode::Followup | QueueMode::Collect => {
                            ControlKind::Input
                        }
                    };
                    let control = Control { session: accepted.session, kind, epoch: running.epoch };
                    self.ctx.bus.control(running.owner, &control);
                }
                said.deliver(firing, ends, &accepted);
            }
            Err(SessionError::SessionFull { retry_after, .. }) => {
                said.postpone(firing, retry_after)
            }
            Err(error) if error.kind().is_transient() => said.postpone(firing, AGAIN),
            Err(error) => {
                warn!(%error, job.id = %firing.id.job, "a firing was refused by its session");
                said.refuse(firing, "refused");
            }
        }
    }

    /// Wakes runners and records outcomes. If recording fails, the firings are handed out again,
    /// under the same keys.
    async fn say(&self, said: Said) {
        let bus = &self.ctx.bus;
        for _ in 0..said.wakes.min(MOST_WAKES) {
            bus.wake_run(0);
        }
        for tries in 0..TRIES {
            match self.try_say(&said).await {
                Ok(()) => return,
                Err(error) if tries + 1 == TRIES => {
                    warn!(%error, "what became of firings is not recorded: they are handed out again");
                }
                Err(error) => {
                    debug!(%error, "what became of firings is not recorded yet");
                    sleep(BACKOFF.delay(tries)).await;
                }
            }
        }
    }

    /// Idempotent: outcomes that are already recorded change nothing.
    async fn try_say(&self, said: &Said) -> Result<(), JobsError> {
        let jobs = &self.ctx.jobs;
        // Ended firings first, since the next one of their job may wait for them.
        jobs.finished(&said.ended).await?;
        jobs.delivered(&said.delivered).await?;
        jobs.refused(&said.refused).await?;
        jobs.postponed(&said.postponed).await?;
        Ok(())
    }
}

fn later(firings: &[Firing], after: Duration) -> Vec<Postponed> {
    firings.iter().map(|firing| Postponed { firing: *firing, after }).collect()
}

/// Converts a firing's message to the inbox's form.
fn opening(firing: &Firing, errand: Errand) -> (Opening, Ends, QueueMode) {
    let message = NewMessage {
        key: errand.key,
        agent: errand.agent,
        label: None,
        source: Source::Internal(SOURCE.to_owned()),
        idem_key: firing.id.idem_key(),
        body: errand.body,
        target: errand.target,
        mode: errand.mode,
        debounce: Duration::ZERO,
        trace: trace::current(),
    };
    (Opening { message, settings: errand.settings }, errand.ends, errand.mode)
}

impl Said {
    fn add(&mut self, other: Self) {
        self.delivered.extend(other.delivered);
        self.ended.extend(other.ended);
        self.refused.extend(other.refused);
        self.postponed.extend(other.postponed);
        self.wakes += other.wakes;
    }

    fn deliver(&mut self, firing: &Firing, ends: Ends, accepted: &Accepted) {
        match ends {
            Ends::Accepted => self.end(firing, Outcome::Ok, None),
            Ends::Told(within) => {
                meter::fired(firing.kind, "delivered");
                let (firing, run, lease) = (firing.id, None, within);
                self.delivered.push(Delivered {
                    firing,
                    run,
                    lease,
                    message: None,
                    arrives: false,
                });
            }
            Ends::Answered(within) | Ends::Arrived(within) => {
                meter::fired(firing.kind, "delivered");
                self.delivered.push(Delivered {
                    firing: firing.id,
                    run: None,
                    lease: within + GRACE,
                    message: Some((accepted.session, accepted.seq)),
                    arrives: matches!(ends, Ends::Arrived(_)),
                });
            }
        }
    }

    fn end(&mut self, firing: &Firing, outcome: Outcome, class: Option<&'static str>) {
        meter::fired(firing.kind, "done");
        let class = class.map(str::to_owned);
        self.ended.push(Ended { firing: firing.id, outcome, class, took: None });
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
        self.postponed.push(Postponed { firing: *firing, after });
    }
}
