//! `make bench`: what a turn costs and how long it takes, on real backends with fsync on.
//!
//! | module | what |
//! |---|---|
//! | [`mesh`], [`models`] | the processes that are measured, and the fake models beside them |
//! | [`client`], [`openai`] | callers, by gRPC and the OpenAI-compatible API |
//! | [`mod@measure`] | one module for each part of the table |
//! | [`usage`], [`spent`], [`database`] | what `/proc` and Postgres' own counters say |
//! | [`report`], [`stats`] | the table |
//!
//! It measures: a figure that is missed is printed as such. It fails if the mesh fails, or if one
//! tenant delays another too much (`neighbours`). docs/benchmarks.md says how each figure comes about.

mod client;
mod database;
mod measure;
mod mesh;
mod models;
mod openai;
mod readiness;
mod report;
mod spent;
mod stats;
mod usage;

use std::{io::Write as _, time::Duration};

use anyhow::{Context as _, ensure};
use clap::Parser;
use tokio::time::Instant;

use crate::{
    measure::Section,
    mesh::{Mesh, Setup},
    report::Report,
};

/// Measures a mesh of its own, and prints one table
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Args {
    /// What to measure; everything but `scale` and `neighbours…`, if nothing is named
    #[arg(value_enum)]
    sections: Vec<Section>,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,

    /// Measure for a short time only: to see that it works, not what it says
    #[arg(long)]
    quick: bool,

    /// Turns that the runner runs at once
    #[arg(long, default_value_t = 256)]
    slots: u32,

    /// Sessions of the measured tenant that may be ready or running at once
    #[arg(long, default_value_t = 256)]
    cap: u32,

    /// A behaviour that the hostile tenant of `neighbours` leaves out, by its name in the table
    #[arg(long = "leave-out")]
    left_out: Vec<String>,
}

/// How thoroughly to measure.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    quick: bool,
}

impl Pace {
    /// How often to do something.
    #[must_use]
    pub const fn count(self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// For how long to do something.
    #[must_use]
    pub const fn seconds(self, full: u64, quick: u64) -> Duration {
        Duration::from_secs(if self.quick { quick } else { full })
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    holdfast_kit::tls::install_crypto();
    // What was started is ended with the future, also when somebody has had enough.
    let stop = holdfast_kit::shutdown::on_signal()?;
    let report = stop.run_until_cancelled(Box::pin(measure(&args))).await;
    let report = report.context("stopped before all was measured")??;

    let text = if args.json { report.json()? } else { report.table()? };
    writeln!(std::io::stdout(), "{text}")?;
    let failures = report.failures();
    ensure!(failures.is_empty(), "these figures are required: {}", failures.join("; "));
    Ok(())
}

async fn measure(args: &Args) -> anyhow::Result<Report> {
    let sections = match args.sections.as_slice() {
        [] => &Section::ALL,
        some => some,
    };
    progress("starting a mesh of its own");
    let left_out = args.left_out.clone();
    let mut mesh = Mesh::start(Setup { slots: args.slots, cap: args.cap, left_out }).await?;
    let mut report = Report::default();
    conditions(&mut report, &mesh, args).await?;
    for section in sections {
        progress(&format!("measuring: {}", section.title()));
        let begun = Instant::now();
        let lines = Box::pin(section.run(&mut mesh, Pace { quick: args.quick })).await?;
        progress(&format!("  {:.0} s", begun.elapsed().as_secs_f64()));
        report.add(section.title(), lines);
    }
    Ok(report)
}

async fn conditions(report: &mut Report, mesh: &Mesh, args: &Args) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism()?;
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    report.condition("machine", format!("{cores} cores, load {load} at the start"));
    report.condition("postgres", database::durability(&mut mesh.admin().await?).await?);
    let pool = holdfast_pg::Config::default();
    report.condition(
        "mesh",
        format!(
            "1 gateway, 1 runner with {} slots, 1 bridge; the tenant's cap is {}; {} + {} \
             connections each",
            args.slots, args.cap, pool.pool_size, pool.system_pool_size
        ),
    );
    if args.quick {
        report.condition("note", "quick: these figures are for a look only");
    }
    Ok(())
}

/// Tells whoever waits; on stderr, since stdout is the report's.
fn progress(what: &str) {
    drop(writeln!(std::io::stderr(), "{what}"));
}
