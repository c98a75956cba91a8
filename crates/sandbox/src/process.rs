//! A command that goes on by itself.

use std::fmt;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Chunk, Ended, Error};

/// A command that goes on by itself. Dropping it kills it, and all that it started.
pub trait Process: fmt::Debug + Send + Sync {
    /// How it stands.
    fn state(&self) -> State;

    /// What it wrote to a stream, from byte number `from` on; nothing is taken away.
    fn read(&self, stream: Stream, from: u64) -> Chunk;

    /// Writes to its standard input, and waits until it was taken.
    ///
    /// # Errors
    ///
    /// If it takes no input any more.
    fn write(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<(), Error>>;

    /// Closes its standard input, after what was written to it.
    fn close_input(&self);

    /// Sends a signal to all its processes. One that has ended takes none, which is no error.
    fn signal(&self, signal: Signal);

    /// Ends it: asks it to, and kills it 2 s later.
    fn stop(&self);

    /// Waits until it and all that it started are gone.
    fn ended(&self) -> BoxFuture<'_, Ended>;
}

/// A process, and its pipes.
pub struct Piped {
    /// The process. It keeps what was written to its standard error, and takes no input this way.
    pub process: Box<dyn Process>,
    /// What it reads. Dropping it closes it.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// What it writes.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
}

impl fmt::Debug for Piped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piped").field("process", &self.process).finish_non_exhaustive()
    }
}

/// How a process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Running,
    /// It ended.
    Ended(Ended),
}

/// A stream that a process writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Its standard output.
    Out,
    /// Its standard error.
    Err,
}

/// The signals that may be sent to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// As if Ctrl-C was pressed.
    Interrupt,
    /// Asks to end.
    Terminate,
    /// Ends, without asking.
    Kill,
    /// The terminal is gone; servers read their configuration again.
    HangUp,
    /// Its meaning is the program's own.
    User1,
    /// Its meaning is the program's own.
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
