//! Rate limits: GCRA, a bucket that is described by one moment.
//!
//! The *theoretical arrival time* is when the bucket will be full again. A call
//! moves it on by what it costs, and is refused if that would put it further
//! ahead than the bucket is deep. One number per key, no timer, no drift.
//!
//! Redis keeps it for everybody, on its own clock. While Redis is gone each
//! process keeps its part of the limit itself, so that a limit stays a limit:
//! approximately, and forgetting nothing that it allowed itself.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
    time::Duration,
};

use ::redis::Script;
use tokio::time::Instant;

use crate::Locks;

/// Microseconds throughout; `KEYS[1]` holds the theoretical arrival time. Answers with what is
/// left, and with how long to wait if that is nothing and the call was refused.
const ALLOW: &str = r"
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

static ALLOW_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(ALLOW));

/// Past so many keys, those that are full again are forgotten.
const KEYS_KEPT: usize = 10_000;

/// At most `burst` at once, and no more than `burst` in any `per` in the long run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// How much at once.
    pub burst: u32,
    /// In which time that much comes back.
    pub per: Duration,
}

/// Whether the caller may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Allow {
        /// What it may still do at once.
        remaining: u32,
    },
    /// Not now.
    Deny {
        /// After which time it may; for a cost above the burst, which never may, the whole period.
        retry_after: Duration,
    },
}

impl Locks {
    /// Whether `key` may spend `cost` under a limit, and if so spends it.
    ///
    /// Always answers: while Redis is gone, for this process alone. Keys carry what they are
    /// about, and the tenant: `{tenant}:ingest`.
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
            Err(_) => self.shares.allow(key, limit, cost),
        }
    }
}

/// This process' parts of the limits, for while Redis is gone.
#[derive(Debug)]
pub(crate) struct Shares {
    replicas: u32,
    full_at: Mutex<HashMap<String, Instant>>,
}

impl Shares {
    pub(crate) fn among(replicas: u32) -> Self {
        Self { replicas: replicas.max(1), full_at: Mutex::default() }
    }

    fn allow(&self, key: String, limit: Limit, cost: u32) -> Verdict {
        // At least what is asked, or a small limit divided by many would refuse for ever.
        let burst = (limit.burst / self.replicas).max(cost).max(1);
        let now = Instant::now();
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if full_at.len() > KEYS_KEPT {
            full_at.retain(|_, full_at| *full_at > now);
        }
        let moment = full_at.entry(key).or_insert(now);
        let (ahead, verdict) =
            gcra(moment.saturating_duration_since(now), Limit { burst, ..limit }, cost);
        *moment = now + ahead;
        verdict
    }
}

/// The rule: how far ahead the bucket is of now, after the call, and whether it may be made.
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
        let shares = Shares::among(1);
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
        let shares = Shares::among(2);
        let allowed = |key: &str| {
            let ask = || shares.allow(key.to_owned(), LIMIT, 1);
            (0..10).filter(|_| matches!(ask(), Verdict::Allow { .. })).count()
        };

        assert_eq!(allowed("k"), 2);

        let shares = Shares::among(100);
        assert_eq!(shares.allow("k".into(), LIMIT, 1), Verdict::Allow { remaining: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_are_full_again_are_forgotten() {
        let shares = Shares::among(1);
        for n in 0..=KEYS_KEPT {
            shares.allow(n.to_string(), LIMIT, 1);
        }
        tokio::time::advance(Duration::from_secs(60)).await;

        shares.allow("last".into(), LIMIT, 1);

        assert_eq!(shares.full_at.lock().unwrap().len(), 1);
    }
}
