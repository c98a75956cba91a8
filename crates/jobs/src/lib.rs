//! Job store: what is to be done at which time, and the record that it was done once.
//!
//! [`Jobs`] owns the Postgres schema `schedule` and is the only access to it. A [`Planner`]
//! computes the next slot of a job and decides about missed slots; this crate stores the results.
//! The production planner is [`Calendar`].
//!
//! | operation | caller | file |
//! |---|---|---|
//! | add, update, pause, resume, remove | gateway, tools | `add.rs`, `change.rs` |
//! | get, find, list, runs | gateway, tools | `read.rs` |
//! | run now, backfill | gateway, tools | `fire.rs` |
//! | claim due, claim in turn, next due | scheduler | `claim.rs`, `decide.rs` |
//! | load, begun, delivered, postponed, refused, finished | scheduler | `read.rs`, `begin.rs`, `settle.rs`, `close.rs`, `failures.rs` |
//! | out, queued, answered | scheduler | `out.rs`, `queued.rs`, `arrive.rs` |
//! | sweep, sweep in turn, forget | scheduler | `sweep.rs` |
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
mod arrive;
mod begin;
mod calendar;
mod change;
mod check;
mod claim;
mod close;
mod counts;
mod decide;
mod error;
mod failures;
mod fire;
mod firings;
mod forget;
mod heartbeat;
mod jobs;
mod log;
mod model;
mod out;
mod plan;
mod queued;
mod read;
mod reminders;
mod row;
mod rules;
mod settle;
mod slot;
mod sweep;
mod typed;

pub use add::{Added, Existing, NewJob};
pub use arrive::Answered;
pub use calendar::Calendar;
pub use change::{Changes, MUTABLE, NewSchedule};
pub use claim::Claimed;
pub use close::UNSENT;
pub use counts::Counts;
pub use error::Error;
pub use fire::{Mode, Ran};
pub use heartbeat::{Beating, HeartbeatLine, HeartbeatMark, NewHeartbeatLine, heartbeat_job};
pub use jobs::{HANDOVER, Jobs, Limits};
pub use log::KEPT;
pub use model::{
    Firing, FiringState, FiringView, Job, JobKind, JobState, LastRun, Origin, Outcome, Overlap,
    RunLine, Running,
};
pub use out::Out;
pub use plan::{Due, Missed, Next, Planned, Planner, Scheduled, Unplannable};
pub use read::JobFilter;
pub use reminders::{Remind, Reminding, Unset};
pub use rules::Rules;
pub use settle::{Delivered, Ended, Postponed, Refused};
pub use slot::{FiringRef, InvalidSlot, Slot};
pub use sweep::{ABANDONED, LOSSES, Swept};
pub use typed::{PatchError, Reminder, Spec, Timer};
