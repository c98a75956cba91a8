//! Session locks: `lock:{tenant}:session:{id}` = `epoch:runner`.
//!
//! Whoever claimed a session sets its lock, whoever held it before sees a newer
//! epoch at the next renewal and stops. A lock never stands in a claimant's way:
//! the highest epoch wins, since Postgres has already decided.

use std::{sync::LazyLock, time::Duration};

use ::redis::{Script, ScriptInvocation};
use holdfast_types::{RunnerId, SessionId, TenantId};

use crate::{Error, Locks};

/// How long a lock outlives its last renewal: as long as the lease in Postgres.
pub const TTL: Duration = Duration::from_secs(30);

/// Sets each key to `epoch:runner` unless it holds a newer epoch, and answers with those:
/// 0 where the lock is held.
const TAKE: &str = r"
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

const RELEASE: &str = r"
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('del', KEYS[1])
end
return 0";

const OWNER: &str = "return redis.call('get', KEYS[1])";

static TAKE_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TAKE));
static RELEASE_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(RELEASE));
static OWNER_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(OWNER));

/// A session, as some runner claimed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLock {
    /// Whose it is.
    pub tenant: TenantId,
    /// Which.
    pub session: SessionId,
    /// The epoch of the claim.
    pub epoch: i64,
}

/// What became of taking a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is ours.
    Held,
    /// Someone has claimed the session since, with this epoch: stop.
    Newer(i64),
}

/// The session locks of one runner.
#[derive(Debug, Clone)]
pub struct SessionLocks {
    locks: Locks,
    runner: RunnerId,
}

impl Locks {
    /// The session locks of a runner.
    #[must_use]
    pub fn sessions(&self, runner: RunnerId) -> SessionLocks {
        SessionLocks { locks: self.clone(), runner }
    }

    /// Who runs a session, and with which epoch; for routing, since it may be out of date.
    ///
    /// # Errors
    ///
    /// If Redis is of no help.
    pub async fn session_owner(
        &self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<Option<(i64, RunnerId)>, Error> {
        let mut script = OWNER_SCRIPT.prepare_invoke();
        script.key(key(self, tenant, session));
        let held: Option<String> = self.run(&script).await?;
        Ok(held.and_then(|held| {
            let (epoch, runner) = held.split_once(':')?;
            Some((epoch.parse().ok()?, runner.parse().ok()?))
        }))
    }
}

impl SessionLocks {
    /// Takes the lock of a session that was just claimed. It lapses 30 s after it was last renewed.
    ///
    /// # Errors
    ///
    /// If Redis is of no help; the claim holds all the same.
    pub async fn take(&self, lock: SessionLock) -> Result<Taken, Error> {
        let newer = self.renew_many(&[lock]).await?;
        Ok(newer.first().map_or(Taken::Held, |(_, epoch)| Taken::Newer(*epoch)))
    }

    /// Renews many locks at once, and answers with those that were lost and the newer epoch of each.
    ///
    /// One that has vanished, since Redis restarted, is set anew.
    ///
    /// # Errors
    ///
    /// If Redis is of no help; the leases in Postgres hold all the same.
    pub async fn renew_many(
        &self,
        locks: &[SessionLock],
    ) -> Result<Vec<(SessionLock, i64)>, Error> {
        if locks.is_empty() {
            return Ok(Vec::new());
        }
        let mut script: ScriptInvocation<'_> = TAKE_SCRIPT.prepare_invoke();
        script.arg(self.runner.to_string()).arg(TTL.as_secs() * 1000);
        for lock in locks {
            script.key(key(&self.locks, lock.tenant, lock.session)).arg(lock.epoch);
        }
        let newer: Vec<i64> = self.locks.run(&script).await?;
        let lost = locks.iter().copied().zip(newer).filter(|(_, epoch)| *epoch > 0);
        Ok(lost.collect())
    }

    /// Gives a lock back, if it is still ours.
    ///
    /// # Errors
    ///
    /// If Redis is of no help; the lock then lapses by itself.
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
