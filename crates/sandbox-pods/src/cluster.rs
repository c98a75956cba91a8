//! Calls to the API server about the pods of one namespace.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use holdfast_sandbox::Error as SandboxError;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::{
        ApiResource, AttachParams, DeleteParams, DynamicObject, ListParams, Patch, PatchParams,
        PostParams, Preconditions, Request,
    },
    config::{KubeConfigOptions, Kubeconfig},
};
use rand::seq::SliceRandom as _;
use serde_json::{Value, json};
use tokio::{
    sync::OnceCell,
    time::{Instant, sleep, timeout},
};

use crate::{
    Config,
    error::Error,
    exec::{self, ExecError, ExecOutput},
    manifest::{
        CONTAINER, ENDED_USE, KEEP_UNTIL, MANAGER_LABEL, TEMPLATE, Template, USE, WARM, keep_until,
        metadata_in_use,
    },
};

/// First minor version of Kubernetes 1 whose `exec` can close standard input.
const MIN_MINOR_VERSION: u32 = 30;

/// Group and version of agent-sandbox, whose controller makes the pod of a `Sandbox`.
const AGENT_SANDBOX: (&str, &str) = ("agents.x-k8s.io", "v1alpha1");

/// Interval at which a starting pod is looked at.
const READY_POLL: Duration = Duration::from_millis(250);

/// Time limit of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Pods of the warm pool that are tried to get one.
const MAX_CLAIMS: usize = 8;

/// The namespace of the pods.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    pub(crate) config: Config,
    pods: Api<Pod>,
    /// Resources of agent-sandbox, where they are installed. Looked up with the first new pod.
    sandboxes: Arc<OnceCell<Option<Api<DynamicObject>>>>,
    template: Template,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("namespace", &self.config.namespace).finish_non_exhaustive()
    }
}

/// A pod that a command may use.
#[derive(Debug, Clone)]
pub(crate) struct PodId {
    pub(crate) name: String,
    /// Time at which the cluster ends it, at the earliest.
    pub(crate) ends: Instant,
    /// Whether it belongs to a `Sandbox` of the same name.
    pub(crate) is_of_sandbox: bool,
}

impl Cluster {
    /// Finds the cluster, which need not be reachable.
    pub(crate) async fn connect(config: &Config, template: Template) -> Result<Self, Error> {
        let found = match config.kubeconfig.as_os_str().is_empty() {
            true => kube::Config::infer().await.map_err(|error| Error::NoCluster(error.into()))?,
            false => {
                let file = Kubeconfig::read_from(&config.kubeconfig);
                let file = file.map_err(|error| Error::NoCluster(error.into()))?;
                let options = KubeConfigOptions::default();
                let found = kube::Config::from_custom_kubeconfig(file, &options).await;
                found.map_err(|error| Error::NoCluster(error.into()))?
            }
        };
        let client = Client::try_from(found).map_err(|error| Error::NoCluster(error.into()))?;
        let pods = Api::namespaced(client.clone(), &config.namespace);
        let sandboxes = Arc::default();
        Ok(Self { client, config: config.clone(), pods, sandboxes, template })
    }

    /// Asks the cluster whether it would run a pod.
    pub(crate) async fn probe(&self) -> Result<(), Error> {
        let version = self.request("read the version", self.client.apiserver_version()).await?;
        let minor = version.minor.trim_end_matches('+').parse().unwrap_or(0);
        if version.major == "1" && minor < MIN_MINOR_VERSION {
            let version = format!("{}.{}", version.major, version.minor);
            return Err(Error::OldCluster { version });
        }
        let pod = self.pod(None)?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        self.request("create pods", self.pods.create(&dry_run, &pod)).await?;
        self.list(&self.warm_selector()).await.map(drop)
    }

