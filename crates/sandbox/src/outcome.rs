//! Result of a command: how it ended and what it printed.

use std::{fmt, time::Duration};

use rustix::process::Signal;

use crate::CapturedOutput;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub ended: CommandEnd,
    pub stdout: CapturedOutput,
    pub stderr: CapturedOutput,
    /// Time since the script began.
    pub duration: Duration,
    /// Highest memory use that was measured, in bytes; `None` if the command ended before a
    /// measurement.
    pub peak_memory: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEnd {
    /// Exit by itself with this code; 0 means success.
    Exited(i32),
    /// Death by a signal that this crate did not send, as seen by us or reported by its shell (128
    /// and the signal's number).
    Signalled(i32),
    TimedOut,
    Cancelled,
    Limit(Limit),
    /// The end of the command is unknown, or its files cannot be read.
    Lost(LossReason),
}

/// Reason why nothing is known of a command, or of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossReason {
    /// Its pod was deleted, or has ended.
    PodGone,
    /// The connection to its pod broke, and a new one cannot be made.
    Disconnected,
    /// It ended, but its files cannot be read from its pod.
    FilesUnreadable,
}

/// Limit that ended a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Memory of all its processes.
    Memory,
    /// Number of its processes and threads.
    Processes,
    /// Size of the workspace.
    Disk,
    /// Number of files and folders in the workspace.
    Entries,
    /// Maximum size of one file.
    FileSize,
    /// Processor time of one process.
    Cpu,
}

impl CommandEnd {
    /// Whether the command exited with code 0.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Exited(0))
    }

    /// Interprets the exit code of a shell.
    ///
    /// A shell reports a signal as 128 and its number. A script that says `exit 130` is taken for
    /// an interrupted one, as in every shell.
    #[must_use]
    pub const fn from_code(code: i32) -> Self {
        match code {
            129..=159 => Self::from_signal(code - 128),
            code => Self::Exited(code),
        }
    }

    /// Interprets a signal: two of them are limits.
    pub(crate) const fn from_signal(signal: i32) -> Self {
        if signal == Signal::XCPU.as_raw() {
            Self::Limit(Limit::Cpu)
        } else if signal == Signal::XFSZ.as_raw() {
            Self::Limit(Limit::FileSize)
        } else {
            Self::Signalled(signal)
        }
    }
}

impl fmt::Display for CommandEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Signalled(signal) => write!(f, "ended by signal {signal}"),
            Self::TimedOut => f.write_str("its time was up"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Limit(limit) => write!(f, "over its limit of {limit}"),
            Self::Lost(reason) => write!(f, "{reason}; nothing that it changed was kept"),
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PodGone => "its pod was deleted or has ended",
            Self::Disconnected => "the connection to its pod broke",
            Self::FilesUnreadable => "its files could not be read from its pod",
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::Disk => "disk",
            Self::Entries => "files and folders",
            Self::FileSize => "file size",
            Self::Cpu => "processor time",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shells_code_tells_signals_and_limits() {
        for (code, ended) in [
            (0, CommandEnd::Exited(0)),
            (1, CommandEnd::Exited(1)),
            (128, CommandEnd::Exited(128)),
            (137, CommandEnd::Signalled(9)),
            (152, CommandEnd::Limit(Limit::Cpu)),
            (153, CommandEnd::Limit(Limit::FileSize)),
            (255, CommandEnd::Exited(255)),
        ] {
            assert_eq!(CommandEnd::from_code(code), ended, "{code}");
        }
        assert!(CommandEnd::Exited(0).is_success() && !CommandEnd::TimedOut.is_success());
    }
}
