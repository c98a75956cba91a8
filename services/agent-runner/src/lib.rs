//! Agent-runner: claims sessions that have work and runs their turns.
//!
//! ```text
//!  wake-ups ─▶ pool ── claim ──▶ turn ── load ─ hear ─ next? ─┬─ think ─▶ model
//!  poll ─────▶  │                 │ ▲                         ├─ call ──▶ tools ─▶ mesh
//!  sweep ────▶  │     renewal ──▶ lease: lost? paused? input?  └─ finish ▶ complete ─▶ deliveries
//!               └── as many at once as there are slots              └─▶ deltas, wake-ups
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `app.rs`, `config.rs` | start of the process; its settings |
//! | `pool.rs` | claim pool: claims sessions and runs them |
//! | `leases.rs` | leases of claimed sessions, and signals to their turns |
//! | `turn/` | turns, step by step |
//! | `agents/` | agents as turns use them: models, budgets, skills |
//! | `tools/` | tools, connected to the mesh |
//! | `background/` | work outside of turns |
//! | `worker.rs` | state that all turns of this process share |
//! | `queues.rs` | queues of background work that turns fill |
//! | `scheduled_messages.rs` | loading of sessions, with what schedulers wrote for them verified |
//!
//! The process is stateless: if it is killed, another runner continues its sessions.
//!
//! ## What can go wrong
//!
//! A crash can happen between any two commits. So a step is stored before it is executed; calls
//! that act on the outside world are stored as begun before they are made; and a runner that lost
//! its session has its writes refused.

mod agents;
mod app;
mod background;
mod config;
mod error;
mod failpoints;
mod held_state;
mod jitter;
mod leases;
mod pool;
mod queues;
mod scheduled_messages;
mod tools;
mod turn;
mod upkeep;
mod worker;

pub use app::App;
pub use config::{Config, McpConfig, MediaConfig, MemoryConfig, RunnerConfig, ScratchConfig};
