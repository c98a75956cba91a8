//! Reaction to failures while firings are delivered: those that may pass are retried with growing
//! delays, all others end their firing as an error.

use std::{error::Error, time::Duration};

use holdfast_directory::Error as DirectoryError;
use holdfast_kit::Backoff;
use holdfast_schedule::store::{Error as JobsError, Firing};
use holdfast_session::Error as SessionError;
use holdfast_types::{Fault, Kind};
use holdfast_workspace::Error as WorkspaceError;

/// Delays before a firing is handed out again after a transient failure.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// Class of a failure in which the database has no part: stored data that this version cannot read.
const UNREADABLE_CLASS: &str = "unreadable";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    Transient,
    /// A retry fails in the same way; holds the error class for the job's log.
    Permanent(&'static str),
}

impl FailureKind {
    /// Classifies an error by the first one of its sources that has a kind. An error without a kind
    /// counts as transient.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        if let Some(class) = holdfast_pg::permanent_class(error) {
            return Self::Permanent(class);
        }
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(kind) = kind(error) {
                return match kind {
                    Kind::Internal => Self::Permanent(UNREADABLE_CLASS),
                    _ => Self::Transient,
                };
            }
            next = error.source();
        }
        Self::Transient
    }
}

fn kind(error: &(dyn Error + 'static)) -> Option<Kind> {
    fn of<E: Fault>(error: &(dyn Error + 'static)) -> Option<Kind> {
        error.downcast_ref::<E>().map(Fault::kind)
    }
    of::<JobsError>(error)
        .or_else(|| of::<SessionError>(error))
        .or_else(|| of::<DirectoryError>(error))
        .or_else(|| of::<WorkspaceError>(error))
}

/// Returns the delay before a firing is handed out again after a transient failure. It grows with
/// the number of times that the firing was handed out.
pub fn retry_delay(firing: &Firing) -> Duration {
    RETRY_BACKOFF.cap(u32::try_from(firing.attempt - 1).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_retried_only_if_it_may_pass() {
        let unreadable = anyhow::Error::from(JobsError::Corrupt("job")).context("a firing");
        let refused = SessionError::Store(sqlx::Error::RowNotFound);
        let busy = SessionError::Store(sqlx::Error::PoolTimedOut);

        assert_eq!(FailureKind::of(unreadable.as_ref()), FailureKind::Permanent("unreadable"));
        assert_eq!(FailureKind::of(&refused), FailureKind::Permanent("database_row_unreadable"));
        assert_eq!(FailureKind::of(&busy), FailureKind::Transient);
        assert_eq!(FailureKind::of(&std::fmt::Error), FailureKind::Transient);
    }
}
