//! The runner against real backends of its own, and a model that does as it is told.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a panic is how a test fails, in its helpers too"
)]

mod answering;
mod approvals;
mod commands;
mod compacting;
mod failing;
mod gated;
mod holding;
mod idling;
mod outages;
mod queueing;
mod subagents;
mod surviving;
mod tools;
mod tracing;
mod watching;
mod world;
