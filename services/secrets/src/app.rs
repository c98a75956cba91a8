//! Composition root of the secrets service.

use std::net::SocketAddr;

use anyhow::Context as _;
use holdfast_directory::LocalSeal;
use holdfast_doors as doors;
use holdfast_grpc::{ClientCertificateLayer, Signer};
use holdfast_kit::{Readiness, Tasks, net, tls::Tls};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{Config, grpc};

/// The service, with its port bound, not yet serving.
#[derive(Debug)]
pub struct App {
    config: Config,
    listener: TcpListener,
    seal: LocalSeal,
    signer: Signer,
    tls: Tls,
}

impl App {
    /// Binds the port and reads the key.
    ///
    /// # Errors
    ///
    /// If the port is taken or a setting cannot be used.
    pub async fn connect(config: Config) -> anyhow::Result<Self> {
        config.check()?;
        let seal = LocalSeal::new(&config.secrets)?;
        let signer = Signer::new(&config.mesh).context("`[mesh]` cannot be used")?;
        let tls = Tls::load(&config.tls)?;
        let listener = net::listen(config.secrets_service.listen, "secrets_service.listen").await?;
        Ok(Self { config, listener, seal, signer, tls })
    }

    /// Returns the address on which it listens.
    ///
    /// # Errors
    ///
    /// If the system cannot tell it.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is cancelled, then finishes the calls in progress.
    ///
    /// # Errors
    ///
    /// The first failure of any of the service's tasks.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { config, listener, seal, signer, tls } = self;
        info!(address = %listener.local_addr()?, "serving");
        let readiness = Readiness::new();
        let router = grpc::router(seal, signer, &readiness, &config.telemetry)
            .layer(ClientCertificateLayer::new(tls.caller_certificates()));
        let mut tasks = Tasks::new(stop.clone());
        tasks.spawn("grpc", doors::serve(listener, router, tls.mesh_server()?, stop.clone()));
        tasks.spawn("drain", async move {
            stop.cancelled().await;
            readiness.drain();
            Ok(())
        });
        tasks.run(config.secrets_service.shutdown_grace).await
    }
}
