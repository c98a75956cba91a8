//! How connections to platforms end, and how often platforms are polled.

use std::time::Duration;

/// Minimum interval between two polls without progress: some servers answer at once, with nothing.
pub const MIN_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Reason why a connection has ended. The texts are for people, without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disconnected {
    /// It broke, or could not be made.
    Lost { reason: String },
    /// The platform does not accept the credentials or the settings.
    Rejected { reason: String },
    /// Another connection of the same account has ended it.
    Conflict { reason: String },
    /// The platform asks to wait.
    RetryAfter { after: Duration },
    /// `stop` was cancelled.
    Stopped,
}

impl Disconnected {
    pub fn lost(reason: impl Into<String>) -> Self {
        Self::Lost { reason: reason.into() }
    }

    pub fn rejected(reason: impl Into<String>) -> Self {
        Self::Rejected { reason: reason.into() }
    }
}
