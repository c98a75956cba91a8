//! Recently sent texts: hashes with times, of which only the newest are kept.
//!
//! **What can go wrong.** Redis restarts empty: a text may then be sent once more.

use std::{sync::LazyLock, time::Duration};

use ::redis::Script;

use crate::{Error, Locks};

const RECENT_LUA: &str =
    "return redis.call('zrangebyscore', KEYS[1], ARGV[1], '+inf', 'withscores')";

/// Adds a hash, and removes those that are too old or too many.
const REMEMBER_LUA: &str = r"
redis.call('zadd', KEYS[1], ARGV[1], ARGV[2])
redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[3])
redis.call('zremrangebyrank', KEYS[1], 0, -1 - ARGV[4])
redis.call('pexpire', KEYS[1], ARGV[5])
return 0";

static RECENT_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(RECENT_LUA));
static REMEMBER_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(REMEMBER_LUA));

/// A sent text to remember.
#[derive(Debug, Clone, Copy)]
pub struct RecentMessage<'a> {
    pub hash: &'a str,
    /// Time when it was sent, in milliseconds since 1970.
    pub sent_at_ms: i64,
    /// Period for which it is remembered.
    pub window: Duration,
    /// Maximum number of hashes kept under one name.
    pub max_kept: usize,
}

impl Locks {
    /// Returns the hashes remembered after `since`, with their times, oldest first. Times are in
    /// milliseconds since 1970.
    ///
    /// Names contain the subject and the tenant: `{tenant}:heartbeat:{agent}:{target}`.
    ///
    /// # Errors
    ///
    /// If Redis is unavailable.
    pub async fn recent_messages(
        &self,
        name: &str,
        since: i64,
    ) -> Result<Vec<(i64, String)>, Error> {
        let mut script = RECENT_SCRIPT.prepare_invoke();
        script.key(self.key(format_args!("lately:{name}"))).arg(format!("({since}"));
        let said: Vec<(String, String)> = self.run(&script).await?;
        let at = |score: String| score.parse().ok();
        Ok(said.into_iter().filter_map(|(hash, score)| Some((at(score)?, hash))).collect())
    }

    /// Remembers a sent text. A text that is remembered again gets the new time.
    ///
    /// # Errors
    ///
    /// If Redis is unavailable.
    pub async fn remember_message(&self, name: &str, said: RecentMessage<'_>) -> Result<(), Error> {
        let window = i64::try_from(said.window.as_millis()).unwrap_or(i64::MAX);
        let mut script = REMEMBER_SCRIPT.prepare_invoke();
        script
            .key(self.key(format_args!("lately:{name}")))
            .arg(said.sent_at_ms)
            .arg(said.hash)
            .arg(said.sent_at_ms.saturating_sub(window))
            .arg(said.max_kept)
            .arg(window);
        self.run::<i64>(&script).await.map(drop)
    }
}
