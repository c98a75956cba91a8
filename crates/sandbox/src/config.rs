//! Options of the table `[runner.sandbox]`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{Error, GuardConfig, Limits, TenantLimits};

/// Options of the table `[runner.sandbox]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub backend: BackendChoice,

    /// Whether the installation hosts tenants that do not trust each other. Forbids a backend
    /// without isolation, the host's network, and paths that lead out of the workspace.
    pub hosted: bool,

    /// Path of `bwrap`, if it is in none of `/usr/bin`, `/bin` and `/usr/local/bin`.
    pub bwrap: Option<PathBuf>,

    /// Result of a command's request for network access.
    pub network: NetworkPolicy,

    /// Program that listens in a command's namespace
    /// ([`run_listener`](holdfast_proxy::run_listener)); the current executable if it is `None`.
    #[serde(skip)]
    pub listener_program: Option<PathBuf>,

    /// Directories of the host, besides `/usr`, that commands may read, at the same path.
    pub readable: Vec<PathBuf>,

    /// Upper bounds for every command.
    pub limits: Limits,

    /// Limits of all commands of a tenant together, where the system has cgroup v2; `None` makes no
    /// use of it.
    pub tenant: Option<TenantLimits>,

    /// Timeout of commands that set none.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,

    /// Maximum timeout that a command may set.
    #[serde(with = "humantime_serde")]
    pub longest: Duration,

    /// Maximum number of running background processes per session.
    pub processes_per_session: usize,

    pub guard: GuardConfig,
}

/// Choice of the backend that isolates commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendChoice {
    /// Bubblewrap if it works. Else plain, with a warning; with hosted tenants, an error instead.
    #[default]
    Auto,
    /// Bubblewrap, or start-up fails.
    Bubblewrap,
    Plain,
    /// Kubernetes pods, as `[runner.pods]` says.
    Pods,
    /// No commands run at all.
    None,
}

/// Result of a command's request for network access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkPolicy {
    /// The command is refused, with an error.
    #[default]
    Off,
    /// The egress proxy: public addresses, as far as the policies of tenant and agent allow them.
    Proxy,
    /// The host's network, including its loopback and everything that listens there.
    Host,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            backend: BackendChoice::Auto,
            hosted: false,
            bwrap: None,
            network: NetworkPolicy::Off,
            listener_program: None,
            readable: Vec::new(),
            limits: Limits::default(),
            tenant: Some(TenantLimits::default()),
            timeout: Duration::from_mins(2),
            longest: Duration::from_hours(1),
            processes_per_session: 16,
            guard: GuardConfig::default(),
        }
    }
}

impl Config {
    /// Refuses settings that contradict each other.
    ///
    /// # Errors
    ///
    /// Names the first wrong setting.
    pub fn check(&self) -> Result<(), Error> {
        if self.hosted && self.backend == BackendChoice::Plain {
            return Err(Error::PlainWhileHosted);
        }
        if self.backend == BackendChoice::Pods && self.network == NetworkPolicy::Host {
            return Err(Error::NetworkInPods);
        }
        if self.hosted && self.network == NetworkPolicy::Host {
            return Err(Error::NetworkWhileHosted);
        }
        if self.hosted && !self.guard.restrict_to_workspace {
            return Err(Error::UnrestrictedWhileHosted);
        }
        let setting = |name, wrong: String| Err(Error::Setting { name, wrong });
        if self.timeout > self.longest {
            let wrong = format!("is `{:?}`, beyond `longest`, `{:?}`", self.timeout, self.longest);
            return setting("timeout", wrong);
        }
        if self.timeout.is_zero() {
            return setting("timeout", "is zero".to_owned());
        }
        if self.processes_per_session == 0 {
            return setting("processes_per_session", "is zero".to_owned());
        }
        for dir in &self.readable {
            let hides = ["/", "/proc", "/dev", "/tmp", "/workspace"]
                .iter()
                .any(|own| dir == Path::new(own));
            // `/var/tmp` is a link to the command's own `/tmp`.
            if !dir.is_absolute() || hides || dir.starts_with("/var/tmp") {
                return setting("readable", format!("must not hold `{}`", dir.display()));
            }
        }
        if let Some(tenant) = &self.tenant
            && !(1..=10_000).contains(&tenant.io_weight)
        {
            let wrong = format!("is `{}`: it is 1 to 10,000", tenant.io_weight);
            return setting("tenant.io_weight", wrong);
        }
        self.limits.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> serde_json::Result<Config> {
        serde_json::from_str(json)
    }

    #[test]
    fn nothing_said_is_the_default_and_is_fit() {
        let config = parse("{}").unwrap();

        assert_eq!(config, Config::default());
        assert!(config.check().is_ok());
    }

    #[test]
    fn what_is_unknown_is_refused() {
        assert!(parse(r#"{"hoted": true}"#).is_err());
        assert!(parse(r#"{"limits": {"memry": 1}}"#).is_err());
        assert!(parse(r#"{"guard": {"of": []}}"#).is_err());
        assert!(parse(r#"{"backend": "docker"}"#).is_err());
    }

    #[test]
    fn what_weakens_isolation_is_refused_where_tenants_are_hosted() {
        let plain = parse(r#"{"backend": "plain", "hosted": true}"#).unwrap();
        assert!(matches!(plain.check(), Err(Error::PlainWhileHosted)));

        let network = parse(r#"{"network": "host", "hosted": true}"#).unwrap();
        assert!(matches!(network.check(), Err(Error::NetworkWhileHosted)));

        let proxy = parse(r#"{"network": "proxy", "hosted": true}"#).unwrap();
        assert!(proxy.check().is_ok());

        let paths =
            parse(r#"{"guard": {"restrict_to_workspace": false}, "hosted": true}"#).unwrap();
        assert!(matches!(paths.check(), Err(Error::UnrestrictedWhileHosted)));

        let pods = parse(r#"{"backend": "pods", "network": "host"}"#).unwrap();
        assert!(matches!(pods.check(), Err(Error::NetworkInPods)));
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        for json in [
            r#"{"timeout": "2h"}"#,
            r#"{"timeout": "0s"}"#,
            r#"{"processes_per_session": 0}"#,
            r#"{"tenant": {"io_weight": 0}}"#,
            r#"{"readable": ["opt"]}"#,
            r#"{"readable": ["/proc"]}"#,
            r#"{"readable": ["/var/tmp/packages"]}"#,
        ] {
            let error = parse(json).unwrap().check().unwrap_err();
            assert!(error.to_string().starts_with("`runner.sandbox."), "{error}");
        }
    }
}
