//! Composition root of the memory service.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use holdfast_documents::DocumentReader;
use holdfast_doors as doors;
use holdfast_grpc::{ClientCertificateLayer, Signer};
use holdfast_kit::{Check, Readiness, Tasks, net, tls::Tls};
use holdfast_pg::Pools;
use tokio::{net::TcpListener, sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    Config,
    embedders::Embedders,
    eraser::Eraser,
    find::Searcher,
    grpc::{self, GrpcServices},
    operations::{MemoryService, Policy},
    space::Views,
    worker::Worker,
};

/// Interval of the database readiness check.
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// Connected but not yet serving service.
#[derive(Debug)]
pub struct App {
    config: Config,
    listener: TcpListener,
    pools: Pools,
    signer: Signer,
    embedders: Embedders,
    policy: Arc<Policy>,
    documents: DocumentReader,
    tls: Tls,
}

impl App {
    /// Binds the port and loads the model. The database may still be down.
    ///
    /// # Errors
    ///
    /// If the port is taken or a setting is invalid.
    pub async fn connect(config: Config) -> anyhow::Result<Self> {
        config.check()?;
        let memory = &config.memory;
        let listener = net::listen(memory.listen, "memory.listen").await?;
        let signer = Signer::new(&config.mesh).context("`[mesh]` cannot be used")?;
        let pools = Pools::lazy(&config.database, "memory")?;
        let embedders = Embedders::load(&memory.embedding, memory.former.as_ref())
            .await
            .context("`memory.embedding` cannot be used")?;
        let policy = Arc::new(Policy::new(&memory.mask, &memory.refuse)?);
        let documents =
            DocumentReader::of_current_exe().context("this program's own file cannot be found")?;
        let tls = Tls::load(&config.tls)?;
        Ok(Self { config, listener, pools, signer, embedders, policy, documents, tls })
    }

    /// Sets the program that reads documents; it must call [`run_document_reader`](crate::run_document_reader).
    #[must_use]
    pub fn with_document_reader(self, program: PathBuf) -> Self {
        Self { documents: DocumentReader::new(program), ..self }
    }

    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is cancelled, then finishes the calls in progress.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { config, listener, pools, signer, embedders, policy, documents, tls } = self;
        let memory = config.memory;
        info!(address = %listener.local_addr()?, "serving");
        let readiness = Readiness::new();
        let database = readiness.check("database");
        let waiting = Arc::new(Notify::new());
        let views = Views::new(pools.clone(), memory.index_above);
        let door = GrpcServices {
            keeper: MemoryService::new(
                pools.clone(),
                embedders.clone(),
                views.clone(),
                policy,
                Arc::clone(&waiting),
                documents,
            ),
            finder: Searcher::new(pools.clone(), embedders.clone(), views.clone()),
            embedders: embedders.clone(),
            views: views.clone(),
            half_life_days: memory.half_life_days,
        };
        let router = grpc::router(door, signer, &readiness, &config.telemetry)
            .layer(ClientCertificateLayer::new(tls.caller_certificates()));
        let eraser = Eraser::new(pools.clone(), views.clone());
        let worker = Worker::new(pools.clone(), embedders, views, waiting, memory.index_above);

        let mut tasks = Tasks::new(stop.clone());
        tasks.spawn("grpc", doors::serve(listener, router, tls.mesh_server()?, stop.clone()));
        tasks.spawn("database", watch(pools.clone(), database, stop.clone()));
        tasks.spawn("worker", {
            let (pools, stop) = (pools.clone(), stop.clone());
            async move {
                match holdfast_pg::wait_until_ready(&pools, stop.cancelled()).await {
                    Ok(()) => worker.run(stop).await,
                    Err(_) => Ok(()),
                }
            }
        });
        tasks.spawn("eraser", {
            let (pools, stop) = (pools.clone(), stop.clone());
            async move {
                match holdfast_pg::wait_until_ready(&pools, stop.cancelled()).await {
                    Ok(()) => eraser.run(stop).await,
                    Err(_) => Ok(()),
                }
            }
        });
        tasks.spawn("drain", async move {
            stop.cancelled().await;
            readiness.drain();
            Ok(())
        });
        let ended = tasks.run(memory.shutdown_grace).await;
        pools.close().await;
        ended
    }
}

/// Updates the readiness check until `stop` is cancelled.
async fn watch(pools: Pools, check: Check, stop: CancellationToken) -> anyhow::Result<()> {
    if holdfast_pg::wait_until_ready(&pools, stop.cancelled()).await.is_err() {
        return Ok(());
    }
    check.pass();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = sleep(PING_INTERVAL) => {}
        }
        match pools.ping().await {
            Ok(()) => check.pass(),
            Err(_) => check.fail(),
        }
    }
}
