//! Reservations: what is set aside for work that is under way, so that many at once do not use
//! more than there is.
//!
//! Redis holds only what is under way; what was used in the end is the database's to say. Whoever
//! reserves adds first, and then looks at the database: what was settled in between is counted
//! twice, never not at all. A reservation that nobody gives back lapses.
//!
//! **What can go wrong.** Redis restarts empty: what was under way at that moment is not counted
//! any more, and no more than that is used too much.

use std::{sync::LazyLock, time::Duration};

use ::redis::Script;

use crate::{Error, Locks};

/// For each key: sums what the others hold, and adds this. A field is `tokens:micros:lapses`.
const RESERVE: &str = r"
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

const RELEASE: &str = r"
for _, key in ipairs(KEYS) do
    redis.call('hdel', key, ARGV[1])
end
return 0";

static RESERVE_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(RESERVE));
static RELEASE_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(RELEASE));

/// An amount of both things that are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Tokens.
    pub tokens: u64,
    /// Millionths of a US dollar.
    pub micros: u64,
}

impl Locks {
    /// Sets an amount aside under each of these names, and says how much others hold under each.
    ///
    /// The same `id` again replaces what it holds. Names carry what they are about, and the tenant.
    ///
    /// # Errors
    ///
    /// If Redis is of no help: then nothing is set aside.
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
        // Beyond this a number of Lua's is not exact.
        let most = 1_u64 << 50;
        script.arg(id).arg(amount.tokens.min(most)).arg(amount.micros.min(most)).arg(ttl);
        let sums: Vec<u64> = self.run(&script).await?;
        let pairs = sums.chunks_exact(2);
        Ok(pairs.map(|pair| Amount { tokens: pair[0], micros: pair[1] }).collect())
    }

    /// Gives back what an id holds.
    ///
    /// # Errors
    ///
    /// If Redis is of no help; it then lapses by itself.
    pub async fn unreserve(&self, names: &[String], id: &str) -> Result<(), Error> {
        let mut script = RELEASE_SCRIPT.prepare_invoke();
        for name in names {
            script.key(self.key(format_args!("reserved:{name}")));
        }
        script.arg(id);
        self.run::<i64>(&script).await.map(drop)
    }
}
