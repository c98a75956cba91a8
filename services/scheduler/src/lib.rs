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
//! | module | what it knows |
//! |---|---|
//! | `clock` | claiming what is due, and how long to sleep |
//! | `backlog`, `queue` | what is in hand, and which tenant's turn it is |
//! | `deliver` | firings into inboxes, many at once, and saying what became of them |
//! | `fire` | what a firing of each kind becomes, a module each |
//! | `abandoned` | what nobody who delivered it survived: has it come, or has it not |
//! | `settle` | which firings' messages have ended, and how |
//! | `beats` | whose hearts beat, and what came of that |
//! | `agents` | whose sessions they are |
//! | `app`, `config`, `meter` | composition, settings, numbers |
//!
//! A slot is decided in one transaction with the job's next one, and delivered
//! under a key that is the slot's: a replica may die anywhere, and another does
//! the rest under the same key. Only the database's clock is asked.

mod abandoned;
mod agents;
mod app;
mod backlog;
mod beats;
mod clock;
mod config;
mod deliver;
mod fire;
mod meter;
mod queue;
mod settle;

pub use app::App;
pub use config::{Config, Scheduler};
