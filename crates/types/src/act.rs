//! What is done on a channel besides saying something.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ApprovalId, StoredFile};

/// Something to be done on a channel, on its way as a reply is.
///
/// What belongs to it in words (a question, a caption, an event) is the delivery's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Act {
    /// Take a message away.
    Delete {
        /// Which; `None` is the last one that was sent there from this conversation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// Put an emoji on a message; an empty one takes it off again.
    React {
        /// Which message.
        message: String,
        /// The emoji.
        emoji: String,
    },
    /// Pin a message.
    Pin {
        /// Which.
        message: String,
    },
    /// Unpin a message.
    Unpin {
        /// Which.
        message: String,
    },
    /// Ask people to vote. The question is the text.
    Poll {
        /// What they may vote for.
        options: Vec<String>,
    },
    /// Open a topic.
    Thread {
        /// What it is called.
        name: String,
    },
    /// Tell of an event.
    Event,
    /// Send a file. The caption is the text.
    Media {
        /// Which.
        file: StoredFile,
        /// It is to be heard as speech, where the channel can.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        voice: bool,
    },
    /// Take the buttons off a request that is not to be answered any more.
    Close {
        /// Which request.
        approval: ApprovalId,
        /// The message that it was asked with; `None` is found out when it is sent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// A message with something that the channel shows beside it.
    Embed {
        /// As the channel wants it.
        embed: Value,
    },
}

impl Act {
    /// Its name among what a channel can do.
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_act_is_stored_under_its_own_name() {
        for act in [
            Act::Delete { message: None },
            Act::React { message: "7".into(), emoji: "👍".into() },
            Act::Event,
            Act::Close { approval: ApprovalId::generate(), message: None },
            Act::Poll { options: vec!["a".into()] },
        ] {
            let stored = serde_json::to_value(&act).unwrap();

            assert_eq!(stored["act"], act.name());
            assert_eq!(serde_json::from_value::<Act>(stored).unwrap(), act);
        }
    }
}
