//! Background commands of this process, by session.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use holdfast_sandbox::{CommandEnd, Owner, ProcessId};
use holdfast_tools::WorkspaceChanges;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::running_command::CommandTraits;

/// Jobs of a session that are kept. More are kept only while they run.
const MAX_JOBS_PER_SESSION: usize = 32;

#[derive(Debug)]
pub(super) struct BackgroundJob {
    pub(super) id: ProcessId,
    pub(super) title: String,
    pub(super) began: Instant,
    pub(super) traits: CommandTraits,
    end: watch::Sender<Option<JobEnd>>,
    heard: watch::Sender<EndAwareness>,
    /// Cancelled when the changes are saved and the session has been told.
    pub(super) settled: CancellationToken,
}

/// Tracks whether somebody learnt how a job ended.
#[derive(Debug, Default)]
struct EndAwareness {
    /// Number of waiting callers. Any of them may be cancelled before it gets the result.
    waiting: usize,
    /// Somebody got the result, or is about to.
    told: bool,
}

/// Registration of a waiting caller, removed on drop.
struct WaitGuard<'j>(&'j watch::Sender<EndAwareness>);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|heard| heard.waiting -= 1);
    }
}

#[derive(Debug, Clone)]
pub(super) struct JobEnd {
    pub(super) ended: CommandEnd,
    pub(super) kept: WorkspaceChanges,
    pub(super) took: Duration,
    pub(super) at: Instant,
}

impl BackgroundJob {
    pub(super) fn new(id: ProcessId, title: String, began: Instant, traits: CommandTraits) -> Self {
        let (end, settled) = (watch::Sender::new(None), CancellationToken::new());
        Self { id, title, began, traits, end, heard: watch::Sender::default(), settled }
    }

    /// `None` while the job runs.
    pub(super) fn end(&self) -> Option<JobEnd> {
        self.end.borrow().clone()
    }

    pub(super) fn set_end(&self, end: JobEnd) {
        self.end.send_replace(Some(end));
    }

    /// Waits for the end, for at most this long. If there is one, the session needs no message
    /// about it.
    pub(super) async fn wait(&self, patience: Duration) -> Option<JobEnd> {
        self.heard.send_modify(|heard| heard.waiting += 1);
        let waits = WaitGuard(&self.heard);
        let mut end = self.end.subscribe();
        // The sender is part of the job, so the channel stays open.
        drop(timeout(patience, end.wait_for(Option::is_some)).await);
        let end = self.end();
        if end.is_some() {
            waits.0.send_modify(|heard| heard.told = true);
        }
        end
    }

    /// Whether the session must be told of the end. Waits until every waiting caller got the result
    /// or was cancelled. Returns `true` only once.
    pub(super) async fn must_announce(&self) -> bool {
        let mut heard = self.heard.subscribe();
        let settles = |heard: &EndAwareness| heard.told || heard.waiting == 0;
        drop(heard.wait_for(settles).await);
        self.heard.send_if_modified(|heard| !mem::replace(&mut heard.told, true))
    }
}

#[derive(Debug, Default)]
pub(super) struct BackgroundJobs(Mutex<HashMap<Owner, SessionJobs>>);

/// Jobs of a session, oldest first.
#[derive(Debug, Default)]
struct SessionJobs {
    jobs: Vec<Arc<BackgroundJob>>,
    /// Cancelled when the last job is removed.
    gone: CancellationToken,
}

impl Drop for SessionJobs {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}

impl BackgroundJobs {
    fn lock_all(&self) -> MutexGuard<'_, HashMap<Owner, SessionJobs>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job. If it is the session's first, returns a token that is cancelled when none is
    /// left.
    pub(super) fn add(&self, owner: Owner, job: &Arc<BackgroundJob>) -> Option<CancellationToken> {
        let mut all = self.lock_all();
        let known = all.entry(owner).or_default();
        known.jobs.push(Arc::clone(job));
        (known.jobs.len() == 1).then(|| known.gone.clone())
    }

    pub(super) fn find(&self, owner: Owner, id: ProcessId) -> Option<Arc<BackgroundJob>> {
        self.lock_all().get(&owner)?.jobs.iter().find(|job| job.id == id).cloned()
    }

    /// Oldest first.
    pub(super) fn of_session(&self, owner: Owner) -> Vec<Arc<BackgroundJob>> {
        self.lock_all().get(&owner).map(|known| known.jobs.clone()).unwrap_or_default()
    }

    /// Jobs that run, or whose session is still to be told.
    pub(super) fn unsettled(&self) -> Vec<(Owner, Arc<BackgroundJob>)> {
        let all = self.lock_all();
        let each = all.iter().flat_map(|(owner, known)| known.jobs.iter().map(|job| (*owner, job)));
        each.filter(|(_, job)| !job.settled.is_cancelled())
            .map(|(owner, job)| (owner, Arc::clone(job)))
            .collect()
    }

    /// Removes jobs that ended longer ago than `idle`, and the oldest ended ones of a session that
    /// has too many. Returns them.
    pub(super) fn remove_old(&self, idle: Duration) -> Vec<(Owner, ProcessId)> {
        let mut forgotten = Vec::new();
        self.lock_all().retain(|owner, known| {
            let mut excess = known.jobs.len().saturating_sub(MAX_JOBS_PER_SESSION);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> BackgroundJob {
        let id = "prc_0190a1b2c3d47e8f90a1b2c3d4e5f607".parse().unwrap();
        BackgroundJob::new(id, "sleep".to_owned(), Instant::now(), CommandTraits::default())
    }

    fn end() -> JobEnd {
        let (ended, kept) = (CommandEnd::Exited(0), WorkspaceChanges::default());
        JobEnd { ended, kept, took: Duration::ZERO, at: Instant::now() }
    }

    #[tokio::test]
    async fn who_waits_for_an_end_is_told_and_its_session_is_not() {
        let job = job();

        let (seen, unseen) = tokio::join!(job.wait(Duration::from_secs(60)), async {
            job.set_end(end());
            job.must_announce().await
        });

        assert!(seen.is_some() && !unseen);
    }

    #[tokio::test]
    async fn a_session_is_told_whose_turn_went_away_while_it_waited() {
        let job = job();
        let mut waits = Box::pin(job.wait(Duration::from_secs(60)));
        assert!(futures::poll!(&mut waits).is_pending());

        drop(waits);
        job.set_end(end());

        assert!(job.must_announce().await);
        assert!(!job.must_announce().await, "it is told once");
    }

    #[tokio::test]
    async fn a_session_is_told_whose_turn_goes_away_after_the_end_and_before_it_heard_of_it() {
        let job = job();
        let mut waits = Box::pin(job.wait(Duration::from_secs(60)));
        assert!(futures::poll!(&mut waits).is_pending());
        job.set_end(end());
        let mut unseen = Box::pin(job.must_announce());
        assert!(futures::poll!(&mut unseen).is_pending());

        drop(waits);

        assert!(unseen.await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_told_of_an_end_that_was_not_waited_for_long_enough() {
        let job = job();
        assert!(job.wait(Duration::from_secs(1)).await.is_none());

        job.set_end(end());

        assert!(job.must_announce().await);
    }
}
