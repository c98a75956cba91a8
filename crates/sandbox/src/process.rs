//! Background process.

use std::fmt;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{CommandEnd, Error, OutputChunk};

/// Process in the background. Dropping it kills it, and all its descendants.
pub trait Process: fmt::Debug + Send + Sync {
    fn state(&self) -> State;

    /// Returns a stream's output from byte number `from` on. Reading removes nothing.
    fn read(&self, stream: Stream, from: u64) -> OutputChunk;

    /// Writes to its standard input, and waits until the bytes are written.
    ///
    /// # Errors
    ///
    /// If the process takes no input any more.
    fn write(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<(), Error>>;

    /// Closes its standard input, after everything written before.
    fn close_input(&self);

    /// Sends a signal to all its processes. Does nothing if it has ended.
    fn signal(&self, signal: Signal);

    /// Asks it to end, and kills it 2 s later.
    fn stop(&self);

    /// Waits until the process and all its descendants are gone.
    fn ended(&self) -> BoxFuture<'_, CommandEnd>;
}

/// Process with pipes for its standard input and output.
pub struct PipedProcess {
    /// Handle to the process. Keeps standard error; its `write` always fails.
    pub process: Box<dyn Process>,
    /// Standard input. Dropping it closes it.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
}

impl fmt::Debug for PipedProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piped").field("process", &self.process).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Running,
    Ended(CommandEnd),
}

/// Output stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

/// Signals that may be sent to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Same signal as Ctrl-C sends.
    Interrupt,
    /// Asks the process to end.
    Terminate,
    /// Ends the process without asking.
    Kill,
    /// The terminal is gone; servers reload their configuration.
    HangUp,
    /// Meaning defined by the program.
    User1,
    /// Meaning defined by the program.
    User2,
}

impl Signal {
    pub(crate) const fn as_signal(self) -> rustix::process::Signal {
        match self {
            Self::Interrupt => rustix::process::Signal::INT,
            Self::Terminate => rustix::process::Signal::TERM,
            Self::Kill => rustix::process::Signal::KILL,
            Self::HangUp => rustix::process::Signal::HUP,
            Self::User1 => rustix::process::Signal::USR1,
            Self::User2 => rustix::process::Signal::USR2,
        }
    }
}
