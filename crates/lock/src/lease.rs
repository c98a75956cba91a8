//! Leases: at most one holder of a name, as nearly as Redis can promise it.
//!
//! For what is done by one process at a time and does no harm if, for a moment,
//! two do it: a bot's connection to its platform. A holder that was paused past
//! its lease wakes up believing; it learns otherwise at its next renewal.

use std::{sync::LazyLock, time::Duration};

use ::redis::Script;
use holdfast_kit::Backoff;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{Instrument as _, debug, debug_span};
use uuid::Uuid;

use crate::{Error, Locks};

/// Sets the key if nobody else has it: so a lease survives a Redis that restarts empty.
const KEEP: &str = r"
local held = redis.call('get', KEYS[1])
if held and held ~= ARGV[1] then
    return 0
end
redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
return 1";

const RELEASE: &str = r"
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('del', KEYS[1])
end
return 0";

static KEEP_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(KEEP));
static RELEASE_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(RELEASE));

impl Locks {
    /// Takes the lease called `name`, or returns `None` if someone else holds it.
    ///
    /// It is renewed in the background, and lapses `ttl` after its holder was last heard from.
    /// Names carry what they are about, and the tenant: `bot:{tenant}:{account}`.
    ///
    /// # Errors
    ///
    /// If Redis is of no help. The lease may then be taken, by nobody, until it lapses.
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

/// A lease that is held, and renewed in the background until it is dropped.
///
/// [Release](Self::release) it when done. Dropping it only stops the renewal, so
/// that others wait for it to lapse.
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

    /// Waits until the lease may have been lost. Stop working then: select on this.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Whether the lease may have been lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Gives the lease back, so that others need not wait for it to lapse.
    ///
    /// # Errors
    ///
    /// If Redis is of no help; the lease then lapses by itself.
    pub async fn release(self) -> Result<(), Error> {
        let Self { claim, _renewal: renewal, .. } = self;
        // Before the release, or a renewal that overtakes it would take the lease again.
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
    /// Takes or renews it; `false` if someone else has it.
    async fn keep(&self) -> Result<bool, Error> {
        let mut script = KEEP_SCRIPT.prepare_invoke();
        let ttl = u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX);
        script.key(&self.key).arg(&self.holder).arg(ttl);
        Ok(self.locks.run::<i64>(&script).await? == 1)
    }

    /// Renews a third of the way to each lapse, and cancels `lost` once it cannot be sure.
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
