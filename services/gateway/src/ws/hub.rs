//! Connections of each tenant, and what they are told.
//!
//! A tenant with at least one connection has one subscription to the deltas of all its sessions. Each
//! of its turns is followed once, by one task, however many connections are told about it. The text of
//! running turns is kept, for connections that come later; also for a minute after the last one has
//! ended, so that a client that reconnects misses nothing.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use holdfast_bus::{Delta, DeltaBody};
use holdfast_types::{MessageId, RunId, SessionId, TenantId};
use tokio::{sync::mpsc, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    Service,
    connection::Connection,
    events::Event,
    members::Members,
    runs::{self, RunText, StartedRun},
};

/// Deltas that wait for one follower. If there are more, some are lost, and the text of the step
/// comes with the answer.
const DELTAS_PER_RUN: usize = 512;

/// Turns of one tenant that are followed at once though no connection has started them.
const MAX_FOREIGN_RUNS: usize = 1_000;

/// Ended turns that are remembered, so that a late delta does not begin them again.
const MAX_ENDED_RUNS: usize = 1_000;

/// Time for which the turns of a tenant without connections are followed.
const FOLLOW_TIME: Duration = Duration::from_secs(60);

/// Hubs of the tenants that have connections, or had some.
#[derive(Debug, Default)]
pub struct Hubs(Mutex<HashMap<TenantId, Arc<TenantHub>>>);

#[derive(Debug)]
pub struct TenantHub {
    pub tenant: TenantId,
    members: Mutex<Members>,
    runs: Mutex<Runs>,
    /// Cancelled some time after the tenant's last connection has ended.
    pub ended: CancellationToken,
    /// Whether a task waits for the end.
    is_end_scheduled: AtomicBool,
}

#[derive(Debug, Default)]
struct Runs {
    followed: HashMap<RunId, FollowedRun>,
    ended: VecDeque<RunId>,
    foreign: usize,
}

#[derive(Debug)]
struct FollowedRun {
    session: SessionId,
    deltas: mpsc::Sender<Delta>,
    /// Text of its current step, as far as connections were told.
    text: Option<RunText>,
}

impl Hubs {
    /// Adds a connection to its tenant's hub.
    pub fn join(&self, service: &Arc<Service>, connection: &Arc<Connection>) -> Arc<TenantHub> {
        let mut tenants = self.lock();
        let hub = tenants.entry(connection.tenant).or_insert_with(|| {
            let hub = Arc::new(TenantHub::new(connection.tenant));
            service.tasks().spawn(feed(Arc::clone(service), Arc::clone(&hub)));
            hub
        });
        hub.members().insert(connection);
        let hub = Arc::clone(hub);
        drop(tenants);
        // After it was added: a turn that ends now is told after its text.
        hub.catch_up(connection, None);
        hub
    }

    /// Removes a connection, and its tenant's hub some time after the last one.
    pub fn leave(&self, service: &Arc<Service>, connection: &Connection) {
        let tenants = self.lock();
        let Some(hub) = tenants.get(&connection.tenant) else { return };
        let is_last = {
            let mut members = hub.members();
            members.remove(connection);
            members.is_empty()
        };
        if is_last && !hub.is_end_scheduled.swap(true, Ordering::Relaxed) {
            let (service, hub) = (Arc::clone(service), Arc::clone(hub));
            let tasks = service.tasks().clone();
            tasks.spawn(async move {
                service.stop().run_until_cancelled(sleep(FOLLOW_TIME)).await;
                service.hubs().end_if_unused(&hub);
            });
        }
    }

    fn end_if_unused(&self, hub: &TenantHub) {
        let mut tenants = self.lock();
        hub.is_end_scheduled.store(false, Ordering::Relaxed);
        if hub.members().is_empty() {
            hub.ended.cancel();
            tenants.remove(&hub.tenant);
        }
    }

    pub fn connections(&self) -> Vec<Arc<Connection>> {
        let hubs: Vec<Arc<TenantHub>> = self.lock().values().map(Arc::clone).collect();
        hubs.iter().flat_map(|hub| hub.connections()).collect()
    }

