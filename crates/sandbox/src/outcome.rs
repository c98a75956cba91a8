//! How a command ended.

use std::{fmt, time::Duration};

use rustix::process::Signal;

use crate::Captured;

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// What it wrote to its standard output.
    pub stdout: Captured,
    /// What it wrote to its standard error.
    pub stderr: Captured,
    /// How long it took, from the moment at which its script began.
    pub duration: Duration,
    /// The most memory that was seen in use, in bytes; none if it ended before anyone looked.
    pub peak_memory: Option<u64>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this code; 0 means well.
    Exited(i32),
    /// By a signal that nobody here sent, or its shell said so (128 and the signal's number).
    Signalled(i32),
    /// Its time was up.
    TimedOut,
    /// The one who started it wanted it to end.
    Cancelled,
    /// It went over a limit.
    Limit(Limit),
}

/// A limit that ended a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// All its processes' memory.
    Memory,
    /// The number of its processes and threads.
    Processes,
    /// How much the workspace grew by.
    Disk,
    /// The size of one file.
    FileSize,
    /// One process' time on a processor.
    Cpu,
}

impl Ended {
    /// Whether it ended by itself, well.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Exited(0))
    }

    /// Reads what a shell says of how its script ended.
    ///
    /// A shell tells a signal as 128 and its number. A script that says `exit 130` is taken
    /// for one that was interrupted, as every shell does.
    pub(crate) const fn from_code(code: i32) -> Self {
        match code {
            129..=159 => Self::from_signal(code - 128),
            code => Self::Exited(code),
        }
    }

    /// Reads a signal: two of them are limits.
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

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Signalled(signal) => write!(f, "ended by signal {signal}"),
            Self::TimedOut => f.write_str("its time was up"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Limit(limit) => write!(f, "over its limit of {limit}"),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::Disk => "disk",
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
            (0, Ended::Exited(0)),
            (1, Ended::Exited(1)),
            (128, Ended::Exited(128)),
            (137, Ended::Signalled(9)),
            (152, Ended::Limit(Limit::Cpu)),
            (153, Ended::Limit(Limit::FileSize)),
            (255, Ended::Exited(255)),
        ] {
            assert_eq!(Ended::from_code(code), ended, "{code}");
        }
        assert!(Ended::Exited(0).is_success() && !Ended::TimedOut.is_success());
    }
}
