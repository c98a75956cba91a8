//! Composition root of the service.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use holdfast_bus::{Bus, ProcessReport};
use holdfast_directory::Directory;
use holdfast_doors as doors;
use holdfast_grpc::{Mesh, SecretsClient, Signer};
use holdfast_kit::{Check, Readiness, Tasks, net, tls::Tls};
use holdfast_lock::Locks;
use holdfast_pg::Pools;
use holdfast_session::Sessions;
use holdfast_types::RunnerId;
use holdfast_workspace::Workspaces;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    Config,
    account::RunningAnswers,
    accounts::{AccountContext, Accounts},
    channel::Channel,
    channels::{CHANNELS, page_budget},
    deliver::DeliveryWorker,
    guard::Clients,
    ingest::Ingest,
    outcome::RetryPolicy,
    router::{self, HttpState},
    share::SendSlots,
};

/// The bridge, with its port bound, not yet serving.
#[derive(Debug)]
pub struct App {
    config: Config,
    listener: TcpListener,
    pools: Pools,
    bus: Bus,
    directory: Directory,
    means: AccountContext,
    tls: Tls,
}

impl App {
    /// Binds the port and builds the dependencies. No backend and no platform needs to be
    /// reachable.
    ///
    /// # Errors
    ///
    /// If the port is taken or a setting cannot be used.
    pub async fn connect(config: Config) -> anyhow::Result<Self> {
        config.check()?;
        let listener = net::listen(config.bridge.listen, "bridge.listen").await?;
        let clients = Clients::new(&config.egress)
            .context("cannot make an HTTP client: does this machine have root certificates?")?;
        let signer = Signer::new(&config.mesh).context("`[mesh]` cannot be used")?;
        let tls = Tls::load(&config.tls)?;
        let secrets =
            SecretsClient::configured(&config.secrets, &config.mesh, &tls, "channel-bridge")
                .context("`mesh.secrets_url` cannot be used")?;
        let mesh = Mesh::new(signer, "channel-bridge").with_tls(tls.clone());
        let ingest = Ingest::new(&config.mesh.gateway_url, mesh)
            .context("`mesh.gateway_url` cannot be used")?;
        let pools = Pools::lazy(&config.database, "bridge")?;
        let bus = Bus::connect(&config.nats, "holdfast-bridge").await?;
        let locks = Locks::connect_lazy(&config.redis)?;
        let directory = Directory::with_secrets_service(pools.clone(), &config.secrets, secrets)?;
        let stopping = CancellationToken::new();
        let means = AccountContext {
            config: config.bridge.clone(),
            clients,
            ingest,
            answers: RunningAnswers {
                bus: bus.clone(),
                sessions: Sessions::new(pools.clone()),
                stopping: stopping.clone(),
            },
            locks,
            directory: directory.clone(),
            widget_pages: page_budget(),
            stopping,
        };
        Ok(Self { config, listener, pools, bus, directory, means, tls })
    }

    /// Returns the address on which it listens.
    ///
    /// # Errors
    ///
    /// If the system cannot tell it.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is cancelled, then finishes the sends in progress.
    ///
    /// # Errors
    ///
    /// The first failure of any of the service's tasks.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { config, listener, pools, bus, directory, means, tls } = self;
        let stopping = means.stopping.clone();
        let readiness = Readiness::new();
        let (database, accounts_read) = (readiness.check("database"), readiness.check("accounts"));
        let accounts = Arc::new(Accounts::new(directory, &CHANNELS, means));
        let sessions = Sessions::new(pools.clone());
        let owner = RunnerId::generate();
        info!(address = %listener.local_addr()?, bridge.id = %owner, "serving");

        let mut tasks = Tasks::new(stop.clone());
        let router = router::router(HttpState::new(Arc::clone(&accounts)))
            .merge(doors::health(readiness.clone(), &config.telemetry));
        let edge = (tls.server()?, config.proxies.clone());
        tasks.spawn("http", doors::serve_behind_proxies(listener, router, edge, stop.clone()));
        tasks.spawn("accounts", {
            let (pools, accounts, stop) = (pools.clone(), Arc::clone(&accounts), stop.clone());
            async move {
                if !is_ready(&pools, &database, &stop).await {
                    return Ok(());
                }
                accounts.run(accounts_read, stop).await
            }
        });
        let slots = config.bridge.deliver_slots as usize;
        for &Channel { name, class, .. } in CHANNELS {
            let deliver = DeliveryWorker {
                sessions: sessions.clone(),
                files: Workspaces::new(pools.clone()),
                accounts: Arc::clone(&accounts),
                bus: bus.clone(),
                retry: RetryPolicy::lasting(config.bridge.give_up_after),
                owner,
                channel: name,
                class,
                slots,
                shares: SendSlots::of(slots),
            };
            tasks.spawn(name, deliver.run(stop.clone()));
        }
        tasks.spawn("process report", {
            let (bus, stop) = (bus.clone(), stop.clone());
            let version = env!("CARGO_PKG_VERSION");
            let report = ProcessReport::starting("channel-bridge", owner, version);
            async move {
                ProcessReport::serve(&bus, || report.clone(), stop).await;
                Ok(())
            }
        });
        tasks.spawn("drain", {
            let readiness = readiness.clone();
            async move {
                stop.cancelled().await;
                readiness.drain();
                stopping.cancel();
                Ok(())
            }
        });
        let ended = tasks.run(config.bridge.shutdown_grace).await;
        pools.close().await;
        ended
    }
}

/// Waits for the database; returns `false` if `stop` is cancelled first.
async fn is_ready(pools: &Pools, database: &Check, stop: &CancellationToken) -> bool {
    let waited = holdfast_pg::wait_until_ready(pools, stop.cancelled()).await.is_ok();
    if waited {
        database.pass();
    }
    waited
}