    /// Connections of one tenant to this process.
    pub fn connections_of(&self, tenant: TenantId) -> Vec<Arc<Connection>> {
        let hub = self.lock().get(&tenant).map(Arc::clone);
        hub.map(|hub| hub.connections()).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, Arc<TenantHub>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TenantHub {
    fn new(tenant: TenantId) -> Self {
        let (members, runs) = (Mutex::default(), Mutex::default());
        let is_end_scheduled = AtomicBool::new(false);
        Self { tenant, members, runs, ended: CancellationToken::new(), is_end_scheduled }
    }

    /// Connections of the tenant to this process, in the order of their beginning.
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        let mut all: Vec<_> = self.members().all().map(Arc::clone).collect();
        all.sort_unstable_by_key(|connection| connection.id);
        all
    }

    /// Tells an event to the connections that want it.
    pub fn publish(&self, event: &Event) {
        self.members().tell(event);
    }

    /// Registers a follower of a turn, and returns its deltas; `None` if it is followed already.
    pub fn follow(&self, run: RunId, session: SessionId) -> Option<mpsc::Receiver<Delta>> {
        let mut runs = self.runs();
        if runs.followed.contains_key(&run) {
            return None;
        }
        let (sender, deltas) = mpsc::channel(DELTAS_PER_RUN);
        runs.followed.insert(run, FollowedRun { session, deltas: sender, text: None });
        Some(deltas)
    }

    /// Keeps the text of a running turn's step, of which the last part was told with the number `seq`.
    pub fn keep_text(&self, run: &StartedRun, seq: u64, text: &str) {
        let mut runs = self.runs();
        let Some(followed) = runs.followed.get_mut(&run.turn) else { return };
        let kept = followed.text.get_or_insert_with(|| RunText::new(run.clone()));
        kept.replace(seq, text);
    }

    /// Forgets the text of a turn, before its end is told.
    pub fn drop_text(&self, turn: RunId) {
        if let Some(followed) = self.runs().followed.get_mut(&turn) {
            followed.text = None;
        }
    }

    /// Tells a connection the text of the turns that run, of one session or of all.
    pub fn catch_up(&self, connection: &Connection, session_key: Option<&str>) {
        // The lock keeps the end of a turn behind its text.
        let runs = self.runs();
        for text in runs.followed.values().filter_map(|followed| followed.text.as_ref()) {
            if session_key.is_none_or(|key| key == text.session_key()) {
                connection.tell(&text.event());
            }
        }
    }

    /// Forgets a turn that has ended.
    pub fn end_run(&self, run: RunId, is_foreign: bool) {
        let mut runs = self.runs();
        runs.followed.remove(&run);
        runs.foreign -= usize::from(is_foreign);
        if runs.ended.len() == MAX_ENDED_RUNS {
            runs.ended.pop_front();
        }
        runs.ended.push_back(run);
    }

    /// Passes a delta to the followers of its session. Returns the turn if nobody follows it.
    fn pass(&self, session: SessionId, delta: &Delta) -> Option<RunId> {
        let mut runs = self.runs();
        let is_known = runs.followed.contains_key(&delta.run) || runs.ended.contains(&delta.run);
        for followed in runs.followed.values().filter(|followed| followed.session == session) {
            // A full channel loses the delta, which the follower notices by its number.
            drop(followed.deltas.try_send(delta.clone()));
        }
        let is_canvas = matches!(delta.body, DeltaBody::Canvas { .. });
        if is_known || is_canvas || runs.foreign >= MAX_FOREIGN_RUNS {
            return None;
        }
        runs.foreign += 1;
        Some(delta.run)
    }

    /// Connections by what they are told. The guard is taken before that of a connection's
    /// subscriptions.
    pub fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the deltas of a tenant until its hub ends.
async fn feed(service: Arc<Service>, hub: Arc<TenantHub>) {
    let subscribed = service.state.bus.subscribe_tenant_deltas(hub.tenant).await;
    let mut deltas = match subscribed {
        Ok(deltas) => deltas,
        Err(error) => return debug!(%error, "turns are followed by the journal alone"),
    };
    loop {
        let next = hub.ended.run_until_cancelled(deltas.next()).await;
        let Some(Some((session, delta))) = next else { return };
        let Some(run) = hub.pass(session, &delta) else { continue };
        let Some(receiver) = hub.follow(run, session) else { continue };
        // The delta that made it known is its first one.
        hub.pass(session, &delta);
        let (service, hub) = (Arc::clone(&service), Arc::clone(&hub));
        let tasks = service.tasks().clone();
        tasks.spawn(async move {
            let message = MessageId::from(run.as_uuid());
            let followed = service.follower.message_with(hub.tenant, message, receiver).await;
            let started = StartedRun::foreign(&service, hub.tenant, session, run).await;
            match (followed, started) {
                (Ok(followed), Ok(started)) => {
                    runs::follow(&service, &hub, started, followed).await
                }
                (Err(error), _) | (_, Err(error)) => debug!(%error, "a turn is not followed"),
            }
            hub.end_run(run, true);
        });
    }
}
