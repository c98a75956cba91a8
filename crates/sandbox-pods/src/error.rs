//! Reasons why a command was not run in a pod.

use holdfast_types::Kind;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The API server did not permit the request: a right, a policy, or a quota.
    #[error(
        "the cluster does not permit to {what} in the namespace `{namespace}` ({told}): see \
         \"Commands in pods\" in docs/install.md"
    )]
    Forbidden { what: &'static str, namespace: String, told: String },
    #[error("the cluster refused to {what} in the namespace `{namespace}`: {told}")]
    Refused { what: &'static str, namespace: String, told: String },
    #[error("there is no namespace `{namespace}` in the cluster: `runner.pods.namespace`")]
    NoNamespace { namespace: String },
    #[error("the Kubernetes API server cannot be reached: try again in a minute")]
    Unreachable(#[source] Option<kube::Error>),
    #[error("no Kubernetes cluster was found: set `runner.pods.kubeconfig`, or run in a pod")]
    NoCluster(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the cluster has version {version}: commands in pods need Kubernetes 1.30 or newer")]
    OldCluster { version: String },
    #[error("no pod for the command was ready in time ({why}): try again in a minute")]
    NotReady { why: String },
    #[error("the pod of the command was deleted: try again")]
    PodGone,
    /// Somebody else changed the pod first.
    #[error("the pod was changed meanwhile")]
    Conflict,
    #[error("the image of the commands' pods cannot be used ({said}): `runner.pods.image`")]
    Image { said: String },
    #[error("the files could not be brought to the pod")]
    Files(#[source] std::io::Error),
}

impl Error {
    /// Whether a new pod may be without the problem.
    pub(crate) const fn is_of_pod(&self) -> bool {
        matches!(self, Self::PodGone | Self::Conflict)
    }

    /// Converts a failed request to `what`.
    pub(crate) fn of_request(error: kube::Error, what: &'static str, namespace: &str) -> Self {
        let namespace = namespace.to_owned();
        let kube::Error::Api(status) = &error else { return Self::Unreachable(Some(error)) };
        let told = status.message.clone();
        match status.code {
            401 | 403 => Self::Forbidden { what, namespace, told },
            404 if told.starts_with("namespaces ") => Self::NoNamespace { namespace },
            404 | 410 => Self::PodGone,
            409 => Self::Conflict,
            429 | 500.. => Self::Unreachable(Some(error)),
            _ => Self::Refused { what, namespace, told },
        }
    }
}

impl From<Error> for holdfast_sandbox::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::OldCluster { .. } | Error::NoCluster(_) => Kind::Invalid,
            // Somebody has to change the cluster; then the same command runs.
            Error::Forbidden { .. }
            | Error::Refused { .. }
            | Error::NoNamespace { .. }
            | Error::Image { .. }
            | Error::Unreachable(_)
            | Error::NotReady { .. }
            | Error::PodGone
            | Error::Conflict
            | Error::Files(_) => Kind::Unavailable,
        };
        Self::Backend { problem: error.to_string(), kind }
    }
}

/// Error of a setting in `[runner.pods]`.
pub(crate) fn setting(name: &'static str, wrong: &str) -> holdfast_sandbox::Error {
    let problem = format!("`runner.pods.{name}` {wrong}");
    holdfast_sandbox::Error::Backend { problem, kind: Kind::Invalid }
}
