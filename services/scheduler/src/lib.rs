//! scheduler: turns time into messages, with any number of replicas and no leader.
//!
//! ```text
//!  jobs (Postgres) ──claim due──▶ clock ──firings──▶ deliver ──▶ fire::{turn, timer, …} what each becomes
//!       ▲                                               │
//!       │ delivered, refused, postponed                 ├──ingest many──▶ sessions' inboxes (Postgres)
//!       ├───────────────────────────────────────────────┘                        │
//!       └──── finished ◀── settle ◀──which have ended?───────────────────────────┘
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `clock` | claims of due jobs, and the sleep until the next one |
//! | `backlog`, `queue` | firings in progress, and the order of tenants |
//! | `deliver` | delivery of firings to inboxes in batches, and recording of outcomes |
//! | `fire` | conversion of firings into messages, one module for each kind of job |
//! | `abandoned_firings` | firings whose deliverers died: decides whether they were delivered |
//! | `settle` | detection of firings whose messages are answered, and their outcomes |
//! | `heartbeats` | heartbeats: which agents have one, and their outcomes |
//! | `agents` | cache of agents by id |
//! | `context` | clients and names that all parts share |
//! | `app`, `config`, `meter` | composition, settings, metrics |
//!
//! A slot is decided in one transaction with the job's next slot, and delivered under a key made
//! from the slot: a replica may crash at any point, and another finishes the work under the same
//! key. All times come from the database's clock.

mod abandoned_firings;
mod agents;
mod app;
mod backlog;
mod clock;
mod config;
mod context;
mod deliver;
mod failure;
mod fire;
mod heartbeats;
mod meter;
mod queue;
mod settle;

pub use app::App;
pub use config::{Config, Scheduler};
