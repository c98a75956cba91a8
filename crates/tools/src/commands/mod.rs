//! Commands: what the tools ask of whoever runs them, and the tools.
//!
//! | tool | effect | what |
//! |---|---|---|
//! | `exec` | acts | a script for bash, in the agent's workspace |
//! | `process` | acts | what of these goes on in the background |
//!
//! A command does what it does once: it is recorded before it runs, and after a crash nobody knows
//! how it went. So nothing here is ever made again; the model is told, and looks.

mod exec;
#[cfg(test)]
mod fake;
mod process;
mod told;

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

pub use exec::Exec;
pub use process::Process;

use crate::{Approval, Call, Registry, ToolError};

/// Where commands run; the runner's own, or a fake.
///
/// An implementation runs them among the files of the call's agent, and knows the processes of the
/// call's session and of no other. What it says in [`ToolError::Tell`] is for the model.
pub trait Commands: Send + Sync + 'static {
    /// Whether a person must be asked before a command runs.
    fn approval(
        &self,
        call: &Call,
        line: &CommandLine,
    ) -> impl Future<Output = Result<Approval, ToolError>> + Send;

    /// Runs a command until it ends, or until it goes on in the background.
    fn run(
        &self,
        call: &Call,
        line: CommandLine,
    ) -> impl Future<Output = Result<Ran, ToolError>> + Send;

    /// The session's background processes, the oldest first.
    fn list(&self, call: &Call)
    -> impl Future<Output = Result<Vec<ProcessLine>, ToolError>> + Send;

    /// How a process stands, once it has ended or after `patience`, and what it wrote since it was
    /// last asked.
    fn look(
        &self,
        call: &Call,
        id: &str,
        patience: Duration,
    ) -> impl Future<Output = Result<Ran, ToolError>> + Send;

    /// Writes to a process' input, and closes it then if that is wanted.
    fn write(
        &self,
        call: &Call,
        id: &str,
        input: ProcessInput,
    ) -> impl Future<Output = Result<(), ToolError>> + Send;

    /// Sends a signal to a process and all that it started.
    fn signal(
        &self,
        call: &Call,
        id: &str,
        signal: ProcessSignal,
    ) -> impl Future<Output = Result<(), ToolError>> + Send;

    /// Ends a process: asks it to, and kills it two seconds later.
    fn end(&self, call: &Call, id: &str) -> impl Future<Output = Result<Ran, ToolError>> + Send;
}

/// A command that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// What bash runs.
    pub script: String,
    /// Where it starts, within the workspace; empty for its top.
    pub workdir: String,
    /// Its environment, besides what every command has.
    pub env: BTreeMap<String, String>,
    /// How long it may take; as the installation says if absent.
    pub timeout: Option<Duration>,
    /// How long to wait before it goes on in the background; `None`: it begins there, and its
    /// input stays open.
    pub patience: Option<Duration>,
    /// Whether it needs the network.
    pub network: bool,
}

/// A command that was run, or is running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// How it stands.
    pub stands: Stands,
    /// What it wrote to its standard output.
    pub out: Written,
    /// What it wrote to its standard error.
    pub err: Written,
    /// How long it took, or runs already.
    pub took: Duration,
    /// What became of the files that it changed, once it has ended.
    pub kept: Option<Kept>,
}

/// How a command stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stands {
    /// It runs, under this name.
    Running(String),
    /// It ended by itself with this code.
    Exited(i32),
    /// It was ended, and by what.
    Ended(String),
}

/// What a command wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The text.
    pub text: String,
    /// How many bytes before it were forgotten.
    pub skipped: u64,
}

/// What became of the files that a command changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The revision that has them, if there is one.
    pub revision: Option<String>,
    /// What changed, a path each.
    pub changes: Vec<(FileMark, String)>,
    /// What was not kept as the command left it, and why; a line each.
    pub notes: Vec<String>,
}

/// What was done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileMark {
    /// It is new.
    Made,
    /// It says something else.
    Changed,
    /// It is gone.
    Deleted,
}

/// A background process, in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLine {
    /// Its name.
    pub id: String,
    /// What it was started as, in short.
    pub title: String,
    /// How it stands, in words.
    pub stands: String,
    /// How long ago it was started.
    pub age: Duration,
}

/// Something for a process' input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInput {
    /// What it reads.
    pub text: String,
    /// Whether it is the last.
    pub is_last: bool,
}

/// The signals that a process may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "they are what they are called")]
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
    /// The same, with the tools for commands that run here.
    #[must_use]
    pub fn with_commands<C: Commands>(self, commands: Arc<C>) -> Self {
        self.with(Exec(Arc::clone(&commands))).with(Process(commands))
    }
}
