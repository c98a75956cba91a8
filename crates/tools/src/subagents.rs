//! `sessions_spawn` and `sessions_send`: letting others work, and speaking with them.
//!
//! Both only store a message under the call's key, so a call that is made again
//! after a crash does nothing twice: they write, and do not act.

use std::{future::Future, sync::Arc, time::Duration};

use holdfast_types::{Effect, SessionId};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Call, Tool, ToolError, Which};

/// How long a subagent may take if nothing is said (spec SUB-010).
const USUAL: u32 = 3_600;

/// The longest that may be asked for, in seconds.
const LONGEST: u32 = 86_400;

/// The longest task or message, in bytes.
const MOST_TEXT: usize = 64 * 1024;

/// What the tools here ask of the mesh. An error is a fault of ours: the turn ends and may be
/// tried again.
pub trait Subagents: Send + Sync + 'static {
    /// Makes a subagent, once for the same `call.key`; or why there is none, for the model.
    fn spawn(
        &self,
        call: &Call,
        wanted: Wanted,
    ) -> impl Future<Output = anyhow::Result<Result<Spawned, String>>> + Send;

    /// Stores a message in another session, once for the same `call.key`; or why not.
    fn say(
        &self,
        call: &Call,
        to: Which,
        text: String,
        deliver: bool,
    ) -> impl Future<Output = anyhow::Result<Result<(), String>>> + Send;
}

/// A subagent to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What it is to do.
    pub task: String,
    /// What it is called, if something is said.
    pub label: Option<String>,
    /// The agent that it is, if not the caller's own.
    pub agent: Option<String>,
    /// The model that it takes, if not its agent's.
    pub model: Option<String>,
    /// How long it may take.
    pub wall: Duration,
    /// How often it may think.
    pub max_steps: Option<u32>,
    /// How many tokens it may use.
    pub max_tokens: Option<u32>,
    /// Its session goes once its end was announced.
    pub delete: bool,
}

/// A subagent that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spawned {
    /// Its session.
    pub session: SessionId,
    /// Its session's key.
    pub key: String,
    /// What it is called.
    pub label: String,
}

/// Give a task to a subagent that works in the background, beside you. You are told by an event
/// when it has ended; do not wait for it or ask about it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionsSpawnInput {
    /// What it is to do. It sees nothing of this conversation: say all that it needs.
    task: String,
    /// A short name for the task.
    #[serde(default)]
    label: Option<String>,
    /// Another agent that does it, by name.
    #[serde(default, alias = "agent")]
    agent_id: Option<String>,
    /// Another model, as `provider:model`.
    #[serde(default)]
    model: Option<String>,
    /// How long it may take, in seconds.
    #[serde(default = "usual")]
    #[schemars(range(min = 1, max = 86_400))]
    run_timeout_seconds: u32,
    /// How often it may think.
    #[serde(default)]
    #[schemars(range(min = 1))]
    max_steps: Option<u32>,
    /// How many tokens it may use.
    #[serde(default)]
    #[schemars(range(min = 1))]
    max_tokens: Option<u32>,
    /// `delete` to remove its conversation once it has ended.
    #[serde(default)]
    cleanup: CleanupInput,
}

/// What becomes of a subagent's conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum CleanupInput {
    #[default]
    Keep,
    Delete,
}

const fn usual() -> u32 {
    USUAL
}

/// Gives a task to a subagent.
#[derive(Debug)]
pub struct SessionsSpawn<S>(pub Arc<S>);

impl<S: Subagents> Tool for SessionsSpawn<S> {
    const NAME: &'static str = "sessions_spawn";
    const EFFECT: Effect = Effect::Writes;
    type Input = SessionsSpawnInput;

    async fn call(&self, call: Call, input: SessionsSpawnInput) -> Result<String, ToolError> {
        let task = checked("task", input.task)?;
        if !(1..=LONGEST).contains(&input.run_timeout_seconds) {
            return Err(ToolError::Tell(format!(
                "`run_timeout_seconds` must be from 1 to {LONGEST}"
            )));
        }
        for (name, limit) in [("max_steps", input.max_steps), ("max_tokens", input.max_tokens)] {
            if limit.is_some_and(|limit| !(1..=i32::MAX.unsigned_abs()).contains(&limit)) {
                return Err(ToolError::Tell(format!("`{name}` must be from 1 to {}", i32::MAX)));
            }
        }
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        let wanted = Wanted {
            task,
            label: given(input.label),
            agent: given(input.agent_id),
            model: given(input.model),
            wall: Duration::from_secs(input.run_timeout_seconds.into()),
            max_steps: input.max_steps,
            max_tokens: input.max_tokens,
            delete: input.cleanup == CleanupInput::Delete,
        };
        match self.0.spawn(&call, wanted).await? {
            Ok(Spawned { session, key, label }) => Ok(format!(
                "The subagent \"{label}\" works on it in {key} ({session}). You will be told when \
                 it has ended; go on with other things, or end your turn."
            )),
            Err(reason) => Err(ToolError::Tell(reason)),
        }
    }
}

