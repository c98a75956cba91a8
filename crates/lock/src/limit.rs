//! Rate limits, and the share of one process in them.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

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

    pub(crate) fn allow(&self, key: String, limit: Limit, cost: u32) -> Verdict {
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
