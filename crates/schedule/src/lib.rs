//! Schedules, heartbeats and reminders: their rules, and the store of jobs.
//!
//! The rules need no I/O, and nothing in them reads a clock; `now` is a parameter. All replicas of the scheduler must compute the
//! same slots, so a slot depends on its schedule only, and time zones come from the database
//! compiled into the program.
//!
//! | module | contents |
//! |---|---|
//! | `schedule`, `cron`, `zone` | the slots of a schedule |
//! | `missed_slots`, `spread` | which missed slots run, jitter |
//! | `job`, `payload` | a job and its patch |
//! | `heartbeat` | whether the model is asked, and what happens to its answer |
//! | `reminder` | times in natural language, and reminder texts |
//! | `store` | jobs and their firings in Postgres; needs the feature `store` |

mod cron;
mod error;
pub mod heartbeat;
mod interval;
mod job;
mod missed_slots;
mod payload;
pub mod reminder;
mod schedule;
mod spread;
#[cfg(feature = "store")]
pub mod store;
mod zone;

pub use error::Error;
pub use interval::{DEFAULT_INTERVAL, interval_or_default, parse_interval};
pub use job::{Job, JobPatch, JobState, NewJob, Overlap, RunStatus, ScheduleLimits, check_id};
pub use missed_slots::{Due, Lateness, Missed, due};
pub use payload::{
    AgentTurn, FixedMessage, Isolation, Payload, PostMode, SessionTarget, Timer, WakeMode,
};
pub use schedule::{DEFAULT_EVERY_MS, Schedule};
pub use spread::{jitter, phase};
pub use zone::Zone;
