//! Resource limits of a command.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Error;

/// Resource limits of a command, all its processes together unless noted.
///
/// Sizes are in bytes. `docs/sandbox.md` describes how each limit is enforced, and how exactly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Anonymous and shared memory in use, by periodic checks. Each process is held to it exactly.
    pub memory: u64,
    /// Processes and threads at a time.
    pub processes: u32,
    /// Open files of one process.
    pub open_files: u32,
    /// Maximum size of one file.
    pub file_size: u64,
    /// Growth of the workspace, by periodic checks.
    pub disk: u64,
    /// Files and folders by which the workspace may grow, by periodic checks.
    pub entries: u64,
    /// Maximum size of `/tmp` in the sandbox.
    pub tmp: u64,
    /// Processor time of one process.
    #[serde(with = "humantime_serde")]
    pub cpu: Duration,
    /// Bytes kept of standard output, and as many of standard error.
    pub output: usize,
}

const MIB: u64 = 1 << 20;

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 1024 * MIB,
            processes: 128,
            open_files: 1024,
            file_size: 256 * MIB,
            disk: 1024 * MIB,
            entries: 50_000,
            tmp: 64 * MIB,
            cpu: Duration::from_mins(2),
            output: 200_000,
        }
    }
}

impl Limits {
    /// Returns these limits, each reduced to that of `most` if it is higher.
    #[must_use]
    pub fn within(self, most: &Self) -> Self {
        Self {
            memory: self.memory.min(most.memory),
            processes: self.processes.min(most.processes),
            open_files: self.open_files.min(most.open_files),
            file_size: self.file_size.min(most.file_size),
            disk: self.disk.min(most.disk),
            entries: self.entries.min(most.entries),
            tmp: self.tmp.min(most.tmp),
            cpu: self.cpu.min(most.cpu),
            output: self.output.min(most.output),
        }
    }

    /// Refuses limits within which not even `true` could run.
    ///
    /// # Errors
    ///
    /// Names the first limit that is too low.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let too_low = |name, given: u64, least: u64| {
            (given < least).then_some(Error::LimitTooLow { name, given, least })
        };
        let wrong = [
            too_low("memory", self.memory, 16 * MIB),
            // The namespace's first process, the shell, and what it runs.
            too_low("processes", self.processes.into(), 4),
            too_low("open_files", self.open_files.into(), 16),
            too_low("file_size", self.file_size, 4096),
            too_low("tmp", self.tmp, 4096),
            too_low("cpu", self.cpu.as_secs(), 1),
            too_low("output", u64::try_from(self.output).unwrap_or(u64::MAX), 256),
        ];
        wrong.into_iter().flatten().next().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_cannot_raise_its_limits() {
        let most = Limits::default();
        let greedy = Limits { memory: u64::MAX, disk: 5, cpu: Duration::MAX, ..Limits::default() };

        assert_eq!(greedy.within(&most), Limits { disk: 5, ..most });
    }

    #[test]
    fn limits_in_which_nothing_can_run_are_refused_with_the_least() {
        assert!(Limits::default().check().is_ok());

        let error = Limits { processes: 1, ..Limits::default() }.check().unwrap_err();
        assert_eq!(error.to_string(), "the limit `processes` is `1`: it must be at least `4`");
    }
}
