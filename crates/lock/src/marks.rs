//! Marks: small notes shared by all processes. The latest one wins.
//!
//! A mark records something about a thing that failed, such as a model's key: a text with a time. A
//! writer passes the time of the mark it has seen. If there is a later mark, the write is refused
//! and returns that mark, so that the writer can decide again; of two concurrent failures none is
//! lost. Anything that must survive Redis is stored in the database too, with its time.

use std::{sync::LazyLock, time::Duration};

use ::redis::Script;

use crate::{Error, Locks};

/// Sets `time:text`, unless the stored mark is later than the one the writer has seen. In that case
/// returns the stored mark.
const PUT_LUA: &str = r"
local held = redis.call('get', KEYS[1])
if held then
    local at = tonumber(string.match(held, '^(%d+):')) or 0
    if at > tonumber(ARGV[1]) then
        return held
    end
end
redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3])
return false";

const GET_LUA: &str = "return redis.call('mget', unpack(KEYS))";

static PUT_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(PUT_LUA));
static GET_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(GET_LUA));

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    /// Time in milliseconds since 1970. Must be greater than the time of the mark it replaces.
    pub at: i64,
    pub text: String,
}

impl Mark {
    fn read(stored: &str) -> Option<Self> {
        let (at, text) = stored.split_once(':')?;
        Some(Self { at: at.parse().ok()?, text: text.to_owned() })
    }
}

impl Locks {
    /// Returns the marks with these names, `None` where there is none.
    ///
    /// Names contain the subject and the tenant: `{tenant}:auth:openai:work`.
    ///
    /// # Errors
    ///
    /// If Redis is unavailable.
    pub async fn marks(&self, names: &[String]) -> Result<Vec<Option<Mark>>, Error> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut script = GET_SCRIPT.prepare_invoke();
        for name in names {
            script.key(self.key(format_args!("mark:{name}")));
        }
        let stored: Vec<Option<String>> = self.run(&script).await?;
        Ok(stored.into_iter().map(|stored| Mark::read(stored.as_deref()?)).collect())
    }

    /// Sets a mark, which expires after `ttl`. If there is a mark later than `seen`, changes
    /// nothing and returns that mark.
    ///
    /// # Errors
    ///
    /// If Redis is unavailable.
    pub async fn put_mark(
        &self,
        name: &str,
        seen: i64,
        mark: &Mark,
        ttl: Duration,
    ) -> Result<Option<Mark>, Error> {
        let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let mut script = PUT_SCRIPT.prepare_invoke();
        script
            .key(self.key(format_args!("mark:{name}")))
            .arg(seen)
            .arg(format!("{}:{}", mark.at, mark.text))
            .arg(ttl);
        let later: Option<String> = self.run(&script).await?;
        Ok(later.as_deref().and_then(Mark::read))
    }
}
