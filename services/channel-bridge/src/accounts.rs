//! Channel accounts that are served, as the directory has them.
//!
//! The accounts are read again every few seconds: a new one is served, a changed one is rebuilt, a
//! disabled or deleted one is stopped. An account that cannot be used is logged once and does not
//! affect others. While the database is unavailable, the accounts that were read last remain.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use holdfast_directory::{
    Directory, Error, OpenAccount,
    channel::{self, UpdateMode},
};
use holdfast_kit::Check;
use holdfast_lock::Locks;
use holdfast_types::{AccountId, Fault as _, TenantId};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    account::Unusable,
    adapter::ChannelAdapter,
    config::Bridge,
    guard::Clients,
    ingest::Ingest,
    telegram::{self, Poller, Telegram},
    webhook::Webhook,
};

/// Channels that this bridge serves.
pub const CHANNELS: [&str; 2] = [channel::TELEGRAM, channel::WEBHOOK];

/// Time that a worker has to stop before it is aborted.
const WORKER_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// One account, served or not.
#[derive(Debug, Clone)]
pub enum AccountHandle {
    Telegram(Arc<Telegram>),
    Webhook(Arc<Webhook>),
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
    line: AccountHandle,
}

#[derive(Debug, Clone)]
pub struct AccountContext {
    pub config: Bridge,
    /// HTTP clients for calls to platforms.
    pub clients: Clients,
    /// Client of the gateway, which receives the messages.
    pub ingest: Ingest,
    /// Leases that decide which bridge polls a bot.
    pub locks: Locks,
}

/// Accounts that are served, refreshed from the directory.
#[derive(Debug)]
pub struct Accounts {
    directory: Directory,
    context: AccountContext,
    known: RwLock<HashMap<AccountId, LoadedAccount>>,
}

impl Accounts {
    #[must_use]
    pub fn new(directory: Directory, means: AccountContext) -> Self {
        Self { directory, context: means, known: RwLock::default() }
    }

