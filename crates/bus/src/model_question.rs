//! Questions to an agent's model. A runner asks it, since only runners have models.
//!
//! A person waits for the answer, and gets an error if no runner answers.

use std::time::Duration;

use holdfast_types::{AgentId, Chat, Reply, TenantId};
use serde::{Deserialize, Serialize};

use crate::{Bus, Error, Questions, Subject, question::RUNNERS_GROUP};

/// Time beyond the model's own in which a runner answers.
const RUNNER_PATIENCE: Duration = Duration::from_secs(10);

/// A request to a model that belongs to no session. Nothing that the model answers is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelQuestion {
    pub tenant: TenantId,
    pub agent: AgentId,
    /// Models or aliases; the first that can be used is asked. Empty is the agent's own model.
    pub models: Vec<String>,
    /// The runner replaces the tools by its own of the same names, and leaves out unknown ones.
    pub chat: Chat,
    pub temperature: Option<f64>,
    pub max_output: Option<u32>,
    /// Time that the model may take.
    pub deadline: Duration,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ModelAnswer {
    Replied {
        reply: Box<Reply>,
        /// Cost in millionths of a US dollar.
        micros: u64,
    },
    /// No model answered, or its answer could not be read.
    Failed {
        /// The reason, for the person who asked.
        error: String,
    },
}

impl Bus {
    /// Asks one runner of the tenant's pool to ask a model. An empty `pool` is the default one.
    ///
    /// # Errors
    ///
    /// If no runner answers in time.
    pub async fn ask_model(
        &self,
        pool: &str,
        question: &ModelQuestion,
    ) -> Result<ModelAnswer, Error> {
        let patience = question.deadline.saturating_add(RUNNER_PATIENCE);
        let mut answers = self.ask(&Subject::model(pool), question, patience, 1).await?;
        answers.pop().ok_or_else(|| {
            Error::Unavailable(Some(anyhow::anyhow!("no runner is there, or none answers")))
        })
    }

    /// Subscribes to the questions of a pool. Each [`ModelQuestion`] goes to one runner, which
    /// answers with a [`ModelAnswer`].
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn model_questions(&self, pool: &str) -> Result<Questions, Error> {
        self.questions_in_group(&Subject::model(pool), RUNNERS_GROUP).await
    }
}
