//! Claim pool: claims ready sessions and runs each on its own task, up to the number of slots.
//!
//! [`Worker::wake`] triggers a claim: after a wake-up on the bus, the end of a turn, a sweep.
//! Otherwise the poll tries once a second. An attempt costs one query, and writes nothing if no
//! session is ready.
//!
//! Slots are reserved twice: a part for each class of turns, so that jobs do not keep people waiting, and
//! the last quarter for tenants that have less than a quarter, because a tenant whose model is slow could
//! take all of them for minutes.

use std::{collections::HashMap, sync::Arc, time::Duration};

use holdfast_bus::{Control, ControlKind};
use holdfast_kit::{Check, boot_clock};
use holdfast_lock::{SessionLock, TakeOutcome};
use holdfast_pg::FailureLog;
use holdfast_session::{Claim, ClassSlots, FreeSlots, TenantSlots, TurnClass};
use holdfast_types::TenantId;
use tokio::{
    task::{Id, JoinError, JoinSet},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    failpoints,
    leases::Lease,
    turn::run::{RunOutcome, run_claimed_session},
    worker::Worker,
};

/// Time for interrupted turns to release their sessions.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Delay before claiming again after the database failed.
const FAILURE_DELAY: Duration = Duration::from_millis(500);

/// Minimum time between two wake-ups that are passed on to other runners.
const MIN_FORWARD_INTERVAL: Duration = Duration::from_millis(50);

/// Time between two looks for conversations that wait for a slot.
const OUTRANK_INTERVAL: Duration = Duration::from_secs(1);

/// One of so many slots is reserved for turns that a person waits for; and one of as many for tenants
/// that have fewer turns than that.
const RESERVED_SHARE: u32 = 4;

/// One of so many slots, at least one, is reserved for subagents, and as many for jobs.
const RESERVED_BACKGROUND_SHARE: u32 = 8;

#[derive(Debug)]
pub(crate) struct Pool {
    worker: Arc<Worker>,
    database: Check,
    trouble: FailureLog,
    running: JoinSet<RunOutcome>,
    leases: HashMap<Id, Arc<Lease>>,
    /// Whether a claim should be tried.
    should_claim: bool,
    /// Whether a wake-up, rather than the poll, asked for it.
    was_woken: bool,
    /// Time at which a session is known to become ready.
    next_ready_at: Option<Instant>,
    /// Time of the next look for conversations that wait for a slot.
    outranks_at: Instant,
}

impl Pool {
    /// `database` is told whether claiming works.
    pub(crate) fn new(worker: Arc<Worker>, database: Check) -> Self {
        Self {
            worker,
            database,
            trouble: FailureLog::new("sessions cannot be claimed"),
            running: JoinSet::new(),
            leases: HashMap::new(),
            should_claim: true,
            was_woken: true,
            next_ready_at: None,
            outranks_at: Instant::now(),
        }
    }

    /// Claims and runs sessions until `stop`, then lets their turns reach the end of a step.
    pub(crate) async fn run(mut self, stop: &CancellationToken) {
        let mut poll = Instant::now() + self.worker.config.poll;
        while !stop.is_cancelled() {
            if self.should_claim && self.free_slots().all > 0 {
                self.claim().await;
                poll = Instant::now() + self.worker.config.poll;
            }
            if Instant::now() >= self.outranks_at && !self.replaceable_leases().is_empty() {
                self.outranks_at = Instant::now() + OUTRANK_INTERVAL;
                self.outrank_background().await;
            }
            let due = self.next_ready_at.unwrap_or(poll).min(poll);
            let worker = Arc::clone(&self.worker);
            tokio::select! {
                () = stop.cancelled() => break,
                () = worker.wake.notified() => (self.should_claim, self.was_woken) = (true, true),
                () = sleep_until(due) => {
                    self.should_claim = true;
                    self.next_ready_at = None;
                    poll = Instant::now() + self.worker.config.poll;
                }
                Some(ended) = self.running.join_next_with_id() => self.on_session_end(ended),
            }
        }
        self.drain().await;
    }

    fn free_slots(&self) -> FreeSlots {
        let classes = self.leases.values().map(|lease| lease.claim.class);
        free_slots(self.worker.config.slots, self.running.len(), classes)
    }

    fn tenant_slots(&self) -> TenantSlots {
        tenant_slots(self.worker.config.slots, self.leases.values().map(|lease| lease.claim.tenant))
    }

