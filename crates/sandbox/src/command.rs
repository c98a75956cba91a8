//! Command: a script, its files, and what it may use.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use holdfast_proxy::ConnectRules;
use holdfast_types::TenantId;

use crate::{Config, Error, Limits, NetworkPolicy, WorkPath, root::Root};

/// Maximum length of a script, in bytes: Linux accepts no longer argument.
const MAX_SCRIPT_LEN: usize = 128 * 1024 - 1;

/// Maximum size of a command's environment, names and values together, in bytes.
const MAX_ENV_BYTES: usize = 64 * 1024;

/// Command: a script for bash, with its files and limits.
///
/// `Debug` shows sizes, never the script, the environment or the input.
#[derive(Clone)]
pub struct Command {
    /// Script that `bash -c` runs.
    pub script: String,
    pub workspace: Workspace,
    /// Directory that the command starts in.
    pub workdir: WorkPath,
    /// Variables besides `PATH`, `HOME`, `USER`, `LANG`, `PWD` and `TMPDIR`. Nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Bytes on its standard input.
    pub stdin: Vec<u8>,
    /// Maximum duration. `None` means the configured one.
    pub timeout: Option<Duration>,
    /// Limits. Never raised above the configured ones.
    pub limits: Option<Limits>,
    pub network: Network,
    /// Tenant in whose slice it runs.
    pub tenant: Option<TenantId>,
    /// Whether it may run in a pod only.
    pub needs_pod: bool,
}

/// Directory of the host that a command sees at [`crate::MOUNT`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// Absolute path on the host. The caller is responsible for it: it must not come from a model.
    pub dir: PathBuf,
    pub access: Access,
}

/// Access of a command to its workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The whole workspace, read-only.
    Read,
    /// The whole workspace, for reading and writing.
    Write,
}

/// Access of a command to the network.
#[derive(Debug, Clone, Default)]
pub enum Network {
    /// Only a loopback interface of its own.
    #[default]
    Off,
    /// The egress proxy with these rules, if the configuration allows it; a loopback interface of its
    /// own besides. Without isolation it is the host's network.
    Proxy(Arc<dyn ConnectRules>),
    /// The host's network, if the configuration allows it.
    Host,
}

/// Terms under which a command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandTerms {
    pub limits: Limits,
    pub timeout: Duration,
}

impl Command {
    /// Script with read and write access to the whole directory, and the configured limits.
    #[must_use]
    pub fn new(script: impl Into<String>, dir: impl Into<PathBuf>) -> Self {
        Self {
            script: script.into(),
            workspace: Workspace { dir: dir.into(), access: Access::Write },
            workdir: WorkPath::top(),
            env: BTreeMap::new(),
            stdin: Vec::new(),
            timeout: None,
            limits: None,
            network: Network::Off,
            tenant: None,
            needs_pod: false,
        }
    }

    /// Checks the command, and returns its limits and timeout under this configuration.
    ///
    /// # Errors
    ///
    /// If the command cannot run as written, or the configuration does not permit it.
    pub fn terms(&self, config: &Config) -> Result<CommandTerms, Error> {
        self.check()?;
        let is_allowed = match self.network {
            Network::Off => true,
            Network::Proxy(_) => config.network == NetworkPolicy::Proxy,
            Network::Host => config.network == NetworkPolicy::Host,
        };
        if !is_allowed {
            return Err(Error::NoNetwork);
        }
        let timeout = self.timeout.unwrap_or(config.timeout);
        if timeout > config.longest {
            return Err(Error::TimeoutTooLong { asked: timeout, most: config.longest });
        }
        let most = &config.limits;
        let limits = self.limits.clone().map_or_else(|| most.clone(), |own| own.within(most));
        limits.check()?;
        Ok(CommandTerms { limits, timeout })
    }

    /// Checks that the directory that the command starts in exists within the workspace.
    ///
    /// # Errors
    ///
    /// If it does not exist, or leads out of the workspace.
    pub fn check_workdir(&self) -> Result<(), Error> {
        Root::open(&self.workspace.dir)?.open_dir(&self.workdir)?;
        Ok(())
    }

    /// Checks that a shell can be given this command.
    ///
    /// # Errors
    ///
    /// If the script or the environment is too large, if either holds a NUL byte or an invalid
    /// name, or if the workspace's path is not absolute.
    fn check(&self) -> Result<(), Error> {
        if self.script.len() > MAX_SCRIPT_LEN {
            return Err(Error::ScriptTooLong { bytes: self.script.len(), most: MAX_SCRIPT_LEN });
        }
        if self.script.contains('\0') {
            return Err(Error::Nul { what: "the script" });
        }
        let mut bytes = 0;
        for (name, value) in &self.env {
            if !is_name(name) {
                return Err(Error::VariableName);
            }
            if value.contains('\0') {
                return Err(Error::Nul { what: "a variable" });
            }
            bytes += name.len() + value.len() + 2;
        }
        if bytes > MAX_ENV_BYTES {
            return Err(Error::EnvironmentTooLarge { bytes, most: MAX_ENV_BYTES });
        }
        if !self.workspace.dir.is_absolute() {
            return Err(Error::WorkspaceNotAbsolute);
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first == b'_' || first.is_ascii_alphabetic())
        && bytes.all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("script_bytes", &self.script.len())
            .field("workspace", &self.workspace)
            .field("workdir", &self.workdir)
            .field("variables", &self.env.len())
            .field("stdin_bytes", &self.stdin.len())
            .field("timeout", &self.timeout)
            .field("limits", &self.limits)
            .field("network", &self.network)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_variable(name: &str, value: &str) -> Command {
        let mut command = Command::new("true", "/w");
        command.env.insert(name.to_owned(), value.to_owned());
        command
    }

    #[test]
    fn what_no_shell_takes_is_refused() {
        assert!(Command::new("echo $HOME", "/w").check().is_ok());
        assert!(with_variable("_A1", "any = thing").check().is_ok());

        assert!(matches!(Command::new("a\0b", "/w").check(), Err(Error::Nul { .. })));
        assert!(matches!(with_variable("A", "\0").check(), Err(Error::Nul { .. })));
        for name in ["", "1A", "A B", "A=B", "A\0", "BASH_FUNC_x%%"] {
            assert!(matches!(with_variable(name, "").check(), Err(Error::VariableName)), "{name}");
        }
        let long = Command::new("x".repeat(MAX_SCRIPT_LEN + 1), "/w");
        assert!(matches!(long.check(), Err(Error::ScriptTooLong { .. })));
        let large = with_variable("A", &"x".repeat(MAX_ENV_BYTES));
        assert!(matches!(large.check(), Err(Error::EnvironmentTooLarge { .. })));
        let relative = Command::new("true", "w").check();
        assert!(matches!(relative, Err(Error::WorkspaceNotAbsolute)));
    }

    #[test]
    fn debug_tells_no_script_no_value_and_no_input() {
        let mut command = with_variable("TOKEN", "s3cret");
        command.script = "curl -H s3cret".to_owned();
        command.stdin = b"s3cret".to_vec();

        let shown = format!("{command:?}");

        assert!(!shown.contains("s3cret") && !shown.contains("115"), "{shown}");
    }
}
