//! Delivery of replies to channels.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Guarantee of a channel's platform about messages that are sent twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryClass {
    /// The platform takes an idempotency key: sending again is safe while it remembers the key.
    Keyed {
        /// Time for which the platform remembers a key. A part whose outcome is still unknown after
        /// it becomes `unknown`.
        window: Duration,
    },
    /// The platform can be asked whether a message arrived, and is asked before a message of which
    /// that is not known is sent again.
    Reconcilable,
    /// Neither: a send with an unknown outcome becomes `unknown` and is never repeated; at most
    /// once.
    Plain,
}

/// State of one part of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// Waiting for a bridge, or for the next attempt.
    Pending,
    /// A bridge has recorded that it is about to call the platform.
    Sending,
    Sent,
    /// The outcome cannot be determined.
    Unknown,
    /// The platform refused the message, or it was given up; the reason is kept.
    Dead,
}

impl DeliveryState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Sending => "sending",
            Self::Sent => "sent",
            Self::Unknown => "unknown",
            Self::Dead => "dead",
        }
    }
}