    /// Leases of turns whose end gives a slot to a conversation that waits now.
    fn replaceable_leases(&self) -> Vec<&Arc<Lease>> {
        let (free, tenants) = (self.free_slots().all, self.tenant_slots());
        let leases = self.leases.values();
        leases.filter(|lease| is_replaceable(free, &tenants, lease.claim.tenant)).collect()
    }

    async fn claim(&mut self) {
        let free = FreeSlots { tenants: self.tenant_slots(), ..self.free_slots() };
        let all = free.all;
        let asked = boot_clock::now();
        failpoints::point("runner.before_claim").await;
        let claims = match self.worker.sessions.claim(self.worker.id, free).await {
            Ok(claims) => claims,
            Err(error) => {
                self.database.fail();
                self.trouble.on_failure(&error);
                self.should_claim = false;
                self.next_ready_at = Some(Instant::now() + FAILURE_DELAY);
                return;
            }
        };
        failpoints::point("runner.after_claim").await;
        self.database.pass();
        self.trouble.on_success();
        let taken = u32::try_from(claims.len()).unwrap_or(u32::MAX);
        // A full batch may have left ready sessions behind.
        self.should_claim = taken == all;
        if taken == 0 && std::mem::take(&mut self.was_woken) {
            self.schedule_next_ready().await;
        }
        metrics::counter!("holdfast_runner_claims_total").increment(u64::from(taken));
        for claim in claims {
            self.start_session(claim, asked);
        }
        // Sessions of a tenant that has its share may have hidden those of others from this claim.
        self.should_claim |= taken > 0 && self.tenant_slots().is_reached();
    }

    /// Asks background turns to give their slots at the end of their steps to conversations that
    /// wait. Turns within the reserved share of their class go on.
    async fn outrank_background(&self) {
        let victims = outrankable(self.worker.config.slots, &self.replaceable_leases());
        if victims.is_empty() {
            return;
        }
        let asked = self.leases.values().filter(|lease| lease.is_outranked()).count();
        let most = u32::try_from(asked + victims.len()).unwrap_or(u32::MAX);
        // The claim reports a database that does not answer.
        let waiting = self.worker.sessions.waiting_conversations(self.worker.id, most).await;
        let waiting = waiting.map_or(0, |waiting| waiting as usize);
        for lease in victims.iter().take(waiting.saturating_sub(asked)) {
            metrics::counter!("holdfast_runner_outranked_total").increment(1);
            lease.outrank();
        }
    }

    /// After a wake-up without a ready session: a session that collects input may become ready
    /// before the next poll. A session whose state another runner holds is passed on to that one.
    async fn schedule_next_ready(&mut self) {
        let Ok(next) = self.worker.sessions.next_ready().await else { return };
        let soon = next.after.filter(|wait| *wait < self.worker.config.poll);
        self.next_ready_at = soon.map(|wait| Instant::now() + wait.max(Duration::from_millis(2)));
        for (holder, session) in next.held {
            if holder != self.worker.id {
                let control = Control { session, kind: ControlKind::Input, epoch: 0 };
                self.worker.bus.control(holder, &control);
            }
        }
    }

    fn start_session(&mut self, claim: Claim, asked: Duration) {
        let worker = Arc::clone(&self.worker);
        let lease = Arc::new(Lease::new(claim, asked, worker.config.lease));
        worker.leases.add(&lease);
        tokio::spawn(lock(Arc::clone(&worker), Arc::clone(&lease)));
        let task = self.running.spawn(run_claimed_session(worker, Arc::clone(&lease)));
        self.leases.insert(task.id(), lease);
    }

    fn on_session_end(&mut self, ended: Result<(Id, RunOutcome), JoinError>) {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let is_share_reached = self.tenant_slots().is_reached();
        if let Some(lease) = self.leases.remove(&id) {
            self.worker.leases.remove(&lease.claim);
            // Others may wait that had no share of the slots.
            self.should_claim |= lease.claim.class != TurnClass::Interactive || is_share_reached;
            if let Err(error) = &ended
                && error.is_panic()
            {
                // The lease expires and the attempt counts. The panic's text is not logged: it may
                // contain a user's message.
                metrics::counter!("holdfast_runner_defects_total").increment(1);
                let Claim { tenant, session, epoch, attempts, .. } = &lease.claim;
                error!(tenant.id = %tenant, session.id = %session, epoch, attempts, "a turn panicked");
            }
            tokio::spawn(unlock(Arc::clone(&self.worker), lease));
        }
        if let Ok((_, RunOutcome::Idle { wake: true })) = ended {
            self.should_claim = true;
        }
    }

