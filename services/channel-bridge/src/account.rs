//! Parts that every served account has: identity, the way to the gateway, status.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use holdfast_bus::Bus;
use holdfast_directory::{AccountState, AccountStatus};
use holdfast_proto::gateway::v1::SenderAssurance;
use holdfast_session::Sessions;
use holdfast_types::{AccountId, TenantId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{ingest::Ingest, notices::RefusalNotices};

/// Interval at which an unchanged status is reported again, which shows that a bridge serves it.
const STATUS_REPORT_INTERVAL: Duration = Duration::from_secs(300);

/// Where a bridge sees answers while they are written.
#[derive(Debug, Clone)]
pub struct RunningAnswers {
    pub bus: Bus,
    pub sessions: Sessions,
    /// Cancelled when the process stops: nobody follows an answer any more.
    pub stopping: CancellationToken,
}

/// An account as this bridge serves it; each channel keeps one in its own account.
pub struct ServedAccount {
    pub tenant: TenantId,
    pub id: AccountId,
    /// Name that bindings refer to.
    pub name: String,
    pub channel: &'static str,
    /// How sure the channel is of a sender, where a message does not say it.
    pub(crate) assurance: SenderAssurance,
    /// Client of the gateway, which receives the messages.
    pub ingest: Ingest,
    /// Where answers are seen while they are written; `None` where nothing is answered.
    pub(crate) answers: Option<RunningAnswers>,
    pub(crate) notices: RefusalNotices,
    statuses: Arc<Statuses>,
}

/// Tenant, id, name, channel, and the channel's assurance of senders.
type AccountIdentity = (TenantId, AccountId, String, &'static str, SenderAssurance);

impl fmt::Debug for ServedAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, id, channel, .. } = self;
        write!(f, "ServedAccount({channel} {id} of {tenant})")
    }
}

impl ServedAccount {
    pub(crate) fn new(
        (tenant, id, name, channel, assurance): AccountIdentity,
        ingest: Ingest,
        answers: Option<RunningAnswers>,
        statuses: Arc<Statuses>,
    ) -> Self {
        let notices = RefusalNotices::default();
        Self { tenant, id, name, channel, assurance, ingest, answers, notices, statuses }
    }

    #[cfg(test)]
    pub(crate) fn for_tests(channel: &'static str) -> Self {
        use std::sync::LazyLock;
        // A gRPC channel is made in a runtime, and many of these tests have none.
        static RUNTIME: LazyLock<tokio::runtime::Runtime> =
            LazyLock::new(|| tokio::runtime::Runtime::new().unwrap());
        let _entered = RUNTIME.enter();
        let secret = "0123456789abcdef".into();
        let mesh = holdfast_kit::config::Mesh { secret, ..holdfast_kit::config::Mesh::default() };
        let mesh = holdfast_grpc::Signer::new(&mesh)
            .map(|signer| holdfast_grpc::Mesh::new(signer, "test"));
        let ingest = Ingest::new("http://127.0.0.1:1", mesh.unwrap()).unwrap();
        let (tenant, id) = (TenantId::generate(), AccountId::generate());
        let identity = (tenant, id, "default".to_owned(), channel, SenderAssurance::None);
        Self::new(identity, ingest, None, Arc::default())
    }

    /// Reports that the platform accepts the account, and as whom.
    pub fn report_working(&self, detail: impl Into<String>) {
        self.report(AccountState::Working, detail.into());
    }

    /// Reports why the account does not work, for people and without secrets.
    pub fn report_failing(&self, reason: impl Into<String>) {
        self.report(AccountState::Failing, reason.into());
    }

    /// Reports what the account waits for before it can work.
    pub fn report_waiting(&self, detail: impl Into<String>) {
        self.report(AccountState::Connecting, detail.into());
    }

    pub(crate) fn report_connecting(&self) {
        self.report(AccountState::Connecting, String::new());
    }

    /// Another bridge holds the connection, and reports.
    pub(crate) fn leave_status_to_others(&self) {
        self.statuses.forget((self.tenant, self.id));
    }

    fn report(&self, state: AccountState, detail: String) {
        self.statuses.set((self.tenant, self.id), AccountStatus { state, detail });
    }
}

/// Statuses of the served accounts, until they are stored.
#[derive(Debug, Default)]
pub struct Statuses(Mutex<HashMap<(TenantId, AccountId), KnownStatus>>);

#[derive(Debug)]
struct KnownStatus {
    status: AccountStatus,
    /// When it was stored last; `None` if it has changed since.
    stored: Option<Instant>,
}

impl Statuses {
    pub(crate) fn set(&self, account: (TenantId, AccountId), status: AccountStatus) {
        let mut all = self.lock();
        if all.get(&account).is_none_or(|known| known.status != status) {
            all.insert(account, KnownStatus { status, stored: None });
        }
    }

    /// Forgets accounts that are no longer served here, whose status is another bridge's to report.
    pub(crate) fn retain(&self, is_served: impl Fn(AccountId) -> bool) {
        self.lock().retain(|(_, id), _| is_served(*id));
    }

    pub(crate) fn forget(&self, account: (TenantId, AccountId)) {
        self.lock().remove(&account);
    }

    /// Returns the statuses that have to be stored.
    pub(crate) fn due(&self) -> Vec<((TenantId, AccountId), AccountStatus)> {
        let all = self.lock();
        let is_due = |known: &KnownStatus| {
            known.stored.is_none_or(|at| at.elapsed() >= STATUS_REPORT_INTERVAL)
        };
        let due = all.iter().filter(|(_, known)| is_due(known));
        due.map(|(account, known)| (*account, known.status.clone())).collect()
    }

    /// Notes that a status was stored, unless it has changed meanwhile.
    pub(crate) fn mark_stored(&self, account: (TenantId, AccountId), status: &AccountStatus) {
        if let Some(known) = self.lock().get_mut(&account)
            && known.status == *status
        {
            known.stored = Some(Instant::now());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(TenantId, AccountId), KnownStatus>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_status_is_stored_when_it_changes_and_now_and_then() {
        let (statuses, account) =
            (Statuses::default(), (TenantId::generate(), AccountId::generate()));
        let status = |detail: &str| AccountStatus {
            state: AccountState::Working,
            detail: detail.to_owned(),
        };

        statuses.set(account, status("a"));
        assert_eq!(statuses.due(), [(account, status("a"))]);
        statuses.set(account, status("b"));
        statuses.mark_stored(account, &status("a"));
        assert_eq!(statuses.due(), [(account, status("b"))]);
        statuses.mark_stored(account, &status("b"));
        statuses.set(account, status("b"));
        assert!(statuses.due().is_empty());
        tokio::time::advance(STATUS_REPORT_INTERVAL).await;
        assert_eq!(statuses.due().len(), 1);
        statuses.retain(|_| false);
        assert!(statuses.due().is_empty());
    }
}
