//! Marks: small notes that all processes share, of which the later one counts.
//!
//! For what is remembered of a thing that failed, such as a model's key. A mark is a text with a
//! moment; who changes one says which moment it has seen, and is told the later mark if there is
//! one, to think again. So of two failures at once both count. What must not be lost is kept in
//! the database besides, with its moment.

use std::{sync::LazyLock, time::Duration};

use ::redis::Script;

use crate::{Error, Locks};

/// Sets `moment:text` unless there is a mark that is later than the one that was seen: then
/// answers with that.
const PUT: &str = r"
local held = redis.call('get', KEYS[1])
if held then
    local at = tonumber(string.match(held, '^(%d+):')) or 0
    if at > tonumber(ARGV[1]) then
        return held
    end
end
redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3])
return false";

const GET: &str = "return redis.call('mget', unpack(KEYS))";

static PUT_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(PUT));
static GET_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(GET));

/// A note, and when it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    /// In milliseconds since 1970, above that of the mark before.
    pub at: i64,
    /// What it says.
    pub text: String,
}

impl Mark {
    fn read(stored: &str) -> Option<Self> {
        let (at, text) = stored.split_once(':')?;
        Some(Self { at: at.parse().ok()?, text: text.to_owned() })
    }
}

impl Locks {
    /// The marks of these names, `None` where there is none.
    ///
    /// Names carry what they are about, and the tenant: `{tenant}:auth:openai:work`.
    ///
    /// # Errors
    ///
    /// If Redis is of no help.
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

    /// Sets a mark, which lapses after `ttl`, if there is none later than `seen`; otherwise answers
    /// with that one and changes nothing.
    ///
    /// # Errors
    ///
    /// If Redis is of no help.
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
