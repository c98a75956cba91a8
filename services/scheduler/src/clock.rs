//! Claims due firings, and sleeps until the next one is due.
//!
//! All replicas do the same and do not know each other: rows that another replica is deciding are
//! skipped. A claim that comes too early or is unnecessary finds nothing and writes nothing.
//!
//! Due jobs are claimed in order of time. While more are due than one claim takes, some claims go
//! round-robin instead: one job of each tenant, then the next of each.

use std::{future::pending, time::Duration};

use holdfast_bus::{Bus, Subscription};
use holdfast_kit::Backoff;
use holdfast_pg::FailureLog;
use holdfast_schedule::store::{ClaimResult, Error, Firing, Jobs};
use jiff::Timestamp;
use tokio::{
    sync::mpsc::UnboundedSender,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{abandoned_firings::AbandonedFirings, backlog::Backlog, meter};

/// Maximum sleep. A job that is due earlier than expected, and whose wake-up was lost, is late by
/// at most this.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Period in which consecutive claims are collected before delivery. The slots of one instant are
/// then recorded first, and delivered in larger batches.
const GATHER_PERIOD: Duration = Duration::from_millis(800);

/// Minimum interval between round-robin claims, since they rank everything that is due.
const ROUND_ROBIN_INTERVAL: Duration = Duration::from_millis(100);

/// Interval between sweeps for firings without an owner and for runs that take too long.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Size of the backlog, in batches, above which sweeps take nothing for crowded tenants.
const MAX_BACKLOG_BATCHES: usize = 4;

/// Interval between deletions of jobs that ended long ago.
const FORGET_INTERVAL: Duration = Duration::from_secs(3600);

/// Delays while another replica decides what is due, or only a later version can.
const CONTENTION_BACKOFF: Backoff = Backoff::new(Duration::from_millis(2), MAX_SLEEP);

/// Delays while the database does not answer.
const DATABASE_BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Firings that were claimed together, and the time of the claim.
#[derive(Debug)]
pub struct ClaimedBatch {
    pub firings: Vec<Firing>,
    pub at: Instant,
}

#[derive(Debug)]
pub struct Clock {
    pub jobs: Jobs,
    pub abandoned: AbandonedFirings,
    pub bus: Bus,
    pub batch: u32,
    /// Period in which claimed firings belong to this replica.
    pub handover: Duration,
    pub keep_done: Duration,
    pub backlog: Backlog,
    pub firings: UnboundedSender<ClaimedBatch>,
}

impl Clock {
    /// Claims until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let mut wakes = None;
        let (mut failures, mut held) = (0, 0);
        let trouble = FailureLog::new("jobs are not claimed");
        let mut last = LoopState::default();
        while !stop.is_cancelled() {
            if wakes.is_none() {
                wakes = self.bus.schedule_wakes().await.ok();
            }
            let pause = match self.run_pass(&mut last).await {
                Ok(Some(PassOutcome { found, due })) => {
                    trouble.on_success();
                    failures = 0;
                    held = if found || !due.is_zero() { 0 } else { held + 1 };
                    // Something is due and nothing was found: another replica has it.
                    if held > 0 { CONTENTION_BACKOFF.delay(held) } else { due }
                }
                // The backlog is full until some firings are delivered.
                Ok(None) => Duration::from_millis(5),
                Err(error) => {
                    trouble.on_failure(&error);
                    failures += 1;
                    DATABASE_BACKOFF.delay(failures - 1)
                }
            };
            if pause.is_zero() {
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep(pause) => {}
                // Somebody requested a run by hand. The sweep hands it out.
                () = wait_for_wake_up(&mut wakes) => last.swept = None,
            }
        }
    }

    /// Claims everything that is due; returns `None` if the backlog is full.
    async fn run_pass(&self, last: &mut LoopState) -> Result<Option<PassOutcome>, Error> {
        let Some(claimed) = self.claim(last).await? else {
            self.claim_for_small_tenants(last).await?;
            return Ok(None);
        };
        last.was_more = claimed.more;
        if claimed.more {
            // Claims may go on for long, so firings that were requested by hand or given back need
            // a sweep in between.
            if is_past(last.swept, SWEEP_INTERVAL) {
                self.sweep(last).await?;
            }
            return Ok(Some(PassOutcome { found: true, due: Duration::ZERO }));
        }
        let mut found = claimed.found;
        let mut due = self.jobs.next_due().await?.map_or(MAX_SLEEP, |due| due.min(MAX_SLEEP));
        let is_time = is_past(last.swept, SWEEP_INTERVAL) || (due.is_zero() && !found);
        if is_time && self.sweep(last).await? {
            found = true;
            due = Duration::ZERO;
        }
        if is_past(last.forgot, FORGET_INTERVAL) {
            last.forgot = Some(Instant::now());
            let count = self.jobs.delete_done(self.keep_done).await?;
            if count > 0 {
                info!(count, "jobs that were done were forgotten");
            }
        }
        Ok(Some(PassOutcome { found, due }))
    }

    /// Claims for tenants with few firings in the full backlog, and nothing for the crowded
    /// tenants.
    async fn claim_for_small_tenants(&self, last: &mut LoopState) -> Result<(), Error> {
        if is_past(last.claimed_round_robin, ROUND_ROBIN_INTERVAL) {
            last.claimed_round_robin = Some(Instant::now());
            let crowd = self.backlog.crowded_tenants();
            let asked = Instant::now();
            let claimed = self.jobs.claim_in_turn(self.batch, &crowd).await?;
            if let Some(now) = claimed.at {
                measure(&claimed.firings, now, asked.elapsed());
            }
            self.enqueue(claimed.firings, asked);
            if is_past(last.swept, SWEEP_INTERVAL) {
                self.sweep(last).await?;
            }
        }
        Ok(())
    }

    /// Claims for a while, and queues the firings; returns `None` if the backlog is full.
    async fn claim(&self, last: &mut LoopState) -> Result<Option<ClaimSummary>, Error> {
        let begun = Instant::now();
        let mut gathered = Vec::new();
        let mut claims = None::<ClaimSummary>;
        let ended = loop {
            let limit = self.batch.min(self.backlog.room(gathered.len()));
            if limit == 0 {
                break Ok(());
            }
            // While much is due, two claims run side by side, so that this process plans the
            // firings of one while the database decides the other. Now and then one of them goes
            // round-robin. Each skips the rows of the other.
            let is_much = last.was_more || claims.is_some();
            let in_turn = is_much && is_past(last.claimed_round_robin, ROUND_ROBIN_INTERVAL);
            let second = async {
                match (is_much, in_turn) {
                    (true, true) => self.jobs.claim_in_turn(limit, &[]).await,
                    (true, false) => self.jobs.claim_due(limit).await,
                    (false, _) => Ok(ClaimResult::default()),
                }
            };
            if in_turn {
                last.claimed_round_robin = Some(Instant::now());
            }
            let asked = Instant::now();
            let (first, second) = tokio::join!(self.jobs.claim_due(limit), second);
            let (mut more, mut found) = (false, claims.is_some());
            let mut failed = None;
            for claimed in [first, second] {
                match claimed {
                    Ok(claimed) => {
                        if let Some(now) = claimed.at {
                            measure(&claimed.firings, now, asked.elapsed());
                        }
                        gathered.extend(claimed.firings);
                        more |= claimed.jobs == limit as usize;
                        found |= claimed.jobs > 0;
                    }
                    Err(error) => failed = Some(error),
                }
            }
            if let Some(error) = failed {
                break Err(error);
            }
            claims = Some(ClaimSummary { found, more });
            if !more || begun.elapsed() > GATHER_PERIOD {
                break Ok(());
            }
        };
        // Firings claimed before an error belong to this replica nevertheless.
        self.enqueue(gathered, begun);
        ended.map(|()| claims)
    }

    /// Hands out firings without an owner; returns whether there were any. Sweeps alternate between
    /// order of time and round-robin while there is more than one sweep takes.
    ///
    /// A replica with a large or old backlog takes nothing for its crowded tenants: it would keep
    /// those firings until they are handed out again, and then do nothing else.
    async fn sweep(&self, last: &mut LoopState) -> Result<bool, Error> {
        let begun = Instant::now();
        last.swept = Some(begun);
        let crowd = match self
            .backlog
            .is_behind(MAX_BACKLOG_BATCHES * self.batch as usize, self.handover / 4)
        {
            true => self.backlog.crowded_tenants(),
            false => Vec::new(),
        };
        let room = if crowd.is_empty() { self.backlog.room(0) } else { self.batch };
        let limit = self.batch.min(room);
        if limit == 0 {
            return Ok(false);
        }
        let in_turn = last.was_full || !crowd.is_empty();
        let swept = match in_turn {
            true => self.jobs.sweep_in_turn(limit, &crowd).await?,
            false => self.jobs.sweep(limit).await?,
        };
        last.was_full = !in_turn && swept.firings.len() == limit as usize;
        let found = !swept.firings.is_empty() || !swept.abandoned.is_empty() || swept.ended > 0;
        // First of all: these belong to this replica, whatever happens to the others.
        self.enqueue(swept.firings, begun);
        let ended = swept.ended + self.abandoned.settle_abandoned(&swept.abandoned).await?;
        if ended > 0 {
            info!(count = ended, "firings of which nothing was heard were given up");
        }
        Ok(found)
    }

    fn enqueue(&self, firings: Vec<Firing>, at: Instant) {
        if firings.is_empty() {
            return;
        }
        self.backlog.add(&firings, at);
        // The receiver ends after this loop. If it is gone nevertheless, the firings are handed out
        // again later.
        let _ = self.firings.send(ClaimedBatch { firings, at });
    }
}

