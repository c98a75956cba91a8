//! Commands in the background, by session.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use holdfast_sandbox::{Ended, Owner, ProcessId};
use holdfast_tools::Kept;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

/// The most jobs of a session that are known, unless more of them run.
const MOST_KNOWN: usize = 32;

/// A command in the background.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: ProcessId,
    pub(super) title: String,
    pub(super) began: Instant,
    end: watch::Sender<Option<End>>,
    /// Somebody was told how it ended, or is about to be.
    seen: AtomicBool,
    /// Cancelled once nothing is left to do about it.
    pub(super) settled: CancellationToken,
}

/// How a job ended.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) ended: Ended,
    pub(super) kept: Kept,
    pub(super) took: Duration,
    pub(super) at: Instant,
}

impl Job {
    pub(super) fn new(id: ProcessId, title: String, began: Instant) -> Self {
        let seen = AtomicBool::new(false);
        let (end, settled) = (watch::Sender::new(None), CancellationToken::new());
        Self { id, title, began, end, seen, settled }
    }

    /// How it ended, if it has.
    pub(super) fn end(&self) -> Option<End> {
        self.end.borrow().clone()
    }

    pub(super) fn ends(&self, end: End) {
        self.end.send_replace(Some(end));
    }

    /// How it ended, once it has or after this time. Whoever waits is told, and nobody else.
    pub(super) async fn wait(&self, patience: Duration) -> Option<End> {
        self.seen.store(true, Ordering::Relaxed);
        let mut end = self.end.subscribe();
        let ended = timeout(patience, end.wait_for(Option::is_some)).await;
        let end = match ended {
            Ok(Ok(end)) => end.clone(),
            Ok(Err(_)) | Err(_) => self.end(),
        };
        if end.is_none() {
            self.seen.store(false, Ordering::Relaxed);
        }
        end
    }

    /// Whether its session has to be told of its end.
    pub(super) fn is_unseen(&self) -> bool {
        !self.seen.swap(true, Ordering::Relaxed)
    }
}

/// The jobs of all sessions in this process.
#[derive(Debug, Default)]
pub(super) struct Jobs(Mutex<HashMap<Owner, Known>>);

/// A session's jobs, the oldest first.
#[derive(Debug, Default)]
struct Known {
    jobs: Vec<Arc<Job>>,
    /// Cancelled when the last of them is forgotten.
    gone: CancellationToken,
}

impl Drop for Known {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}

impl Jobs {
    fn all(&self) -> MutexGuard<'_, HashMap<Owner, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job. If it is its session's only one, says when none of them is left.
    pub(super) fn add(&self, owner: Owner, job: &Arc<Job>) -> Option<CancellationToken> {
        let mut all = self.all();
        let known = all.entry(owner).or_default();
        known.jobs.push(Arc::clone(job));
        (known.jobs.len() == 1).then(|| known.gone.clone())
    }

    pub(super) fn find(&self, owner: Owner, id: ProcessId) -> Option<Arc<Job>> {
        self.all().get(&owner)?.jobs.iter().find(|job| job.id == id).cloned()
    }

    /// A session's jobs, the oldest first.
    pub(super) fn of(&self, owner: Owner) -> Vec<Arc<Job>> {
        self.all().get(&owner).map(|known| known.jobs.clone()).unwrap_or_default()
    }

    /// Those that run, or of whose end somebody is still to be told.
    pub(super) fn unsettled(&self) -> Vec<(Owner, Arc<Job>)> {
        let all = self.all();
        let each = all.iter().flat_map(|(owner, known)| known.jobs.iter().map(|job| (*owner, job)));
        each.filter(|(_, job)| !job.settled.is_cancelled())
            .map(|(owner, job)| (owner, Arc::clone(job)))
            .collect()
    }

    /// Forgets those that ended so long ago, and of a session with many the oldest that ended; says
    /// which.
    pub(super) fn forget(&self, idle: Duration) -> Vec<(Owner, ProcessId)> {
        let mut forgotten = Vec::new();
        self.all().retain(|owner, known| {
            let mut excess = known.jobs.len().saturating_sub(MOST_KNOWN);
            known.jobs.retain(|job| {
                let Some(end) = job.end() else { return true };
                let is_old = excess > 0 || end.at.elapsed() >= idle;
                if is_old {
                    excess = excess.saturating_sub(1);
                    forgotten.push((*owner, job.id));
                }
                !is_old
            });
            !known.jobs.is_empty()
        });
        forgotten
    }
}
