//! Health of keys and models: failures and cooldowns, shared by all runners (spec AUT-002,
//! AUT-007).
//!
//! Read before each model request, so reads are local; what other runners recorded is fetched when
//! an agent's snapshot is reloaded, once a second. A change is made in Redis by compare-and-set and
//! then written to the database, which is used when Redis is empty. A success that changes nothing
//! is written at most once a minute, for the order of keys.
//!
//! **What can go wrong.** Without Redis, changes go to the database and one of two concurrent
//! changes may be lost. Without the database too, this process uses its own records. The database has
//! no records of models, and of the installation's keys only those that all tenants share.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use holdfast_directory::{CredentialStats, Directory};
use holdfast_llm::{Reason, credentials::Stats};
use holdfast_lock::{Locks, Mark};
use holdfast_types::TenantId;
use jiff::Timestamp;
use tracing::{debug, info, warn};
use uuid::Uuid;

/// Longer than any record matters: a day of cooldown and the day in which failures count.
const RECORD_TTL: Duration = Duration::from_secs(48 * 60 * 60);

/// Minimum interval of recording that a key is in use, in milliseconds.
const MIN_USE_INTERVAL_MS: i64 = 60_000;

/// Attempts of a compare-and-set.
const MAX_ATTEMPTS: usize = 8;

/// Records kept in this process. When full, all are cleared and read again.
const MAX_RECORDS: usize = 20_000;

/// Subject of a health record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum HealthSubject {
    /// A key: provider and key id.
    Key(String, String),
    /// A key of the installation, as far as requests of one tenant fail with it.
    PlatformKey(String, String),
    /// A model, as `provider:id`.
    Model(String),
}

pub(crate) type TenantSubject = (TenantId, HealthSubject);

/// A health record and when this process last used its key, in milliseconds.
#[derive(Debug, Clone, Default)]
struct HealthRecord {
    remembered: CredentialStats,
    last_used: Option<i64>,
}

pub(crate) struct KeyHealth {
    locks: Locks,
    directory: Directory,
    records: Mutex<HashMap<TenantSubject, HealthRecord>>,
}

/// Owner of the records of the installation's keys, which all tenants share.
pub(crate) fn platform_keys_owner() -> TenantId {
    TenantId::from(Uuid::nil())
}

/// Current time in milliseconds since the epoch, as everywhere in this file.
pub(crate) fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

impl KeyHealth {
    pub(crate) fn new(locks: Locks, directory: Directory) -> Self {
        Self { locks, directory, records: Mutex::default() }
    }

    pub(crate) fn stats(&self, tenant: TenantId, of: &HealthSubject) -> Stats {
        let known = self.records();
        let Some(found) = known.get(&(tenant, of.clone())) else { return Stats::default() };
        let stats = found.remembered.stats.clone();
        Stats { last_used: found.last_used.max(stats.last_used), ..stats }
    }

    /// Stores a record if it is newer than the local one.
    pub(crate) fn store_if_newer(
        &self,
        tenant: TenantId,
        of: HealthSubject,
        stored: &CredentialStats,
    ) {
        let mut known = self.records();
        if known.len() >= MAX_RECORDS {
            known.clear();
        }
        let found = known.entry((tenant, of)).or_default();
        if found.remembered.changed < stored.changed {
            found.remembered = stored.clone();
        }
    }

    /// Fetches the records of other runners.
    pub(crate) async fn refresh(&self, all: Vec<TenantSubject>) {
        let names: Vec<String> = all.iter().map(|(tenant, of)| mark_name(*tenant, of)).collect();
        let Ok(marks) = self.locks.marks(&names).await else { return };
        for ((tenant, of), mark) in all.into_iter().zip(marks) {
            if let Some(remembered) = mark.as_ref().and_then(parse_mark) {
                self.store_if_newer(tenant, of, &remembered);
            }
        }
    }

    /// Records a failure and starts a cooldown.
    pub(crate) async fn record_failure(
        &self,
        tenant: TenantId,
        of: &HealthSubject,
        reason: Reason,
    ) {
        let kind = match of {
            HealthSubject::Key(..) | HealthSubject::PlatformKey(..) => "key",
            HealthSubject::Model(_) => "model",
        };
        metrics::counter!(
            "holdfast_runner_model_blames_total", "kind" => kind, "reason" => reason.as_str()
        )
        .increment(1);
        info!(kind, reason = reason.as_str(), "a key or a model is left alone for a while");
        let change = |stats: Stats, now| stats.after_failure(reason, now);
        self.update(tenant, of, change).await;
    }

