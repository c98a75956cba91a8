//! Channel accounts that are served, as the directory has them.
//!
//! The accounts are read again every few seconds: a new one is served, a changed one is rebuilt, a
//! disabled or deleted one is stopped. An account that cannot be used is logged once and does not
//! affect others. While the database is unavailable, the accounts that were read last remain. While
//! the secrets service does not open secrets, accounts that are new or have changed are read again
//! later. What accounts know about their platforms is stored at the same interval.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use holdfast_directory::{
    AccountState, AccountStatus, Directory, Error, ListedAccount, OpenAccount,
};
use holdfast_kit::Check;
use holdfast_pg::FailureLog;
use holdfast_types::{AccountId, Fault as _, TenantId};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    account::{ServedAccount, Statuses},
    channel::{Channel, ChannelAccount, StoredSettings, Unusable},
    keeper::{ConnectionKeeper, Holders},
};

pub use crate::channel::AccountContext;

/// Time that a worker has to stop before it is aborted.
const WORKER_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// One account, served or not.
#[derive(Debug, Clone)]
pub enum AccountHandle {
    Served(Arc<dyn ChannelAccount>),
    /// The account cannot be used, for this reason.
    Unusable(String),
}

/// Reason why an account has no adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MissingAdapter {
    Deleted,
    /// The account is disabled, cannot be used, or cannot be read now; with the reason.
    Unavailable(String),
}

#[derive(Debug, Clone)]
struct LoadedAccount {
    version: i64,
    channel: String,
    account: AccountHandle,
}

/// Accounts that are served, refreshed from the directory.
#[derive(Debug)]
pub struct Accounts {
    directory: Directory,
    channels: &'static [&'static Channel],
    context: AccountContext,
    known: RwLock<HashMap<AccountId, LoadedAccount>>,
    statuses: Arc<Statuses>,
    holders: Arc<Holders>,
}

