//! Rate limits by GCRA, which stores a bucket as a single timestamp.
//!
//! The *theoretical arrival time* is the time when the bucket will be full again. A call advances
//! it by its cost, and is refused if it would then be further ahead than the bucket is deep. One
//! number per key, no timer, no drift.
//!
//! Redis stores it for all processes, by its own clock. While Redis is down each process enforces
//! its share of the limit alone. The total is then approximate, and a process still counts what it
//! allowed itself.

use std::{sync::LazyLock, time::Duration};

use ::redis::Script;

use crate::{Limit, Locks, Verdict};

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
