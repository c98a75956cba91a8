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
