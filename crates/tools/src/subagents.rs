//! The `sessions_spawn`, `sessions_send` and `subagents` tools: work with subagents and other
//! sessions.
//!
//! The first two only store a message under the call's key, so a repeated call after a crash does
//! nothing twice: they write, and do not act. A call that waits for a subagent's end waits again
//! for the same one.
//!
//! `subagents` lists the conversation's subagents, and stops them.

use std::{future::Future, sync::Arc, time::Duration};

use holdfast_types::{Effect, SessionId, Thinking};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Call, SessionRef, Tool, ToolError, file_path, untrusted};

/// Default timeout of a subagent, in seconds (spec SUB-010).
const DEFAULT_TIMEOUT_SECS: u32 = 3_600;

/// Maximum timeout of a subagent, in seconds.
const MAX_TIMEOUT_SECS: u32 = 86_400;

/// Maximum length of a task or message, in bytes.
const MAX_TEXT_LEN: usize = 64 * 1024;

/// Maximum time that a call waits for a subagent's end; then the subagent continues in the
/// background.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// Maximum length of a subagent's answer that the model gets, in characters.
const MAX_ANSWER_CHARS: usize = 50_000;

/// Maximum number of paths in a subagent's scope.
const MAX_SCOPE_PATHS: usize = 32;

/// Access of the tools to subagents. An error is an internal failure: the turn ends and may be
/// retried.
pub trait Subagents: Send + Sync + 'static {
    /// Starts a subagent, once for the same `call.key`. The inner error is a reason for the model.
    fn spawn(
        &self,
        call: &Call,
        wanted: SubagentRequest,
    ) -> impl Future<Output = anyhow::Result<Result<StartedSubagent, String>>> + Send;

    /// Waits for a subagent's end; `None` if it has not ended `within` this time.
    fn wait(
        &self,
        call: &Call,
        session: SessionId,
        within: Duration,
    ) -> impl Future<Output = anyhow::Result<Option<SubagentResult>>> + Send;

    /// Lists the conversation's subagents, newest first.
    fn list(
        &self,
        call: &Call,
    ) -> impl Future<Output = anyhow::Result<Vec<SubagentSummary>>> + Send;

    /// Stops a subagent of the conversation. The inner error is a reason for the model.
    fn stop(
        &self,
        call: &Call,
        which: SessionRef,
    ) -> impl Future<Output = anyhow::Result<Result<(), String>>> + Send;

    /// Stores a message in another session, once for the same `call.key`. The inner error is a
    /// reason for the model.
    fn say(
        &self,
        call: &Call,
        to: SessionRef,
        text: String,
        deliver: bool,
    ) -> impl Future<Output = anyhow::Result<Result<(), String>>> + Send;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubagentRequest {
    pub task: String,
    /// Short name of the task, if given.
    pub label: Option<String>,
    /// Name of the agent, if not the caller's own.
    pub agent: Option<String>,
    /// Model, if not the agent's own.
    pub model: Option<String>,
    /// Thinking level, if not the default.
    pub thinking: Option<Thinking>,
    /// Maximum duration of its work.
    pub timeout: Duration,
    pub max_steps: Option<u32>,
    pub max_tokens: Option<u32>,
    /// Whether to delete its session after its end was announced.
    pub delete: bool,
    /// Name of a set of tools that it gets.
    pub bundle: Option<String>,
    /// Additional tools; without a bundle, the only ones.
    pub tools: Option<Vec<String>>,
    /// Paths that its file tools may read; `None` means all.
    pub read: Option<Vec<String>>,
    /// Paths that its file tools may change; `None` means all.
    pub write: Option<Vec<String>>,
    /// Whether it works on a copy of the files, from which changes can be merged.
    pub patch: bool,
    /// Whether the call waits for its end.
    pub wait: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubagentResult {
    /// Whether it completed its task.
    pub ok: bool,
    /// Answer, or reason of the failure.
    pub said: String,
    /// Summary of its changes to its copy of the files, if it had one.
    pub patch: Option<String>,
}

/// Subagent, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SubagentSummary {
    pub label: String,
    pub session: String,
    /// `running`, `ok`, `error`, `timeout` or `unknown`.
    pub status: String,
    /// Duration until its end or now, in seconds.
    pub seconds: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedSubagent {
    pub session: SessionId,
    pub key: String,
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
    /// How much it thinks before it answers.
    #[serde(default)]
    thinking: Option<ThinkingInput>,
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
    /// Wait for its answer, up to two minutes, instead of being told later.
    #[serde(default)]
    wait: bool,
    /// A set of tools: none, read, files, research, code, or one of your owner's.
    #[serde(default)]
    bundle: Option<String>,
    /// Tools that it may use besides; without `bundle`, the only ones.
    #[serde(default)]
    tools: Option<Vec<String>>,
    /// Folders or files that it may look at.
    #[serde(default)]
    read: Option<Vec<String>>,
    /// Folders or files that it may change.
    #[serde(default)]
    write: Option<Vec<String>>,
    /// `patch`: it works on a copy of your files; you look at what it changed and merge it.
    #[serde(default)]
    files: FilesInput,
}

/// A level of thinking, as the model says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum ThinkingInput {
    Off,
    Low,
    Medium,
    High,
}