impl Accounts {
    #[must_use]
    pub fn new(
        directory: Directory,
        channels: &'static [&'static Channel],
        context: AccountContext,
    ) -> Self {
        Self {
            directory,
            channels,
            context,
            known: RwLock::default(),
            statuses: Arc::default(),
            holders: Arc::default(),
        }
    }

    /// Returns the channel with this name, if it is served here.
    #[must_use]
    pub fn channel(&self, name: &str) -> Option<&'static Channel> {
        self.channels.iter().find(|channel| channel.name == name).copied()
    }

    /// Returns the account with this id, if it is served here.
    #[must_use]
    pub fn get(&self, id: AccountId) -> Option<Arc<dyn ChannelAccount>> {
        match self.handle(id)? {
            AccountHandle::Served(account) => Some(account),
            AccountHandle::Unusable(_) => None,
        }
    }

    /// Whether there is an account of this channel.
    #[must_use]
    pub fn has_any_of(&self, channel: &str) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.values().any(|known| known.channel == channel)
    }

    fn handle(&self, id: AccountId) -> Option<AccountHandle> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&id).map(|known| known.account.clone())
    }

    /// Returns the adapter that sends for an account.
    ///
    /// # Errors
    ///
    /// If the account does not exist, or cannot be used now.
    pub async fn adapter(
        &self,
        tenant: TenantId,
        id: AccountId,
    ) -> Result<Arc<dyn ChannelAccount>, MissingAdapter> {
        let account = match self.handle(id) {
            Some(account) => account,
            None => self.read(tenant, id).await?,
        };
        match account {
            AccountHandle::Served(account) => Ok(account),
            AccountHandle::Unusable(why) => Err(MissingAdapter::Unavailable(why)),
        }
    }

    /// Returns the accounts of a channel that are sent for by the bridge with their connection,
    /// which is not this one.
    #[must_use]
    pub fn connected_elsewhere(&self, channel: &str) -> Vec<AccountId> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let is_elsewhere = |(id, known): (&AccountId, &LoadedAccount)| match &known.account {
            AccountHandle::Served(account) => {
                let needs_connection =
                    account.account().channel == channel && account.sends_over_connection();
                (needs_connection && !self.holders.is_held(*id)).then_some(*id)
            }
            AccountHandle::Unusable(_) => None,
        };
        known.iter().filter_map(is_elsewhere).collect()
    }

    /// Reads an account that is not known here: it may be newer than the last refresh.
    async fn read(&self, tenant: TenantId, id: AccountId) -> Result<AccountHandle, MissingAdapter> {
        let not_now = |error: Error| MissingAdapter::Unavailable(error.to_string());
        let open = match self.directory.accounts().get(tenant, id).await {
            Err(Error::NotFound { .. }) => return Err(MissingAdapter::Deleted),
            open => open.map_err(not_now)?,
        };
        let is_served = self.directory.accounts().tenant_of(id).await.map_err(not_now)?.is_some();
        if !is_served {
            return Err(MissingAdapter::Unavailable("the account is disabled".to_owned()));
        }
        let built = self.build(tenant, &open);
        built
            .map(AccountHandle::Served)
            .map_err(|error| MissingAdapter::Unavailable(error.to_string()))
    }

    fn build(
        &self,
        tenant: TenantId,
        open: &OpenAccount,
    ) -> Result<Arc<dyn ChannelAccount>, Unusable> {
        let OpenAccount { account, secrets } = open;
        let Some(Channel { name, assurance, build, .. }) = self.channel(&account.channel) else {
            return Err(Unusable::Channel(account.channel.clone()));
        };
        let identity = (tenant, account.id, account.name.clone(), *name, *assurance);
        let ingest = self.context.ingest.clone();
        let answers = Some(self.context.answers.clone());
        let served = ServedAccount::new(identity, ingest, answers, Arc::clone(&self.statuses));
        build(served, StoredSettings { settings: &account.settings, secrets }, &self.context)
    }

    /// Reads the list of accounts, and builds those that are new or have changed.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read, or the secrets service did not open the secrets of an account.
    pub async fn refresh(&self) -> Result<(), Error> {
        let channels: Vec<&str> = self.channels.iter().map(|channel| channel.name).collect();
        let listed = self.directory.accounts().all(&channels).await?;
        let mut failure = None;
        for ListedAccount { tenant, id, version, channel } in &listed {
            let is_known = {
                let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
                known.get(id).is_some_and(|known| known.version >= *version)
            };
            if is_known {
                continue;
            }
            // The new connection reports even if it finds what the one before has found.
            self.statuses.forget((*tenant, *id));
            let made = match self.directory.accounts().get(*tenant, *id).await {
                Ok(open) => self.build(*tenant, &open).map_err(|error| error.to_string()),
                Err(Error::NotFound { .. }) => continue,
                Err(error) if error.kind().is_transient() => {
                    failure = Some(error);
                    break;
                }
                // A refusal is about the keys and clocks of the services, not about the account.
                Err(error @ Error::SecretsService(_)) => {
                    failure = Some(error);
                    continue;
                }
                Err(error) => Err(error.to_string()),
            };
            let account = match made {
                Ok(account) => AccountHandle::Served(account),
                Err(why) => {
                    warn!(why, account.id = %id, "an account cannot be served until it is changed");
                    let status =
                        AccountStatus { state: AccountState::Failing, detail: why.clone() };
                    self.statuses.set((*tenant, *id), status);
                    AccountHandle::Unusable(why)
                }
            };
            let known = LoadedAccount { version: *version, channel: channel.clone(), account };
            self.known.write().unwrap_or_else(PoisonError::into_inner).insert(*id, known);
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let listed: HashSet<AccountId> = listed.iter().map(|account| account.id).collect();
        known.retain(|id, _| listed.contains(id));
        self.statuses.retain(|id| known.contains_key(&id));
        failure.map_or(Ok(()), Err)
    }

    /// Stores what the accounts know about their platforms. A failure is repeated at the next
    /// refresh.
    async fn store_statuses(&self) -> Result<(), Error> {
        for ((tenant, id), status) in self.statuses.due() {
            self.directory.accounts().record_status(tenant, id, &status).await?;
            self.statuses.mark_stored((tenant, id), &status);
        }
        Ok(())
    }

    /// Refreshes the accounts, and keeps their workers running, until `stop` is cancelled.
    ///
    /// # Errors
    ///
    /// Never; a failure is logged and retried.
    pub async fn run(self: Arc<Self>, read: Check, stop: CancellationToken) -> anyhow::Result<()> {
        let mut workers = Workers::default();
        let trouble = FailureLog::new("the accounts cannot be read");
        let unstored = FailureLog::new("the statuses of accounts are not stored");
        loop {
            let refreshed = self.refresh().await;
            // After a failure, too: an account that was deleted is not served on.
            workers.reconcile(&self).await;
            match refreshed {
                Ok(()) => {
                    read.pass();
                    trouble.on_success();
                    match self.store_statuses().await {
                        Ok(()) => unstored.on_success(),
                        Err(error) => unstored.on_failure(&error),
                    }
                }
                // The known accounts are served on.
                Err(error) => trouble.on_failure(&error),
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(self.context.config.refresh) => {}
            }
        }
        workers.stop().await;
        Ok(())
    }
}

