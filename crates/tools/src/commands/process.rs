//! The `process` tool: manages background commands.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Commands, ProcessInput, ProcessSignal, report::command_output};
use crate::{Approval, Call, Output, Tool, ToolError};

/// Maximum time that `status` waits.
const MAX_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Process<C>(pub Arc<C>);

/// Look after commands that run in the background: list them, read what one wrote since you last
/// asked and how it ended, write to its input, send it a signal, or end it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessCall {
    action: Action,
    /// Which, as in `prc_…`; not with `list`.
    #[serde(default, alias = "process", alias = "session_id", alias = "sessionId")]
    id: Option<String>,
    /// With `stdin`: what it reads. Lines end with a line break.
    #[serde(default, alias = "data", alias = "input")]
    text: Option<String>,
    /// With `stdin`: close its input then.
    #[serde(default)]
    close: bool,
    /// With `signal`: which.
    #[serde(default)]
    signal: Option<ProcessSignal>,
    /// With `status`: milliseconds to wait for its end.
    #[serde(default)]
    wait_ms: Option<u32>,
    /// With `status`: the most characters to be shown.
    #[serde(default)]
    max_output: Option<u32>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Action {
    List,
    #[serde(alias = "poll", alias = "log")]
    Status,
    #[serde(alias = "write")]
    Stdin,
    Signal,
    Kill,
}

impl ProcessCall {
    fn id(&self) -> Result<&str, ToolError> {
        let missing = || ToolError::Tell("say which: `id`, as `list` shows it".to_owned());
        self.id.as_deref().ok_or_else(missing)
    }

    /// Input for the process.
    fn given(&self) -> Result<ProcessInput, ToolError> {
        let text = self.text.clone().unwrap_or_default();
        if text.is_empty() && !self.close {
            return Err(ToolError::Tell("`text` is empty: say what it reads".to_owned()));
        }
        Ok(ProcessInput { text, is_last: self.close })
    }
}

impl<C: Commands> Tool<Output> for Process<C> {
    const NAME: &'static str = "process";
    const EFFECT: Effect = Effect::Acts;
    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(90));
    type Input = ProcessCall;

    async fn approval(&self, call: &Call, input: &ProcessCall) -> Result<Approval, ToolError> {
        match input.action {
            Action::Stdin => self.0.input_approval(call, input.id()?, &input.given()?).await,
            Action::List | Action::Status | Action::Signal | Action::Kill => Ok(Approval::Never),
        }
    }

    async fn call(&self, call: Call, input: ProcessCall) -> Result<Output, ToolError> {
        match input.action {
            Action::List => self.list(&call).await,
            Action::Status => {
                let wait = Duration::from_millis(input.wait_ms.unwrap_or(0).into());
                let ran = self.0.look(&call, input.id()?, wait.min(MAX_WAIT)).await?;
                Ok(command_output(&ran, input.max_output))
            }
            Action::Stdin => {
                self.0.write(&call, input.id()?, input.given()?).await?;
                Ok("It has read that.".into())
            }
            Action::Signal => {
                let missing = || ToolError::Tell("say which `signal`".to_owned());
                self.0.signal(&call, input.id()?, input.signal.ok_or_else(missing)?).await?;
                Ok("It was sent.".into())
            }
            Action::Kill => {
                Ok(command_output(&self.0.end(&call, input.id()?).await?, input.max_output))
            }
        }
    }
}

impl<C: Commands> Process<C> {
    async fn list(&self, call: &Call) -> Result<Output, ToolError> {
        let lines = self.0.list(call).await?;
        if lines.is_empty() {
            return Ok("There are no background processes here.".into());
        }
        let mut text = String::new();
        for line in lines {
            // Writing to a `String` cannot fail.
            let _ = writeln!(
                text,
                "{} {}, started {} s ago: {}",
                line.id,
                line.stands,
                line.age.as_secs(),
                line.title
            );
        }
        Ok(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        CommandState,
        fake::{said, tools},
    };
    use crate::{Approval, ToolError};

    #[tokio::test]
    async fn only_input_for_a_process_is_asked_about() {
        let (call, _, tools) = tools();
        for (input, subject) in [
            (r#"{"action":"stdin","id":"prc_1","text":"rm x\n"}"#, Some("prc_1 rm x\n")),
            (r#"{"action":"status","id":"prc_1"}"#, None),
            (r#"{"action":"kill","id":"prc_1"}"#, None),
        ] {
            match tools.approval(&call, "process", input).await {
                Ok(Approval::Ask { subject: shown, .. }) => assert_eq!(Some(&*shown), subject),
                Ok(Approval::Never) => assert_eq!(subject, None, "{input}"),
                other => panic!("{input}: {other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_process_is_found_in_the_list_and_asked_how_it_stands() {
        let (call, fake, tools) = tools();
        let none = said(&tools, &call, "process", r#"{"action":"list"}"#).await;
        assert_eq!(none, "There are no background processes here.");

        fake.will(|ran| ran.stands = CommandState::Running("prc_1".into()));
        let begun = said(&tools, &call, "exec", r#"{"command":"serve"}"#).await;
        assert!(begun.starts_with("running in the background as prc_1"), "{begun}");
        let list = said(&tools, &call, "process", r#"{"action":"list"}"#).await;
        assert_eq!(list, "prc_1 running, started 2 s ago: serve\n");

        let looked = said(&tools, &call, "process", r#"{"action":"poll","id":"prc_1"}"#).await;
        assert!(looked.starts_with("running"), "{looked}");
        fake.will(|ran| ran.stands = CommandState::Ended("ended by signal 15".into()));
        let ended = said(&tools, &call, "process", r#"{"action":"kill","id":"prc_1"}"#).await;
        assert!(ended.starts_with("failed: ended by signal 15"), "{ended}");
    }

    #[tokio::test]
    async fn what_an_action_lacks_is_said() {
        let (call, _, tools) = tools();
        for (input, lacks) in [
            (r#"{"action":"status"}"#, "`id`"),
            (r#"{"action":"stdin","id":"prc_1"}"#, "`text`"),
            (r#"{"action":"signal","id":"prc_1"}"#, "`signal`"),
            (r#"{"action":"signal","id":"prc_1","signal":"stop"}"#, "unknown variant"),
        ] {
            match tools.call(call.clone(), "process", input).await {
                Err(ToolError::Tell(text)) => assert!(text.contains(lacks), "{text}"),
                other => panic!("{input}: {other:?}"),
            }
        }
    }
}
