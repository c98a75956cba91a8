//! Options of messages from one channel: how they are queued, and how they are answered.

use serde::{Deserialize, Serialize};

use crate::{QueueSettings, known_or_default};

/// Greatest length of a block that can be set, in characters.
const MAX_BLOCK_CHARS: u32 = 20_000;
/// Longest pause between blocks that can be set, in milliseconds.
const MAX_BLOCK_DELAY_MS: u32 = 30_000;

/// Where a long answer is cut into blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockBoundary {
    /// Between words.
    Length,
    #[default]
    Paragraph,
    Sentence,
}

impl BlockBoundary {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Paragraph => "paragraph",
            Self::Sentence => "sentence",
        }
    }
}

/// Sending of a long answer in several messages, with pauses as a person makes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockSettings {
    #[serde(deserialize_with = "known_or_default")]
    pub by: BlockBoundary,
    /// Shortest block except the last, in characters.
    pub min_chars: u32,
    /// Longest block, in characters. A code block is never cut, and may be longer.
    pub max_chars: u32,
    /// Shortest and longest pause before the next block, in milliseconds.
    pub delay_ms: [u32; 2],
}

impl Default for BlockSettings {
    fn default() -> Self {
        let by = BlockBoundary::default();
        Self { by, min_chars: 800, max_chars: 1_200, delay_ms: [800, 1_200] }
    }
}

impl BlockSettings {
    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// Which one is out of its range.
    pub fn check(&self) -> Result<(), String> {
        if self.min_chars == 0
            || self.min_chars > self.max_chars
            || self.max_chars > MAX_BLOCK_CHARS
        {
            return Err(format!(
                "blocks have `min_chars` to `max_chars`: at least 1, and {MAX_BLOCK_CHARS} at most"
            ));
        }
        if self.delay_ms[0] > self.delay_ms[1] || self.delay_ms[1] > MAX_BLOCK_DELAY_MS {
            return Err(format!(
                "`delay_ms` is the shortest and the longest pause, {MAX_BLOCK_DELAY_MS} at most"
            ));
        }
        Ok(())
    }
}

/// Which messages are answered by voice, besides the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VoiceReplies {
    #[default]
    Never,
    /// Voice messages.
    ToVoice,
}

/// Options of an agent for one channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChannelOptions {
    #[serde(skip_serializing_if = "QueueSettings::is_default")]
    pub queue: QueueSettings,
    /// `None` sends answers whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<BlockSettings>,
    /// `None` is [`VoiceReplies::Never`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known_or_default")]
    pub voice_replies: Option<VoiceReplies>,
}

impl ChannelOptions {
    /// These options, with those of `other` where they say nothing.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            queue: self.queue.or(other.queue),
            blocks: self.blocks.or(other.blocks),
            voice_replies: self.voice_replies.or(other.voice_replies),
        }
    }
}

/// Options of one message, as they were when it was accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageOptions {
    #[serde(flatten)]
    pub channel: ChannelOptions,
    /// Name of the agent, if several answer the message: it is put before the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// The sender has chosen the queue mode of this message: that of the session does not count.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_queue_chosen: bool,
}

impl MessageOptions {
    /// `None` if the options say nothing.
    #[must_use]
    pub fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_say_nothing_take_no_room() {
        assert_eq!(MessageOptions::default().boxed(), None);
        assert_eq!(serde_json::to_string(&MessageOptions::default()).unwrap(), "{}");
        let blocks = BlockSettings { max_chars: 100, min_chars: 200, ..BlockSettings::default() };
        assert!(blocks.check().is_err() && BlockSettings::default().check().is_ok());
    }
}
