//! `holdfast up`: all services on this machine, ready for a first answer.
//!
//! 1. [`Plan::make`]: backends, schema, secrets, tenant, key, ports.
//! 2. [`serve`](serve::serve): the services, in this process or in one each, until a signal.
//! 3. [`welcome`]: addresses and examples, once everything is ready.
//!
//! With `--detach`, step 2 happens in a child that outlives this process. The serving process holds
//! the directory's lock, so a second `up` finds the first, and a crashed one is never mistaken for
//! a running one.

mod detach;
mod plan;
mod ready;
mod serve;
mod split;
mod welcome;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;

use self::plan::Plan;
use crate::{
    backends,
    error::Error,
    screen::Screen,
    state_dir::{State, StateDir, write_private},
};

/// Maximum time until all services are ready.
const READY_TIMEOUT: Duration = Duration::from_secs(90);

/// Maximum time until the services of a running `up` have reconnected to restarted backends.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub struct UpArgs {
    /// Run each service as its own process, restarted when it ends
    #[arg(long)]
    pub split: bool,

    /// Number of agent-runners to start
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub runners: u16,

    /// Number of gateways to start
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=8))]
    pub gateways: u16,

    /// File with the settings, in TOML or YAML [default: that of HOLDFAST_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Run in the background; `holdfast down` stops it
    #[arg(long)]
    pub detach: bool,

    /// First port of the services, from which the others follow; 0 lets the system choose
    #[arg(long, default_value_t = 18_789, value_parser = clap::value_parser!(u16).range(0..=60_000))]
    pub port_base: u16,

    /// Number of worker threads in each process
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub workers: u8,

    /// Internal, used by `--detach`: serves the stored plan, with the lock as stdin
    #[arg(long, hide = true)]
    pub background: bool,
}

/// Runs `holdfast up`.
///
/// # Errors
///
/// The failure of a step; it says what to do.
pub async fn run(args: UpArgs, home: StateDir, screen: &Screen) -> Result<(), Error> {
    if args.background {
        let plan = Plan::read(&home)?;
        return Ok(serve::serve(home, plan, serve::OutputMode::LogFile).await?);
    }
    home.create()?;
    let Some(lock) = home.lock()? else {
        let state = wait_for_state(&home, |_| true).await?;
        screen.note(&format!("Holdfast is already running here, as process {}.", state.pid))?;
        let ignored = ignored_options(&args, &state, std::env::var("HOLDFAST_MODEL").ok());
        if !ignored.is_empty() {
            screen.note(&format!(
                "warning: it keeps its settings, and {} has no effect: `holdfast down` first",
                ignored.join(", ")
            ))?;
        }
        backends::restart_ended(&home).await?;
        check_ready(&state).await?;
        return welcome::print(&home, &state, *screen).await;
    };
    // First of all, so that `down` never takes the pid of a crashed `up` for this one.
    write_private(&home.pid_file("up"), &format!("{}\n", std::process::id()))?;
    StateDir::remove_file(&home.state_file());
    let plan = Box::pin(Plan::make(&args, &home, *screen));
    let (plan, _reservation) = match screen.watch("starting", plan).await {
        Ok(made) => made,
        Err(error) => {
            // Stop the backends. The original failure matters more than a failure to stop them.
            drop(backends::down(&home).await);
            return Err(error.into());
        }
    };
    if args.detach {
        // If this fails, the background process has already stopped the backends.
        let started = Box::pin(detach::start(&home, lock, &plan));
        let state = screen.watch("waiting for the services to be ready", started).await?;
        return welcome::print(&home, &state, *screen).await;
    }
    let served = serve::serve(home, plan, serve::OutputMode::Terminal(*screen)).await;
    drop(lock);
    Ok(served?)
}

/// Returns the given options that a running `up` does not have.
fn ignored_options(args: &UpArgs, state: &State, model: Option<String>) -> Vec<&'static str> {
    let differs = |wanted: u16, running: usize| wanted != 1 && usize::from(wanted) != running;
    let model = model.filter(|model| !model.is_empty());
    [
        ("--split", args.split && !state.split),
        ("--runners", differs(args.runners, state.runners.len())),
        ("--gateways", differs(args.gateways, state.gateways.len())),
        ("--config", args.config.is_some()),
        ("HOLDFAST_MODEL", model.is_some() && model != state.model),
    ]
    .into_iter()
    .filter_map(|(option, is_ignored)| is_ignored.then_some(option))
    .collect()
}

/// Waits until a running `up` is ready again.
async fn check_ready(state: &State) -> anyhow::Result<()> {
    let doors: Vec<SocketAddr> = state.addresses().collect();
    let ready = tokio::time::timeout(RECOVERY_TIMEOUT, ready::wait_for_all(&doors)).await;
    if ready.is_ok() {
        return Ok(());
    }
    let mut reasons = Vec::new();
    for door in doors {
        if let Some(reason) = ready::failure(door).await {
            reasons.push(format!("http://{door}/readyz: {reason}"));
        }
    }
    anyhow::bail!(
        "it is not ready after {RECOVERY_TIMEOUT:?}. {}\nStart what is missing (`database` is \
         Postgres, at {}); `holdfast down` and `holdfast up` start all of it anew",
        reasons.join("; "),
        backends::DATABASE,
    )
}

/// Waits until `state.json` exists and satisfies `is_it`.
async fn wait_for_state(home: &StateDir, is_it: impl Fn(&State) -> bool) -> anyhow::Result<State> {
    let look = async {
        loop {
            match home.state() {
                Ok(state) if is_it(&state) => return state,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(READY_TIMEOUT, look).await.map_err(|_| {
        anyhow::anyhow!(
            "another `holdfast up` works here and is not ready after {READY_TIMEOUT:?}: see `{}`, or \
             `holdfast down` ends it",
            home.log_file("up").display()
        )
    })
}