    /// Returns the account with this id, if it is served here.
    #[must_use]
    pub fn get(&self, id: AccountId) -> Option<AccountHandle> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&id).map(|known| known.line.clone())
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
    ) -> Result<Arc<dyn ChannelAdapter>, MissingAdapter> {
        let line = match self.get(id) {
            Some(line) => line,
            None => self.read(tenant, id).await?,
        };
        match line {
            AccountHandle::Telegram(telegram) => Ok(telegram),
            AccountHandle::Webhook(webhook) => Ok(webhook),
            AccountHandle::Unusable(why) => Err(MissingAdapter::Unavailable(why)),
        }
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
        self.build(tenant, &open).map_err(|error| MissingAdapter::Unavailable(error.to_string()))
    }

    fn build(&self, tenant: TenantId, open: &OpenAccount) -> Result<AccountHandle, Unusable> {
        let OpenAccount { account, secrets } = open;
        let who = (tenant, account.id, account.name.clone());
        let chosen = (&account.settings, secrets);
        let AccountContext { config, clients, ingest, .. } = &self.context;
        match account.channel.as_str() {
            channel::TELEGRAM => {
                let means = (clients, config.telegram.api_base.as_str(), ingest);
                Ok(AccountHandle::Telegram(Arc::new(Telegram::new(who, chosen, means)?)))
            }
            channel::WEBHOOK => {
                Ok(AccountHandle::Webhook(Arc::new(Webhook::new(who, chosen, clients)?)))
            }
            other => Err(Unusable::Channel(other.to_owned())),
        }
    }

    /// Reads the list of accounts, and builds those that are new or have changed.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub async fn refresh(&self) -> Result<(), Error> {
        let mut listed = HashMap::new();
        for channel in CHANNELS {
            for (tenant, id, version) in self.directory.accounts().all(channel).await? {
                listed.insert(id, (tenant, version));
            }
        }
        for (id, (tenant, version)) in &listed {
            let is_known = {
                let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
                known.get(id).is_some_and(|known| known.version >= *version)
            };
            if is_known {
                continue;
            }
            let made = match self.directory.accounts().get(*tenant, *id).await {
                Ok(open) => self.build(*tenant, &open).map_err(|error| error.to_string()),
                Err(Error::NotFound { .. }) => continue,
                Err(error) if error.kind().is_transient() => return Err(error),
                Err(error) => Err(error.to_string()),
            };
            let line = made.unwrap_or_else(|why| {
                warn!(why, account.id = %id, "an account cannot be served until it is changed");
                AccountHandle::Unusable(why)
            });
            let known = LoadedAccount { version: *version, line };
            self.known.write().unwrap_or_else(PoisonError::into_inner).insert(*id, known);
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|id, _| listed.contains_key(id));
        Ok(())
    }

    /// Refreshes the accounts, and keeps their workers running, until `stop` is cancelled.
    ///
    /// # Errors
    ///
    /// Never; a failure is logged and retried.
    pub async fn run(self: Arc<Self>, read: Check, stop: CancellationToken) -> anyhow::Result<()> {
        let mut workers = Workers::default();
        let mut is_failing = false;
        loop {
            match self.refresh().await {
                Ok(()) => {
                    read.pass();
                    if is_failing {
                        info!("the accounts can be read again");
                    }
                    is_failing = false;
                    workers.reconcile(&self).await;
                }
                Err(error) => {
                    if !is_failing {
                        warn!(%error, "the accounts cannot be read; going on with those that are known");
                    }
                    is_failing = true;
                }
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

/// Tasks that run for accounts: pollers, and registrations of webhooks.
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
        let wanted: HashMap<AccountId, (i64, Arc<Telegram>)> = {
            let known = accounts.known.read().unwrap_or_else(PoisonError::into_inner);
            let bots = known.iter().filter_map(|(id, known)| match &known.line {
                AccountHandle::Telegram(telegram) => {
                    Some((*id, (known.version, Arc::clone(telegram))))
                }
                AccountHandle::Webhook(_) | AccountHandle::Unusable(_) => None,
            });
            bots.collect()
        };
        let is_right = |id: &AccountId, worker: &Worker| {
            wanted.get(id).is_some_and(|(version, _)| *version == worker.version)
        };
        let wrong: Vec<AccountId> =
            self.0.iter().filter(|(id, worker)| !is_right(id, worker)).map(|(id, _)| *id).collect();
        let leaving = wrong.iter().filter_map(|id| self.0.remove(id)).map(Worker::stop);
        futures::future::join_all(leaving.collect::<Vec<_>>()).await;
        for (id, (version, telegram)) in wanted {
            self.0.entry(id).or_insert_with(|| {
                let stop = CancellationToken::new();
                let task = start_worker(telegram, &accounts.context, stop.clone());
                Worker { version, stop, task }
            });
        }
    }

    async fn stop(self) {
        futures::future::join_all(self.0.into_values().map(Worker::stop)).await;
    }
}

fn start_worker(
    telegram: Arc<Telegram>,
    means: &AccountContext,
    stop: CancellationToken,
) -> JoinHandle<()> {
    match telegram.mode() {
        UpdateMode::Poll => {
            let wait = means.config.telegram.poll_timeout;
            tokio::spawn(Poller::new(telegram, means.locks.clone(), wait).run(stop))
        }
        UpdateMode::Webhook => match &means.config.public_url {
            Some(base) => {
                let url = format!("{}/telegram/{}", base.trim_end_matches('/'), telegram.id());
                tokio::spawn(telegram::register(telegram, url, stop))
            }
            None => {
                warn!(
                    account.id = %telegram.id(),
                    "an account wants to be called by telegram: set `bridge.public_url`, \
                     or register its webhook by hand"
                );
                tokio::spawn(async {})
            }
        },
    }
}
