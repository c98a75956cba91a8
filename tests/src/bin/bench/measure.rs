//! The parts of the table, one module each.

mod behaviors;
mod claim;
mod commands;
mod connections;
mod consoles;
mod cost;
mod crash;
mod crowd;
mod fairness;
mod idle;
mod memory;
mod neighbours;
mod scale;
mod schedule;
mod start;
mod thinking;
mod throughput;
mod todos;
mod turn;
mod wake;

use clap::ValueEnum;

use crate::{Pace, mesh::Mesh, report::Line};

/// A part of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// Overhead of one turn, and of one with a tool call
    Turn,
    /// Turns a second, many sessions in parallel
    Throughput,
    /// CPU time and commits of one turn
    Cost,
    /// Work in 12 steps of behaviours, against the same calls in the plain loop
    Behaviors,
    /// Resident memory
    Memory,
    /// From a process' start until it is ready
    Start,
    /// The first token of an assistant that slept
    Wake,
    /// 100 users, 25 at once, a model of 3 s
    Crowd,
    /// What a crash of gateway and runner loses
    Crash,
    /// A quiet tenant behind a noisy one
    Fairness,
    /// Claims with 10,000 sessions queued
    Claim,
    /// A list of 10,000 todos, against one of 100
    Todos,
    /// Jobs that are due in one instant, and spread ones
    Schedule,
    /// What is done before a model is asked: its instructions, the policy, the request
    Thinking,
    /// A command in the sandbox, and laying out its files
    Commands,
    /// 10,000 idle WebSocket connections and 500 active ones, beside a slow reader
    Connections,
    /// 500 open consoles, beside five turns a second
    Consoles,
    /// A minute of nothing
    Idle,
    /// Turns and upkeep in a database with a million sessions; takes over 10 minutes, by name only
    Scale,
    /// A tenant beside one that does everything hostile at once, both with the plan of docs/tenants.md;
    /// fails if it waits more than twice as long as alone; by name only
    Neighbours,
    /// The same without a plan, with the limits that tenants have by default; by name only
    NeighboursWithoutPlan,
}

impl Section {
    /// Those that are measured if none is named, in this order.
    pub const ALL: [Self; 18] = [
        // First, while the processes are as they were started.
        Self::Memory,
        Self::Start,
        Self::Turn,
        Self::Throughput,
        Self::Cost,
        Self::Behaviors,
        Self::Thinking,
        Self::Wake,
        Self::Crowd,
        Self::Fairness,
        Self::Claim,
        Self::Todos,
        Self::Schedule,
        Self::Commands,
        Self::Connections,
        Self::Consoles,
        Self::Idle,
        Self::Crash,
    ];

    /// What it is called in the table.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Turn => "overhead of a turn",
            Self::Throughput => "turns a second",
            Self::Cost => "cost of a turn",
            Self::Behaviors => "12 steps of behaviours, and 12 calls of the plain loop",
            Self::Memory => "memory",
            Self::Start => "start to ready",
            Self::Wake => "waking an idle assistant",
            Self::Crowd => "100 users, 25 at once, 3 s model",
            Self::Crash => "kill -9 of gateway and runner",
            Self::Fairness => "a quiet tenant beside a noisy one",
            Self::Claim => "claims, 10,000 sessions queued",
            Self::Todos => "10,000 todos, against 100",
            Self::Schedule => "jobs that are due",
            Self::Thinking => "before a model is asked",
            Self::Commands => "commands",
            Self::Connections => "WebSocket connections",
            Self::Consoles => "open consoles",
            Self::Idle => "an idle mesh",
            Self::Scale => "a million sessions, beside none",
            Self::Neighbours => "beside a hostile tenant, with a plan",
            Self::NeighboursWithoutPlan => "beside a hostile tenant, without a plan",
        }
    }

    /// Measures it.
    pub async fn run(self, mesh: &mut Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
        match self {
            Self::Turn => turn::measure(mesh, pace).await,
            Self::Throughput => throughput::measure(mesh, pace).await,
            Self::Cost => cost::measure(mesh, pace).await,
            Self::Behaviors => behaviors::measure(mesh, pace).await,
            Self::Memory => memory::measure(mesh, pace).await,
            Self::Start => start::measure(mesh, pace).await,
            Self::Wake => wake::measure(mesh, pace).await,
            Self::Crowd => crowd::measure(mesh, pace).await,
            Self::Crash => crash::measure(mesh, pace).await,
            Self::Fairness => fairness::measure(mesh, pace).await,
            Self::Claim => claim::measure(mesh, pace).await,
            Self::Todos => todos::measure(mesh, pace).await,
            Self::Schedule => schedule::measure(mesh, pace).await,
            Self::Thinking => thinking::measure(mesh, pace).await,
            Self::Commands => commands::measure(mesh, pace).await,
            Self::Connections => connections::measure(mesh, pace).await,
            Self::Consoles => consoles::measure(mesh, pace).await,
            Self::Idle => idle::measure(mesh, pace).await,
            Self::Scale => scale::measure(mesh, pace).await,
            Self::Neighbours => neighbours::measure(mesh, pace, Some(neighbours::PLAN)).await,
            Self::NeighboursWithoutPlan => neighbours::measure(mesh, pace, None).await,
        }
    }
}
