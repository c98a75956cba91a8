//! Commands: the tools, and the interface to the component that runs them.
//!
//! | tool | effect | purpose |
//! |---|---|---|
//! | `exec` | acts | runs a bash script in the agent's workspace |
//! | `process` | acts | manages background commands |
//!
//! A command's effects cannot be repeated safely: the call is recorded before the command runs, and
//! after a crash its outcome is unknown. So no call is repeated automatically; the model is told,
//! and can check.

mod exec;
#[cfg(test)]
mod fake;
mod process;
mod report;

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

pub use exec::Exec;
pub use process::Process;

use crate::{Approval, Call, Registry, ToolError};

/// Runner of commands, for the tools; implemented by agent-runner and by a fake.
///
/// An implementation runs commands among the files of the call's agent, and knows only the
/// processes of the call's session. The text of [`ToolError::Tell`] is for the model.
pub trait Commands: Send + Sync + 'static {
    /// Returns the approval that a command needs.
    fn approval(
        &self,
        call: &Call,
        line: &CommandLine,
    ) -> impl Future<Output = Result<Approval, ToolError>> + Send;

    /// Runs a command until it ends, or until it continues in the background.
    fn run(
        &self,
        call: &Call,
        line: CommandLine,
    ) -> impl Future<Output = Result<CommandResult, ToolError>> + Send;

    /// Lists the session's background processes, oldest first.
    fn list(
        &self,
        call: &Call,
    ) -> impl Future<Output = Result<Vec<ProcessSummary>, ToolError>> + Send;

    /// Waits until a process has ended, but at most for `patience`; returns its state, and its
    /// output since the last call.
    fn look(
        &self,
        call: &Call,
        id: &str,
        patience: Duration,
    ) -> impl Future<Output = Result<CommandResult, ToolError>> + Send;

    /// Returns the approval that input of a process needs.
    fn input_approval(
        &self,
        call: &Call,
        id: &str,
        input: &ProcessInput,
    ) -> impl Future<Output = Result<Approval, ToolError>> + Send;

    /// Writes to a process' input, and closes it afterwards if requested.
    fn write(
        &self,
        call: &Call,
        id: &str,
        input: ProcessInput,
    ) -> impl Future<Output = Result<(), ToolError>> + Send;

    /// Sends a signal to a process and its descendants.
    fn signal(
        &self,
        call: &Call,
        id: &str,
        signal: ProcessSignal,
    ) -> impl Future<Output = Result<(), ToolError>> + Send;

    /// Asks a process to end, and kills it two seconds later.
    fn end(
        &self,
        call: &Call,
        id: &str,
    ) -> impl Future<Output = Result<CommandResult, ToolError>> + Send;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    pub script: String,
    /// Working directory within the workspace; empty for the top.
    pub workdir: String,
    /// Variables besides those that every command has.
    pub env: BTreeMap<String, String>,
    /// Timeout; `None` means the configured one.
    pub timeout: Option<Duration>,
    /// Time to wait before the command continues in the background. `None`: it starts in the
    /// background, and its input stays open.
    pub patience: Option<Duration>,
    /// Whether it asks for network access.
    pub network: bool,
}

/// Result of a command that has ended or still runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandResult {
    pub stands: CommandState,
    pub out: StreamOutput,
    pub err: StreamOutput,
    /// Time since its start, until its end or now.
    pub took: Duration,
    /// Changes of the workspace; `None` while the command runs.
    pub kept: Option<WorkspaceChanges>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandState {
    /// Runs in the background, under this process id.
    Running(String),
    /// Exited by itself with this code.
    Exited(i32),
    /// Was ended, for this reason.
    Ended(String),
}

/// Output of a command on one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamOutput {
    pub text: String,
    /// Number of bytes before the text that were dropped.
    pub skipped: u64,
}

/// Workspace changes of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceChanges {
    /// Revision that contains the changes, if there is one.
    pub revision: Option<String>,
    /// Kind of change and path of each changed file.
    pub changes: Vec<(FileChangeKind, String)>,
    /// Changes that were not saved as the command left them, with the reason; one line each.
    pub notes: Vec<String>,
}

/// Kind of change to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileChangeKind {
    Made,
    Changed,
    Deleted,
}

/// Background process, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSummary {
    pub id: String,
    /// Short form of its command.
    pub title: String,
    /// State, as text for the model.
    pub stands: String,
    /// Time since the process was started.
    pub age: Duration,
    /// The command needed an approval. Assumed of a runner that does not say.
    #[serde(default = "is_approved_by_default")]
    pub is_approved: bool,
}

const fn is_approved_by_default() -> bool {
    true
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInput {
    pub text: String,
    /// Whether to close the input afterwards.
    pub is_last: bool,
}

/// The signals that a process may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProcessSignal {
    #[serde(alias = "SIGINT", alias = "INT")]
    Int,
    #[serde(alias = "SIGTERM", alias = "TERM")]
    Term,
    #[serde(alias = "SIGKILL", alias = "KILL")]
    Kill,
    #[serde(alias = "SIGHUP", alias = "HUP")]
    Hup,
    #[serde(alias = "SIGUSR1", alias = "USR1")]
    Usr1,
    #[serde(alias = "SIGUSR2", alias = "USR2")]
    Usr2,
}

impl Registry {
    /// Adds the tools for commands.
    #[must_use]
    pub fn with_commands<C: Commands>(self, commands: Arc<C>) -> Self {
        self.with(Exec(Arc::clone(&commands))).with(Process(commands))
    }
}
