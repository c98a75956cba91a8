//! The `sessions_list` tool: the tenant's conversations.

use std::{fmt::Write as _, sync::Arc};

use holdfast_types::{Effect, SessionKind, SessionState};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Call, Mesh, SessionFilter, Tool, ToolError};

/// List conversations, the last active first, each with its key, state and last activity.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionsListInput {
    /// How many to list, from 1 to 50.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 50))]
    limit: u32,
    /// Only conversations of this kind.
    #[serde(default, alias = "type")]
    kind: Option<Kind>,
    /// Only conversations in this state: `wait` is one that is idle.
    #[serde(default)]
    state: Option<State>,
}

/// State of a conversation, as the model says it.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum State {
    #[serde(alias = "WAIT", alias = "idle")]
    Wait,
    #[serde(alias = "WAIT_FOR_MSG")]
    WaitForMsg,
    #[serde(alias = "WAIT_FOR_EVENT")]
    WaitForEvent,
    #[serde(alias = "READY")]
    Ready,
    #[serde(alias = "RUNNING", alias = "active")]
    Running,
}

/// A kind of conversation, as the model says it.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Kind {
    Main,
    Dm,
    Group,
    Topic,
    Subagent,
    Cron,
    Heartbeat,
    Work,
    Api,
    Global,
}

const fn twenty() -> u32 {
    20
}

#[derive(Debug)]
pub struct SessionsList<M>(pub Arc<M>);

impl<M: Mesh> Tool for SessionsList<M> {
    const NAME: &'static str = "sessions_list";
    const EFFECT: Effect = Effect::Reads;
    type Input = SessionsListInput;

    async fn call(&self, call: Call, input: SessionsListInput) -> Result<String, ToolError> {
        if !(1..=50).contains(&input.limit) {
            return Err(ToolError::Tell("`limit` must be from 1 to 50".to_owned()));
        }
        let filter = SessionFilter {
            limit: input.limit,
            kind: input.kind.map(SessionKind::from),
            state: input.state.map(SessionState::from),
        };
        let sessions = self.0.sessions(&call, filter).await?;
        if sessions.is_empty() {
            return Ok("There are no such sessions.".to_owned());
        }
        let mut text = String::new();
        for session in sessions {
            let you = if session.id == call.session { ", this one" } else { "" };
            // Writing to a `String` cannot fail.
            let _ = writeln!(
                text,
                "- {} ({}{you}): {}, last active {}",
                session.key,
                session.kind.as_str(),
                session.state.as_str(),
                session.last_active,
            );
        }
        Ok(text)
    }
}

impl From<State> for SessionState {
    fn from(state: State) -> Self {
        match state {
            State::Wait => Self::Wait,
            State::WaitForMsg => Self::WaitForMsg,
            State::WaitForEvent => Self::WaitForEvent,
            State::Ready => Self::Ready,
            State::Running => Self::Running,
        }
    }
}

impl From<Kind> for SessionKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Main => Self::Main,
            Kind::Dm => Self::Dm,
            Kind::Group => Self::Group,
            Kind::Topic => Self::Topic,
            Kind::Subagent => Self::Subagent,
            Kind::Cron => Self::Cron,
            Kind::Heartbeat => Self::Heartbeat,
            Kind::Work => Self::Work,
            Kind::Api => Self::Api,
            Kind::Global => Self::Global,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::mesh::tests::{said, tell, world};

    #[tokio::test]
    async fn each_session_is_a_line_and_the_askers_own_is_marked() {
        let (call, _, tools) = world();

        let answer = said(tools.call(call, "sessions_list", r#"{"kind":"main"}"#).await);

        assert_eq!(
            answer,
            "- agent:coach:main (main, this one): RUNNING, last active 2026-12-01 14:05 UTC\n"
        );
    }

    #[tokio::test]
    async fn sessions_of_another_kind_or_state_are_left_out() {
        let (call, _, tools) = world();
        let ask = |input| tools.call(call.clone(), "sessions_list", input);

        assert_eq!(said(ask(r#"{"type":"group"}"#).await), "There are no such sessions.");
        assert_eq!(said(ask(r#"{"state":"wait"}"#).await), "There are no such sessions.");
        assert!(said(ask(r#"{"state":"RUNNING"}"#).await).contains("agent:coach:main"));
    }

    #[tokio::test]
    async fn too_many_and_unknown_kinds_are_refused() {
        let (call, _, tools) = world();
        let ask = |input| tools.call(call.clone(), "sessions_list", input);

        assert_eq!(tell(ask(r#"{"limit":51}"#).await), "`limit` must be from 1 to 50");
        assert!(tell(ask(r#"{"kind":"party"}"#).await).contains("unknown variant `party`"));
    }
}
