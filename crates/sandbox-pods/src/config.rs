//! Options of the table `[runner.pods]`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use holdfast_sandbox::Error;
use serde::{Deserialize, Serialize};

use crate::error::setting;

/// Least duration of a pod's lease, so that renewals do not load the API server.
const MIN_LEASE: Duration = Duration::from_secs(1);

/// Options of the table `[runner.pods]`: the pods of commands, where `runner.sandbox.backend` is
/// `pods`, or `auto` and bubblewrap does not work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Namespace of the pods, which nothing else should use; empty: commands do not run in pods.
    pub namespace: String,

    /// File that names the cluster; empty: `KUBECONFIG`, or the service account of the runner's
    /// pod.
    pub kubeconfig: PathBuf,

    /// Image of the pods. It needs a POSIX shell, `tar` and `base64`.
    pub image: String,

    /// Secrets of the namespace with which the image is pulled.
    pub image_pull_secrets: Vec<String>,

    /// `RuntimeClass` of the pods, for example gVisor's or Kata's; empty: the cluster's default.
    pub runtime_class: String,

    /// Listen address of the egress proxy for commands; none: commands in pods have no network.
    pub listen: Option<SocketAddr>,

    /// Address at which pods reach the proxy, if it is not that of `listen`: the runner's own.
    pub address: Option<IpAddr>,

    /// Resources that a pod requests.
    pub requests: Resources,

    /// Resources that a pod is limited to. Without `memory`, it is that of
    /// `runner.sandbox.limits`, and room for `/tmp`.
    pub limits: Resources,

    /// Pods that wait for a command, for all tenants together. Each is used by one session only.
    pub warm: u32,

    /// Time for a new pod to become ready.
    #[serde(with = "humantime_serde")]
    pub start_timeout: Duration,

    /// Time for which a session's pod is kept after its last command.
    #[serde(with = "humantime_serde")]
    pub idle: Duration,

    /// Time after which a pod is deleted if its runner does not renew it.
    #[serde(with = "humantime_serde")]
    pub lease: Duration,

    /// Time after which the cluster ends a pod, whatever runs in it.
    #[serde(with = "humantime_serde")]
    pub lifetime: Duration,
}

/// Resources of a pod, as quantities of Kubernetes; an empty one is not set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resources {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cpu: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub memory: String,
}

impl Default for Config {
    fn default() -> Self {
        let resources =
            |cpu: &str, memory: &str| Resources { cpu: cpu.to_owned(), memory: memory.to_owned() };
        Self {
            namespace: String::new(),
            kubeconfig: PathBuf::new(),
            image: String::new(),
            image_pull_secrets: Vec::new(),
            runtime_class: String::new(),
            listen: None,
            address: None,
            requests: resources("100m", "128Mi"),
            limits: resources("1", ""),
            warm: 0,
            start_timeout: Duration::from_mins(1),
            idle: Duration::from_mins(10),
            lease: Duration::from_mins(2),
            lifetime: Duration::from_hours(12),
        }
    }
}

impl Config {
    /// Refuses settings with which no command could run. `longest` is the maximum duration of a
    /// command.
    ///
    /// # Errors
    ///
    /// Names the first wrong setting.
    pub fn check(&self, longest: Duration) -> Result<(), Error> {
        let is_label = |name: &str| {
            let is_known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            name.len() <= 63
                && !name.starts_with('-')
                && !name.ends_with('-')
                && name.chars().all(is_known)
        };
        if self.namespace.is_empty() {
            return Err(setting("namespace", "is empty: name the namespace of the pods"));
        }
        if !is_label(&self.namespace) {
            return Err(setting("namespace", "is not the name of a namespace"));
        }
        if self.image.is_empty() {
            return Err(setting("image", "is empty: name an image with `sh`, `tar` and `base64`"));
        }
        let address = self.address.or(self.listen.map(|listen| listen.ip()));
        if address.is_some_and(|address| address.is_unspecified()) {
            return Err(setting("address", "is not set: name the address of this runner"));
        }
        if self.lease < MIN_LEASE {
            return Err(setting("lease", "is too short: a second is the least"));
        }
        if self.start_timeout.is_zero() {
            return Err(setting("start_timeout", "is zero"));
        }
        if self.lifetime <= longest + self.start_timeout {
            return Err(setting(
                "lifetime",
                "is too short: a pod must outlive `runner.sandbox.longest` and `start_timeout`",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_setting_is_named() {
        let usable = || Config {
            namespace: "commands".to_owned(),
            image: "debian".to_owned(),
            ..Config::default()
        };
        let hour = Duration::from_hours(1);
        assert!(usable().check(hour).is_ok());
        for (config, name) in [
            (Config { namespace: String::new(), ..usable() }, "namespace"),
            (Config { namespace: "A b".to_owned(), ..usable() }, "namespace"),
            (Config { image: String::new(), ..usable() }, "image"),
            (Config { listen: "[0::]:18797".parse().ok(), ..usable() }, "address"),
            (Config { lease: Duration::ZERO, ..usable() }, "lease"),
            (Config { lifetime: hour, ..usable() }, "lifetime"),
        ] {
            let error = config.check(hour).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`runner.pods.{name}`")), "{error}");
        }
    }
}
