//! Claiming sessions and running them, as many at once as there are slots.
//!
//! Whoever has reason to believe that there is work says so by
//! [`Worker::wake`]: a token on the bus, a turn that ended, a sweep. If nobody
//! does, the poll looks once a second. To look costs one query, and writes
//! nothing if there is nothing.

use std::{collections::HashMap, sync::Arc, time::Duration};

use holdfast_kit::{Check, boot_clock};
use holdfast_lock::{SessionLock, Taken};
use holdfast_session::Claim;
use tokio::{
    task::{Id, JoinError, JoinSet},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    fail,
    held::Hold,
    take::{Ended, take},
    trouble::Trouble,
    worker::Worker,
};

/// How long turns that were told to give up may take to give their sessions back.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// How long not to claim after the database failed.
const REST: Duration = Duration::from_millis(500);

/// The least time between two tokens that are passed on.
const PASSING: Duration = Duration::from_millis(50);

/// Sessions that run here.
#[derive(Debug)]
pub(crate) struct Pool {
    worker: Arc<Worker>,
    database: Check,
    trouble: Trouble,
    running: JoinSet<Ended>,
    holds: HashMap<Id, Arc<Hold>>,
    /// There may be something to claim.
    look: bool,
    /// Somebody said so, rather than the clock.
    hinted: bool,
    /// A session becomes due then.
    due: Option<Instant>,
}

impl Pool {
    /// An empty pool; `database` is told whether claiming works.
    pub(crate) fn new(worker: Arc<Worker>, database: Check) -> Self {
        Self {
            worker,
            database,
            trouble: Trouble::new("sessions cannot be claimed"),
            running: JoinSet::new(),
            holds: HashMap::new(),
            look: true,
            hinted: true,
            due: None,
        }
    }

    /// Claims and runs until `stop`, then lets what runs come to a step's end.
    pub(crate) async fn run(mut self, stop: &CancellationToken) {
        let mut poll = Instant::now() + self.worker.config.poll;
        while !stop.is_cancelled() {
            if self.look && self.free() > 0 {
                self.claim().await;
                poll = Instant::now() + self.worker.config.poll;
            }
            let due = self.due.unwrap_or(poll).min(poll);
            let worker = Arc::clone(&self.worker);
            tokio::select! {
                () = stop.cancelled() => break,
                () = worker.wake.notified() => (self.look, self.hinted) = (true, true),
                () = sleep_until(due) => {
                    self.look = true;
                    self.due = None;
                    poll = Instant::now() + self.worker.config.poll;
                }
                Some(ended) = self.running.join_next_with_id() => self.ended(ended),
            }
        }
        self.drain().await;
    }

    fn free(&self) -> u32 {
        let busy = u32::try_from(self.running.len()).unwrap_or(u32::MAX);
        self.worker.config.slots.saturating_sub(busy)
    }

    async fn claim(&mut self) {
        let free = self.free();
        let asked = boot_clock::now();
        fail::point("runner.before_claim").await;
        let claims = match self.worker.sessions.claim(self.worker.id, free).await {
            Ok(claims) => claims,
            Err(error) => {
                self.database.fail();
                self.trouble.begins(&error);
                self.look = false;
                self.due = Some(Instant::now() + REST);
                return;
            }
        };
        fail::point("runner.after_claim").await;
        self.database.pass();
        self.trouble.ends();
        let taken = u32::try_from(claims.len()).unwrap_or(u32::MAX);
        // A full batch may have left more behind.
        self.look = taken == free;
        if taken == 0 && std::mem::take(&mut self.hinted) {
            self.when_due().await;
        }
        metrics::counter!("holdfast_runner_claims_total").increment(u64::from(taken));
        for claim in claims {
            self.start(claim, asked);
        }
    }

    /// There is nothing yet, and yet somebody said so: a session that gathers input may become due
    /// before the next poll.
    async fn when_due(&mut self) {
        let next = self.worker.sessions.next_ready().await.ok().flatten();
        let soon = next.filter(|wait| *wait < self.worker.config.poll);
        self.due = soon.map(|wait| Instant::now() + wait.max(Duration::from_millis(2)));
    }

    fn start(&mut self, claim: Claim, asked: Duration) {
        let worker = Arc::clone(&self.worker);
        let hold = Arc::new(Hold::new(claim, asked, worker.config.lease));
        worker.held.add(&hold);
        tokio::spawn(lock(Arc::clone(&worker), Arc::clone(&hold)));
        let task = self.running.spawn(take(worker, Arc::clone(&hold)));
        self.holds.insert(task.id(), hold);
    }

    fn ended(&mut self, ended: Result<(Id, Ended), JoinError>) {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        if let Some(hold) = self.holds.remove(&id) {
            self.worker.held.remove(&hold.claim);
            if let Err(error) = &ended
                && error.is_panic()
            {
                // The lease lapses, and the attempt counts. What it said may hold a message.
                metrics::counter!("holdfast_runner_defects_total").increment(1);
                let Claim { tenant, session, epoch, attempts } = &hold.claim;
                error!(tenant.id = %tenant, session.id = %session, epoch, attempts, "a turn panicked");
            }
            tokio::spawn(unlock(Arc::clone(&self.worker), hold));
        }
        if let Ok((_, Ended::Rested { wake: true })) = ended {
            self.look = true;
        }
    }

    async fn drain(mut self) {
        let grace = self.worker.config.shutdown_grace;
        let running = self.running.len();
        info!(running, "claiming no more; turns go on to their next step's end");
        self.worker.draining.cancel();
        if timeout(grace, self.all_ended()).await.is_err() {
            warn!(running = self.running.len(), ?grace, "turns are cut short and given back");
            self.worker.giving_up.cancel();
            if timeout(LAST_WORDS, self.all_ended()).await.is_err() {
                warn!(running = self.running.len(), "sessions are left for their leases to lapse");
                self.running.shutdown().await;
            }
        }
    }

    async fn all_ended(&mut self) {
        while let Some(ended) = self.running.join_next_with_id().await {
            self.ended(ended);
        }
    }
}

/// Takes in tokens from the bus: to claim, or to pass on if there is no room.
pub(crate) async fn listen(worker: Arc<Worker>, stop: CancellationToken) {
    let mut passed = Instant::now();
    while !stop.is_cancelled() {
        let Ok(mut wakes) = worker.bus.run_wakes().await else {
            sleep(Duration::from_secs(1)).await;
            continue;
        };
        while let Some(Some(_)) = stop.run_until_cancelled(wakes.next()).await {
            let is_full = worker.held.len() >= worker.config.slots as usize;
            if !is_full {
                worker.wake.notify_one();
            } else if passed.elapsed() >= PASSING {
                // It may come back here, so not at once for ever.
                passed = Instant::now();
                worker.bus.wake_run(0);
            }
        }
    }
}

fn lock_of(hold: &Hold) -> SessionLock {
    let Claim { tenant, session, epoch, .. } = hold.claim;
    SessionLock { tenant, session, epoch }
}

async fn lock(worker: Arc<Worker>, hold: Arc<Hold>) {
    if let Ok(Taken::Newer(epoch)) = worker.locks.take(lock_of(&hold)).await
        && epoch > hold.claim.epoch
    {
        hold.lost.cancel();
    }
}

async fn unlock(worker: Arc<Worker>, hold: Arc<Hold>) {
    // If Redis is of no help, the lock lapses.
    drop(worker.locks.release(lock_of(&hold)).await);
}
