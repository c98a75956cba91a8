//! Time turned into work, as far as it can be said without a clock: when a job is due, what a
//! heartbeat does, when a reminder is for.
//!
//! Nothing here does I/O or reads a clock; `now` is a parameter. So that every replica of the
//! scheduler says the same, a slot depends on nothing but its schedule, and time zones are those
//! that the program was built with.
//!
//! | module | what |
//! |---|---|
//! | `schedule`, `cron`, `zone` | the slots of a schedule |
//! | `missed`, `run`, `spread` | which of them run, what comes after, how they are spread |
//! | `job`, `payload` | what a job is, and what may be changed of it |
//! | `heartbeat` | whether an agent is asked, and what becomes of its answer |
//! | `reminder` | times as people write them, and what is said of reminders |

mod cron;
mod error;
pub mod heartbeat;
mod interval;
mod job;
mod missed;
mod payload;
pub mod reminder;
mod run;
mod schedule;
mod spread;
mod zone;

pub use error::Error;
pub use interval::{USUAL_INTERVAL, interval_or_usual, parse_interval};
pub use job::{Allowed, Job, JobKind, JobPatch, JobState, NewJob, check_id, job_id};
pub use missed::{Due, Lateness, Missed, due};
pub use payload::{AgentTurn, Isolation, Payload, PostMode, SessionTarget, WakeMode};
pub use run::{
    BACK_OFF, MOST_RETRIES, Overlap, RunStatus, Start, Then, after_run, back_off, start,
};
pub use schedule::{Schedule, USUAL_EVERY_MS};
pub use spread::{jitter, phase};
pub use zone::Zone;
