//! Choice of the pod of a command, and its lifetime.
//!
//! A pod belongs to one folder: to one tenant, one session and one view of the files, as the folder
//! does. Between two commands nothing runs in it. A pod that was idle for too long, or whose state
//! is not known, is deleted.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, join_all};
use holdfast_proxy::ConnectRules;
use holdfast_sandbox::{
    Access, Backend, BackendChoice, Background, Command, Error as SandboxError, Network,
    NetworkPolicy, Process, Sandbox,
};
use holdfast_types::TenantId;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    Config,
    cluster::Cluster,
    error::Error,
    manifest::{Template, tenant_label},
    network::{AdmittedCommand, PodNetwork},
    pod::{RunningCommand, SandboxPod, UsedPod, UsedPods},
    scripts,
    tree::TreeSize,
};

/// Time that a pod must have left after the timeout of its command.
const MARGIN: Duration = Duration::from_mins(5);

/// Time for the cluster to answer at the start, during which the runner serves no probes.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for the deletion of all pods when the runner stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Sandbox that runs commands in pods. Clones share the pods.
#[derive(Debug, Clone)]
pub struct PodSandbox(Arc<Pods>);

#[derive(Debug)]
struct Pods {
    cluster: Cluster,
    sandbox: holdfast_sandbox::Config,
    /// Network of commands; `None` if they have none.
    network: Option<PodNetwork>,
    /// Pods in which nothing runs, by folder.
    idle: Mutex<HashMap<PathBuf, IdlePod>>,
    held: UsedPods,
}

#[derive(Debug)]
struct IdlePod {
    pod: SandboxPod,
    since: Instant,
}

/// A pod with the files of a command, whose shell waits for the command.
struct PreparedPod {
    pod: SandboxPod,
    connection: kube::client::Connection,
    size: TreeSize,
}

impl PodSandbox {
    /// Finds the cluster, and asks it whether it would run a pod. If the API server is away,
    /// commands fail until it is back.
    ///
    /// # Errors
    ///
    /// If the configuration is wrong, or the cluster does not permit what commands need.
    pub async fn open(
        sandbox: &holdfast_sandbox::Config,
        config: &Config,
    ) -> Result<Self, SandboxError> {
        sandbox.check()?;
        config.check(sandbox.longest)?;
        let network = match (sandbox.network, config.listen) {
            (NetworkPolicy::Proxy, Some(listen)) => {
                Some(PodNetwork::start(listen, config.address).await?)
            }
            (NetworkPolicy::Proxy, None) if sandbox.backend == BackendChoice::Pods => {
                return Err(SandboxError::NetworkInPods);
            }
            (NetworkPolicy::Proxy | NetworkPolicy::Off | NetworkPolicy::Host, _) => None,
        };
        let template = Template::new(config, &sandbox.limits);
        let cluster = Cluster::connect(config, template).await?;
        let probed = timeout(PROBE_TIMEOUT, cluster.probe()).await;
        match probed.unwrap_or(Err(Error::Unreachable(None))) {
            Ok(()) => info!(namespace = config.namespace, "commands run in pods"),
            Err(error @ Error::Unreachable(_)) => {
                let error = &error as &dyn std::error::Error;
                warn!(error, "commands cannot run before the API server is back");
            }
            Err(error) => return Err(error.into()),
        }
        let (idle, held) = (Mutex::default(), UsedPods::default());
        let sandbox = sandbox.clone();
        Ok(Self(Arc::new(Pods { cluster, sandbox, network, idle, held })))
    }

    /// Renews the pods of this runner, and deletes those that were idle for too long, until `stop`.
    pub async fn run_upkeep(self, stop: CancellationToken) {
        let config = &self.0.cluster.config;
        let interval = (config.lease / 3).min(config.idle).max(Duration::from_millis(100));
        while stop.run_until_cancelled(sleep(interval)).await.is_some() {
            self.0.idle().retain(|_, idle| idle.since.elapsed() < config.idle);
            let names: Vec<String> = lock(&self.0.held).iter().cloned().collect();
            join_all(names.iter().map(|name| self.0.renew(name))).await;
        }
    }

    /// Deletes the pods in which nothing runs. Those of running commands end with them.
    pub async fn close(&self) {
        let idle: Vec<IdlePod> = self.0.idle().drain().map(|(_, idle)| idle).collect();
        let deleting = join_all(idle.into_iter().map(|idle| idle.pod.delete()));
        if timeout(CLOSE_TIMEOUT, deleting).await.is_err() {
            debug!("pods are left to the sweep");
        }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.0.cluster
    }

