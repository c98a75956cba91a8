//! What was said lately: hashes with their moments, of which only the newest are kept.
//!
//! **What can go wrong.** Redis restarts empty: what was said may be said once more.

use std::{sync::LazyLock, time::Duration};

use ::redis::Script;

use crate::{Error, Locks};

const LATELY: &str = "return redis.call('zrangebyscore', KEYS[1], ARGV[1], '+inf', 'withscores')";

/// Adds a hash, and forgets what is too old or one too many.
const REMEMBER: &str = r"
redis.call('zadd', KEYS[1], ARGV[1], ARGV[2])
redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[3])
redis.call('zremrangebyrank', KEYS[1], 0, -1 - ARGV[4])
redis.call('pexpire', KEYS[1], ARGV[5])
return 0";

static LATELY_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(LATELY));
static REMEMBER_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(REMEMBER));

/// Something that was said, and how long such things are remembered.
#[derive(Debug, Clone, Copy)]
pub struct Lately<'a> {
    /// Its hash.
    pub hash: &'a str,
    /// When it was said, in milliseconds since 1970.
    pub at: i64,
    /// For how long it counts.
    pub window: Duration,
    /// How many of them are kept.
    pub most: usize,
}

impl Locks {
    /// What was said after a moment, in milliseconds since 1970, the oldest first: when, and its
    /// hash.
    ///
    /// Names carry what they are about, and the tenant: `{tenant}:heartbeat:{agent}:{target}`.
    ///
    /// # Errors
    ///
    /// If Redis is of no help.
    pub async fn lately(&self, name: &str, since: i64) -> Result<Vec<(i64, String)>, Error> {
        let mut script = LATELY_SCRIPT.prepare_invoke();
        script.key(self.key(format_args!("lately:{name}"))).arg(format!("({since}"));
        let said: Vec<(String, String)> = self.run(&script).await?;
        let at = |score: String| score.parse().ok();
        Ok(said.into_iter().filter_map(|(hash, score)| Some((at(score)?, hash))).collect())
    }

    /// Remembers that something was said; said again, it was said then.
    ///
    /// # Errors
    ///
    /// If Redis is of no help.
    pub async fn remember(&self, name: &str, said: Lately<'_>) -> Result<(), Error> {
        let window = i64::try_from(said.window.as_millis()).unwrap_or(i64::MAX);
        let mut script = REMEMBER_SCRIPT.prepare_invoke();
        script
            .key(self.key(format_args!("lately:{name}")))
            .arg(said.at)
            .arg(said.hash)
            .arg(said.at.saturating_sub(window))
            .arg(said.most)
            .arg(window);
        self.run::<i64>(&script).await.map(drop)
    }
}