/// Tasks that keep the connections of accounts.
#[derive(Default)]
struct Workers(HashMap<AccountId, Worker>);

struct Worker {
    version: i64,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Worker {
    async fn stop(self) {
        self.stop.cancel();
        let abort = self.task.abort_handle();
        if timeout(WORKER_STOP_TIMEOUT, self.task).await.is_err() {
            abort.abort();
        }
    }
}

impl Workers {
    /// Starts and stops workers until they match the accounts.
    async fn reconcile(&mut self, accounts: &Accounts) {
        let wanted: HashMap<AccountId, (i64, Arc<dyn ChannelAccount>)> = {
            let known = accounts.known.read().unwrap_or_else(PoisonError::into_inner);
            let served = known.iter().filter_map(|(id, known)| match &known.account {
                AccountHandle::Served(account) => Some((*id, (known.version, Arc::clone(account)))),
                AccountHandle::Unusable(_) => None,
            });
            served.collect()
        };
        let is_right = |id: &AccountId, worker: &Worker| {
            wanted.get(id).is_some_and(|(version, _)| *version == worker.version)
        };
        let wrong: Vec<AccountId> =
            self.0.iter().filter(|(id, worker)| !is_right(id, worker)).map(|(id, _)| *id).collect();
        let leaving = wrong.iter().filter_map(|id| self.0.remove(id)).map(Worker::stop);
        futures::future::join_all(leaving.collect::<Vec<_>>()).await;
        for (id, (version, account)) in wanted {
            self.0.entry(id).or_insert_with(|| {
                let stop = CancellationToken::new();
                let task = accounts.start_worker(account, stop.clone());
                Worker { version, stop, task }
            });
        }
    }

    async fn stop(self) {
        futures::future::join_all(self.0.into_values().map(Worker::stop)).await;
    }
}

impl Accounts {
    fn start_worker(
        &self,
        account: Arc<dyn ChannelAccount>,
        stop: CancellationToken,
    ) -> JoinHandle<()> {
        // The future of a connection does nothing until it is polled.
        if Arc::clone(&account).connect(stop.clone()).is_none() {
            account.account().report_working("the platform calls the bridge");
            return tokio::spawn(async move { stop.cancelled().await });
        }
        let (locks, holders) = (self.context.locks.clone(), Arc::clone(&self.holders));
        tokio::spawn(ConnectionKeeper::new(account, locks, holders).run(stop))
    }
}
