//! Channel actions: everything done on a channel besides sending a text.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ApprovalId, StoredFile};

/// Action on a channel, delivered in the way replies are.
///
/// The words that belong to an action (a question, a caption, an event) are the delivery's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum ChannelAction {
    Delete {
        /// `None` is the last message that was sent there from this session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// An empty emoji removes the reaction.
    React {
        message: String,
        emoji: String,
    },
    Pin {
        message: String,
    },
    Unpin {
        message: String,
    },
    /// A vote. The question is the delivery's text.
    Poll {
        options: Vec<String>,
    },
    Thread {
        name: String,
    },
    Event,
    /// A file. The caption is the delivery's text.
    Media {
        file: StoredFile,
        /// Sent as a voice message where the channel supports it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        voice: bool,
    },
    /// Removes the buttons from an approval request that is no longer open.
    Close {
        approval: ApprovalId,
        /// The message with the buttons; `None` is looked up when the action is sent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// A message with a rich embed beside it.
    Embed {
        /// In the channel's own format.
        embed: Value,
    },
    /// An action that only a newer version knows. It is not sent: it waits for a bridge of that
    /// version, as long as a platform that cannot be reached.
    #[serde(other)]
    Unknown,
}

impl ChannelAction {
    /// Whether the action only decorates a message that is named: later deliveries do not wait for
    /// it.
    #[must_use]
    pub const fn is_cosmetic(&self) -> bool {
        match self {
            Self::React { .. } | Self::Pin { .. } | Self::Unpin { .. } | Self::Close { .. } => true,
            Self::Delete { .. }
            | Self::Poll { .. }
            | Self::Thread { .. }
            | Self::Event
            | Self::Media { .. }
            | Self::Embed { .. }
            | Self::Unknown => false,
        }
    }

    /// Name of the action among a channel's capabilities.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Delete { .. } => "delete",
            Self::React { .. } => "react",
            Self::Pin { .. } => "pin",
            Self::Unpin { .. } => "unpin",
            Self::Poll { .. } => "poll",
            Self::Thread { .. } => "thread",
            Self::Event => "event",
            Self::Media { .. } => "media",
            Self::Close { .. } => "close",
            Self::Embed { .. } => "embed",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_act_is_stored_under_its_own_name() {
        for act in [
            ChannelAction::Delete { message: None },
            ChannelAction::React { message: "7".into(), emoji: "👍".into() },
            ChannelAction::Event,
            ChannelAction::Close { approval: ApprovalId::generate(), message: None },
            ChannelAction::Poll { options: vec!["a".into()] },
        ] {
            let stored = serde_json::to_value(&act).unwrap();

            assert_eq!(stored["act"], act.name());
            assert_eq!(serde_json::from_value::<ChannelAction>(stored).unwrap(), act);
        }
    }

    #[test]
    fn an_action_of_a_newer_version_is_unknown_and_not_another() {
        let newer = serde_json::json!({"act": "hologram", "message": "7", "beam": {"x": 1}});

        assert_eq!(serde_json::from_value::<ChannelAction>(newer).unwrap(), ChannelAction::Unknown);
    }
}