    /// Counts a failure that may be of the request and not of its subject, which stays in use.
    pub(crate) async fn record_request_failure(
        &self,
        tenant: TenantId,
        of: &HealthSubject,
        reason: Reason,
    ) {
        let change = |stats: Stats, now| stats.after_request_failure(reason, now);
        self.update(tenant, of, change).await;
    }

    pub(crate) async fn record_success(&self, tenant: TenantId, of: &HealthSubject) {
        let now = now_ms();
        let remembered = {
            let mut known = self.records();
            let found = known.entry((tenant, of.clone())).or_default();
            found.last_used = Some(now);
            found.remembered.clone()
        };
        let stats = &remembered.stats;
        if stats.error_count > 0 || stats.cooldown_until.is_some() || stats.disabled_until.is_some()
        {
            self.update(tenant, of, Stats::after_success).await;
        } else if stats.last_used.is_none_or(|last| now - last > MIN_USE_INTERVAL_MS) {
            let changed = now.max(remembered.changed + 1);
            let next =
                CredentialStats { changed, stats: Stats { last_used: Some(now), ..stats.clone() } };
            // A newer record of another runner also says that the key is in use.
            let _ = self.publish(tenant, of, remembered.changed, &next).await;
            self.store_if_newer(tenant, of.clone(), &next);
        }
    }

    /// Changes a record; retries if another runner changed it at the same time.
    async fn update(
        &self,
        tenant: TenantId,
        of: &HealthSubject,
        change: impl Fn(Stats, i64) -> Stats,
    ) {
        let mut seen = {
            let known = self.records();
            known.get(&(tenant, of.clone())).map(|known| known.remembered.clone())
        }
        .unwrap_or_default();
        let mut next = CredentialStats::default();
        for _ in 0..MAX_ATTEMPTS {
            let now = now_ms();
            next.changed = now.max(seen.changed + 1);
            next.stats = change(seen.stats.clone(), now);
            match self.publish(tenant, of, seen.changed, &next).await {
                Some(later) => seen = later,
                None => break,
            }
        }
        self.store_if_newer(tenant, of.clone(), &next);
        if let HealthSubject::Key(provider, key) = of {
            let kept = match tenant == platform_keys_owner() {
                true => self.directory.platform_keys().store_stats(provider, key, &next).await,
                false => {
                    self.directory.credentials().store_stats(tenant, provider, key, &next).await
                }
            };
            if let Err(error) = kept {
                let error = &error as &dyn std::error::Error;
                warn!(error, "what became of a key is not in the database");
            }
        }
    }

    /// Publishes a record to other runners. Returns the current record if it is newer than `seen`.
    async fn publish(
        &self,
        tenant: TenantId,
        of: &HealthSubject,
        seen: i64,
        next: &CredentialStats,
    ) -> Option<CredentialStats> {
        let text = serde_json::to_string(&next.stats).unwrap_or_default();
        let mark = Mark { at: next.changed, text };
        match self.locks.put_mark(&mark_name(tenant, of), seen, &mark, RECORD_TTL).await {
            Ok(later) => later.as_ref().and_then(parse_mark),
            Err(error) => {
                debug!(%error, "other runners are not told of a key");
                None
            }
        }
    }

    fn records(&self) -> MutexGuard<'_, HashMap<TenantSubject, HealthRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for KeyHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Health")
    }
}

fn parse_mark(mark: &Mark) -> Option<CredentialStats> {
    Some(CredentialStats { changed: mark.at, stats: serde_json::from_str(&mark.text).ok()? })
}

/// Redis name of a record. Names of providers and of a tenant's keys contain no colon.
fn mark_name(tenant: TenantId, of: &HealthSubject) -> String {
    let tenant = tenant.as_uuid();
    let tenant = tenant.simple();
    match of {
        HealthSubject::Key(provider, key) => format!("{tenant}:auth:{provider}:{key}"),
        HealthSubject::PlatformKey(provider, key) => {
            format!("{tenant}:platform:{provider}:{key}")
        }
        HealthSubject::Model(model) => format!("{tenant}:model:{model}"),
    }
}
