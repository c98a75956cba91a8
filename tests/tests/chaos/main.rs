//! Chaos tests: faults are injected into the mesh, and its guarantees must hold; docs/chaos.md has
//! the table.
//!
//! `make test` runs the short form. `HOLDFAST_CHAOS=long` runs the long one, whose storm lasts
//! `HOLDFAST_CHAOS_MINUTES`.

mod actors;
mod client_tools;
mod disk;
mod erases;
mod events;
mod failover;
mod fair;
mod faults;
mod held;
mod idle;
mod jetstream;
mod learns;
mod needs_pgbouncer;
mod one_person;

mod partition;
mod remembers;
mod report;
mod restore;
mod scaling;
mod settings;
mod soak;
mod storm;
mod talk;
mod time;
mod tls;
mod tls_backends;
mod traces;
mod versions;
mod wakes;
mod weather;
mod work;

use std::time::Duration;

/// The product's runner with the tools of these tests.
const RUNNER: &str = env!("CARGO_BIN_EXE_chaos-runner");

/// Every place in the runner where a commit or a call outside begins or ends, but for the one
/// where a session is given back.
const POINTS: [&str; 13] = [
    "runner.before_claim",
    "runner.after_claim",
    "runner.after_load",
    "runner.boundary",
    "runner.before_model",
    "runner.after_model",
    "runner.before_append",
    "runner.after_append",
    "runner.before_call",
    "runner.after_call",
    "runner.before_complete",
    "runner.after_complete",
    "runner.before_renew",
];

/// How long a test goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Short,
    Long,
}

fn form() -> Form {
    match std::env::var("HOLDFAST_CHAOS") {
        Ok(form) if form == "long" => Form::Long,
        _ => Form::Short,
    }
}

/// How long the storm lasts.
fn storm_time() -> Duration {
    let minutes = std::env::var("HOLDFAST_CHAOS_MINUTES").ok().and_then(|text| text.parse().ok());
    match (form(), minutes) {
        (Form::Short, _) => Duration::from_secs(45),
        (Form::Long, minutes) => Duration::from_secs(60 * minutes.unwrap_or(10_u64)),
    }
}
