//! Guarantees of the session protocol, each tested on its own Postgres database.

mod batching;
mod claiming;
mod delivering;
mod event_log;
mod held_state;
mod holding;
mod idle_rows;
mod ingesting;
mod isolation;
mod keeping;
mod lending;
mod model;
mod reading;
mod renaming;
mod replaying;
mod runner_pools;
mod silence;
mod subagents;
mod sweeping;
mod telling;
mod turning;
mod wait_states;
mod waiting;
mod world;
