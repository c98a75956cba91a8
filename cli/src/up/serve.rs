//! Running services of `up`, from their start until a signal.

use std::{collections::BTreeMap, env, process, time::Duration};

use anyhow::Context as _;
use holdfast_kit::{Tasks, config, shutdown, telemetry, tls};
use tokio_util::sync::CancellationToken;

use super::{READY_TIMEOUT, plan::Plan, ready, split, welcome};
use crate::{
    backends,
    screen::Screen,
    service::{AgentRunner, ChannelBridge, Gateway, Memory, Scheduler, Secrets, Service},
    state_dir::{StateDir, write_private},
};

/// Maximum time for services to finish: their own 50 s, and a margin.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(60);
const LOG_VAR: &str = "HOLDFAST_TELEMETRY__LOG";

#[derive(Debug, Clone, Copy)]
pub enum OutputMode {
    /// A person at a terminal, who sees the welcome text and no log.
    Terminal(Screen),
    /// A log file; nobody sees a welcome text.
    LogFile,
}

/// One service of the plan: its subcommand, its number and its variables.
#[derive(Debug, Clone)]
pub struct ServiceInstance {
    pub service: &'static str,
    pub n: usize,
    pub vars: BTreeMap<String, String>,
}

/// Runs the services of the plan until a signal, then stops the backends that `up` started.
///
/// # Errors
///
/// The first failure of a service, or a timeout if they are not ready in time.
pub async fn serve(home: StateDir, plan: Plan, seen: OutputMode) -> anyhow::Result<()> {
    tls::install_crypto();
    let shared = gateway_config(&plan, seen)?;
    let _flushed_on_drop = telemetry::init("holdfast", &shared.telemetry)?;
    let pid = process::id();
    let pid_file = home.pid_file("up");
    write_private(&pid_file, &format!("{pid}\n"))?;

    let stop = shutdown::on_signal()?;
    if !plan.split {
        holdfast_doors::serve_metrics(&shared.telemetry, &shared.tls, stop.clone()).await?;
    }
    let mut tasks = Tasks::new(stop.clone());
    ignore_hangup(&mut tasks, &stop)?;
    for part in service_instances(&plan) {
        if plan.split {
            tasks.spawn(
                part.service,
                split::supervise(part, plan.workers, home.clone(), stop.clone())?,
            );
        } else {
            tasks.spawn(part.service, in_process(part, stop.clone()));
        }
    }
    tasks.spawn("ready", announce(home.clone(), plan, pid, seen, stop));
    let outcome = tasks.run(SHUTDOWN_GRACE).await;

    StateDir::remove_file(&home.state_file());
    StateDir::remove_file(&home.plan_file());
    let stopped = backends::down(&home).await;
    StateDir::remove_file(&pid_file);
    outcome.and(stopped)
}

/// Returns the services of the plan.
fn service_instances(plan: &Plan) -> Vec<ServiceInstance> {
    let ports = &plan.ports;
    let part =
        |service, n, own: &[_]| ServiceInstance { service, n, vars: plan.vars_with(service, own) };
    let gateways = ports.gateways.iter().zip(1..).map(|((http, grpc), n)| {
        part(Gateway::NAME, n, &[("gateway.http", *http), ("gateway.grpc", *grpc)])
    });
    let runners = ports
        .runners
        .iter()
        .zip(1..)
        .map(|(at, n)| part(AgentRunner::NAME, n, &[("runner.listen", *at)]));
    let bridge = part(ChannelBridge::NAME, 1, &[("bridge.listen", ports.bridge)]);
    let scheduler = part(Scheduler::NAME, 1, &[("scheduler.listen", ports.scheduler)]);
    let memory = part(Memory::NAME, 1, &[("memory.listen", ports.memory)]);
    let secrets =
        plan.split.then(|| part(Secrets::NAME, 1, &[("secrets_service.listen", ports.secrets)]));
    secrets.into_iter().chain(gateways).chain(runners).chain([bridge, scheduler, memory]).collect()
}

async fn in_process(part: ServiceInstance, stop: CancellationToken) -> anyhow::Result<()> {
    match part.service {
        Gateway::NAME => run::<Gateway>(part, stop).await,
        AgentRunner::NAME => run::<AgentRunner>(part, stop).await,
        Scheduler::NAME => run::<Scheduler>(part, stop).await,
        Memory::NAME => run::<Memory>(part, stop).await,
        _ => run::<ChannelBridge>(part, stop).await,
    }
}

async fn run<S: Service>(part: ServiceInstance, stop: CancellationToken) -> anyhow::Result<()> {
    let config: S::Config = config::load_from(S::TABLE, part.vars)?;
    Box::pin(S::serve(config.into(), stop)).await
}

/// Writes `state.json` and prints the welcome text once everything is ready.
async fn announce(
    home: StateDir,
    plan: Plan,
    pid: u32,
    seen: OutputMode,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let doors = plan.readiness_addresses();
    tokio::select! {
        ready = tokio::time::timeout(READY_TIMEOUT, ready::wait_for_all(&doors)) => ready.with_context(
            || format!("the services are not ready after {READY_TIMEOUT:?}; their logs say why"),
        )?,
        () = stop.cancelled() => return Ok(()),
    }
    let state = plan.state(pid);
    write_private(&home.state_file(), &format!("{:#}\n", serde_json::to_value(&state)?))?;
    tracing::info!(pid, "everything is ready");
    if let OutputMode::Terminal(screen) = seen {
        welcome::print(&home, &state, screen).await?;
    }
    stop.cancelled().await;
    Ok(())
}

/// Settings that the services share, as a gateway reads them. Logs have only warnings at a terminal, and
/// the configured level in a file.
fn gateway_config(plan: &Plan, seen: OutputMode) -> anyhow::Result<gateway::Config> {
    let mut vars = plan.vars_with(Gateway::NAME, &[]);
    if matches!(seen, OutputMode::Terminal(_)) && env::var_os(LOG_VAR).is_none() {
        vars.insert(LOG_VAR.to_owned(), "warn".to_owned());
    }
    Ok(config::load_from(Gateway::TABLE, vars)?)
}

/// Ignores SIGHUP: a closed terminal must not end a background process.
fn ignore_hangup(tasks: &mut Tasks, stop: &CancellationToken) -> anyhow::Result<()> {
    let mut hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?;
    let stop = stop.clone();
    tasks.spawn("hangup", async move {
        while tokio::select! { got = hangup.recv() => got.is_some(), () = stop.cancelled() => false }
        {
            tracing::info!("the terminal is gone, going on without it");
        }
        Ok(())
    });
    Ok(())
}
