//! Fake command runner, for tests.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    CommandLine, CommandResult, CommandState, Commands, ProcessInput, ProcessSignal,
    ProcessSummary, StreamOutput,
};
use crate::{
    Approval, Call, Registry, ToolError,
    mesh::tests::{call, said as text_of},
};

/// Records the commands, and returns a configured result.
#[derive(Debug)]
pub(super) struct Fake(Mutex<(Vec<CommandLine>, CommandResult)>);

impl Fake {
    fn state(&self) -> MutexGuard<'_, (Vec<CommandLine>, CommandResult)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the result of the next commands.
    pub(super) fn will(&self, change: impl FnOnce(&mut CommandResult)) {
        change(&mut self.state().1);
    }

    /// Returns the last command.
    pub(super) fn last(&self) -> CommandLine {
        self.state().0.last().cloned().unwrap()
    }

    /// Number of commands.
    pub(super) fn count(&self) -> usize {
        self.state().0.len()
    }
}

/// Returns a call, the fake, and tools that use it.
pub(super) fn tools() -> (Call, Arc<Fake>, Registry) {
    let ran = CommandResult {
        stands: CommandState::Exited(0),
        out: StreamOutput::default(),
        err: StreamOutput::default(),
        took: Duration::from_millis(1_500),
        kept: None,
    };
    let fake = Arc::new(Fake(Mutex::new((Vec::new(), ran))));
    (call(), Arc::clone(&fake), Registry::default().with_commands(fake))
}

/// Returns the model's text for a call.
pub(super) async fn said(tools: &Registry, call: &Call, name: &str, input: &str) -> String {
    text_of(tools.call(call.clone(), name, input).await)
}

impl Commands for Fake {
    async fn approval(&self, _: &Call, _: &CommandLine) -> Result<Approval, ToolError> {
        Ok(Approval::Never)
    }

    async fn run(&self, _: &Call, line: CommandLine) -> Result<CommandResult, ToolError> {
        let mut state = self.state();
        state.0.push(line);
        Ok(state.1.clone())
    }

    async fn list(&self, _: &Call) -> Result<Vec<ProcessSummary>, ToolError> {
        let state = self.state();
        let line = |(line, id): (&CommandLine, &String)| ProcessSummary {
            id: id.clone(),
            title: line.script.clone(),
            stands: "running".to_owned(),
            age: Duration::from_secs(2),
            is_approved: true,
        };
        Ok(match &state.1.stands {
            CommandState::Running(id) => state.0.iter().map(|script| line((script, id))).collect(),
            CommandState::Exited(_) | CommandState::Ended(_) => Vec::new(),
        })
    }

    async fn look(&self, _: &Call, _: &str, _: Duration) -> Result<CommandResult, ToolError> {
        Ok(self.state().1.clone())
    }

    async fn input_approval(
        &self,
        _: &Call,
        id: &str,
        input: &ProcessInput,
    ) -> Result<Approval, ToolError> {
        let subject = format!("{id} {}", input.text);
        Ok(Approval::Ask { summary: subject.clone(), subject, pattern: None })
    }

    async fn write(&self, _: &Call, _: &str, _: ProcessInput) -> Result<(), ToolError> {
        Ok(())
    }

    async fn signal(&self, _: &Call, _: &str, _: ProcessSignal) -> Result<(), ToolError> {
        Ok(())
    }

    async fn end(&self, _: &Call, _: &str) -> Result<CommandResult, ToolError> {
        Ok(self.state().1.clone())
    }
}
