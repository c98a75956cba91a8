//! Composition of the service.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use holdfast_bus::{Bus, ProcessReport};
use holdfast_directory::Directory;
use holdfast_doors as doors;
use holdfast_kit::{Check, Readiness, Tasks, net, tls::Tls};
use holdfast_lock::Locks;
use holdfast_pg::Pools;
use holdfast_schedule::store::{Calendar, Jobs};
use holdfast_session::Sessions;
use holdfast_types::RunnerId;
use holdfast_workspace::Workspaces;
use tokio::{net::TcpListener, sync::mpsc};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    Config,
    abandoned_firings::AbandonedFirings,
    agents::Agents,
    backlog::Backlog,
    clock::Clock,
    context::{Ctx, HeartbeatContext},
    deliver::Deliver,
    heartbeats,
    settle::Settle,
};

/// The connected scheduler, which does not serve yet.
#[derive(Debug)]
pub struct App {
    config: Config,
    listener: TcpListener,
    pools: Pools,
    ctx: Ctx,
    tls: Tls,
}

impl App {
    /// Binds the port and creates the clients. No backend needs to be up.
    ///
    /// # Errors
    ///
    /// If the port is taken or a setting is invalid.
    pub async fn connect(config: Config) -> anyhow::Result<Self> {
        config.check()?;
        let listener = net::listen(config.scheduler.listen, "scheduler.listen").await?;
        let pools = Pools::lazy(&config.database, "scheduler")?;
        let bus = Bus::connect(&config.nats, "holdfast-scheduler").await?;
        let directory = Directory::without_secrets(pools.clone());
        let ctx = Ctx {
            jobs: Jobs::new(pools.clone(), Arc::new(Calendar::default()))
                .with_handover(config.scheduler.handover),
            sessions: Sessions::new(pools.clone()),
            agents: Arc::new(Agents::new(directory.clone())),
            directory,
            bus,
            heartbeats: Arc::new(HeartbeatContext {
                workspaces: Workspaces::new(pools.clone()),
                locks: Locks::connect_lazy(&config.redis)?,
                min_interval: config.scheduler.heartbeat_floor,
                max_concurrent: config.scheduler.heartbeats,
                admitted: Mutex::default(),
            }),
        };
        let tls = Tls::load(&config.tls)?;
        Ok(Self { config, listener, pools, ctx, tls })
    }

    /// Returns the address of the HTTP server.
    ///
    /// # Errors
    ///
    /// If the system does not report it.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is cancelled, then finishes deliveries in progress.
    ///
    /// # Errors
    ///
    /// The first failure of any of the service's tasks.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { config, listener, pools, ctx, tls } = self;
        let readiness = Readiness::new();
        let database = readiness.check("database");
        info!(address = %listener.local_addr()?, "serving");

        let own = config.scheduler;
        let bus = ctx.bus.clone();
        let mut tasks = Tasks::new(stop.clone());
        let health = doors::health(readiness.clone(), &config.telemetry);
        tasks.spawn("http", doors::serve(listener, health, tls.server()?, stop.clone()));
        tasks.spawn("loop", {
            let (pools, stop) = (pools.clone(), stop.clone());
            let backlog = Backlog::new(own.backlog);
            async move {
                if !is_ready(&pools, &database, &stop).await {
                    return Ok(());
                }
                let (firings, handed) = mpsc::unbounded_channel();
                let settle = Settle::new(ctx.clone());
                // Record the firings that ended while no scheduler ran, before the clock can count
                // them as lost.
                settle.poll().await;
                let clock = Clock {
                    jobs: ctx.jobs.clone(),
                    abandoned: AbandonedFirings { ctx: ctx.clone() },
                    bus: ctx.bus.clone(),
                    batch: own.batch,
                    handover: own.handover,
                    keep_done: own.keep_done,
                    backlog: backlog.clone(),
                    firings,
                };
                let beats = heartbeats::run(ctx.clone(), stop.clone());
                let (slots, handover) = (own.deliver_slots as usize, own.handover);
                let deliver = Deliver { ctx, slots, handover, backlog };
                // `deliver` ends after `clock` has dropped its sender.
                tokio::join!(
                    clock.run(stop.clone()),
                    settle.run(stop.clone()),
                    beats,
                    deliver.run(handed, stop),
                );
                Ok(())
            }
        });
        tasks.spawn("process report", {
            let (bus, stop) = (bus, stop.clone());
            let id = RunnerId::generate();
            let report = ProcessReport::starting("scheduler", id, env!("CARGO_PKG_VERSION"));
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
                Ok(())
            }
        });
        let ended = tasks.run(own.shutdown_grace).await;
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
