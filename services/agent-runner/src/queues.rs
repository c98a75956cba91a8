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

/// Queue of conversations to extract from, without waiting until they are idle. Its tenants take
/// turns, and none fills more than a quarter of it.
#[derive(Default)]
pub(crate) struct ExtractionQueue {
    sessions: Mutex<VecDeque<TenantSession>>,
    pub(crate) added: Notify,
}

/// Limit on one tenant's part of a queue.
const MAX_QUEUED_PER_TENANT: usize = MAX_QUEUED / 4;

impl fmt::Debug for ExtractionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtractionQueue").finish_non_exhaustive()
    }
}

impl ExtractionQueue {
    pub(crate) fn push(&self, which: TenantSession) {
        let mut jobs = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let of_tenant = jobs.iter().filter(|(tenant, _)| *tenant == which.0).count();
        if jobs.len() < MAX_QUEUED && of_tenant < MAX_QUEUED_PER_TENANT && !jobs.contains(&which) {
            jobs.push_back(which);
            drop(jobs);
            self.added.notify_one();
        }
    }

    /// Takes the oldest conversation. Others of its tenant move behind those of other tenants.
    pub(crate) fn pop(&self) -> Option<TenantSession> {
        let mut jobs = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let next = jobs.pop_front()?;
        let (later, first): (VecDeque<_>, VecDeque<_>) =
            jobs.drain(..).partition(|(tenant, _)| *tenant == next.0);
        jobs.extend(first.into_iter().chain(later));
        drop(jobs);
        Some(next)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_tenant_does_not_delay_the_extractions_of_another() {
        let queue = ExtractionQueue::default();
        let (busy, quiet) = (TenantId::generate(), TenantId::generate());
        for _ in 0..MAX_QUEUED {
            queue.push((busy, SessionId::generate()));
        }
        queue.push((quiet, SessionId::generate()));

        let first: Vec<_> = (0..3).filter_map(|_| queue.pop()).map(|(tenant, _)| tenant).collect();

        assert_eq!(first, [busy, quiet, busy]);
        let rest = std::iter::from_fn(|| queue.pop()).count();
        assert_eq!(rest, MAX_QUEUED_PER_TENANT - 2);
    }
}