/// Times of the loop's last actions, and the size of their results.
#[derive(Debug, Default)]
struct LoopState {
    swept: Option<Instant>,
    forgot: Option<Instant>,
    /// Time of the last round-robin claim.
    claimed_round_robin: Option<Instant>,
    /// Whether the last claim was full.
    was_more: bool,
    /// Whether the last sweep was full and in order of time.
    was_full: bool,
}

fn is_past(last: Option<Instant>, pause: Duration) -> bool {
    last.is_none_or(|at| at.elapsed() >= pause)
}

/// Result of several claims.
#[derive(Debug, Clone, Copy)]
struct ClaimSummary {
    found: bool,
    /// Whether more may be due.
    more: bool,
}

/// Result of one pass of the loop.
struct PassOutcome {
    found: bool,
    /// Time until something may be due.
    due: Duration,
}

/// Records how late firings were claimed: by the database's clock up to its `now`, and from there
/// by the local clock, which may be set wrong but runs at the right speed.
fn measure(firings: &[Firing], now: Timestamp, since: Duration) {
    for firing in firings {
        let late = now.duration_since(firing.at);
        let late = Duration::try_from(late).unwrap_or_default() + since;
        meter::recorded(firing.kind, late);
    }
}

/// Waits for a wake-up. Without a subscription it waits forever; the poll ends the sleep.
async fn wait_for_wake_up(wakes: &mut Option<Subscription>) {
    let token = match wakes {
        Some(subscription) => subscription.next().await,
        None => None,
    };
    if token.is_none() {
        *wakes = None;
        pending::<()>().await;
    }
}
