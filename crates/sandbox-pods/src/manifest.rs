//! The pod of a command. It depends on the settings only: nothing that a model wrote is in it.

use std::fmt::Write as _;

use holdfast_sandbox::{Limits, MOUNT};
use holdfast_types::TenantId;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{Config, scripts};

/// Label of all pods of this crate.
pub(crate) const MANAGER_LABEL: &str = "app.kubernetes.io/managed-by=holdfast-runner";
/// Label of the pod's settings. Pods of other settings are not used for new commands.
pub(crate) const TEMPLATE: &str = "holdfast.dev/template";
/// Label of the pod's use: [`WARM`] or [`IN_USE`].
pub(crate) const USE: &str = "holdfast.dev/use";
pub(crate) const WARM: &str = "warm";
pub(crate) const IN_USE: &str = "command";
/// Use of a pod that is about to be deleted.
pub(crate) const ENDED_USE: &str = "ended";
/// Label of the tenant, as a hash.
pub(crate) const TENANT: &str = "holdfast.dev/tenant";
/// Annotation: time until which the pod is kept.
pub(crate) const KEEP_UNTIL: &str = "holdfast.dev/keep-until";

/// Name of the container.
pub(crate) const CONTAINER: &str = "command";

/// Size of the files that a command finds, in bytes: the most that an agent has.
const WORKSPACE_BYTES: u64 = 64 << 20;

/// The pods of one configuration.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    spec: Value,
    /// Hash of the spec.
    pub(crate) hash: String,
}

impl Template {
    pub(crate) fn new(config: &Config, limits: &Limits) -> Self {
        let mut resources = json!({ "requests": config.requests, "limits": config.limits });
        if resources["limits"].get("memory").is_none() {
            resources["limits"]["memory"] = (limits.memory + limits.tmp).to_string().into();
        }
        let secrets = config.image_pull_secrets.iter().map(|name| json!({ "name": name }));
        let mut spec = json!({
            "activeDeadlineSeconds": config.lifetime.as_secs(),
            "automountServiceAccountToken": false,
            "containers": [{
                "name": CONTAINER,
                "image": config.image,
                "command": ["/bin/sh", "-c", scripts::WAIT, scripts::NAME],
                "workingDir": MOUNT,
                "resources": resources,
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": { "drop": ["ALL"] },
                    "readOnlyRootFilesystem": true,
                },
                "volumeMounts": [
                    { "name": "workspace", "mountPath": MOUNT },
                    { "name": "tmp", "mountPath": "/tmp" },
                ],
            }],
            "enableServiceLinks": false,
            "hostname": "sandbox",
            "imagePullSecrets": secrets.collect::<Vec<Value>>(),
            "restartPolicy": "Never",
            "securityContext": {
                "fsGroup": 1000,
                "runAsGroup": 1000,
                "runAsNonRoot": true,
                "runAsUser": 1000,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "terminationGracePeriodSeconds": 1,
            "volumes": [
                {
                    "name": "workspace",
                    "emptyDir": { "sizeLimit": (limits.disk + WORKSPACE_BYTES).to_string() },
                },
                {
                    "name": "tmp",
                    "emptyDir": { "medium": "Memory", "sizeLimit": limits.tmp.to_string() },
                },
            ],
        });
        if !config.runtime_class.is_empty() {
            spec["runtimeClassName"] = config.runtime_class.clone().into();
        }
        let hash = short_hash(spec.to_string().as_bytes());
        Self { spec, hash }
    }

    /// A new pod, for a tenant or for the warm pool.
    pub(crate) fn pod(
        &self,
        tenant: Option<&str>,
        until: Timestamp,
    ) -> Result<Pod, serde_json::Error> {
        let name = format!("holdfast-command-{}", uuid::Uuid::now_v7().simple());
        let mut metadata = metadata_in_use(tenant, until);
        metadata["name"] = name.into();
        metadata["labels"]["app.kubernetes.io/name"] = "holdfast-command".into();
        if let Some((label, value)) = MANAGER_LABEL.split_once('=') {
            metadata["labels"][label] = value.into();
        }
        metadata["labels"][TEMPLATE] = self.hash.clone().into();
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self.spec,
        }))
    }
}

/// Labels and annotations of a pod of this tenant; without one, of the warm pool.
pub(crate) fn metadata_in_use(tenant: Option<&str>, until: Timestamp) -> Value {
    let mut labels = json!({ USE: if tenant.is_some() { IN_USE } else { WARM } });
    if let Some(tenant) = tenant {
        labels[TENANT] = tenant.into();
    }
    json!({ "labels": labels, "annotations": { KEEP_UNTIL: until.to_string() } })
}

/// Time until which a pod is kept from now on.
pub(crate) fn keep_until(lease: std::time::Duration) -> Timestamp {
    let lease = SignedDuration::try_from(lease).unwrap_or(SignedDuration::MAX);
    Timestamp::now().saturating_add(lease).unwrap_or(Timestamp::MAX)
}

/// Label of a tenant. Who may list pods learns which belong together, and not to whom.
pub(crate) fn tenant_label(tenant: Option<TenantId>) -> String {
    let id = tenant.map(|tenant| tenant.as_uuid()).unwrap_or_default();
    short_hash(&[b"tenant".as_slice(), id.as_bytes()].concat())
}

fn short_hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).fold(String::new(), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_restricted_and_has_the_settings() {
        let config = Config {
            image: "registry.test/tools@sha256:1".to_owned(),
            runtime_class: "gvisor".to_owned(),
            ..Config::default()
        };
        let limits = Limits::default();
        let template = Template::new(&config, &limits);
        let pod = template.pod(Some("abc"), Timestamp::UNIX_EPOCH).unwrap();
        let pod = serde_json::to_value(pod).unwrap();

        let (spec, container) = (&pod["spec"], &pod["spec"]["containers"][0]);
        assert_eq!(spec["runtimeClassName"], "gvisor");
        assert_eq!(spec["automountServiceAccountToken"], false);
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
        assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        let memory = (limits.memory + limits.tmp).to_string();
        assert_eq!(container["resources"]["limits"]["memory"], memory);
        assert_eq!(pod["metadata"]["labels"][TENANT], "abc");

        let other = Template::new(&Config { image: "other".to_owned(), ..config }, &limits);
        assert_ne!(template.hash, other.hash);
    }

    #[test]
    fn a_label_tells_tenants_apart_and_not_who_they_are() {
        let (one, other) = (TenantId::generate(), TenantId::generate());
        assert_ne!(tenant_label(Some(one)), tenant_label(Some(other)));
        assert_eq!(tenant_label(Some(one)), tenant_label(Some(one)));
        assert!(!one.as_uuid().simple().to_string().contains(&tenant_label(Some(one))));
    }
}
