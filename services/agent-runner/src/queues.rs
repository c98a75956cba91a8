//! Queues of background work that turns fill: conversations to extract memories from, and to
//! summarise.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use holdfast_agent::compact::Plan;
use holdfast_types::{RunId, SessionId, TenantId};
use tokio::sync::Notify;

use crate::agents::snapshots::AgentSnapshot;

/// Limit on each queue. Further conversations are found by a later search, or queued after their
/// next turn.
const MAX_QUEUED: usize = 256;

pub(crate) type TenantSession = (TenantId, SessionId);

/// Queue of conversations to extract from, without waiting until they are idle.
#[derive(Default)]
pub(crate) struct ExtractionQueue {
    sessions: Mutex<VecDeque<TenantSession>>,
    pub(crate) added: Notify,
}

impl fmt::Debug for ExtractionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtractionQueue").finish_non_exhaustive()
    }
}

impl ExtractionQueue {
    pub(crate) fn push(&self, which: TenantSession) {
        let mut jobs = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.len() < MAX_QUEUED && !jobs.contains(&which) {
            jobs.push_back(which);
            drop(jobs);
            self.added.notify_one();
        }
    }

    pub(crate) fn pop(&self) -> Option<TenantSession> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

#[derive(Default)]
pub(crate) struct SummaryQueue {
    jobs: Mutex<VecDeque<SummaryJob>>,
    pub(crate) added: Notify,
}

impl fmt::Debug for SummaryQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SummaryQueue").finish_non_exhaustive()
    }
}

/// A conversation to summarise.
pub(crate) struct SummaryJob {
    pub(crate) tenant: TenantId,
    pub(crate) session: SessionId,
    pub(crate) run: RunId,
    pub(crate) snapshot: Arc<AgentSnapshot>,
    pub(crate) plan: Plan,
    /// Next `seq` of the journal when the summary was planned.
    pub(crate) next_entry: i64,
}

impl SummaryQueue {
    pub(crate) fn push(&self, job: SummaryJob) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.len() < MAX_QUEUED {
            jobs.push_back(job);
            drop(jobs);
            self.added.notify_one();
        }
    }

    pub(crate) fn pop(&self) -> Option<SummaryJob> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}
