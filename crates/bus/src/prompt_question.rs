//! Questions for the prompt of a model call that was made. A runner composes it again, since only
//! runners have the tools and the settings of prompts.
//!
//! A person waits for the answer, and gets an error if no runner answers.

use std::time::Duration;

use holdfast_types::{RunId, SessionId, TenantId, ToolCall, ToolSpec};
use serde::{Deserialize, Serialize};

use crate::{Bus, Error, Questions, Subject, question::RUNNERS_GROUP};

/// Time in which a runner composes a prompt.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// A model call whose prompt is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptQuestion {
    pub tenant: TenantId,
    pub session: SessionId,
    pub run: RunId,
    /// Place of the model's reply in the journal.
    pub seq: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PromptAnswer {
    Rendered {
        prompt: Box<RenderedPrompt>,
    },
    Failed {
        /// The reason, for the person who asked.
        error: String,
    },
}

/// A prompt that was composed again, without pictures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RenderedPrompt {
    pub model: String,
    /// Part of the system prompt that rarely changes, and the part that follows it.
    pub stable: String,
    pub dynamic: String,
    pub messages: Vec<RenderedMessage>,
    pub tools: Vec<ToolSpec>,
    pub estimated_tokens: u64,
    /// Parts that the prompt which was sent may have had and this one has not.
    pub missing: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenderedMessage {
    /// user, assistant or tool.
    pub role: String,
    pub text: String,
    pub calls: Vec<ToolCall>,
    /// Id of the call that a tool's message answers.
    pub call_id: String,
    pub pictures: u32,
}

impl PromptQuestion {
    /// Asks one runner of a pool for the prompt. An empty `pool` is the default one.
    ///
    /// # Errors
    ///
    /// If no runner answers in time.
    pub async fn ask(&self, bus: &Bus, pool: &str) -> Result<PromptAnswer, Error> {
        let mut answers = bus.ask(&Subject::prompt(pool), self, ANSWER_TIMEOUT, 1).await?;
        answers.pop().ok_or_else(|| {
            Error::Unavailable(Some(anyhow::anyhow!("no runner is there, or none answers")))
        })
    }

    /// Subscribes to the questions of a pool. Each goes to one runner, which answers with a
    /// [`PromptAnswer`].
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn of_pool(bus: &Bus, pool: &str) -> Result<Questions, Error> {
        bus.questions_in_group(&Subject::prompt(pool), RUNNERS_GROUP).await
    }
}
