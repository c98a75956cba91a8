//! The sandboxes that the configuration asks for.

use std::sync::Arc;

use futures::future::BoxFuture;
use holdfast_sandbox::{Backend, BackendChoice, Command, Error, Process, Sandbox};
use holdfast_sandbox_pods::PodSandbox;
use tracing::{info, warn};

use crate::config::RunnerConfig;

/// A sandbox in which commands can run.
pub(super) struct OpenSandbox {
    pub(super) sandbox: Arc<dyn Sandbox>,
    /// The sandbox for commands that need a pod.
    pub(super) pods: Option<PodSandbox>,
}

/// Opens the sandbox. `auto` prefers bubblewrap, then pods if they have a namespace. Beside a
/// sandbox on this machine, pods are for the commands that need one.
///
/// # Errors
///
/// If no commands can run; the message says what to do.
pub(super) async fn open(config: &RunnerConfig) -> Result<OpenSandbox, Error> {
    let choice = config.sandbox.backend;
    if choice == BackendChoice::Pods {
        return open_pods(config).await;
    }
    let local = match holdfast_sandbox::open(&config.local_sandbox()).await {
        Ok(local) => local,
        Err(error) if choice == BackendChoice::Auto && config.has_pods() => {
            info!(%error, "commands run in pods, as bubblewrap does not work here");
            return open_pods(config).await;
        }
        Err(error) => return Err(error),
    };
    if !config.has_pods() {
        return Ok(OpenSandbox { sandbox: local, pods: None });
    }
    match PodSandbox::open(&config.sandbox, &config.pods).await {
        Ok(pods) => {
            let sandbox = Arc::new(BesidePods { local, pods: pods.clone() });
            Ok(OpenSandbox { sandbox, pods: Some(pods) })
        }
        Err(error) => {
            warn!(%error, "commands that need a pod do not run");
            Ok(OpenSandbox { sandbox: local, pods: None })
        }
    }
}

async fn open_pods(config: &RunnerConfig) -> Result<OpenSandbox, Error> {
    let pods = PodSandbox::open(&config.sandbox, &config.pods).await?;
    Ok(OpenSandbox { sandbox: Arc::new(pods.clone()), pods: Some(pods) })
}

/// Sandbox on this machine, and pods for the commands that need one.
#[derive(Debug)]
struct BesidePods {
    local: Arc<dyn Sandbox>,
    pods: PodSandbox,
}

impl Sandbox for BesidePods {
    fn backend(&self) -> Backend {
        self.local.backend()
    }

    fn limit_scope(&self) -> String {
        format!("{}; pods on demand, {}", self.local.limit_scope(), self.pods.limit_scope())
    }

    fn spawn(&self, command: Command) -> BoxFuture<'_, Result<Box<dyn Process>, Error>> {
        match command.needs_pod {
            true => self.pods.spawn(command),
            false => self.local.spawn(command),
        }
    }
}
