//! The agent-runner: claims sessions that have something to do, and does it.
//!
//! ```text
//!  wake-ups ─▶ pool ── claim ──▶ turn ── load ─ hear ─ next? ─┬─ think ─▶ model
//!  poll ─────▶  │                 │ ▲                         ├─ call ──▶ tools ─▶ mesh
//!  sweep ────▶  │   heartbeat ──▶ hold: lost? held? input?    └─ finish ▶ complete ─▶ deliveries
//!               └── as many at once as there are slots              └─▶ deltas, wake-ups
//! ```
//!
//! | file | what |
//! |---|---|
//! | `pool.rs` | claiming, and running what is claimed |
//! | `take.rs` | one claimed session, from its claim to its rest |
//! | `turn.rs` | a turn, from step to step |
//! | `intake.rs` | which messages a turn takes in; pure |
//! | `think.rs`, `call.rs`, `finish.rs` | the model, the tools, the ends of a turn |
//! | `command.rs` | turns that need no model |
//! | `approvals.rs` | calls that need a person's word |
//! | `compaction.rs` | keeping the conversation within what the model can read |
//! | `journal.rs` | what the turn reads and writes |
//! | `reply.rs` | what is sent where; what people are told when there is no answer; pure |
//! | `held.rs`, `heartbeat.rs` | what is held, and keeping it |
//! | `deltas.rs` | the reply as it is written |
//! | `files.rs` | the agent's files, as its tools see them |
//! | `agents.rs`, `mesh.rs` | agents and their models; what tools see of the mesh |
//! | `subagents.rs` | making subagents, and announcing their ends |
//! | `upkeep.rs` | sweep, relay, measure, prune: for all sessions, not only those held here |
//!
//! It is stateless: kill it, and another goes on with what it held.
//!
//! ## What can go wrong
//!
//! Anything, at any moment, between two commits. So a step is stored before
//! anything is done about it; what acts on the world is stored as begun before
//! it is; and a runner that has lost its session finds its writes refused.

mod agents;
mod app;
mod approvals;
mod call;
mod command;
mod compaction;
mod config;
mod deltas;
mod error;
mod fail;
mod files;
mod finish;
mod heartbeat;
mod held;
mod http;
mod intake;
mod journal;
mod mesh;
mod pool;
mod reply;
mod subagents;
mod take;
mod think;
mod trouble;
mod turn;
mod upkeep;
mod worker;

pub use app::App;
pub use config::{Config, Runner};
