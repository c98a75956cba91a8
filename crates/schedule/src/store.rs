//! Store of jobs: what is to be done at which time, and the record that it was done once.
//!
//! [`Jobs`] owns the Postgres schema `schedule` and is the only access to it. A [`Planner`]
//! computes the next slot of a job and decides about missed slots; this module stores the results.
//! The production planner is [`Calendar`].
//!
//! | operation | caller | file |
//! |---|---|---|
//! | add, update, pause, resume, remove | gateway, tools | `add.rs`, `change.rs` |
//! | get, find, list, runs | gateway, tools | `read.rs` |
//! | run now, backfill | gateway, tools | `firings/requests.rs` |
//! | sign jobs from before, or with another key | gateway, command line | `signing.rs` |
//! | claim due, claim in turn, next due | scheduler | `firings/claim.rs`, `firings/decide.rs` |
//! | load, begun, delivered, postponed, refused, finished | scheduler | `read.rs`; in `firings/`: `firings/delivery_start.rs`, `reports.rs`, `firings/close.rs`, `firings/failures.rs` |
//! | open, queued, answered | scheduler | in `firings/`: `firings/open_firings.rs`, `firings/queue_wait.rs`, `firings/reply_delivery.rs` |
//! | sweep, sweep in turn, forget | scheduler | `firings/sweep.rs` |
//!
//! Life of a slot: **claim** decides it, in one transaction with the job's next slot. The slot is
//! skipped, with a line in the log, or becomes a firing. The scheduler that is handed the firing
//! delivers it under [`FiringRef::idem_key`] and reports that. **Sweep** hands out again every
//! firing that is not reported in time.
//!
//! Locks are taken in one order: rows of `jobs`, by id, then firings. All times come from the
//! database's clock.
//!
//! ## What can go wrong
//!
//! A scheduler that was paused for longer than its hold delivers a firing that was handed to
//! another one. Both use the same key, so the message arrives once; both report the delivery, and
//! the second report changes nothing. A *refusal* counts only from the current holder
//! ([`Firing::attempt`]).

mod add;
mod calendar;
mod change;
mod check;
mod counts;
mod deletion;
mod error;
mod firings;
mod heartbeat;
mod jobs;
mod json_types;
mod log;
mod model;
mod people;
mod plan;
mod read;
mod reminders;
mod row;
mod rules;
mod signature;
mod signing;
mod slot;

pub use add::{AddOutcome, NewJob};
pub use calendar::Calendar;
pub use change::{Changes, Editor, NewSchedule};
pub use counts::{Counts, DueJobs};
pub use error::Error;
pub use firings::claim::ClaimResult;
pub use firings::close::CLASS_UNSENT;
pub use firings::open_firings::OpenFiring;
pub use firings::reply_delivery::AnsweredFiring;
pub use firings::reports::{DeliveryReport, FinishedFiring, PostponedFiring, Refused};
pub use firings::requests::{RunMode, RunRequestOutcome};
pub use firings::sweep::{CLASS_ABANDONED, MAX_LOSSES, SweepResult};
pub use heartbeat::{
    HeartbeatLine, HeartbeatMark, NewHeartbeatLine, RunningHeartbeat, heartbeat_job,
};
pub use jobs::{HANDOVER_TIMEOUT, Jobs, Limits};
pub use json_types::{PatchError, Reminder, Spec};
pub use log::MAX_LOG_LINES;
pub use model::{
    Firing, FiringState, FiringView, Job, JobKind, JobState, LastRun, Origin, Outcome, Overlap,
    RunLine, RunningFiring,
};
pub use plan::{Due, Missed, NextSlot, Planner, ScheduledJob, SlotPlan, Unplannable};
pub use read::JobFilter;
pub use reminders::{NewReminder, PendingReminder, ReminderRefusal};
pub use rules::Rules;
pub use signature::{FiredMessage, JobKeys, JobSigner};
pub use slot::{FiringRef, InvalidSlot, Slot};
