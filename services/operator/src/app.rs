//! Composition of the operator, and its election.

use std::time::Duration;

use anyhow::Context as _;
use holdfast_doors as doors;
use holdfast_kit::{Check, Readiness, Tasks, net, tls::Tls};
use kube::{Api, Client};
use rand::RngExt as _;
use tokio::{net::TcpListener, time::Instant};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{info, warn};

use crate::{Config, controllers, gateway::Gateway, leader::Candidate};

/// The operator, which does not act yet.
#[derive(Debug)]
pub struct App {
    config: Config,
    listener: TcpListener,
    gateway: Gateway,
    kubernetes: kube::Config,
    tls: Tls,
}

impl App {
    /// Binds the port and finds the cluster: from the kubeconfig, else from the pod.
    ///
    /// # Errors
    ///
    /// If the port is taken, a setting is invalid, or there is no cluster.
    pub async fn connect(config: Config) -> anyhow::Result<Self> {
        let kubernetes = kube::Config::infer().await.context(
            "no Kubernetes cluster was found: set KUBECONFIG, or run this in a pod with a \
             service account",
        )?;
        Self::connect_to(kubernetes, config).await
    }

    /// As [`connect`](Self::connect), for a given cluster.
    ///
    /// # Errors
    ///
    /// If the port is taken or a setting is invalid.
    pub async fn connect_to(kubernetes: kube::Config, config: Config) -> anyhow::Result<Self> {
        config.check()?;
        let own = &config.operator;
        let tls = Tls::load(&config.tls)?;
        let gateway = Gateway::new(&own.gateway_url, &own.key, &tls)?;
        let listener = net::listen(own.listen, "operator.listen").await?;
        Ok(Self { config, listener, gateway, kubernetes, tls })
    }

    /// Reconciles while it leads, until `stop` is cancelled.
    ///
    /// # Errors
    ///
    /// The first failure of any of the service's tasks.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { config, listener, gateway, kubernetes, tls } = self;
        let readiness = Readiness::new();
        let reachable = readiness.check("kubernetes");
        info!(address = %listener.local_addr()?, "serving");

        let default_namespace = kubernetes.default_namespace.clone();
        let client = Client::try_from(kubernetes).context("the cluster's TLS is not usable")?;
        let grace = config.operator.shutdown_grace;
        let mut tasks = Tasks::new(stop.clone());
        let health = doors::health(readiness.clone(), &config.telemetry);
        tasks.spawn("http", doors::serve(listener, health, tls.server()?, stop.clone()));
        tasks.spawn("lead", {
            let stop = stop.clone();
            async move {
                lead(client, gateway, config, default_namespace, &reachable, stop).await;
                Ok(())
            }
        });
        tasks.spawn("drain", {
            async move {
                stop.cancelled().await;
                readiness.drain();
                Ok(())
            }
        });
        tasks.run(grace).await
    }
}

/// Runs the controllers whenever this operator leads.
async fn lead(
    client: Client,
    gateway: Gateway,
    config: Config,
    default_namespace: String,
    reachable: &Check,
    stop: CancellationToken,
) {
    let own = config.operator;
    let name = |given: &str| match given {
        "" => default_namespace.clone(),
        given => given.to_owned(),
    };
    let (namespace, lease_namespace) = (name(&own.namespace), name(&own.lease_namespace));
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "operator".to_owned());
    let identity = format!("{host}-{:08x}", rand::rng().random::<u32>());
    let leases = Api::namespaced(client.clone(), &lease_namespace);
    let mut candidate =
        Candidate::new(leases, own.lease.clone(), identity.clone(), own.lease_duration);
    let interval = candidate.retry_interval();
    while wait_to_lead(&mut candidate, reachable, &stop).await {
        info!(lease = own.lease, "this operator leads");
        metrics::gauge!("holdfast_operator_leads").set(1.0);
        // Aborted before the lease may be lost. What is cut off is finished by the next leader.
        let acting = AbortOnDropHandle::new(tokio::spawn(controllers::run(
            client.clone(),
            gateway.clone(),
            own.clone(),
            namespace.clone(),
            identity.clone(),
        )));
        let mut renewed = Instant::now();
        while stop.run_until_cancelled(tokio::time::sleep(interval)).await.is_some() {
            match attempt(&mut candidate, interval, reachable).await {
                Some(true) => renewed = Instant::now(),
                Some(false) => break,
                None if renewed.elapsed() >= candidate.renewal_deadline() => break,
                None => {}
            }
        }
        acting.abort();
        let _ended = acting.await;
        metrics::gauge!("holdfast_operator_leads").set(0.0);
        info!("this operator no longer leads");
    }
    // Without this the next leader waits until the lease expires.
    let _released = tokio::time::timeout(interval, candidate.release()).await;
}

/// Waits until this operator leads; `false` if `stop` is cancelled first.
async fn wait_to_lead(
    candidate: &mut Candidate,
    reachable: &Check,
    stop: &CancellationToken,
) -> bool {
    let interval = candidate.retry_interval();
    loop {
        if stop.is_cancelled() {
            return false;
        }
        if attempt(candidate, interval, reachable).await == Some(true) {
            return true;
        }
        if stop.run_until_cancelled(tokio::time::sleep(interval)).await.is_none() {
            return false;
        }
    }
}

/// One attempt to take or renew the lease; `None` if the API server does not answer.
async fn attempt(candidate: &mut Candidate, timeout: Duration, reachable: &Check) -> Option<bool> {
    match tokio::time::timeout(timeout, candidate.try_lead()).await {
        Ok(Ok(leads)) => {
            reachable.pass();
            Some(leads)
        }
        Ok(Err(error)) => {
            reachable.fail();
            warn!(error = &error as &dyn std::error::Error, "the lease could not be renewed");
            None
        }
        Err(_) => {
            reachable.fail();
            warn!("the API server does not answer");
            None
        }
    }
}
