//! Leases of this process, and the signals and tool context of their turns.
//!
//! **What can go wrong.** A suspended process resumes and believes it still has its leases. So a
//! lease has a deadline on a clock that runs during suspension, counted from before the renewal was
//! sent and a sixth shorter than the lease: past it, no effect is started. Writes are also refused
//! by the fence in Postgres.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use holdfast_agent::bootstrap::Audience;
use holdfast_kit::boot_clock;
use holdfast_session::{Claim, NewDelivery, Renewed};
use holdfast_skills::Shelf;
use holdfast_types::{AgentId, ConnectionKind, Dials, SessionId, SessionKind, Target};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    bill::Used, files::Scope, person::Person, schedules::Asked, shell::Judge, skills::Secrets,
};

/// Signals for a running turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Signal {
    /// Stop at the end of the current step.
    pub(crate) pause: bool,
    /// Messages with a `seq` up to this are cancelled.
    pub(crate) cancel_upto: i64,
    /// Next `seq` of the inbox, as far as known.
    pub(crate) next_in: i64,
    /// Number of hints that something has changed.
    pub(crate) pokes: u64,
}

/// State of a turn for its tools, and results that tools leave for the turn.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    pub(crate) kind: Option<SessionKind>,
    pub(crate) audience: Audience,
    /// Session key; empty before the first step.
    pub(crate) key: String,
    /// Target of the conversation, if it is on a channel.
    pub(crate) place: Option<Target>,
    /// The platform's id of the message that the turn is about.
    pub(crate) about: Option<String>,
    /// Model of the turn; empty before its first request.
    pub(crate) model: String,
    /// Policy for commands; `None` before it is loaded.
    pub(crate) judge: Option<Judge>,
    pub(crate) dials: Dials,
    /// Names and kinds of the connections that may be used.
    pub(crate) connections: Vec<(String, ConnectionKind)>,
    /// Subject of the memory tools.
    pub(crate) person: Person,
    /// Files that the tools may access.
    pub(crate) scope: Scope,
    /// Skills of the agent; `None` before the first step.
    pub(crate) skills: Option<Arc<Shelf>>,
    /// Secrets for the commands of the agent's skills.
    pub(crate) secrets: Arc<Secrets>,
    /// The copy of the requester's workspace that a subagent works on, if it has one.
    pub(crate) branch: Option<AgentId>,
    /// Lists that narrow the turn's tools besides the agent's; a subagent inherits them.
    pub(crate) narrowed: Vec<Vec<String>>,
    /// Requester of jobs and reminders.
    pub(crate) asked: Asked,
    /// A file of the agent's prompt was changed.
    pub(crate) is_brief_outdated: bool,
    /// Canvas surfaces that a tool changed and that watchers were not told of yet.
    pub(crate) redrawn: Vec<String>,
    /// Messages that tools enqueued and that are not stored yet.
    pub(crate) outbox: Vec<NewDelivery>,
    /// Usage of tools that is not charged yet.
    pub(crate) bill: Vec<Used>,
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            kind: None,
            audience: Audience::Others,
            key: String::new(),
            place: None,
            about: None,
            model: String::new(),
            judge: None,
            dials: Dials::default(),
            connections: Vec::new(),
            person: Person::default(),
            scope: Scope::default(),
            skills: None,
            secrets: Arc::default(),
            branch: None,
            narrowed: Vec::new(),
            asked: Asked::default(),
            is_brief_outdated: false,
            redrawn: Vec::new(),
            outbox: Vec::new(),
            bill: Vec::new(),
        }
    }
}

/// A lease of this process on one session.
#[derive(Debug)]
pub(crate) struct Hold {
    /// Claim with its fence token.
    pub(crate) claim: Claim,
    /// Cancelled when the session is lost to another runner.
    pub(crate) lost: CancellationToken,
    signal: watch::Sender<Signal>,
    /// Time after sending a renewal during which effects may be started.
    safe_for: Duration,
    safe_until: AtomicU64,
    desk: Mutex<Desk>,
}

