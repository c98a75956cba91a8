//! The `scheduler_add`, `scheduler_list` and `scheduler_cancel` tools: reminders for the user of
//! the conversation (spec REM-001 to REM-009).
//!
//! The owner and the target of a reminder follow from the conversation. Such fields in the model's
//! input are ignored.

use std::{future::Future, sync::Arc};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Call, Tool, ToolError};

/// Access of the tools to reminders. An error is an internal failure: the turn ends and may be
/// retried. Texts for the user are in the user's language.
pub trait Reminders: Send + Sync + 'static {
    /// Creates a reminder, once for the same `call.key`. The inner error is a reason for the user.
    fn add(
        &self,
        call: &Call,
        wanted: ReminderRequest,
    ) -> impl Future<Output = anyhow::Result<Result<String, String>>> + Send;

    fn list(
        &self,
        call: &Call,
    ) -> impl Future<Output = anyhow::Result<Result<String, String>>> + Send;

    /// Cancels a reminder, by its id or the part of it that lists show.
    fn cancel(
        &self,
        call: &Call,
        id: &str,
    ) -> impl Future<Output = anyhow::Result<Result<String, String>>> + Send;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReminderRequest {
    /// Time, in the user's words.
    pub time: String,
    pub content: String,
    /// Whether the agent is asked when it fires.
    pub auto_continue: bool,
}

/// Remind the person you speak with, in this conversation, at a time. With `auto_continue` you are
/// woken then and decide what to say and whether to set the next one; without it they are just told.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulerAddInput {
    /// `HH:MM`, `YYYY-MM-DD HH:MM`, `tomorrow 9:00`, `in 20 minutes`; on the person's clock.
    time: String,
    /// What to remind of.
    content: String,
    #[serde(default)]
    auto_continue: bool,
    // Fields that models trained on other assistants write; the owner follows from the
    // conversation.
    #[serde(default, rename = "user_id")]
    #[schemars(skip)]
    _user_id: Option<serde_json::Value>,
    #[serde(default, rename = "channel")]
    #[schemars(skip)]
    _channel: Option<serde_json::Value>,
}

/// List the reminders that wait for the person you speak with.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulerListInput {
    #[serde(default, rename = "user_id")]
    #[schemars(skip)]
    _user_id: Option<serde_json::Value>,
}

/// Cancel a reminder of the person you speak with.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulerCancelInput {
    /// Its id, or the part of it that `scheduler_list` shows.
    #[serde(alias = "id")]
    job_id: String,
    #[serde(default, rename = "user_id")]
    #[schemars(skip)]
    _user_id: Option<serde_json::Value>,
}

#[derive(Debug)]
pub struct SchedulerAdd<S>(pub Arc<S>);

#[derive(Debug)]
pub struct SchedulerList<S>(pub Arc<S>);

#[derive(Debug)]
pub struct SchedulerCancel<S>(pub Arc<S>);

impl<S: Reminders> Tool for SchedulerAdd<S> {
    const NAME: &'static str = "scheduler_add";
    const EFFECT: Effect = Effect::Writes;
    type Input = SchedulerAddInput;

    async fn call(&self, call: Call, input: SchedulerAddInput) -> Result<String, ToolError> {
        let SchedulerAddInput { time, content, auto_continue, .. } = input;
        let added = self.0.add(&call, ReminderRequest { time, content, auto_continue }).await?;
        Ok(text_for_user(added))
    }
}

impl<S: Reminders> Tool for SchedulerList<S> {
    const NAME: &'static str = "scheduler_list";
    const EFFECT: Effect = Effect::Reads;
    type Input = SchedulerListInput;

    async fn call(&self, call: Call, _: SchedulerListInput) -> Result<String, ToolError> {
        Ok(text_for_user(self.0.list(&call).await?))
    }
}

impl<S: Reminders> Tool for SchedulerCancel<S> {
    const NAME: &'static str = "scheduler_cancel";
    const EFFECT: Effect = Effect::Writes;
    type Input = SchedulerCancelInput;

    async fn call(&self, call: Call, input: SchedulerCancelInput) -> Result<String, ToolError> {
        Ok(text_for_user(self.0.cancel(&call, &input.job_id).await?))
    }
}

/// Refusals are text for the user too, in the user's language.
fn text_for_user(told: Result<String, String>) -> String {
    told.unwrap_or_else(|why| why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::spec;

    #[test]
    fn a_model_is_not_told_of_fields_that_others_models_write_and_may_write_them() {
        let told = spec::<SchedulerAddInput>("scheduler_add").input.to_string();
        assert!(!told.contains("user_id") && !told.contains("channel"), "{told}");

        let written = r#"{"time":"9:00","content":"tea","user_id":"eve","channel":7}"#;
        assert!(serde_json::from_str::<SchedulerAddInput>(written).is_ok());
        assert!(serde_json::from_str::<SchedulerAddInput>(r#"{"time":"9:00"}"#).is_err());
        assert!(serde_json::from_str::<SchedulerListInput>(r#"{"user_id":"eve"}"#).is_ok());
    }
}