/// Say something in another conversation: to a subagent of yours, or to one of your own other
/// sessions. Its answer stays there.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionsSendInput {
    /// The conversation's key or its id (`ses_…`).
    #[serde(alias = "session_key")]
    session: String,
    /// What to say.
    message: String,
    /// Whether the answer there goes to the channel that it is held on.
    #[serde(default)]
    deliver: bool,
}

/// Says something in another session.
#[derive(Debug)]
pub struct SessionsSend<S>(pub Arc<S>);

impl<S: Subagents> Tool for SessionsSend<S> {
    const NAME: &'static str = "sessions_send";
    const EFFECT: Effect = Effect::Writes;
    type Input = SessionsSendInput;

    async fn call(&self, call: Call, input: SessionsSendInput) -> Result<String, ToolError> {
        let text = checked("message", input.message)?;
        let named = input.session.trim();
        let which = named.parse().map_or_else(|_| Which::Key(named.to_owned()), Which::Id);
        match self.0.say(&call, which, text, input.deliver).await? {
            Ok(()) => Ok("It was said there.".to_owned()),
            Err(reason) => Err(ToolError::Tell(reason)),
        }
    }
}

fn checked(name: &str, text: String) -> Result<String, ToolError> {
    match text.len() {
        _ if text.trim().is_empty() => Err(ToolError::Tell(format!("`{name}` is empty: say it"))),
        _ if text.contains('\0') => Err(ToolError::Tell(format!("`{name}` has a NUL in it"))),
        got if got > MOST_TEXT => Err(ToolError::Tell(format!(
            "`{name}` is {got} bytes, and {MOST_TEXT} are the most: put what is long in a file"
        ))),
        _ => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{Registry, mesh::tests::call};

    #[derive(Debug, Default)]
    struct Fake(Mutex<Vec<Wanted>>);

    impl Subagents for Fake {
        async fn spawn(
            &self,
            call: &Call,
            wanted: Wanted,
        ) -> anyhow::Result<Result<Spawned, String>> {
            if wanted.agent.is_some() {
                return Ok(Err("there is no such agent".into()));
            }
            let label = wanted.label.clone().unwrap_or_default();
            self.0.lock().unwrap().push(wanted);
            Ok(Ok(Spawned { session: call.session, key: "agent:a:subagent:1".into(), label }))
        }

        async fn say(
            &self,
            _: &Call,
            to: Which,
            _: String,
            _: bool,
        ) -> anyhow::Result<Result<(), String>> {
            Ok(match to {
                Which::Id(_) => Ok(()),
                Which::Key(_) => Err("there is no such session".into()),
            })
        }
    }

    async fn ask(name: &str, input: &str) -> Result<String, String> {
        let fake = Arc::new(Fake::default());
        let tools =
            Registry::default().with(SessionsSpawn(Arc::clone(&fake))).with(SessionsSend(fake));
        match tools.call(call(), name, input).await {
            Ok(output) => Ok(output.for_llm),
            Err(ToolError::Tell(text)) => Err(text),
            Err(error) => panic!("{error:?}"),
        }
    }

    #[tokio::test]
    async fn a_task_is_given_and_the_model_told_not_to_wait() {
        let told = ask("sessions_spawn", r#"{"task":"count","label":"stars"}"#).await.unwrap();

        assert!(told.starts_with("The subagent \"stars\" works on it in agent:a:subagent:1"));
        assert!(told.contains("You will be told"));
    }

    #[tokio::test]
    async fn what_cannot_be_is_refused_with_what_to_do() {
        for (name, input, expected) in [
            ("sessions_spawn", r#"{"task":" "}"#, "`task` is empty: say it"),
            (
                "sessions_spawn",
                r#"{"task":"x","run_timeout_seconds":0}"#,
                "`run_timeout_seconds` must be from 1 to 86400",
            ),
            ("sessions_spawn", r#"{"task":"x","max_steps":0}"#, "`max_steps` must be from 1"),
            ("sessions_spawn", r#"{"task":"x","agent_id":"y"}"#, "there is no such agent"),
            ("sessions_send", r#"{"session":"x","message":""}"#, "`message` is empty: say it"),
            ("sessions_send", r#"{"session":"x","message":"y"}"#, "there is no such session"),
        ] {
            let told = ask(name, input).await.unwrap_err();
            assert!(told.starts_with(expected), "{told}");
        }
    }
}
