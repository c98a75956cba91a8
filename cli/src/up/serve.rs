//! The services, from their start until a signal.

use std::{collections::BTreeMap, env, process, time::Duration};

use anyhow::Context as _;
use holdfast_kit::{Tasks, config, shutdown, telemetry, tls};
use tokio_util::sync::CancellationToken;

use super::{PATIENCE, plan::Plan, ready, split, welcome};
use crate::{
    backends,
    home::{Home, write_private},
    screen::Screen,
    service::{AgentRunner, ChannelBridge, Gateway, Memory, Service},
};

/// What the services take to finish, 25 s, and some more.
const GRACE: Duration = Duration::from_secs(40);
const LOG: &str = "HOLDFAST_TELEMETRY__LOG";

/// Who looks on.
#[derive(Debug, Clone, Copy)]
pub enum Seen {
    /// A person at a terminal, who wants to read the welcome and not a log.
    By(Screen),
    /// Nobody: output goes to a file.
    ByNobody,
}

/// One service of the plan: its subcommand, its number, what it is told.
#[derive(Debug, Clone)]
pub struct Part {
    pub service: &'static str,
    pub n: usize,
    pub vars: BTreeMap<String, String>,
}

/// Runs what the plan says until a signal, then stops the backends too, if they are ours.
///
/// # Errors
///
/// With the first failure of a service, or if they are not ready in time.
pub async fn serve(home: Home, plan: Plan, seen: Seen) -> anyhow::Result<()> {
    tls::install_crypto();
    let _flushed_on_drop = telemetry::init("holdfast", &telemetry_of(&plan, seen)?)?;
    let pid = process::id();
    let pid_file = home.pid_file("up");
    write_private(&pid_file, &format!("{pid}\n"))?;

    let stop = shutdown::on_signal()?;
    let mut tasks = Tasks::new(stop.clone());
    ignore_hangup(&mut tasks, &stop)?;
    for part in parts(&plan) {
        if plan.split {
            tasks.spawn(part.service, split::keep(part, plan.workers, home.clone(), stop.clone())?);
        } else {
            tasks.spawn(part.service, in_process(part, stop.clone()));
        }
    }
    tasks.spawn("ready", announce(home.clone(), plan, pid, seen, stop));
    let outcome = tasks.run(GRACE).await;

    Home::forget(&home.state_file());
    Home::forget(&home.plan_file());
    let stopped = backends::down(&home).await;
    Home::forget(&pid_file);
    outcome.and(stopped)
}

/// The services that the plan asks for.
fn parts(plan: &Plan) -> Vec<Part> {
    let ports = &plan.ports;
    let part = |service, n, own: &[_]| Part { service, n, vars: plan.vars_with(own) };
    let gateways = ports.gateways.iter().zip(1..).map(|((http, grpc), n)| {
        part(Gateway::NAME, n, &[("gateway.http", *http), ("gateway.grpc", *grpc)])
    });
    let runners = ports
        .runners
        .iter()
        .zip(1..)
        .map(|(at, n)| part(AgentRunner::NAME, n, &[("runner.listen", *at)]));
    let bridge = part(ChannelBridge::NAME, 1, &[("bridge.listen", ports.bridge)]);
    let memory = part(Memory::NAME, 1, &[("memory.listen", ports.memory)]);
    gateways.chain(runners).chain([bridge, memory]).collect()
}

async fn in_process(part: Part, stop: CancellationToken) -> anyhow::Result<()> {
    match part.service {
        Gateway::NAME => run::<Gateway>(part, stop).await,
        AgentRunner::NAME => run::<AgentRunner>(part, stop).await,
        Memory::NAME => run::<Memory>(part, stop).await,
        _ => run::<ChannelBridge>(part, stop).await,
    }
}

async fn run<S: Service>(part: Part, stop: CancellationToken) -> anyhow::Result<()> {
    let config = config::load_from(S::TABLE, part.vars)?;
    Box::pin(S::serve(config, stop)).await
}

/// Once everything is ready, says so to programs and to people.
async fn announce(
    home: Home,
    plan: Plan,
    pid: u32,
    seen: Seen,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let doors = plan.doors();
    tokio::select! {
        ready = tokio::time::timeout(PATIENCE, ready::all(&doors)) => ready.with_context(
            || format!("the services are not ready after {PATIENCE:?}; their logs say why"),
        )?,
        () = stop.cancelled() => return Ok(()),
    }
    let state = plan.state(pid);
    write_private(&home.state_file(), &format!("{:#}\n", serde_json::to_value(&state)?))?;
    tracing::info!(pid, "everything is ready");
    if let Seen::By(screen) = seen {
        welcome::print(&home, &state, screen)?;
    }
    stop.cancelled().await;
    Ok(())
}

/// A person reads warnings; a file takes what the settings say.
fn telemetry_of(plan: &Plan, seen: Seen) -> anyhow::Result<telemetry::Config> {
    let mut vars = plan.vars_with(&[]);
    if matches!(seen, Seen::By(_)) && env::var_os(LOG).is_none() {
        vars.insert(LOG.to_owned(), "warn".to_owned());
    }
    let config: gateway::Config = config::load_from(Gateway::TABLE, vars)?;
    Ok(config.telemetry)
}

/// A terminal that is closed does not end what was put into the background.
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
