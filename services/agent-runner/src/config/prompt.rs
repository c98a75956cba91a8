//! Texts of prompts: the table `[runner.prompt]`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PromptConfig {
    /// What the prompts of all agents say about tool calls, on one line; absent is the built-in
    /// sentence.
    pub tool_call_style: Option<String>,

    /// Words that relate skills to a channel, by the channel's kind. They replace the built-in ones
    /// of that channel.
    pub channel_words: BTreeMap<String, Vec<String>>,
}
