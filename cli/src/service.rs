//! One service as a process: the command of a pod, and of each child of `up --split`.

use std::future::Future;

use anyhow::Context as _;
use clap::Args;
use holdfast_kit::{
    config::{
        self,
        reload::{self, Current},
    },
    shutdown, telemetry, tls,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::io::AsyncReadExt as _;
use tokio_util::sync::CancellationToken;

use crate::{error::Error, screen::Screen};

const UNUSABLE: &str = "the configuration is not usable";

#[derive(Debug, Args)]
pub struct ServiceArgs {
    /// Print the effective settings as JSON, with secrets masked, and exit
    #[arg(long)]
    pub print_config: bool,

    /// Number of worker threads of the process
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub workers: u8,

    /// Exit when stdin is closed: the parent process holds its other end
    #[arg(long, hide = true)]
    pub with_parent: bool,
}

#[derive(Debug, Args)]
pub struct OperatorArgs {
    #[command(flatten)]
    pub service: ServiceArgs,

    /// Print the definitions of the operator's resources as YAML, and exit
    #[arg(long)]
    pub print_crds: bool,
}

/// A service that the binary can run.
pub trait Service: 'static {
    type Config: DeserializeOwned + Serialize + Clone + Send + Sync + 'static;
    /// Name of the subcommand, also used in telemetry.
    const NAME: &'static str;
    /// The service's own table of settings.
    const TABLE: &'static str;

    fn telemetry(config: &Self::Config) -> &telemetry::Config;
    fn tls(config: &Self::Config) -> &config::Tls;

    /// Checks settings that are read again while the service runs.
    ///
    /// # Errors
    ///
    /// Names the setting to change.
    fn check(config: &Self::Config) -> anyhow::Result<()> {
        Self::telemetry(config).check()
    }

    /// Connects and serves until `stop` is cancelled.
    fn serve(
        config: Current<Self::Config>,
        stop: CancellationToken,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;
}

pub struct Gateway;
pub struct AgentRunner;
pub struct ChannelBridge;
pub struct Scheduler;
pub struct Memory;
pub struct Secrets;
pub struct Operator;

impl Service for Gateway {
    type Config = gateway::Config;
    const NAME: &'static str = "gateway";
    const TABLE: &'static str = "gateway";

    fn telemetry(config: &Self::Config) -> &telemetry::Config {
        &config.telemetry
    }

    fn tls(config: &Self::Config) -> &config::Tls {
        &config.tls
    }

    fn check(config: &Self::Config) -> anyhow::Result<()> {
        config.telemetry.check()?;
        config.check()
    }

    async fn serve(config: Current<Self::Config>, stop: CancellationToken) -> anyhow::Result<()> {
        let app = Box::pin(gateway::App::connect(config)).await?;
        Box::pin(app.run(stop)).await
    }
}

impl Service for AgentRunner {
    type Config = agent_runner::Config;
    const NAME: &'static str = "agent-runner";
    const TABLE: &'static str = "runner";

    fn telemetry(config: &Self::Config) -> &telemetry::Config {
        &config.telemetry
    }

    fn tls(config: &Self::Config) -> &config::Tls {
        &config.tls
    }

    async fn serve(config: Current<Self::Config>, stop: CancellationToken) -> anyhow::Result<()> {
        Box::pin(agent_runner::App::connect(Self::Config::clone(&config.get())))
            .await?
            .run(stop)
            .await
    }
}

impl Service for ChannelBridge {
    type Config = channel_bridge::Config;
    const NAME: &'static str = "channel-bridge";
    const TABLE: &'static str = "bridge";

    fn telemetry(config: &Self::Config) -> &telemetry::Config {
        &config.telemetry
    }

    fn tls(config: &Self::Config) -> &config::Tls {
        &config.tls
    }

    async fn serve(config: Current<Self::Config>, stop: CancellationToken) -> anyhow::Result<()> {
        Box::pin(channel_bridge::App::connect(Self::Config::clone(&config.get())))
            .await?
            .run(stop)
            .await
    }
}

impl Service for Scheduler {
    type Config = scheduler::Config;
    const NAME: &'static str = "scheduler";
    const TABLE: &'static str = "scheduler";

    fn telemetry(config: &Self::Config) -> &telemetry::Config {
        &config.telemetry
    }

    fn tls(config: &Self::Config) -> &config::Tls {
        &config.tls
    }

    async fn serve(config: Current<Self::Config>, stop: CancellationToken) -> anyhow::Result<()> {
        Box::pin(scheduler::App::connect(Self::Config::clone(&config.get()))).await?.run(stop).await
    }
}

impl Service for Memory {
    type Config = memory::Config;
    // `holdfast memory` is already a command of callers.
    const NAME: &'static str = "memory-service";
    const TABLE: &'static str = "memory";

    fn telemetry(config: &Self::Config) -> &telemetry::Config {
        &config.telemetry
    }

    fn tls(config: &Self::Config) -> &config::Tls {
        &config.tls
    }

    async fn serve(config: Current<Self::Config>, stop: CancellationToken) -> anyhow::Result<()> {
        Box::pin(memory::App::connect(Self::Config::clone(&config.get()))).await?.run(stop).await
    }
}

impl Service for Secrets {
    type Config = secrets::Config;
    // `holdfast secrets` is already a command of operators.
    const NAME: &'static str = "secrets-service";
    const TABLE: &'static str = "secrets_service";

    fn telemetry(config: &Self::Config) -> &telemetry::Config {
        &config.telemetry
    }

    fn tls(config: &Self::Config) -> &config::Tls {
        &config.tls
    }

    async fn serve(config: Current<Self::Config>, stop: CancellationToken) -> anyhow::Result<()> {
        Box::pin(secrets::App::connect(Self::Config::clone(&config.get()))).await?.run(stop).await
    }
}

impl Service for Operator {
    type Config = operator::Config;
    const NAME: &'static str = "operator";
    const TABLE: &'static str = "operator";

    fn telemetry(config: &Self::Config) -> &telemetry::Config {
        &config.telemetry
    }

    fn tls(config: &Self::Config) -> &config::Tls {
        &config.tls
    }

    async fn serve(config: Current<Self::Config>, stop: CancellationToken) -> anyhow::Result<()> {
        Box::pin(operator::App::connect(Self::Config::clone(&config.get()))).await?.run(stop).await
    }
}

/// Prints the definitions of the operator's resources.
///
/// # Errors
///
/// If the output is closed.
pub fn print_crds(screen: &Screen) -> Result<(), Error> {
    let files = operator::definitions()?;
    let documents: Vec<String> = files.into_iter().map(|(_, text)| text).collect();
    screen.print(&documents.join("---\n"))
}

/// Runs one service until a signal.
///
/// # Errors
///
/// If its settings are invalid, or it fails.
pub async fn run<S: Service>(args: &ServiceArgs, screen: &Screen) -> Result<(), Error> {
    if args.print_config {
        let config: S::Config = config::load(S::TABLE).context(UNUSABLE)?;
        return screen.print(&format!("{}\n", config::print(&config)));
    }
    tls::install_crypto();
    let apply = |config: &S::Config| S::telemetry(config).apply_log_filter();
    let settings = reload::watch(S::TABLE, S::check, apply).context(UNUSABLE)?;
    let config = settings.get();
    let _flushed_on_drop = telemetry::init(S::NAME, S::telemetry(&config))?;
    let stop = shutdown::on_signal()?;
    if args.with_parent {
        tokio::spawn(stop_with_parent(stop.clone()));
    }
    // Also while the service finishes its work.
    let ended = CancellationToken::new();
    let _ended_on_drop = ended.clone().drop_guard();
    holdfast_doors::serve_metrics(S::telemetry(&config), S::tls(&config), ended).await?;
    Ok(S::serve(settings, stop).await?)
}

/// Stops when stdin is closed, for example because the parent process died.
async fn stop_with_parent(stop: CancellationToken) {
    let mut stdin = tokio::io::stdin();
    let mut nothing = [0; 16];
    while matches!(stdin.read(&mut nothing).await, Ok(read) if read > 0) {}
    tracing::info!("the process that started this one is gone, stopping");
    stop.cancel();
}