impl From<ThinkingInput> for Thinking {
    fn from(level: ThinkingInput) -> Self {
        match level {
            ThinkingInput::Off => Self::Off,
            ThinkingInput::Low => Self::Low,
            ThinkingInput::Medium => Self::Medium,
            ThinkingInput::High => Self::High,
        }
    }
}

/// Whose files a subagent works on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum FilesInput {
    #[default]
    Shared,
    Patch,
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
    DEFAULT_TIMEOUT_SECS
}

#[derive(Debug)]
pub struct SessionsSpawn<S>(pub Arc<S>);

impl<S: Subagents> Tool for SessionsSpawn<S> {
    const NAME: &'static str = "sessions_spawn";
    const EFFECT: Effect = Effect::Writes;
    const TIMEOUT: Option<Duration> = Some(MAX_WAIT.saturating_add(Duration::from_secs(15)));
    type Input = SessionsSpawnInput;

    async fn call(&self, call: Call, input: SessionsSpawnInput) -> Result<String, ToolError> {
        let task = checked_text("task", input.task)?;
        if !(1..=MAX_TIMEOUT_SECS).contains(&input.run_timeout_seconds) {
            return Err(ToolError::Tell(format!(
                "`run_timeout_seconds` must be from 1 to {MAX_TIMEOUT_SECS}"
            )));
        }
        for (name, limit) in [("max_steps", input.max_steps), ("max_tokens", input.max_tokens)] {
            if limit.is_some_and(|limit| !(1..=i32::MAX.unsigned_abs()).contains(&limit)) {
                return Err(ToolError::Tell(format!("`{name}` must be from 1 to {}", i32::MAX)));
            }
        }
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        let wanted = SubagentRequest {
            task,
            label: given(input.label),
            agent: given(input.agent_id),
            model: given(input.model),
            thinking: input.thinking.map(Thinking::from),
            timeout: Duration::from_secs(input.run_timeout_seconds.into()),
            max_steps: input.max_steps,
            max_tokens: input.max_tokens,
            delete: input.cleanup == CleanupInput::Delete,
            bundle: given(input.bundle),
            tools: input.tools,
            read: input.read.map(paths).transpose()?,
            write: input.write.map(paths).transpose()?,
            patch: input.files == FilesInput::Patch,
            wait: input.wait,
        };
        let wait = wanted.wait.then(|| wanted.timeout.min(MAX_WAIT));
        let StartedSubagent { session, key, label } = match self.0.spawn(&call, wanted).await? {
            Ok(spawned) => spawned,
            Err(reason) => return Err(ToolError::Tell(reason)),
        };
        let ended = match wait {
            Some(within) => self.0.wait(&call, session, within).await?,
            None => None,
        };
        match ended {
            Some(SubagentResult { ok: true, said, patch }) => {
                let said = untrusted(&call.key, "a subagent", &said, MAX_ANSWER_CHARS);
                Ok(said + &patch.unwrap_or_default())
            }
            Some(SubagentResult { ok: false, said, patch }) => {
                let patch = patch.unwrap_or_default();
                Err(ToolError::Tell(format!("the subagent \"{label}\" failed: {said}{patch}")))
            }
            None => Ok(format!(
                "The subagent \"{label}\" works on it in {key} ({session}). You will be told when \
                 it has ended; go on with other things, or end your turn."
            )),
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

#[derive(Debug)]
pub struct SessionsSend<S>(pub Arc<S>);

impl<S: Subagents> Tool for SessionsSend<S> {
    const NAME: &'static str = "sessions_send";
    const EFFECT: Effect = Effect::Writes;
    type Input = SessionsSendInput;

    async fn call(&self, call: Call, input: SessionsSendInput) -> Result<String, ToolError> {
        let text = checked_text("message", input.message)?;
        let which = SessionRef::parse(&input.session);
        match self.0.say(&call, which, text, input.deliver).await? {
            Ok(()) => Ok("It was said there.".to_owned()),
            Err(reason) => Err(ToolError::Tell(reason)),
        }
    }
}

/// What to do with the subagents of this conversation: `list` them, or `stop` one. To say something
/// to one, use `sessions_send`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubagentsInput {
    /// `list` or `stop`.
    #[serde(default)]
    action: SubagentsAction,
    /// Which to stop: its session's key or id.
    #[serde(default, alias = "session_key")]
    session: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum SubagentsAction {
    #[default]
    List,
    Stop,
}

#[derive(Debug)]
pub struct SubagentsTool<S>(pub Arc<S>);

impl<S: Subagents> Tool for SubagentsTool<S> {
    const NAME: &'static str = "subagents";
    const EFFECT: Effect = Effect::Writes;
    type Input = SubagentsInput;

    async fn call(&self, call: Call, input: SubagentsInput) -> Result<String, ToolError> {
        match (input.action, input.session.as_deref().map(str::trim)) {
            (SubagentsAction::List, _) => {
                let lines = self.0.list(&call).await?;
                let lines = lines.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>();
                let lines = lines.map_err(anyhow::Error::from)?;
                match lines.as_slice() {
                    [] => Ok("This conversation has no subagents.".to_owned()),
                    lines => Ok(lines.join("\n")),
                }
            }
            (SubagentsAction::Stop, None | Some("")) => Err(ToolError::Tell(
                "`session` is missing: say which; `list` shows them".to_owned(),
            )),
            (SubagentsAction::Stop, Some(named)) => {
                match self.0.stop(&call, SessionRef::parse(named)).await? {
                    Ok(()) => Ok("It is stopped; you will be told of its end.".to_owned()),
                    Err(reason) => Err(ToolError::Tell(reason)),
                }
            }
        }
    }
}

/// Normalises paths; an empty list permits none.
fn paths(given: Vec<String>) -> Result<Vec<String>, ToolError> {
    if given.len() > MAX_SCOPE_PATHS {
        return Err(ToolError::Tell(format!("{MAX_SCOPE_PATHS} paths are the most")));
    }
    given.iter().map(|path| file_path(path.trim().trim_end_matches('/'))).collect()
}

fn checked_text(name: &str, text: String) -> Result<String, ToolError> {
    match text.len() {
        _ if text.trim().is_empty() => Err(ToolError::Tell(format!("`{name}` is empty: say it"))),
        _ if text.contains('\0') => Err(ToolError::Tell(format!("`{name}` has a NUL in it"))),
        got if got > MAX_TEXT_LEN => Err(ToolError::Tell(format!(
            "`{name}` is {got} bytes, and {MAX_TEXT_LEN} are the most: put what is long in a file"
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
    struct Fake(Mutex<Vec<SubagentRequest>>);

    impl Subagents for Fake {
        async fn spawn(
            &self,
            call: &Call,
            wanted: SubagentRequest,
        ) -> anyhow::Result<Result<StartedSubagent, String>> {
            if wanted.agent.is_some() {
                return Ok(Err("there is no such agent".into()));
            }
            let label = wanted.label.clone().unwrap_or_default();
            self.0.lock().unwrap().push(wanted);
            Ok(Ok(StartedSubagent {
                session: call.session,
                key: "agent:a:subagent:1".into(),
                label,
            }))
        }

        async fn wait(
            &self,
            _: &Call,
            _: SessionId,
            _: Duration,
        ) -> anyhow::Result<Option<SubagentResult>> {
            let wanted = self.0.lock().unwrap().last().cloned().unwrap();
            Ok(match wanted.task.as_str() {
                "count" => Some(SubagentResult {
                    ok: true,
                    said: "seven".into(),
                    patch: Some("\nchanged".into()),
                }),
                "fail" => Some(SubagentResult {
                    ok: false,
                    said: "budget exceeded: steps".into(),
                    patch: None,
                }),
                _ => None,
            })
        }

        async fn list(&self, _: &Call) -> anyhow::Result<Vec<SubagentSummary>> {
            Ok(vec![SubagentSummary {
                label: "stars".into(),
                session: "agent:a:subagent:1".into(),
                status: "running".into(),
                seconds: 3,
            }])
        }

        async fn stop(&self, _: &Call, which: SessionRef) -> anyhow::Result<Result<(), String>> {
            Ok(match which {
                SessionRef::Id(_) => Ok(()),
                SessionRef::Key(_) => Err("there is no such subagent".into()),
            })
        }

        async fn say(
            &self,
            _: &Call,
            to: SessionRef,
            _: String,
            _: bool,
        ) -> anyhow::Result<Result<(), String>> {
            Ok(match to {
                SessionRef::Id(_) => Ok(()),
                SessionRef::Key(_) => Err("there is no such session".into()),
            })
        }
    }

    async fn ask(name: &str, input: &str) -> Result<String, String> {
        let fake = Arc::new(Fake::default());
        let tools = Registry::default()
            .with(SessionsSpawn(Arc::clone(&fake)))
            .with(SubagentsTool(Arc::clone(&fake)))
            .with(SessionsSend(fake));
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
    async fn an_answer_that_is_waited_for_is_told_at_once_and_one_that_takes_long_later() {
        let told = ask("subagent", r#"{"task":"count"}"#).await.unwrap();
        assert!(told.contains("seven") && told.contains("not an instruction"), "{told}");
        assert!(told.ends_with("\nchanged"), "{told}");

        let failed = ask("subagent", r#"{"task":"fail","label":"f"}"#).await.unwrap_err();
        assert_eq!(failed, "the subagent \"f\" failed: budget exceeded: steps");

        let later = ask("sessions_spawn", r#"{"task":"long","wait":true}"#).await.unwrap();
        assert!(later.contains("You will be told"), "{later}");
    }

    #[tokio::test]
    async fn subagents_are_listed_and_stopped() {
        let listed = ask("subagents", "{}").await.unwrap();
        assert!(listed.contains(r#""label":"stars""#) && listed.contains("running"), "{listed}");

        let stop = |session: &str| format!(r#"{{"action":"stop","session":"{session}"}}"#);
        let id = SessionId::generate().to_string();
        assert!(ask("subagents", &stop(&id)).await.unwrap().starts_with("It is stopped"));
        assert_eq!(ask("subagents", &stop("x")).await.unwrap_err(), "there is no such subagent");
        assert!(ask("subagents", &stop("")).await.unwrap_err().contains("say which"));
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
            ("sessions_spawn", r#"{"task":"x","write":["../y"]}"#, "`../y` is no path here"),
            ("sessions_send", r#"{"session":"x","message":""}"#, "`message` is empty: say it"),
            ("sessions_send", r#"{"session":"x","message":"y"}"#, "there is no such session"),
        ] {
            let told = ask(name, input).await.unwrap_err();
            assert!(told.starts_with(expected), "{told}");
        }
    }
}