    async fn drain(mut self) {
        let grace = self.worker.config.shutdown_grace;
        let running = self.running.len();
        info!(running, "claiming no more; turns go on to their next step's end");
        self.worker.draining.cancel();
        if timeout(grace, self.join_all()).await.is_err() {
            warn!(running = self.running.len(), ?grace, "turns are cut short and given back");
            self.worker.giving_up.cancel();
            if timeout(RELEASE_TIMEOUT, self.join_all()).await.is_err() {
                warn!(running = self.running.len(), "sessions are left for their leases to lapse");
                self.running.shutdown().await;
            }
        }
    }

    async fn join_all(&mut self) {
        while let Some(ended) = self.running.join_next_with_id().await {
            self.on_session_end(ended);
        }
    }
}

/// Returns the slots that are free while turns of these classes run.
///
/// A quarter of all slots is reserved for turns that a person waits for, and an eighth each for
/// subagents and jobs. Turns that people wait for may take all slots, but a class below its share
/// gets the next one. A runner with fewer than four slots reserves none for subagents and jobs.
fn free_slots(
    slots: u32,
    running: usize,
    classes: impl Iterator<Item = TurnClass> + Clone,
) -> FreeSlots {
    let count = |turns: usize| u32::try_from(turns).unwrap_or(u32::MAX);
    let running_of = |class| count(classes.clone().filter(|found| *found == class).count());
    let (interactive, subagents, jobs) = (
        running_of(TurnClass::Interactive),
        running_of(TurnClass::Subagent),
        running_of(TurnClass::Job),
    );
    let reserved = slots / RESERVED_SHARE;
    let share = reserved_share(slots);
    let all = slots.saturating_sub(count(running));
    let background = slots - reserved;
    let class = |running: u32| ClassSlots {
        free: (background - share).saturating_sub(running),
        first: share.saturating_sub(running),
    };
    FreeSlots {
        all,
        background: background.saturating_sub(subagents + jobs),
        interactive: ClassSlots { free: all, first: reserved.saturating_sub(interactive) },
        subagents: class(subagents),
        jobs: class(jobs),
        tenants: TenantSlots::default(),
    }
}

/// Returns the slots that are reserved for tenants with few turns, while turns of these tenants run. A
/// runner with fewer than four slots reserves none.
fn tenant_slots(slots: u32, turns: impl Iterator<Item = TenantId>) -> TenantSlots {
    let mut running: HashMap<TenantId, u32> = HashMap::new();
    for tenant in turns {
        *running.entry(tenant).or_default() += 1;
    }
    let share = slots / RESERVED_SHARE;
    TenantSlots { reserved: share, share, running: running.into_iter().collect() }
}

/// Whether the end of a turn of this tenant gives a slot to a conversation that waits. While the reserved
/// slots are free, only tenants that have their share wait, and turns of the others go on.
fn is_replaceable(free: u32, tenants: &TenantSlots, tenant: TenantId) -> bool {
    free == 0 || (free == tenants.reserved && tenants.has_share(tenant))
}

/// Returns turns that can be asked to give up their slots, the least urgent first: those of
/// subagents and jobs beyond the reserved share of their class.
fn outrankable<'l>(slots: u32, leases: &[&'l Arc<Lease>]) -> Vec<&'l Arc<Lease>> {
    let share = reserved_share(slots) as usize;
    let of_class = |class| {
        let running = leases.iter().filter(move |lease| lease.claim.class == class);
        let asked = running.clone().filter(|lease| lease.is_outranked()).count();
        let (all, rest) = (running.clone().count(), running.filter(|lease| !lease.is_outranked()));
        rest.copied().take(all.saturating_sub(share + asked)).collect::<Vec<_>>()
    };
    [of_class(TurnClass::Job), of_class(TurnClass::Subagent)].concat()
}

/// Slots that are reserved for subagents, and as many for jobs.
fn reserved_share(slots: u32) -> u32 {
    match slots / RESERVED_SHARE {
        0 => 0,
        _ => (slots / RESERVED_BACKGROUND_SHARE).max(1),
    }
}

/// Receives wake-ups from the bus and passes them on if no slot is free.
pub(crate) async fn receive_wakeups(worker: Arc<Worker>, stop: CancellationToken) {
    let mut passed = Instant::now();
    while !stop.is_cancelled() {
        let Ok(mut wakes) = worker.bus.run_wakes(&worker.config.pool).await else {
            sleep(Duration::from_secs(1)).await;
            continue;
        };
        while let Some(Some(_)) = stop.run_until_cancelled(wakes.next()).await {
            let is_full = worker.leases.len() >= worker.config.slots as usize;
            if !is_full {
                worker.wake.notify_one();
            } else if passed.elapsed() >= MIN_FORWARD_INTERVAL {
                // The wake-up may return to this runner: limit the rate.
                passed = Instant::now();
                worker.bus.wake_run(0);
            }
        }
    }
}

