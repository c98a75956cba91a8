//! Why a command was not run.

use std::{io, time::Duration};

use holdfast_types::{Fault, Kind};

use crate::PathError;

/// Why a command was not run. What a command does once it runs is an [`crate::Outcome`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No commands are wanted.
    #[error("`runner.sandbox.backend` is `none`: no commands run here")]
    Off,
    /// Bubblewrap is not installed.
    #[error("there is no `bwrap`: install the package bubblewrap")]
    Missing,
    /// Bubblewrap cannot do what is needed.
    #[error(
        "`bwrap` knows no `--bind-fd` or no `--add-seccomp-fd`: install the package bubblewrap \
         in version 0.10, or an older one with the fix of CVE-2024-42472"
    )]
    TooOld,
    /// The walls cannot be built on this machine.
    #[error(
        "the sandbox does not work here ({said}): unprivileged user namespaces must be allowed, \
         and /proc mounted"
    )]
    Unfit {
        /// What the builder said; nothing of it comes from a command.
        said: String,
    },
    /// No isolation was asked for where tenants are hosted.
    #[error(
        "`runner.sandbox.backend` is `plain`, which isolates nothing, and `runner.sandbox.hosted` is set: use \
         `bubblewrap`, or host nobody"
    )]
    PlainWhileHosted,
    /// The host's network was offered where tenants are hosted.
    #[error(
        "`runner.sandbox.network` is `host`, which reaches this machine's own services, and \
         `runner.sandbox.hosted` is set: use `off`, or host nobody"
    )]
    NetworkWhileHosted,
    /// The filter of system calls is not written for this processor.
    #[error("the sandbox's system call filter knows x86_64 and aarch64, not this processor")]
    Processor,
    /// A setting is wrong.
    #[error("`runner.sandbox.{name}` {wrong}")]
    Setting {
        /// Which.
        name: &'static str,
        /// What is wrong with it.
        wrong: String,
    },
    /// A limit leaves no room for anything.
    #[error("the limit `{name}` is `{given}`: it must be at least `{least}`")]
    LimitTooLow {
        /// Which.
        name: &'static str,
        /// What it is.
        given: u64,
        /// What it must be.
        least: u64,
    },
    /// A command wants more time than any may have.
    #[error("a timeout of `{asked:?}` is over the limit of `{most:?}`")]
    TimeoutTooLong {
        /// What it asked for.
        asked: Duration,
        /// What it may have.
        most: Duration,
    },
    /// The script does not fit into an argument.
    #[error("the script has `{bytes}` bytes, the most is `{most}`: put it into a file")]
    ScriptTooLong {
        /// Its length.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// The environment is too large.
    #[error("the environment has `{bytes}` bytes, the most is `{most}`")]
    EnvironmentTooLarge {
        /// Its size.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// A variable cannot have this name.
    #[error("a variable's name must be letters, digits and `_`, and not begin with a digit")]
    VariableName,
    /// A NUL byte where there can be none.
    #[error("{what} holds a NUL byte")]
    Nul {
        /// Where.
        what: &'static str,
    },
    /// The workspace's directory is not told in full.
    #[error("the workspace's directory must be an absolute path")]
    WorkspaceNotAbsolute,
    /// The command may not use the network.
    #[error("commands may not use the network: `runner.sandbox.network` is `off`")]
    NoNetwork,
    /// A backend without walls cannot keep to a scope.
    #[error("the plain backend cannot confine a command to some directories: use `bubblewrap`")]
    NoScope,
    /// A directory that the command names is not in its workspace.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A session has as many processes as it may.
    #[error("`{most}` background processes are running, which is the limit: end one first")]
    TooManyProcesses {
        /// The limit.
        most: usize,
    },
    /// There is no such process in this session.
    #[error("there is no such process in this session")]
    NoSuchProcess,
    /// The process takes no more input.
    #[error("the process takes no input: it has ended, or its input was closed")]
    InputClosed,
    /// The machine failed us.
    #[error("cannot {what}")]
    Failed {
        /// What was being done.
        what: &'static str,
        /// What the machine said.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// What to do with an I/O error while doing `what`.
    pub(crate) fn failed(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Failed { what, source }
    }
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Missing
            | Self::TooOld
            | Self::Unfit { .. }
            | Self::Processor
            | Self::Failed { .. } => Kind::Unavailable,
            Self::Off
            | Self::PlainWhileHosted
            | Self::NetworkWhileHosted
            | Self::Setting { .. }
            | Self::LimitTooLow { .. }
            | Self::TimeoutTooLong { .. }
            | Self::ScriptTooLong { .. }
            | Self::EnvironmentTooLarge { .. }
            | Self::VariableName
            | Self::Nul { .. }
            | Self::WorkspaceNotAbsolute
            | Self::NoScope
            | Self::InputClosed => Kind::Invalid,
            Self::NoNetwork => Kind::Forbidden,
            Self::Path(error) => error.kind(),
            Self::TooManyProcesses { .. } => Kind::Exhausted,
            Self::NoSuchProcess => Kind::NotFound,
        }
    }
}

/// What `bwrap` said when it could not build the walls. No command has written anything yet.
pub(crate) fn from_builder(said: &str) -> Error {
    if said.contains("Unknown option") {
        return Error::TooOld;
    }
    let said = said.lines().last().unwrap_or("it said nothing");
    let said = said.trim_start_matches("bwrap: ").chars().take(200).collect();
    Error::Unfit { said }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_builder_says_becomes_what_to_do() {
        let old = from_builder("bwrap: Unknown option --bind-fd\n");
        assert!(old.to_string().contains("install the package bubblewrap"), "{old}");

        let unfit = from_builder("bwrap: No permissions to create new namespace\n");
        assert!(unfit.to_string().contains("(No permissions to create new namespace)"), "{unfit}");
        assert!(matches!(from_builder(""), Error::Unfit { .. }));
    }
}
