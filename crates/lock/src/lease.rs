//! Leases: at most one holder of a name, as far as Redis can guarantee it.
//!
//! For work that one process should do at a time and that is harmless if two do it for a moment,
//! such as a bot's connection to its platform. A holder that was paused beyond its lease still
//! believes that it holds it until its next renewal.

use std::{sync::LazyLock, time::Duration};

use ::redis::Script;
use holdfast_kit::Backoff;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{Instrument as _, debug, debug_span};
use uuid::Uuid;

use crate::{Error, Locks};

/// Sets the key unless another holder has it. A renewal therefore restores a lease after Redis
/// restarted empty.
const KEEP_LUA: &str = r"
local held = redis.call('get', KEYS[1])
if held and held ~= ARGV[1] then
    return 0
end
redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
return 1";

const RELEASE_LUA: &str = r"
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('del', KEYS[1])
end
return 0";

static KEEP_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(KEEP_LUA));
static RELEASE_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(RELEASE_LUA));

impl Locks {
    /// Takes the lease called `name`, or returns `None` if someone else holds it.
    ///
    /// The lease is renewed in the background, and expires `ttl` after the last renewal. Names
    /// contain the subject and the tenant: `bot:{tenant}:{account}`.
    ///
    /// # Errors
    ///
    /// If Redis is unavailable. The lease may then be set, without a holder, until it expires.
    pub async fn try_acquire(&self, name: &str, ttl: Duration) -> Result<Option<Lease>, Error> {
        let claim = Claim {
            key: self.key(format_args!("lease:{name}")),
            holder: Uuid::now_v7().to_string(),
            ttl,
            locks: self.clone(),
        };
        let asked_at = Instant::now();
        Ok(claim.keep().await?.then(|| Lease::start(claim, asked_at + ttl)))
    }
}

/// A held lease, renewed in the background until it is dropped.
///
/// [Release](Self::release) it when done. A drop only stops the renewal, so others must wait until
/// it expires.
#[derive(Debug)]
#[must_use = "a lease that is dropped is soon lost"]
pub struct Lease {
    lost: CancellationToken,
    claim: Claim,
    _renewal: AbortOnDropHandle<()>,
}

impl Lease {
    fn start(claim: Claim, lapses_at: Instant) -> Self {
        let lost = CancellationToken::new();
        let renewal = claim
            .clone()
            .renew_until_lost(lapses_at, lost.clone())
            .instrument(debug_span!("lease", key = claim.key));
        Self { lost, claim, _renewal: AbortOnDropHandle::new(tokio::spawn(renewal)) }
    }

    /// Waits until the lease may be lost. Select on this, and stop the work then.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Whether the lease may be lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Releases the lease, so that others need not wait until it expires.
    ///
    /// # Errors
    ///
    /// If Redis is unavailable; the lease then expires by itself.
    pub async fn release(self) -> Result<(), Error> {
        let Self { claim, _renewal: renewal, .. } = self;
        // Stop the renewal first: a late renewal would take the lease again.
        renewal.abort();
        let _ = renewal.await;
        let mut script = RELEASE_SCRIPT.prepare_invoke();
        script.key(&claim.key).arg(&claim.holder);
        claim.locks.run::<i64>(&script).await.map(drop)
    }
}

/// One holder's claim to one name.
#[derive(Debug, Clone)]
struct Claim {
    key: String,
    holder: String,
    ttl: Duration,
    locks: Locks,
}

impl Claim {
    /// Takes or renews the lease; returns `false` if someone else holds it.
    async fn keep(&self) -> Result<bool, Error> {
        let mut script = KEEP_SCRIPT.prepare_invoke();
        let ttl = u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX);
        script.key(&self.key).arg(&self.holder).arg(ttl);
        Ok(self.locks.run::<i64>(&script).await? == 1)
    }

    /// Renews after a third of the ttl, and cancels `lost` when the lease may have expired.
    async fn renew_until_lost(self, mut lapses_at: Instant, lost: CancellationToken) {
        let backoff = Backoff::new(self.ttl / 20, self.ttl / 6);
        let mut failures = 0;
        loop {
            let pause = if failures == 0 { self.ttl / 3 } else { backoff.cap(failures) };
            tokio::select! {
                () = sleep(pause) => {}
                () = sleep_until(lapses_at) => break,
            }
            let asked_at = Instant::now();
            match timeout_at(lapses_at, self.keep()).await {
                Ok(Ok(true)) => {
                    lapses_at = asked_at + self.ttl;
                    failures = 0;
                }
                Ok(Err(error)) => {
                    debug!(%error, "renewal failed");
                    failures += 1;
                }
                Ok(Ok(false)) | Err(_) => break,
            }
        }
        lost.cancel();
    }
}
