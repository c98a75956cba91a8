//! Interfaces of sandboxes.

use std::fmt;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::{Command, Error, Outcome, PipedProcess, Process};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// `bwrap`: namespaces, a system call filter, limits.
    Bubblewrap,
    /// No isolation: the command runs as the user of this process.
    Plain,
    /// A Kubernetes pod, which a crate of its own runs.
    Pods,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bubblewrap => "bubblewrap",
            Self::Plain => "plain",
            Self::Pods => "pods",
        })
    }
}

/// Isolated environment in which commands run.
pub trait Sandbox: fmt::Debug + Send + Sync {
    fn backend(&self) -> Backend;

    /// Kind of its limits: `limits: cgroup`, or `limits: per process only` and the reason.
    fn limit_scope(&self) -> String;

    /// Starts a command in the background. It runs until its timeout, or until its handle is
    /// dropped.
    ///
    /// Standard input stays open after the command's own input is written. When the command has
    /// ended, its workspace on this machine holds what it changed, unless it is
    /// [`CommandEnd::Lost`](crate::CommandEnd::Lost).
    ///
    /// # Errors
    ///
    /// If the command is not permitted as written, or the sandbox could not be built.
    fn spawn(&self, command: Command) -> BoxFuture<'_, Result<Box<dyn Process>, Error>>;
}

/// Sandbox on this machine.
pub trait LocalSandbox: Sandbox {
    /// Runs a command to its end, and leaves none of its processes behind.
    ///
    /// Whatever the script does (hang, fork, fill the disk, ignore signals) is an [`Outcome`]. Once
    /// `cancel` is cancelled the command is ended as on a timeout; dropping the future kills it at
    /// once.
    ///
    /// # Errors
    ///
    /// Those of [`Sandbox::spawn`].
    fn run(
        &self,
        command: Command,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, Result<Outcome, Error>>;

    /// Starts a command with pipes: like [`spawn`](Sandbox::spawn), but its standard output is not
    /// kept, and the command blocks while the pipe is not read.
    ///
    /// The command's own input is not sent.
    ///
    /// # Errors
    ///
    /// Those of [`Sandbox::spawn`].
    fn spawn_piped(&self, command: Command) -> BoxFuture<'_, Result<PipedProcess, Error>>;
}
