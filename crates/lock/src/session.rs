//! Session locks: `lock:{tenant}:session:{id}` = `epoch:runner`.
//!
//! The runner that claimed a session sets its lock. The previous runner sees the newer epoch at its
//! next renewal and stops. A lock never blocks a claim: the highest epoch wins, since Postgres has
//! already decided.

use std::{sync::LazyLock, time::Duration};

use ::redis::{Script, ScriptInvocation};
use holdfast_types::{RunnerId, SessionId, TenantId};

use crate::{Error, Locks};

/// Lifetime of a lock after its last renewal: the same as the lease's in Postgres.
pub const SESSION_LOCK_TTL: Duration = Duration::from_secs(30);

/// Sets each key to `epoch:runner` unless it holds a newer epoch. Returns the newer epoch per key,
/// or 0 where the lock was set.
const TAKE_LUA: &str = r"
local newer = {}
for i, key in ipairs(KEYS) do
    local mine = ARGV[i + 2]
    local epoch = tonumber(mine)
    local held = redis.call('get', key)
    local theirs = held and tonumber(string.match(held, '^(%d+):')) or -1
    if theirs > epoch or (theirs == epoch and held ~= mine .. ':' .. ARGV[1]) then
        newer[i] = theirs
    else
        redis.call('set', key, mine .. ':' .. ARGV[1], 'px', ARGV[2])
        newer[i] = 0
    end
end
return newer";

const RELEASE_LUA: &str = r"
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('del', KEYS[1])
end
return 0";

static TAKE_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TAKE_LUA));
static RELEASE_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(RELEASE_LUA));

/// A session, as a runner claimed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLock {
    pub tenant: TenantId,
    pub session: SessionId,
    pub epoch: i64,
}

/// Result of taking a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOutcome {
    Held,
    /// Another runner has claimed the session with this newer epoch: stop.
    Newer(i64),
}

#[derive(Debug, Clone)]
pub struct SessionLocks {
    locks: Locks,
    runner: RunnerId,
}

impl Locks {
    #[must_use]
    pub fn sessions(&self, runner: RunnerId) -> SessionLocks {
        SessionLocks { locks: self.clone(), runner }
    }
}

impl SessionLocks {
    /// Takes the lock of a session that was just claimed. It expires 30 s after its last renewal.
    ///
    /// # Errors
    ///
    /// If Redis is unavailable; the claim is still valid.
    pub async fn take(&self, lock: SessionLock) -> Result<TakeOutcome, Error> {
        let newer = self.renew_many(&[lock]).await?;
        Ok(newer.first().map_or(TakeOutcome::Held, |(_, epoch)| TakeOutcome::Newer(*epoch)))
    }

    /// Renews many locks at once. Returns those that were lost, with the newer epoch of each.
    ///
    /// A lock that vanished because Redis restarted is set again.
    ///
    /// # Errors
    ///
    /// If Redis is unavailable; the leases in Postgres are still valid.
    pub async fn renew_many(
        &self,
        locks: &[SessionLock],
    ) -> Result<Vec<(SessionLock, i64)>, Error> {
        if locks.is_empty() {
            return Ok(Vec::new());
        }
        let mut script: ScriptInvocation<'_> = TAKE_SCRIPT.prepare_invoke();
        script.arg(self.runner.to_string()).arg(SESSION_LOCK_TTL.as_secs() * 1000);
        for lock in locks {
            script.key(key(&self.locks, lock.tenant, lock.session)).arg(lock.epoch);
        }
        let newer: Vec<i64> = self.locks.run(&script).await?;
        let lost = locks.iter().copied().zip(newer).filter(|(_, epoch)| *epoch > 0);
        Ok(lost.collect())
    }

    /// Releases a lock if this runner still holds it.
    ///
    /// # Errors
    ///
    /// If Redis is unavailable; the lock then expires by itself.
    pub async fn release(&self, lock: SessionLock) -> Result<(), Error> {
        let mut script = RELEASE_SCRIPT.prepare_invoke();
        script
            .key(key(&self.locks, lock.tenant, lock.session))
            .arg(format!("{}:{}", lock.epoch, self.runner));
        self.locks.run::<i64>(&script).await.map(drop)
    }
}

fn key(locks: &Locks, tenant: TenantId, session: SessionId) -> String {
    let (tenant, session) = (tenant.as_uuid(), session.as_uuid());
    locks.key(format_args!("lock:{}:session:{}", tenant.simple(), session.simple()))
}
