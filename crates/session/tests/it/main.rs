//! The session protocol's promises, each on a real Postgres of its own.

mod batching;
mod claiming;
mod delivering;
mod holding;
mod ingesting;
mod isolation;
mod keeping;
mod lending;
mod reading;
mod silence;
mod subagents;
mod sweeping;
mod telling;
mod turning;
mod waiting;
mod world;
