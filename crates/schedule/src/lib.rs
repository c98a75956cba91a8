//! Rules for schedules, heartbeats and reminders, without any I/O.
//!
//! Nothing here reads a clock; `now` is a parameter. All replicas of the scheduler must compute the
//! same slots, so a slot depends on its schedule only, and time zones come from the database
//! compiled into the program.
//!
//! | module | contents |
//! |---|---|
//! | `schedule`, `cron`, `zone` | the slots of a schedule |
//! | `missed`, `run`, `spread` | which slots run, what follows a run, jitter |
//! | `job`, `payload` | a job and its patch |
//! | `heartbeat` | whether the model is asked, and what happens to its answer |
//! | `reminder` | times in natural language, and reminder texts |

mod cron;
mod error;
pub mod heartbeat;
mod interval;
mod job;
mod missed_slots;
mod payload;
pub mod reminder;
mod run;
mod schedule;
mod spread;
mod zone;

pub use error::Error;
pub use interval::{DEFAULT_INTERVAL, interval_or_default, parse_interval};
pub use job::{Job, JobKind, JobPatch, JobState, NewJob, ScheduleLimits, check_id, job_id};
pub use missed_slots::{Due, Lateness, Missed, due};
pub use payload::{AgentTurn, Isolation, Payload, PostMode, SessionTarget, WakeMode};
pub use run::{
    MAX_RETRIES, Overlap, RETRY_DELAYS, RunFollowUp, RunStatus, StartDecision, after_run,
    decide_start, retry_delay,
};
pub use schedule::{DEFAULT_EVERY_MS, Schedule};
pub use spread::{jitter, phase};
pub use zone::Zone;
