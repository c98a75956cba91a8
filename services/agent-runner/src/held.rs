//! The sessions that this process holds, and what each turn is told from outside.
//!
//! **What can go wrong.** A process that was suspended wakes up believing. So a
//! hold has a deadline on a clock that goes on meanwhile, set before the renewal
//! was sent and a sixth short of the lease: past it, no effect is begun. The
//! fence in Postgres is what keeps writes out all the same.

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

/// What a running turn is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Signal {
    /// Stop at the next step's boundary.
    pub(crate) pause: bool,
    /// Nothing up to this place is wanted any more.
    pub(crate) cancel_upto: i64,
    /// The inbox's next place, as far as known.
    pub(crate) next_in: i64,
    /// How often someone said that there is something to look at.
    pub(crate) pokes: u64,
}

/// What the tools of a turn need to know of it, and leave behind.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    /// What kind of conversation it is.
    pub(crate) kind: Option<SessionKind>,
    /// Who reads along.
    pub(crate) audience: Audience,
    /// Its key; empty before a step was begun.
    pub(crate) key: String,
    /// Where it is held, if on a channel.
    pub(crate) place: Option<Target>,
    /// What the platform calls the message that it is about.
    pub(crate) about: Option<String>,
    /// The model that it thinks with; empty before it has thought.
    pub(crate) model: String,
    /// What the policy says of commands; `None` before it was asked.
    pub(crate) judge: Option<Judge>,
    /// How it is answered.
    pub(crate) dials: Dials,
    /// The connections that it may use.
    pub(crate) connections: Vec<(String, ConnectionKind)>,
    /// Whose memory it is about.
    pub(crate) person: Person,
    /// Where its file tools may look and change.
    pub(crate) scope: Scope,
    /// The skills of its agent; `None` before a step was begun.
    pub(crate) skills: Option<Arc<Shelf>>,
    /// What the commands of its skills are given.
    pub(crate) secrets: Arc<Secrets>,
    /// The copy of its requester's files that it works on, if it is a subagent that does.
    pub(crate) branch: Option<AgentId>,
    /// Lists that narrow its tools, besides its agent's: what it asks for has no more.
    pub(crate) narrowed: Vec<Vec<String>>,
    /// Who asks for what is done at a time.
    pub(crate) asked: Asked,
    /// A file was changed that is part of the agent's prompt.
    pub(crate) is_brief_outdated: bool,
    /// Surfaces of its canvas that a tool changed, of which nobody who watches was told yet.
    pub(crate) redrawn: Vec<String>,
    /// Messages that tools enqueued and that no transaction has stored yet.
    pub(crate) outbox: Vec<NewDelivery>,
    /// What tools used that costs, and that is not charged yet.
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

/// A session that this process holds.
#[derive(Debug)]
pub(crate) struct Hold {
    /// The claim, with its fence.
    pub(crate) claim: Claim,
    /// Cancelled once the session is another's.
    pub(crate) lost: CancellationToken,
    signal: watch::Sender<Signal>,
    /// For how long after a renewal was sent effects may be begun.
    safe_for: Duration,
    safe_until: AtomicU64,
    desk: Mutex<Desk>,
}

impl Hold {
    /// A hold that was asked for at `asked`, on the boot clock.
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

    /// Notes that a renewal which was sent at `asked` succeeded.
    pub(crate) fn extend(&self, asked: Duration) {
        let until = u64::try_from((asked + self.safe_for).as_millis()).unwrap_or(u64::MAX);
        self.safe_until.fetch_max(until, Ordering::Relaxed);
    }

    /// Whether an effect may be begun.
    pub(crate) fn is_safe(&self) -> bool {
        let now = boot_clock::now().as_millis();
        !self.lost.is_cancelled() && now < u128::from(self.safe_until.load(Ordering::Relaxed))
    }

    /// Takes in what renewing told.
    pub(crate) fn tell(&self, renewed: &Renewed) {
        self.signal.send_if_modified(|signal| {
            let before = *signal;
            signal.pause = renewed.pause;
            signal.cancel_upto = signal.cancel_upto.max(renewed.cancel_upto);
            signal.next_in = signal.next_in.max(renewed.next_in);
            *signal != before
        });
    }

    /// Says that there is something to look at.
    pub(crate) fn poke(&self) {
        self.signal.send_modify(|signal| signal.pokes += 1);
    }

    /// What the turn is told, now and as it changes.
    pub(crate) fn signal(&self) -> watch::Receiver<Signal> {
        self.signal.subscribe()
    }

    /// The desk that the turn shares with its tools.
    pub(crate) fn desk(&self) -> MutexGuard<'_, Desk> {
        lock(&self.desk)
    }
}

/// All that this process holds, by session.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<HashMap<SessionId, Arc<Hold>>>);

impl Held {
    /// Adds a hold. One of the same session with an older claim is lost by it.
    pub(crate) fn add(&self, hold: &Arc<Hold>) {
        let older = lock(&self.0).insert(hold.claim.session, Arc::clone(hold));
        if let Some(older) = older {
            older.lost.cancel();
        }
    }

    /// Forgets a hold, unless the session is held anew.
    pub(crate) fn remove(&self, claim: &Claim) {
        let mut holds = lock(&self.0);
        if holds.get(&claim.session).is_some_and(|hold| hold.claim.epoch == claim.epoch) {
            holds.remove(&claim.session);
        }
    }

    /// The hold of a session.
    pub(crate) fn get(&self, session: SessionId) -> Option<Arc<Hold>> {
        lock(&self.0).get(&session).cloned()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// All holds.
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
