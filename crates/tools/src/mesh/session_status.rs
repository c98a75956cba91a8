//! The `session_status` tool: state of a conversation.

use std::sync::Arc;

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::unknown_session;
use crate::{Call, Mesh, SessionRef, Tool, ToolError};

/// Show how a conversation stands: its model, the time, the messages taken in, the tokens used.
///
/// Use it when you are asked about your status, your model, the time or the usage.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionStatusInput {
    /// Another conversation, by its key or its id (`ses_…`); this one if absent.
    #[serde(default, alias = "session_key")]
    session: Option<String>,
}

#[derive(Debug)]
pub struct SessionStatus<M>(pub Arc<M>);

impl<M: Mesh> Tool for SessionStatus<M> {
    const NAME: &'static str = "session_status";
    const EFFECT: Effect = Effect::Reads;
    type Input = SessionStatusInput;

    async fn call(&self, call: Call, input: SessionStatusInput) -> Result<String, ToolError> {
        let named = input.session.as_deref().map(str::trim).filter(|named| !named.is_empty());
        let Some(status) = self.0.status(&call, named.map(SessionRef::parse)).await? else {
            return Err(unknown_session(named.unwrap_or_default()));
        };
        let dials = status.dials;
        let channel = status.channel.as_deref().unwrap_or("none");
        Ok(format!(
            "session: {} ({}, {})\nagent: {}\nmodel: {}\nchannel: {channel}\n\
             thinking: {}, verbose: {}, reasoning: {}, elevated: {}\n\
             messages: {} taken in, {} waiting\ntokens: {} read, {} written\n\
             began: {}\nnow: {}\n",
            status.key,
            status.kind.as_str(),
            status.state.as_str(),
            status.agent,
            status.model,
            dials.thinking.unwrap_or_default().as_str(),
            dials.verbose.unwrap_or_default(),
            dials.reasoning.unwrap_or_default(),
            dials.elevated.unwrap_or_default(),
            status.messages,
            status.queued,
            status.input_tokens,
            status.output_tokens,
            status.began,
            status.now,
        ))
    }
}

#[cfg(test)]
mod tests {
    use crate::mesh::tests::{KEY, said, tell, world};

    #[tokio::test]
    async fn the_model_reads_how_its_session_stands() {
        let (call, _, tools) = world();

        let answer = said(tools.call(call, "session_status", "").await);

        assert_eq!(
            answer,
            "session: agent:coach:main (main, RUNNING)\nagent: coach\nmodel: demo:demo\n\
             channel: telegram\n\
             thinking: off, verbose: off, reasoning: off, elevated: ask\nmessages: 3 taken in, 1 waiting\n\
             tokens: 120 read, 45 written\nbegan: 2026-12-01 14:00 UTC\n\
             now: 2026-12-01 14:05 UTC\n"
        );
    }

    #[tokio::test]
    async fn a_named_session_is_shown_and_an_unknown_one_refused() {
        let (call, _, tools) = world();
        let ask = |key: &str| {
            let input = format!(r#"{{"session_key":"{key}"}}"#);
            let (tools, call) = (tools.clone(), call.clone());
            async move { tools.call(call, "session_status", &input).await }
        };

        assert!(said(ask(KEY).await).starts_with("session: agent:coach:main"));
        assert!(tell(ask("agent:x:main").await).starts_with("there is no session `agent:x:main`"));
    }
}