    /// Takes a pod of the warm pool; `None` if none is ready.
    ///
    /// The patch names the version of the pod that was read, so of two runners one gets it.
    pub(crate) async fn claim(&self, tenant: &str, until: Instant) -> Result<Option<PodId>, Error> {
        let mut pods = self.list(&self.warm_selector()).await?;
        pods.retain(is_ready);
        pods.shuffle(&mut rand::rng());
        for pod in pods.into_iter().take(MAX_CLAIMS) {
            let (Some(name), Some(version)) = (&pod.metadata.name, &pod.metadata.resource_version)
            else {
                continue;
            };
            let id = self.id_of(&pod);
            if id.ends < until {
                continue;
            }
            let mut metadata = metadata_in_use(Some(tenant), keep_until(self.config.lease));
            metadata["resourceVersion"] = version.clone().into();
            match self.patch(name, metadata).await {
                Ok(()) => return Ok(Some(id)),
                Err(error) if error.is_of_pod() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Makes a pod; it is not ready yet.
    pub(crate) async fn create(&self, tenant: Option<&str>) -> Result<PodId, Error> {
        let (pod, options) = (self.pod(tenant)?, PostParams::default());
        let Some(sandboxes) = self.sandboxes().await? else {
            let made = self.request("create pods", self.pods.create(&options, &pod)).await?;
            return Ok(self.id_of(&made));
        };
        let sandbox = self.sandbox_of(&pod)?;
        let made = self.request("create sandboxes", sandboxes.create(&options, &sandbox)).await?;
        Ok(PodId { name: made.name_any(), is_of_sandbox: true, ..self.id_of(&pod) })
    }

    /// The `Sandbox` for a pod.
    fn sandbox_of(&self, pod: &Pod) -> Result<DynamicObject, Error> {
        let pod = serde_json::to_value(pod).unwrap_or_default();
        let (labels, annotations) = (&pod["metadata"]["labels"], &pod["metadata"]["annotations"]);
        let (group, version) = AGENT_SANDBOX;
        let sandbox = serde_json::from_value(json!({
            "apiVersion": format!("{group}/{version}"), "kind": "Sandbox",
            "metadata": { "name": pod["metadata"]["name"], "labels": labels },
            "spec": { "podTemplate": {
                "metadata": { "labels": labels, "annotations": annotations },
                "spec": pod["spec"],
            } },
        }));
        sandbox.map_err(|error| self.refused(&error))
    }

    /// Resources of agent-sandbox, if they are installed.
    async fn sandboxes(&self) -> Result<Option<&Api<DynamicObject>>, Error> {
        let look_up = || async {
            let (group, version) = AGENT_SANDBOX;
            let path = format!("{group}/{version}");
            let listed = self.client.list_api_group_resources(&path);
            match self.request("look up kinds", listed).await {
                Ok(kinds) if kinds.resources.iter().any(|kind| kind.kind == "Sandbox") => {
                    let resource = ApiResource {
                        group: group.to_owned(),
                        version: version.to_owned(),
                        api_version: path,
                        kind: "Sandbox".to_owned(),
                        plural: "sandboxes".to_owned(),
                    };
                    let client = self.client.clone();
                    Ok(Some(Api::namespaced_with(client, &self.config.namespace, &resource)))
                }
                Ok(_) | Err(Error::PodGone) => Ok(None),
                Err(error) => Err(error),
            }
        };
        Ok(self.sandboxes.get_or_try_init(look_up).await?.as_ref())
    }

    /// Waits until a new pod is ready.
    pub(crate) async fn wait_until_ready(&self, id: &PodId) -> Result<(), Error> {
        let mut why = "the cluster did not start it".to_owned();
        let waiting = async {
            loop {
                let pod = match self.request("get pods", self.pods.get(&id.name)).await {
                    Ok(pod) => pod,
                    // The controller makes it.
                    Err(Error::PodGone) if id.is_of_sandbox => {
                        sleep(READY_POLL).await;
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                if is_ready(&pod) {
                    return Ok(());
                }
                why = waiting_reason(&pod).unwrap_or(why.clone());
                if is_over(&pod) {
                    return Err(Error::NotReady { why: why.clone() });
                }
                sleep(READY_POLL).await;
            }
        };
        let waited = timeout(self.config.start_timeout, waiting).await;
        waited.unwrap_or(Err(Error::NotReady { why }))
    }

    /// Whether a pod runs.
    pub(crate) async fn is_running(&self, name: &str) -> Result<bool, Error> {
        match self.request("get pods", self.pods.get(name)).await {
            Ok(pod) => Ok(is_ready(&pod)),
            Err(Error::PodGone) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Keeps a pod for another lease.
    pub(crate) async fn renew(&self, name: &str) -> Result<(), Error> {
        let until = keep_until(self.config.lease).to_string();
        self.patch(name, json!({ "annotations": { KEEP_UNTIL: until } })).await
    }

    async fn patch(&self, name: &str, metadata: Value) -> Result<(), Error> {
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let options = PatchParams::default();
        let patched = self.pods.patch_metadata(name, &options, &patch);
        self.request("patch pods", patched).await.map(drop)
    }

    /// Deletes a pod; with a `version`, only if nobody changed it since.
    pub(crate) async fn delete(&self, id: &PodId, version: Option<String>) -> Result<(), Error> {
        let name = &id.name;
        if id.is_of_sandbox {
            if let Some(version) = version {
                // The deletion of a `Sandbox` cannot depend on the version of its pod.
                let metadata = json!({ "resourceVersion": version, "labels": { USE: ENDED_USE } });
                self.patch(name, metadata).await?;
            }
            return self.delete_sandbox(name).await;
        }
        let preconditions =
            version.map(|version| Preconditions { resource_version: Some(version), uid: None });
        let options = DeleteParams { preconditions, ..DeleteParams::background() };
        match self.request("delete pods", self.pods.delete(name, &options)).await {
            Ok(_) | Err(Error::PodGone) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn delete_sandbox(&self, name: &str) -> Result<(), Error> {
        let Some(sandboxes) = self.sandboxes().await? else { return Ok(()) };
        let options = DeleteParams::background();
        match self.request("delete sandboxes", sandboxes.delete(name, &options)).await {
            Ok(_) | Err(Error::PodGone) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes each `Sandbox` that has had no pod for longer than its start may take. Returns their
    /// number.
    pub(crate) async fn delete_sandboxes_without(
        &self,
        pods: &BTreeSet<String>,
    ) -> Result<usize, Error> {
        let Some(sandboxes) = self.sandboxes().await? else { return Ok(0) };
        let options = ListParams::default().labels(MANAGER_LABEL);
        let listed = self.request("list sandboxes", sandboxes.list(&options)).await?;
        let patience = self.config.start_timeout + self.config.lease;
        let mut deleted = 0;
        for sandbox in listed.items {
            let made = sandbox.metadata.creation_timestamp.as_ref().map(|time| time.0);
            if !pods.contains(&sandbox.name_any()) && age(made) > patience {
                self.delete_sandbox(&sandbox.name_any()).await?;
                deleted += 1;
            }
        }
        Ok(deleted)
    }

    /// All pods of this crate.
    pub(crate) async fn list_all(&self) -> Result<Vec<Pod>, Error> {
        self.list(MANAGER_LABEL).await
    }

    async fn list(&self, labels: &str) -> Result<Vec<Pod>, Error> {
        let options = ListParams::default().labels(labels);
        Ok(self.request("list pods", self.pods.list(&options)).await?.items)
    }

    /// Whether a pod of the warm pool can be given to a command.
    pub(crate) fn is_current(&self, pod: &Pod) -> bool {
        label(pod, TEMPLATE) == Some(&self.template.hash)
    }

    fn warm_selector(&self) -> String {
        format!("{MANAGER_LABEL},{USE}={WARM},{TEMPLATE}={}", self.template.hash)
    }

    fn pod(&self, tenant: Option<&str>) -> Result<Pod, Error> {
        let until = keep_until(match tenant {
            Some(_) => self.config.lease + self.config.start_timeout,
            None => self.config.lifetime / 2,
        });
        self.template.pod(tenant, until).map_err(|error| self.refused(&error))
    }

    fn refused(&self, error: &serde_json::Error) -> Error {
        let namespace = self.config.namespace.clone();
        Error::Refused { what: "create pods", namespace, told: error.to_string() }
    }

    pub(crate) fn id_of(&self, pod: &Pod) -> PodId {
        let made = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        PodId {
            name: pod.name_any(),
            ends: Instant::now() + self.config.lifetime.saturating_sub(age(made)),
            is_of_sandbox: pod.owner_references().iter().any(|owner| owner.kind == "Sandbox"),
        }
    }

    /// Runs a program in a pod, and returns its exit code.
    pub(crate) async fn exec<O: ExecOutput>(
        &self,
        name: &str,
        script: &str,
        input: (Vec<u8>, tokio::sync::mpsc::Receiver<holdfast_sandbox::Input>),
        output: &mut O,
    ) -> Result<Result<i32, ExecError>, Error> {
        let connection = self.connect_exec(name, script).await?;
        let (first, more) = input;
        Ok(exec::transfer(connection.into_stream(), first, more, output).await)
    }

    /// Starts a script in a pod.
    pub(crate) async fn connect_exec(
        &self,
        name: &str,
        script: &str,
    ) -> Result<kube::client::Connection, Error> {
        let streams = AttachParams {
            container: Some(CONTAINER.to_owned()),
            ..AttachParams::default().stdin(true).stdout(true).stderr(true).tty(false)
        };
        let request =
            Request::new(<Pod as kube::Resource>::url_path(&(), Some(&self.config.namespace)));
        let request = request
            .exec(name, ["/bin/sh", "-c", script, crate::scripts::NAME], &streams)
            .map_err(|error| Error::Unreachable(Some(kube::Error::BuildRequest(error))))?;
        let connection = self.request("exec in pods", self.client.connect(request)).await?;
        if !connection.supports_stream_close() {
            return Err(Error::OldCluster { version: "before 1.30".to_owned() });
        }
        Ok(connection)
    }

    async fn request<T>(
        &self,
        what: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        match timeout(REQUEST_TIMEOUT, request).await {
            Ok(answer) => {
                answer.map_err(|error| Error::of_request(error, what, &self.config.namespace))
            }
            Err(_elapsed) => Err(Error::Unreachable(None)),
        }
    }
}

impl From<ExecError> for SandboxError {
    fn from(error: ExecError) -> Self {
        let problem = format!("the pod of the command cannot be used: {error}");
        Self::Backend { problem, kind: holdfast_types::Kind::Unavailable }
    }
}

fn age(made: Option<Timestamp>) -> Duration {
    made.map_or(Duration::ZERO, |made| {
        Duration::try_from(Timestamp::now().duration_since(made)).unwrap_or_default()
    })
}

pub(crate) fn label<'a>(pod: &'a Pod, name: &str) -> Option<&'a String> {
    pod.metadata.labels.as_ref()?.get(name)
}

/// Whether a pod runs, and is not being deleted.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is_ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    is_ready && pod.metadata.deletion_timestamp.is_none()
}

/// Whether a pod has ended and will not run again.
pub(crate) fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Reason why a pod does not run yet. Only names that the cluster makes: a message may be long.
fn waiting_reason(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    let waiting = containers
        .filter_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.clone())
        .next();
    let conditions = status.conditions.iter().flatten();
    let unscheduled = conditions
        .filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
        .find_map(|condition| condition.message.clone());
    waiting.or(unscheduled).or_else(|| status.reason.clone())
}
