//! What becomes of a reply on its way to a channel.

use serde::{Deserialize, Serialize};

/// What a channel's platform can promise about a message sent twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryClass {
    /// It takes an idempotency key: sending again is safe, so delivery is exactly once.
    Keyed,
    /// It can be asked whether a message arrived.
    Reconcilable,
    /// Neither: an ambiguous send is flagged `unknown` and never resent; at most once.
    Plain,
}

/// Where one part of a reply stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// Waiting for a bridge, or for its next try.
    Pending,
    /// A bridge has said that it is about to call the platform.
    Sending,
    /// The platform has it.
    Sent,
    /// A fault hid whether the platform has it.
    Unknown,
    /// The platform refused it, or it was given up; the reason is kept.
    Dead,
}

impl DeliveryState {
    /// The word the database stores.
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
