//! Notices to people who may not write: rarely, so that nobody can make the bridge send many.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Minimum interval between two notices to the same rejected sender.
const REFUSAL_NOTICE_INTERVAL: Duration = Duration::from_secs(3600);

/// Maximum number of rejected senders that are remembered. Beyond it no notices are sent.
const MAX_REMEMBERED_SENDERS: usize = 10_000;

/// Rejected senders that got a notice, and when.
#[derive(Debug, Default)]
pub(crate) struct RefusalNotices(Mutex<HashMap<String, Instant>>);

impl RefusalNotices {
    /// Whether a sender is to be told, and notes that.
    pub(crate) fn is_due(&self, sender: &str) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.get(sender).is_some_and(|at| at.elapsed() < REFUSAL_NOTICE_INTERVAL) {
            return false;
        }
        if told.len() >= MAX_REMEMBERED_SENDERS {
            told.retain(|_, at| at.elapsed() < REFUSAL_NOTICE_INTERVAL);
        }
        if told.len() >= MAX_REMEMBERED_SENDERS {
            return false;
        }
        told.insert(sender.to_owned(), Instant::now());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stranger_is_told_once_an_hour() {
        let refusals = RefusalNotices::default();

        assert!(refusals.is_due("7"));
        assert!(!refusals.is_due("7"));
        assert!(refusals.is_due("8"));
        tokio::time::advance(REFUSAL_NOTICE_INTERVAL).await;
        assert!(refusals.is_due("7"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_of_strangers_is_not_remembered_for_ever() {
        let refusals = RefusalNotices::default();
        for n in 0..MAX_REMEMBERED_SENDERS {
            assert!(refusals.is_due(&n.to_string()));
        }

        assert!(!refusals.is_due("one more"));
        tokio::time::advance(REFUSAL_NOTICE_INTERVAL).await;
        assert!(refusals.is_due("one more"));
        assert_eq!(refusals.0.lock().unwrap().len(), 1);
    }
}
