//! Reasons why a command was not run or a path cannot be used.

use std::{io, time::Duration};

use holdfast_types::{Fault, Kind};

/// Reason why a command was not run. The end of a command that ran is an [`crate::Outcome`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`runner.sandbox.backend` is `none`: no commands run here")]
    CommandsDisabled,
    #[error("there is no `bwrap`: install the package bubblewrap")]
    BwrapMissing,
    /// Bubblewrap lacks options that are needed.
    #[error(
        "`bwrap` knows no `--bind-fd` or no `--add-seccomp-fd`: install the package bubblewrap \
         in version 0.10, or an older one with the fix of CVE-2024-42472"
    )]
    BwrapTooOld,
    #[error(
        "the sandbox does not work here ({said}): unprivileged user namespaces must be allowed, \
         and /proc mounted"
    )]
    Unsupported {
        /// Last line of the builder's message; nothing in it comes from a command.
        said: String,
    },
    /// Isolation is off although tenants are hosted.
    #[error(
        "`runner.sandbox.backend` is `plain`, which isolates nothing, and `runner.sandbox.hosted` is set: use \
         `bubblewrap`, or host nobody"
    )]
    PlainWhileHosted,
    /// The guard's check of paths is off although tenants are hosted.
    #[error(
        "`runner.sandbox.guard.restrict_to_workspace` is `false` and `runner.sandbox.hosted` is set: \
         paths out of the workspace are always refused where tenants are hosted"
    )]
    UnrestrictedWhileHosted,
    /// The host's network was offered where tenants are hosted.
    #[error(
        "`runner.sandbox.network` is `host`, which reaches this machine's own services, and \
         `runner.sandbox.hosted` is set: use `off`, or host nobody"
    )]
    NetworkWhileHosted,
    /// The system call filter does not support this processor.
    #[error("the sandbox's system call filter knows x86_64 and aarch64, not this processor")]
    UnsupportedProcessor,
    #[error("`runner.sandbox.{name}` {wrong}")]
    Setting { name: &'static str, wrong: String },
    /// A limit is too low for any command.
    #[error("the limit `{name}` is `{given}`: it must be at least `{least}`")]
    LimitTooLow { name: &'static str, given: u64, least: u64 },
    #[error("a timeout of `{asked:?}` is over the limit of `{most:?}`")]
    TimeoutTooLong { asked: Duration, most: Duration },
    /// The script does not fit into an argument.
    #[error("the script has `{bytes}` bytes, the most is `{most}`: put it into a file")]
    ScriptTooLong { bytes: usize, most: usize },
    #[error("the environment has `{bytes}` bytes, the most is `{most}`")]
    EnvironmentTooLarge { bytes: usize, most: usize },
    #[error("a variable's name must be letters, digits and `_`, and not begin with a digit")]
    VariableName,
    #[error("{what} holds a NUL byte")]
    Nul {
        /// The affected part of the command.
        what: &'static str,
    },
    #[error("the workspace's directory must be an absolute path")]
    WorkspaceNotAbsolute,
    #[error("commands may not use the network: `runner.sandbox.network` is `off`")]
    NoNetwork,
    /// A directory that the command names is not in its workspace.
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("`{most}` background processes are running, which is the limit: end one first")]
    TooManyProcesses { most: usize },
    #[error("there is no such process in this session")]
    NoSuchProcess,
    #[error("the process takes no input: it has ended, or its input was closed")]
    InputClosed,
    /// The backend outside this crate could not run the command.
    #[error("{problem}")]
    Backend { problem: String, kind: Kind },
    #[error("the command may run in a pod only, and here are none: see `runner.pods`")]
    PodNeeded,
    /// Only commands of agents run in pods.
    #[error(
        "this does not run in pods: it needs `runner.sandbox.backend` `bubblewrap`, or `auto` \
         where bubblewrap works"
    )]
    NotInPods,
    #[error(
        "commands in pods have no network but that of the proxy: `runner.sandbox.network` must be `off` \
         or `proxy` for them, and `runner.pods.listen` set for `proxy`"
    )]
    NetworkInPods,
    #[error("cannot {what}")]
    Failed {
        /// Attempted action, to complete "cannot …".
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Turns an I/O error of the action `what` into an error.
    pub(crate) fn failed(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Failed { what, source }
    }
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::BwrapMissing
            | Self::BwrapTooOld
            | Self::Unsupported { .. }
            | Self::UnsupportedProcessor
            | Self::Failed { .. } => Kind::Unavailable,
            Self::CommandsDisabled
            | Self::PlainWhileHosted
            | Self::NetworkWhileHosted
            | Self::UnrestrictedWhileHosted
            | Self::Setting { .. }
            | Self::LimitTooLow { .. }
            | Self::TimeoutTooLong { .. }
            | Self::ScriptTooLong { .. }
            | Self::EnvironmentTooLarge { .. }
            | Self::VariableName
            | Self::Nul { .. }
            | Self::WorkspaceNotAbsolute
            | Self::InputClosed => Kind::Invalid,
            Self::Backend { kind, .. } => *kind,
            Self::NotInPods | Self::NetworkInPods => Kind::Invalid,
            Self::NoNetwork | Self::PodNeeded => Kind::Forbidden,
            Self::Path(error) => error.kind(),
            Self::TooManyProcesses { .. } => Kind::Exhausted,
            Self::NoSuchProcess => Kind::NotFound,
        }
    }
}

/// Reason why a path cannot be used. Never repeats the path: it may be a secret, or forged.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// The path itself leads outside.
    #[error("access denied: path is outside the workspace")]
    Outside,
    #[error("access denied: symlink resolves outside workspace")]
    SymlinkOutside,
    #[error("this is not a path: it holds a NUL byte or is longer than `4096` bytes")]
    NotAPath,
    #[error("there is no such file or directory")]
    NotFound,
    /// The path, or a part of it, is not a directory.
    #[error("this is not a directory")]
    NotADirectory,
    #[error("the file system refused")]
    Failed(#[source] io::Error),
}

impl Fault for PathError {
    fn kind(&self) -> Kind {
        match self {
            Self::Outside | Self::SymlinkOutside => Kind::Forbidden,
            Self::NotFound => Kind::NotFound,
            Self::NotAPath | Self::NotADirectory => Kind::Invalid,
            Self::Failed(_) => Kind::Unavailable,
        }
    }
}

impl From<io::Error> for PathError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // Paths are checked before: one that still leads out goes through a symlink. cap-std
            // reports that with an error of its own, which has no OS error number.
            io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
                Self::SymlinkOutside
            }
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::NotADirectory => Self::NotADirectory,
            _ => Self::Failed(error),
        }
    }
}

/// Turns `bwrap`'s message into an error. No command has written anything yet.
pub(crate) fn from_bwrap(said: &str) -> Error {
    if said.contains("Unknown option") {
        return Error::BwrapTooOld;
    }
    let said = said.lines().last().unwrap_or("it said nothing");
    let said = said.trim_start_matches("bwrap: ").chars().take(200).collect();
    Error::Unsupported { said }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_builder_says_becomes_what_to_do() {
        let old = from_bwrap("bwrap: Unknown option --bind-fd\n");
        assert!(old.to_string().contains("install the package bubblewrap"), "{old}");

        let unfit = from_bwrap("bwrap: No permissions to create new namespace\n");
        assert!(unfit.to_string().contains("(No permissions to create new namespace)"), "{unfit}");
        assert!(matches!(from_bwrap(""), Error::Unsupported { .. }));
    }
}