fn session_lock(lease: &Lease) -> SessionLock {
    let Claim { tenant, session, epoch, .. } = lease.claim;
    SessionLock { tenant, session, epoch }
}

async fn lock(worker: Arc<Worker>, lease: Arc<Lease>) {
    if let Ok(TakeOutcome::Newer(epoch)) = worker.locks.take(session_lock(&lease)).await
        && epoch > lease.claim.epoch
    {
        lease.lost.cancel();
    }
}

async fn unlock(worker: Arc<Worker>, lease: Arc<Lease>) {
    // On failure the lock expires.
    drop(worker.locks.release(session_lock(&lease)).await);
}

#[cfg(test)]
mod tests {
    use holdfast_session::CLAIM_LEASE;
    use holdfast_types::{RunnerId, SessionId, TenantId};

    use super::*;

    fn lease(class: TurnClass) -> Arc<Lease> {
        let claim = Claim {
            tenant: TenantId::generate(),
            session: SessionId::generate(),
            runner: RunnerId::generate(),
            epoch: 1,
            attempts: 1,
            class,
        };
        Arc::new(Lease::new(claim, boot_clock::now(), CLAIM_LEASE))
    }

    #[test]
    fn background_turns_beyond_their_share_can_be_outranked_jobs_first() {
        let all = [
            TurnClass::Subagent,
            TurnClass::Subagent,
            TurnClass::Job,
            TurnClass::Job,
            TurnClass::Job,
            TurnClass::Interactive,
        ];
        let leases = all.map(lease);
        let classes = |slots: u32| -> Vec<TurnClass> {
            let leases: Vec<&Arc<Lease>> = leases.iter().collect();
            outrankable(slots, &leases).iter().map(|lease| lease.claim.class).collect()
        };

        assert_eq!(classes(8), [TurnClass::Job, TurnClass::Job, TurnClass::Subagent]);
        assert_eq!(classes(1).len(), 5, "a small runner reserves nothing");
        leases[2].outrank();
        assert_eq!(classes(8), [TurnClass::Job, TurnClass::Subagent]);
    }

    #[test]
    fn a_tenant_with_a_quarter_of_the_turns_has_its_share() {
        let (busy, quiet) = (TenantId::generate(), TenantId::generate());

        let slots = tenant_slots(8, [busy, quiet, busy].into_iter());
        assert_eq!((slots.reserved, slots.share), (2, 2));
        assert!(slots.running.contains(&(busy, 2)) && slots.running.contains(&(quiet, 1)));
        assert!(slots.is_reached());

        assert!(!tenant_slots(12, [busy, quiet, busy].into_iter()).is_reached());
        assert!(
            !tenant_slots(3, [busy; 3].into_iter()).is_reached(),
            "a small runner reserves none"
        );
    }

    #[test]
    fn turns_of_a_tenant_that_has_its_share_make_room_while_only_reserved_slots_are_free() {
        let (busy, quiet) = (TenantId::generate(), TenantId::generate());
        let tenants = tenant_slots(8, [busy, busy, busy, busy, busy, quiet].into_iter());

        assert!(is_replaceable(2, &tenants, busy) && !is_replaceable(2, &tenants, quiet));
        assert!(!is_replaceable(3, &tenants, busy), "one of them is for everybody");
        assert!(!is_replaceable(1, &tenants, busy), "the slot would be a reserved one");
        assert!(is_replaceable(0, &tenants, quiet));
    }

    #[test]
    fn each_class_has_a_share_that_no_other_takes() {
        let free = |slots, classes: &[TurnClass]| {
            free_slots(slots, classes.len(), classes.iter().copied())
        };
        let class = |free, first| ClassSlots { free, first };

        let idle = free(16, &[]);
        assert_eq!((idle.all, idle.background), (16, 12));
        assert_eq!(idle.interactive, class(16, 4));
        assert_eq!((idle.subagents, idle.jobs), (class(10, 2), class(10, 2)));

        let jobs = free(16, &[TurnClass::Job; 10]);
        assert_eq!((jobs.all, jobs.background, jobs.jobs), (6, 2, class(0, 0)));
        assert_eq!(jobs.subagents, class(10, 2));

        let small = free(1, &[]);
        assert_eq!((small.all, small.background, small.jobs), (1, 1, class(1, 0)));
    }
}
