//! Names of a test's databases, prefixes and files, and their removal.
//!
//! A name starts with the time it was made at, so that what a killed test left behind can be told
//! from what a running test needs.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uuid::Uuid;

/// What a killed test left is removed after this long; no test runs for half of it.
pub(crate) const LEFTOVER_AGE: Duration = Duration::from_secs(2 * 3600);

/// Twelve hex digits of milliseconds, then eight of chance.
pub(crate) fn token() -> String {
    let id = Uuid::now_v7().simple().to_string();
    format!("{}{}", &id[..12], &id[24..])
}

/// How long ago a name that starts with such digits was made; `None` if it does not.
pub(crate) fn age(token: &str) -> Option<Duration> {
    let made = u64::from_str_radix(token.get(..12)?, 16).ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    now.checked_sub(Duration::from_millis(made))
}

/// Runs `work` to its end on a thread and runtime of its own, for use in `Drop`, where the test's
/// runtime cannot be waited for. Best effort: what fails is left for the next sweep.
pub(crate) fn clean_up<F>(work: F)
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if let Ok(runtime) = runtime {
            let limit = Duration::from_secs(10);
            drop(runtime.block_on(async move { tokio::time::timeout(limit, work).await }));
        }
    });
    // Waited for, since a test's process ends with the test and takes its threads along.
    drop(thread.join());
}

/// Locks, also after a panic in another thread: the test that panicked has failed already.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_tells_its_age_and_is_not_made_twice() {
        let (a, b) = (token(), token());

        assert_ne!(a, b);
        assert_eq!(a.len(), 20);
        assert!(age(&a).unwrap() < Duration::from_secs(5));
        assert_eq!(age("postgres"), None);
    }
}
