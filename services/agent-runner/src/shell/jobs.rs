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

/// A command in the background.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: ProcessId,
    pub(super) title: String,
    pub(super) began: Instant,
    end: watch::Sender<Option<End>>,
    /// Somebody was told how it ended, or is about to be.
    seen: AtomicBool,
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
        Self { id, title, began, end: watch::Sender::new(None), seen }
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

    /// Waits for its end, of which its session is told as ever.
    pub(super) async fn wait_to_end(&self) {
        // The sender is this job's own.
        drop(self.end.subscribe().wait_for(Option::is_some).await);
    }

    /// Whether its session has to be told of its end.
    pub(super) fn is_unseen(&self) -> bool {
        !self.seen.swap(true, Ordering::Relaxed)
    }
}

/// The jobs of all sessions in this process.
#[derive(Debug, Default)]
pub(super) struct Jobs(Mutex<HashMap<Owner, Vec<Arc<Job>>>>);

impl Jobs {
    fn all(&self) -> MutexGuard<'_, HashMap<Owner, Vec<Arc<Job>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, owner: Owner, job: &Arc<Job>) {
        self.all().entry(owner).or_default().push(Arc::clone(job));
    }

    pub(super) fn find(&self, owner: Owner, id: ProcessId) -> Option<Arc<Job>> {
        self.all().get(&owner)?.iter().find(|job| job.id == id).cloned()
    }

    /// A session's jobs, the oldest first.
    pub(super) fn of(&self, owner: Owner) -> Vec<Arc<Job>> {
        self.all().get(&owner).cloned().unwrap_or_default()
    }

    /// Those that run.
    pub(super) fn running(&self) -> Vec<(Owner, Arc<Job>)> {
        let all = self.all();
        let each = all.iter().flat_map(|(owner, jobs)| jobs.iter().map(|job| (*owner, job)));
        each.filter(|(_, job)| job.end().is_none())
            .map(|(owner, job)| (owner, Arc::clone(job)))
            .collect()
    }

    /// Forgets those that ended so long ago, and says which.
    pub(super) fn forget(&self, idle: Duration) -> Vec<(Owner, ProcessId)> {
        let mut forgotten = Vec::new();
        self.all().retain(|owner, jobs| {
            jobs.retain(|job| {
                let is_old = job.end().is_some_and(|end| end.at.elapsed() >= idle);
                if is_old {
                    forgotten.push((*owner, job.id));
                }
                !is_old
            });
            !jobs.is_empty()
        });
        forgotten
    }
}
