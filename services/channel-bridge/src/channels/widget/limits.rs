//! Limits of rates, in this process: of each visitor and of each address.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(60);

/// Maximum number of visitors and addresses that are counted. Beyond it, new ones are refused until
/// the windows of others have ended.
const MAX_COUNTED: usize = 20_000;

/// Number of calls by visitor or address, since the beginning of its window.
#[derive(Debug, Default)]
pub struct RateLimits(Mutex<HashMap<String, (Instant, u32)>>);

impl RateLimits {
    /// Counts a call; returns whether it is within the limit.
    pub fn allow(&self, who: &str, most: u32) -> bool {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.len() >= MAX_COUNTED && !counted.contains_key(who) {
            counted.retain(|_, (began, _)| began.elapsed() < WINDOW);
            if counted.len() >= MAX_COUNTED {
                return false;
            }
        }
        let (began, count) = counted.entry(who.to_owned()).or_insert((Instant::now(), 0));
        if began.elapsed() >= WINDOW {
            (*began, *count) = (Instant::now(), 0);
        }
        *count += 1;
        *count <= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_has_a_number_of_calls_in_a_minute() {
        let limits = RateLimits::default();

        assert!(limits.allow("a", 2) && limits.allow("a", 2) && !limits.allow("a", 2));
        assert!(limits.allow("b", 2));
        tokio::time::advance(WINDOW).await;
        assert!(limits.allow("a", 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_does_not_fill_the_memory() {
        let limits = RateLimits::default();
        for n in 0..MAX_COUNTED {
            assert!(limits.allow(&n.to_string(), 1));
        }

        assert!(!limits.allow("one more", 1));
        tokio::time::advance(WINDOW).await;
        assert!(limits.allow("one more", 1));
    }
}