impl Hold {
    /// `asked` is the time of the claim request on the boot clock.
    pub(crate) fn new(claim: Claim, asked: Duration, lease: Duration) -> Self {
        let hold = Self {
            claim,
            lost: CancellationToken::new(),
            signal: watch::Sender::new(Signal::default()),
            safe_for: lease - lease / 6,
            safe_until: AtomicU64::new(0),
            desk: Mutex::default(),
        };
        hold.extend(asked);
        hold
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

    /// Updates the signals from a renewal's result.
    pub(crate) fn tell(&self, renewed: &Renewed) {
        self.signal.send_if_modified(|signal| {
            let before = *signal;
            signal.pause = renewed.pause;
            signal.cancel_upto = signal.cancel_upto.max(renewed.cancel_upto);
            signal.next_in = signal.next_in.max(renewed.next_in);
            *signal != before
        });
    }

    /// Tells the turn that something has changed.
    pub(crate) fn poke(&self) {
        self.signal.send_modify(|signal| signal.pokes += 1);
    }

    /// Current and future signals of the turn.
    pub(crate) fn signal(&self) -> watch::Receiver<Signal> {
        self.signal.subscribe()
    }

    pub(crate) fn desk(&self) -> MutexGuard<'_, Desk> {
        lock(&self.desk)
    }
}

/// Leases of this process, by session.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<HashMap<SessionId, Arc<Hold>>>);

impl Held {
    /// Adds a lease. An older one of the same session is lost.
    pub(crate) fn add(&self, hold: &Arc<Hold>) {
        let older = lock(&self.0).insert(hold.claim.session, Arc::clone(hold));
        if let Some(older) = older {
            older.lost.cancel();
        }
    }

    /// Removes a lease, unless the session was claimed again.
    pub(crate) fn remove(&self, claim: &Claim) {
        let mut holds = lock(&self.0);
        if holds.get(&claim.session).is_some_and(|hold| hold.claim.epoch == claim.epoch) {
            holds.remove(&claim.session);
        }
    }

    pub(crate) fn get(&self, session: SessionId) -> Option<Arc<Hold>> {
        lock(&self.0).get(&session).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Hold>> {
        lock(&self.0).values().cloned().collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use holdfast_session::LEASE;
    use holdfast_types::TenantId;

    use super::*;

    fn claim(session: SessionId, epoch: i64) -> Claim {
        Claim { tenant: TenantId::generate(), session, epoch, attempts: 1 }
    }

    #[test]
    fn no_effect_is_begun_when_the_lease_is_nearly_over() {
        let session = SessionId::generate();
        let now = boot_clock::now();
        let old = Hold::new(claim(session, 1), now.saturating_sub(Duration::from_secs(26)), LEASE);
        assert!(!old.is_safe());

        old.extend(now);
        assert!(old.is_safe());

        old.lost.cancel();
        assert!(!old.is_safe());
    }

    #[test]
    fn a_newer_hold_of_a_session_ends_the_older_and_outlives_its_removal() {
        let (held, session) = (Held::default(), SessionId::generate());
        let now = boot_clock::now();
        let older = Arc::new(Hold::new(claim(session, 1), now, LEASE));
        let newer = Arc::new(Hold::new(claim(session, 2), now, LEASE));

        held.add(&older);
        held.add(&newer);
        held.remove(&older.claim);

        assert!(older.lost.is_cancelled());
        assert_eq!(held.get(session).unwrap().claim.epoch, 2);
    }

    #[test]
    fn a_turn_is_told_only_of_what_changed() {
        let hold = Hold::new(claim(SessionId::generate(), 1), boot_clock::now(), LEASE);
        let renewed = Renewed {
            tenant: hold.claim.tenant,
            session: hold.claim.session,
            epoch: 1,
            pause: false,
            cancel_upto: 0,
            next_in: 3,
        };
        let mut signal = hold.signal();

        hold.tell(&renewed);
        assert!(signal.has_changed().unwrap());
        signal.mark_unchanged();

        hold.tell(&renewed);
        assert!(!signal.has_changed().unwrap());
    }
}
