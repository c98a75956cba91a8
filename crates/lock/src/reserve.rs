//! Reservations for work in progress, so that concurrent work does not exceed a budget.
//!
//! Redis holds only the reservations; actual use is in the database. A caller first reserves and
//! then reads the database, so use that is settled in between is counted twice, never missed. A
//! reservation that is not given back expires.
//!
//! **What can go wrong.** Redis restarts empty: reservations of that moment are no longer counted,
//! and at most that amount is overspent.

use std::{sync::LazyLock, time::Duration};

use ::redis::Script;

use crate::{Error, Locks};

/// For each key: sums the reservations of others and adds this one. A field is
/// `tokens:micros:expiry`.
const RESERVE_LUA: &str = r"
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local sums = {}
for i, key in ipairs(KEYS) do
    local tokens, micros = 0, 0
    local held = redis.call('hgetall', key)
    for f = 1, #held, 2 do
        local t, m, lapses = string.match(held[f + 1], '^(%d+):(%d+):(%d+)$')
        if tonumber(lapses) <= now then
            redis.call('hdel', key, held[f])
        elseif held[f] ~= ARGV[1] then
            tokens, micros = tokens + t, micros + m
        end
    end
    local lapses = string.format('%.0f', now + ARGV[4])
    redis.call('hset', key, ARGV[1], ARGV[2] .. ':' .. ARGV[3] .. ':' .. lapses)
    if redis.call('pttl', key) < tonumber(ARGV[4]) then
        redis.call('pexpire', key, ARGV[4])
    end
    sums[2 * i - 1], sums[2 * i] = tokens, micros
end
return sums";

const RELEASE_LUA: &str = r"
for _, key in ipairs(KEYS) do
    redis.call('hdel', key, ARGV[1])
end
return 0";

static RESERVE_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(RESERVE_LUA));
static RELEASE_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(RELEASE_LUA));

/// An amount of tokens and money.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    pub tokens: u64,
    /// Millionths of a US dollar.
    pub micros: u64,
}

impl Locks {
    /// Reserves an amount under each of these names, and returns the sum of the others'
    /// reservations under each.
    ///
    /// A reservation with the same `id` is replaced. Names contain the subject and the tenant.
    ///
    /// # Errors
    ///
    /// If Redis is unavailable: then nothing is reserved.
    pub async fn reserve(
        &self,
        names: &[String],
        id: &str,
        amount: Amount,
        ttl: Duration,
    ) -> Result<Vec<Amount>, Error> {
        let mut script = RESERVE_SCRIPT.prepare_invoke();
        for name in names {
            script.key(self.key(format_args!("reserved:{name}")));
        }
        let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        // Lua's numbers are not exact above this.
        let most = 1_u64 << 50;
        script.arg(id).arg(amount.tokens.min(most)).arg(amount.micros.min(most)).arg(ttl);
        let sums: Vec<u64> = self.run(&script).await?;
        let pairs = sums.chunks_exact(2);
        Ok(pairs.map(|pair| Amount { tokens: pair[0], micros: pair[1] }).collect())
    }

    /// Releases the reservations of an id.
    ///
    /// # Errors
    ///
    /// If Redis is unavailable; they then expire by themselves.
    pub async fn unreserve(&self, names: &[String], id: &str) -> Result<(), Error> {
        let mut script = RELEASE_SCRIPT.prepare_invoke();
        for name in names {
            script.key(self.key(format_args!("reserved:{name}")));
        }
        script.arg(id);
        self.run::<i64>(&script).await.map(drop)
    }
}
