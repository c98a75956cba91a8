//! Rate limits by GCRA, which stores a bucket as a single timestamp.
//!
//! The *theoretical arrival time* is the time when the bucket will be full again. A call advances
//! it by its cost, and is refused if it would then be further ahead than the bucket is deep. One
//! number per key, no timer, no drift.
//!
//! Redis stores it for all processes, by its own clock. While Redis is down each process enforces
//! its share of the limit alone. The total is then approximate, and a process still counts what it
//! allowed itself.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
    time::Duration,
};

use ::redis::Script;
use tokio::time::Instant;

use crate::Locks;

/// Times in microseconds. `KEYS[1]` holds the theoretical arrival time. Returns the remaining calls
/// and 0, or -1 and the wait if the call is refused.
const ALLOW_LUA: &str = r"
local period, step, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local full_at = math.max(tonumber(redis.call('get', KEYS[1]) or 0), now)
local next = full_at + cost * step
local wait = next - now - period
if wait > 0 then
    return {-1, wait}
end
redis.call('set', KEYS[1], string.format('%.0f', next), 'px', math.ceil((next - now) / 1000) + 1)
return {math.floor((period - (next - now)) / step), 0}";

static ALLOW_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(ALLOW_LUA));

/// Number of keys above which full buckets are removed.
const MAX_LOCAL_KEYS: usize = 10_000;

/// At most `burst` at once, and no more than `burst` in any `per` in the long run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Maximum cost that may be spent at once.
    pub burst: u32,
    /// Time in which an empty bucket is full again.
    pub per: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allow {
        /// Cost that may still be spent at once.
        remaining: u32,
    },
    Deny {
        /// Wait until the call may be repeated. For a cost above the burst, which is never allowed,
        /// the whole period.
        retry_after: Duration,
    },
}

impl Locks {
    /// Decides whether `key` may spend `cost` under a limit, and spends it if so.
    ///
    /// Always answers: while Redis is down, for this process alone. Keys contain the subject and
    /// the tenant: `{tenant}:ingest`.
    pub async fn allow(&self, key: &str, limit: Limit, cost: u32) -> Verdict {
        if cost > limit.burst || limit.burst == 0 {
            return Verdict::Deny { retry_after: limit.per };
        }
        let key = self.key(format_args!("rate:{key}"));
        let (period, step) =
            (limit.per.as_micros(), (limit.per.as_micros() / u128::from(limit.burst)).max(1));
        let mut script = ALLOW_SCRIPT.prepare_invoke();
        script.key(&key).arg(period.to_string()).arg(step.to_string()).arg(cost);
        match self.run::<(i64, u64)>(&script).await {
            Ok((remaining, wait)) => match u32::try_from(remaining) {
                Ok(remaining) => Verdict::Allow { remaining },
                Err(_) => Verdict::Deny { retry_after: Duration::from_micros(wait) },
            },
            Err(_) => self.local_limits.allow(key, limit, cost),
        }
    }
}

/// This process' share of the limits, used while Redis is down.
#[derive(Debug)]
pub(crate) struct LocalLimits {
    replicas: u32,
    full_at: Mutex<HashMap<String, Instant>>,
}

impl LocalLimits {
    pub(crate) fn new(replicas: u32) -> Self {
        Self { replicas: replicas.max(1), full_at: Mutex::default() }
    }

    fn allow(&self, key: String, limit: Limit, cost: u32) -> Verdict {
        // At least `cost`, or a small limit divided among many processes would refuse forever.
        let burst = (limit.burst / self.replicas).max(cost).max(1);
        let now = Instant::now();
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if full_at.len() > MAX_LOCAL_KEYS {
            full_at.retain(|_, full_at| *full_at > now);
        }
        let moment = full_at.entry(key).or_insert(now);
        let (ahead, verdict) =
            gcra(moment.saturating_duration_since(now), Limit { burst, ..limit }, cost);
        *moment = now + ahead;
        verdict
    }
}

/// The GCRA rule: returns the bucket's new distance from now, and whether the call is allowed.
fn gcra(ahead: Duration, limit: Limit, cost: u32) -> (Duration, Verdict) {
    let step = limit.per / limit.burst;
    let next = ahead + step * cost;
    match next.checked_sub(limit.per) {
        Some(wait) if !wait.is_zero() => (ahead, Verdict::Deny { retry_after: wait }),
        _ => {
            let left = (limit.per.saturating_sub(next)).as_nanos() / step.as_nanos().max(1);
            let remaining = u32::try_from(left).unwrap_or(u32::MAX);
            (next, Verdict::Allow { remaining })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { burst: 4, per: Duration::from_secs(4) };

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_allowed_and_then_what_comes_back() {
        let shares = LocalLimits::new(1);
        let ask = |cost| shares.allow("k".to_owned(), LIMIT, cost);

        assert_eq!(ask(1), Verdict::Allow { remaining: 3 });
        assert_eq!(ask(3), Verdict::Allow { remaining: 0 });
        assert_eq!(ask(2), Verdict::Deny { retry_after: Duration::from_secs(2) });

        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(ask(2), Verdict::Allow { remaining: 0 });

        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(ask(4), Verdict::Allow { remaining: 0 });
        assert!(matches!(ask(1), Verdict::Deny { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_alone_allows_its_part_and_never_nothing() {
        let shares = LocalLimits::new(2);
        let allowed = |key: &str| {
            let ask = || shares.allow(key.to_owned(), LIMIT, 1);
            (0..10).filter(|_| matches!(ask(), Verdict::Allow { .. })).count()
        };

        assert_eq!(allowed("k"), 2);

        let shares = LocalLimits::new(100);
        assert_eq!(shares.allow("k".into(), LIMIT, 1), Verdict::Allow { remaining: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_are_full_again_are_forgotten() {
        let shares = LocalLimits::new(1);
        for n in 0..=MAX_LOCAL_KEYS {
            shares.allow(n.to_string(), LIMIT, 1);
        }
        tokio::time::advance(Duration::from_secs(60)).await;

        shares.allow("last".into(), LIMIT, 1);

        assert_eq!(shares.full_at.lock().unwrap().len(), 1);
    }
}