    async fn start(&self, mut command: Command) -> Result<Box<dyn Process>, SandboxError> {
        let admission = match &command.network {
            Network::Off => None,
            Network::Proxy(rules) => Some(self.0.admit(Arc::clone(rules))?),
            Network::Host => return Err(SandboxError::NetworkInPods),
        };
        let terms = command.terms(&self.0.sandbox)?;
        command.check_workdir()?;
        let dir = command.workspace.dir.clone();
        let until = Instant::now() + terms.timeout + MARGIN;
        let prepared = match self.0.take_idle(&dir, until) {
            Some(pod) => match prepare(pod, &dir).await {
                Err(error) if error.is_of_pod() => {
                    self.0.new_pod(&dir, command.tenant, until).await
                }
                prepared => prepared,
            },
            None => self.0.new_pod(&dir, command.tenant, until).await,
        };
        let PreparedPod { pod, connection, size } = prepared?;
        if let Some(admitted) = &admission {
            admitted.add_to_env(&mut command.env);
        }
        let mut first_line = scripts::first_line(&command, &terms);
        first_line.append(&mut command.stdin);
        let output = terms.limits.output;
        let running = RunningCommand {
            pod,
            first_line,
            ceiling: size.ceiling(&terms.limits),
            terms,
            changes: (command.workspace.access == Access::Write).then(|| dir.clone()),
        };
        let (signals, received) = mpsc::unbounded_channel();
        let signal = move |signal| {
            // A command that has ended takes no signals.
            let _ended = signals.send(signal);
        };
        let pods = Arc::clone(&self.0);
        Ok(Box::new(Background::start(output, signal, move |io| async move {
            let (ended, pod) = running.supervise(connection, io, received).await;
            drop(admission);
            if let Some(pod) = pod {
                pods.idle().insert(dir, IdlePod { pod, since: Instant::now() });
            }
            ended
        })))
    }
}

impl Sandbox for PodSandbox {
    fn backend(&self) -> Backend {
        Backend::Pods
    }

    fn limit_scope(&self) -> String {
        let config = &self.0.cluster.config;
        let runtime = match config.runtime_class.as_str() {
            "" => String::new(),
            class => format!(", runtime class {class}"),
        };
        format!("limits: pod, in the namespace {}{runtime}", config.namespace)
    }

    fn spawn(&self, command: Command) -> BoxFuture<'_, Result<Box<dyn Process>, SandboxError>> {
        Box::pin(self.start(command))
    }
}

impl Pods {
    /// Admits a command to the network.
    fn admit(&self, rules: Arc<dyn ConnectRules>) -> Result<AdmittedCommand, SandboxError> {
        let network = self.network.as_ref().ok_or(SandboxError::NetworkInPods)?;
        Ok(network.admit(rules))
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<PathBuf, IdlePod>> {
        lock(&self.idle)
    }

    /// The folder's own pod, if it lives long enough.
    fn take_idle(&self, dir: &Path, until: Instant) -> Option<SandboxPod> {
        let idle = self.idle().remove(dir)?;
        (idle.pod.id.ends > until).then_some(idle.pod)
    }

    /// A pod that no command has used, with the files.
    async fn new_pod(
        &self,
        dir: &Path,
        tenant: Option<TenantId>,
        until: Instant,
    ) -> Result<PreparedPod, Error> {
        let tenant = tenant_label(tenant);
        let first = prepare(self.acquire(&tenant, until).await?, dir).await;
        match first {
            Err(error) if error.is_of_pod() => {
                prepare(self.acquire(&tenant, until).await?, dir).await
            }
            prepared => prepared,
        }
    }

    /// A pod of the warm pool, or a new one.
    async fn acquire(&self, tenant: &str, until: Instant) -> Result<SandboxPod, Error> {
        let hold = |id: crate::cluster::PodId| {
            let held = UsedPod::new(&self.held, &id.name);
            SandboxPod::new(id, self.cluster.clone(), held)
        };
        if self.cluster.config.warm > 0
            && let Some(id) = self.cluster.claim(tenant, until).await?
        {
            return Ok(hold(id));
        }
        let pod = hold(self.cluster.create(Some(tenant)).await?);
        self.cluster.wait_until_ready(&pod.id).await?;
        Ok(pod)
    }

    async fn renew(&self, name: &str) {
        match self.cluster.renew(name).await {
            Ok(()) => {}
            // A command in it notices that by itself.
            Err(error) if error.is_of_pod() => {
                self.idle().retain(|_, idle| idle.pod.id.name != name)
            }
            Err(error) => {
                debug!(error = &error as &dyn std::error::Error, "a pod was not renewed");
            }
        }
    }
}

async fn prepare(mut pod: SandboxPod, dir: &Path) -> Result<PreparedPod, Error> {
    let size = pod.bring_in(dir).await?;
    let connection = pod.start().await?;
    Ok(PreparedPod { pod, connection, size })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
