//! Leases of this process, and the signals of their turns.
//!
//! **What can go wrong.** A suspended process resumes and believes it still has its leases. So a
//! lease has a deadline on a clock that runs during suspension, counted from before the renewal was
//! sent and a sixth shorter than the lease: past it, no effect is started. Writes are also refused
//! by the fence in Postgres.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use holdfast_kit::boot_clock;
use holdfast_session::{Claim, RenewedLease};
use holdfast_types::SessionId;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Signals for a running turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TurnSignal {
    /// Stop at the end of the current step.
    pub(crate) pause: bool,
    /// Messages with a `seq` up to this are cancelled.
    pub(crate) cancel_upto: i64,
    /// Next `seq` of the inbox, as far as known.
    pub(crate) next_in: i64,
    /// Number of hints that something has changed.
    pub(crate) hints: u64,
}

/// A lease of this process on one session.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Claim with its fence token.
    pub(crate) claim: Claim,
    /// Cancelled when the session is lost to another runner.
    pub(crate) lost: CancellationToken,
    /// A more urgent session needs the slot: the turn ends with its current step.
    outranked: AtomicBool,
    signal: watch::Sender<TurnSignal>,
    /// Time after sending a renewal during which effects may be started.
    safe_for: Duration,
    safe_until: AtomicU64,
}

impl Lease {
    /// `asked` is the time of the claim request on the boot clock.
    pub(crate) fn new(claim: Claim, asked: Duration, lease: Duration) -> Self {
        let lease = Self {
            claim,
            lost: CancellationToken::new(),
            outranked: AtomicBool::new(false),
            signal: watch::Sender::new(TurnSignal::default()),
            safe_for: lease - lease / 6,
            safe_until: AtomicU64::new(0),
        };
        lease.extend(asked);
        lease
    }

    /// Records that a renewal sent at `asked` succeeded.
    pub(crate) fn extend(&self, asked: Duration) {
        let until = u64::try_from((asked + self.safe_for).as_millis()).unwrap_or(u64::MAX);
        self.safe_until.fetch_max(until, Ordering::Relaxed);
    }

    /// Whether an effect may be started.
    pub(crate) fn is_safe(&self) -> bool {
        let now = boot_clock::now().as_millis();
        !self.lost.is_cancelled() && now < u128::from(self.safe_until.load(Ordering::Relaxed))
    }

    /// Asks the turn to give its session back at the end of its current step.
    pub(crate) fn outrank(&self) {
        self.outranked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_outranked(&self) -> bool {
        self.outranked.load(Ordering::Relaxed)
    }

    /// Updates the signals from a renewal's result.
    pub(crate) fn update_signal(&self, renewed: &RenewedLease) {
        self.signal.send_if_modified(|signal| {
            let before = *signal;
            signal.pause = renewed.pause;
            signal.cancel_upto = signal.cancel_upto.max(renewed.cancel_upto);
            signal.next_in = signal.next_in.max(renewed.next_in);
            *signal != before
        });
    }

    /// Tells the turn that something has changed.
    pub(crate) fn notify(&self) {
        self.signal.send_modify(|signal| signal.hints += 1);
    }

    /// Current and future signals of the turn.
    pub(crate) fn subscribe(&self) -> watch::Receiver<TurnSignal> {
        self.signal.subscribe()
    }
}

/// Leases of this process, by session.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<HashMap<SessionId, Arc<Lease>>>);

impl Leases {
    /// Adds a lease. An older one of the same session is lost.
    pub(crate) fn add(&self, lease: &Arc<Lease>) {
        let older = lock(&self.0).insert(lease.claim.session, Arc::clone(lease));
        if let Some(older) = older {
            older.lost.cancel();
        }
    }

    /// Removes a lease, unless the session was claimed again.
    pub(crate) fn remove(&self, claim: &Claim) {
        let mut holds = lock(&self.0);
        if holds.get(&claim.session).is_some_and(|lease| lease.claim.epoch == claim.epoch) {
            holds.remove(&claim.session);
        }
    }

    pub(crate) fn get(&self, session: SessionId) -> Option<Arc<Lease>> {
        lock(&self.0).get(&session).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Lease>> {
        lock(&self.0).values().cloned().collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use holdfast_session::{CLAIM_LEASE, TurnClass};
    use holdfast_types::{RunnerId, TenantId};

    use super::*;

    fn claim(session: SessionId, epoch: i64) -> Claim {
        let (tenant, runner) = (TenantId::generate(), RunnerId::generate());
        Claim { tenant, session, runner, epoch, attempts: 1, class: TurnClass::Interactive }
    }

    #[test]
    fn no_effect_is_begun_when_the_lease_is_nearly_over() {
        let session = SessionId::generate();
        let now = boot_clock::now();
        let old =
            Lease::new(claim(session, 1), now.saturating_sub(Duration::from_secs(26)), CLAIM_LEASE);
        assert!(!old.is_safe());

        old.extend(now);
        assert!(old.is_safe());

        old.lost.cancel();
        assert!(!old.is_safe());
    }

    #[test]
    fn a_newer_hold_of_a_session_ends_the_older_and_outlives_its_removal() {
        let (held, session) = (Leases::default(), SessionId::generate());
        let now = boot_clock::now();
        let older = Arc::new(Lease::new(claim(session, 1), now, CLAIM_LEASE));
        let newer = Arc::new(Lease::new(claim(session, 2), now, CLAIM_LEASE));

        held.add(&older);
        held.add(&newer);
        held.remove(&older.claim);

        assert!(older.lost.is_cancelled());
        assert_eq!(held.get(session).unwrap().claim.epoch, 2);
    }

    #[test]
    fn a_turn_is_told_only_of_what_changed() {
        let lease = Lease::new(claim(SessionId::generate(), 1), boot_clock::now(), CLAIM_LEASE);
        let renewed = RenewedLease {
            tenant: lease.claim.tenant,
            session: lease.claim.session,
            epoch: 1,
            pause: false,
            cancel_upto: 0,
            next_in: 3,
        };
        let mut signal = lease.subscribe();

        lease.update_signal(&renewed);
        assert!(signal.has_changed().unwrap());
        signal.mark_unchanged();

        lease.update_signal(&renewed);
        assert!(!signal.has_changed().unwrap());
    }
}
