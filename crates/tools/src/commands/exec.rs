//! The `exec` tool: runs a command.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{CommandLine, Commands, report::command_output};
use crate::{Approval, Call, Output, Tool, ToolError};

/// Default time to wait for a command before it continues in the background.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// Maximum time that a call may ask to wait.
const MAX_WAIT: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub struct Exec<C>(pub Arc<C>);

/// Run a command with bash in your workspace. It sees your files and the machine's programs, and
/// no network unless that is allowed. What it changes in your files is kept, and listed.
///
/// What takes longer than `yield_ms` goes on in the background: see `process`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecInput {
    /// What bash runs.
    command: String,
    /// Where it starts, within the workspace.
    #[serde(default, alias = "cwd")]
    workdir: Option<String>,
    /// Variables for it.
    #[serde(default)]
    env: Option<BTreeMap<String, String>>,
    /// Seconds that it may take, 120 if absent.
    #[serde(default)]
    timeout: Option<u32>,
    /// Milliseconds to wait for its end, 10000 if absent.
    #[serde(default, alias = "yieldMs")]
    yield_ms: Option<u32>,
    /// Begin in the background, with its input open.
    #[serde(default)]
    background: bool,
    /// It needs the network, which may have to be approved.
    #[serde(default)]
    network: bool,
    /// The most characters of its output to be shown.
    #[serde(default)]
    max_output: Option<u32>,
}

impl ExecInput {
    fn line(&self) -> CommandLine {
        let wait = self.yield_ms.map_or(DEFAULT_WAIT, |ms| Duration::from_millis(ms.into()));
        CommandLine {
            script: self.command.clone(),
            workdir: self.workdir.clone().unwrap_or_default(),
            env: self.env.clone().unwrap_or_default(),
            timeout: self.timeout.map(|seconds| Duration::from_secs(seconds.into())),
            patience: (!self.background).then_some(wait.min(MAX_WAIT)),
            network: self.network,
        }
    }

    fn check(&self) -> Result<(), ToolError> {
        let wrong = match self.timeout {
            _ if self.command.trim().is_empty() => "`command` is empty: say what to run",
            Some(0) => "`timeout` is 0: give it a second at least",
            Some(_) | None => return Ok(()),
        };
        Err(ToolError::Tell(wrong.to_owned()))
    }
}

impl<C: Commands> Tool<Output> for Exec<C> {
    const NAME: &'static str = "exec";
    const EFFECT: Effect = Effect::Acts;
    // Longest wait, and the time to prepare the files before and to save them after.
    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(180));
    type Input = ExecInput;

    async fn approval(&self, call: &Call, input: &ExecInput) -> Result<Approval, ToolError> {
        input.check()?;
        self.0.approval(call, &input.line()).await
    }

    async fn call(&self, call: Call, input: ExecInput) -> Result<Output, ToolError> {
        input.check()?;
        let ran = self.0.run(&call, input.line()).await?;
        Ok(command_output(&ran, input.max_output))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fake::{said, tools};
    use crate::{Approval, ToolError};

    #[tokio::test]
    async fn a_command_is_told_with_its_code_and_both_its_outputs() {
        let (call, fake, tools) = tools();
        fake.will(|ran| {
            ran.out.text = "one\n".into();
            ran.err.text = "two\n".into();
        });

        let text = said(&tools, &call, "exec", r#"{"command":"x"}"#).await;

        assert_eq!(text, "completed: exited with code 0 after 1.5 s\none\nSTDERR:\ntwo\n");
    }

    #[tokio::test]
    async fn what_is_asked_for_is_passed_on_under_every_name_of_the_tool() {
        let (call, fake, tools) = tools();

        let input = r#"{"command":"ls","workdir":"a","env":{"A":"1"},"yield_ms":5,"timeout":7}"#;
        said(&tools, &call, "exec", input).await;
        let line = fake.last();
        assert_eq!((line.script.as_str(), line.workdir.as_str()), ("ls", "a"));
        assert_eq!(line.patience, Some(Duration::from_millis(5)));
        assert_eq!(line.timeout, Some(Duration::from_secs(7)));
        assert_eq!(line.env["A"], "1");

        said(&tools, &call, "bash", r#"{"cmd":"ls","cwd":"b","background":true}"#).await;
        let line = fake.last();
        assert_eq!((line.workdir.as_str(), line.patience, line.timeout), ("b", None, None));

        said(&tools, &call, "run_command", r#"{"command":"ls"}"#).await;
        assert_eq!(fake.last().timeout, Some(Duration::from_secs(30)));

        said(&tools, &call, "exec", r#"{"command":"ls","yield_ms":999999999}"#).await;
        assert_eq!(fake.last().patience, Some(Duration::from_secs(120)));
    }

    #[tokio::test]
    async fn what_says_nothing_to_run_is_refused_before_anyone_is_asked() {
        let (call, fake, tools) = tools();

        for input in [r#"{"command":" "}"#, r#"{"command":"ls","timeout":0}"#] {
            let refused = tools.call(call.clone(), "exec", input).await;
            assert!(matches!(refused, Err(ToolError::Tell(_))), "{input}");
            assert!(tools.approval(&call, "exec", input).await.is_err(), "{input}");
        }

        assert_eq!(fake.count(), 0);
        let asked = tools.approval(&call, "exec", r#"{"command":"ls"}"#).await;
        assert_eq!(asked.unwrap(), Approval::Never);
    }
}
