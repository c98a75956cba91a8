//! What a sandbox is, whoever builds its walls.

use std::fmt;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::{Command, Error, Outcome, Piped, Process};

/// Who builds the walls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// `bwrap`: namespaces, a system call filter, limits.
    Bubblewrap,
    /// Nobody: the command runs as the process that started it.
    Plain,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bubblewrap => "bubblewrap",
            Self::Plain => "plain",
        })
    }
}

/// A place where commands run.
pub trait Sandbox: fmt::Debug + Send + Sync {
    /// Who builds its walls.
    fn backend(&self) -> Backend;

    /// Runs a command to its end, and leaves nothing of it behind.
    ///
    /// Whatever the script does (hang, fork, fill, refuse to die) is an [`Outcome`]. Once
    /// `cancel` is cancelled the command is ended as if its time were up; dropping the
    /// future kills it at once.
    ///
    /// # Errors
    ///
    /// If the command may not be run as it is written, or the walls could not be built.
    fn run(
        &self,
        command: Command,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, Result<Outcome, Error>>;

    /// Starts a command that goes on by itself, until its time is up or its handle is dropped.
    ///
    /// Its standard input stays open, after what the command brings.
    ///
    /// # Errors
    ///
    /// Those of [`Sandbox::run`].
    fn spawn(&self, command: Command) -> BoxFuture<'_, Result<Box<dyn Process>, Error>>;

    /// Starts a command that is spoken with: as [`spawn`](Sandbox::spawn), but what it writes to
    /// its standard output is kept nowhere, and it waits while nobody reads it.
    ///
    /// What the command brings for its standard input is not sent.
    ///
    /// # Errors
    ///
    /// Those of [`Sandbox::run`].
    fn spawn_piped(&self, command: Command) -> BoxFuture<'_, Result<Piped, Error>>;
}
