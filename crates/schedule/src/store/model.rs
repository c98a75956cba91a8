//! Types of jobs, firings and log lines.

use std::time::Duration;

use holdfast_types::{AgentId, Author, JobId, RunId, TenantId};
use jiff::Timestamp;
use serde_json::Value;

use crate::store::{FiringRef, Slot};

/// Defines an enum that is stored as one word per case.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$case_doc])* $case),+
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$case),+];

            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$case => $word),+
                }
            }

            /// Returns the case of a word; `None` if it is unknown.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|case| case.as_str() == word)
            }
        }
    };
}

words!(
    JobKind {
        /// Cron expression in a time zone.
        Cron = "cron",
        /// Interval from an anchor.
        Every = "every",
        /// One time.
        At = "at",
        /// Regular check by an agent whether anything needs doing.
        Heartbeat = "heartbeat",
        Reminder = "reminder",
        /// Wake-up without a model call.
        Timer = "timer",
    }
);

words!(
    JobState {
        Active = "active",
        /// Paused by a user.
        Paused = "paused",
        /// No slot left.
        Done = "done",
        /// The schedule can no longer be followed.
        Broken = "broken",
    }
);

words!(
    /// Handling of a slot that comes while an earlier firing runs.
    Overlap {
        /// The slot is skipped.
        Skip = "skip",
        /// The slot waits for the end of the earlier one.
        Queue = "queue",
        /// Both run.
        Allow = "allow",
    }
);

words!(
    /// Reason for a firing.
    Origin {
        /// The slot's time came.
        Due = "due",
        /// A run was requested.
        Forced = "forced",
        /// A past slot was requested.
        Backfill = "backfill",
        /// An earlier try failed and no slot is left.
        Retry = "retry",
    }
);

words!(
    FiringState {
        /// Not delivered yet.
        Pending = "pending",
        /// Delivered and running.
        Delivered = "delivered",
        Done = "done",
        Refused = "refused",
    }
);

words!(
    Outcome {
        Ok = "ok",
        Error = "error",
        /// Nothing was done.
        Skipped = "skipped",
    }
);

/// Returns whether a job of a kind may have a schedule.
pub(crate) fn allows_schedule(kind: JobKind, schedule: &crate::Schedule) -> bool {
    match kind {
        JobKind::Cron | JobKind::Every | JobKind::At => kind == JobKind::of(schedule),
        JobKind::Reminder => schedule.is_once(),
        JobKind::Heartbeat => schedule.kind_name() == "every",
        JobKind::Timer => true,
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub tenant: TenantId,
    pub id: JobId,
    /// Name given by the creator.
    pub external_id: String,
    /// Eight letters and digits that identify the job to users.
    pub short_id: String,
    pub kind: JobKind,
    pub agent: AgentId,
    /// User that owns the job; `None` means the tenant.
    pub owner: Option<String>,
    /// Who wrote what the job does, whose rights its runs have; `None` means the mesh, and the agent
    /// itself. A reminder's is also in its payload.
    pub author: Option<Author>,
    /// Proof that a service which may act for the author wrote what the job does; `None` in a job that
    /// an older version wrote. Its runs then have nobody's rights.
    pub signature: Option<String>,
    pub name: String,
    pub description: String,
    /// Schedule as the kind defines it.
    pub spec: Value,
    pub payload: Value,
    /// `main` or `isolated`.
    pub session_target: Option<String>,
    /// `now` or `next-heartbeat`.
    pub wake_mode: Option<String>,
    /// How an isolated run reports its end to the main session.
    pub isolation: Option<Value>,
    pub overlap: Overlap,
    /// Whether the job is deleted after a successful run if no slot is left.
    pub delete_after_run: bool,
    pub state: JobState,
    pub next_slot: Option<Timestamp>,
    /// Due time of the next slot: the slot plus jitter, or later after errors.
    pub next_due: Option<Timestamp>,
    pub running: Option<RunningFiring>,
    pub errors: i32,
    pub last: Option<LastRun>,
    /// Grows with each change that a caller makes.
    pub version: i64,
    /// Trace of the call that made the job, as a `traceparent`.
    pub trace: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Firing that was handed out or runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningFiring {
    pub slot: Slot,
    /// Time at which the firing stops to count as running unless it is extended.
    pub until: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastRun {
    pub at: Timestamp,
    pub outcome: Outcome,
    /// Error class; `None` if there was no error.
    pub class: Option<String>,
    pub took: Option<Duration>,
}

/// Firing that was handed out: deliver it and report the delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Firing {
    pub id: FiringRef,
    pub kind: JobKind,
    pub origin: Origin,
    /// Time of the slot; for a requested firing, time of the request.
    pub at: Timestamp,
    /// Number of times the firing was handed out, including this one. Fence for refusals.
    pub attempt: i32,
    /// Number of holders that disappeared during delivery ([`Jobs::begun`](crate::store::Jobs::begin_delivery)).
    pub lost: i32,
}

/// Current state of a firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FiringView {
    pub id: FiringRef,
    pub origin: Origin,
    pub state: FiringState,
    /// Number of times the firing was handed out.
    pub attempts: i32,
    pub run: Option<RunId>,
}

/// Line of a job's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLine {
    /// Number of the line within the job, from 1.
    pub n: i64,
    /// Slot of the firing; `None` for skipped slots.
    pub slot: Option<Slot>,
    /// Time of the slot, or of the first skipped slot.
    pub at: Timestamp,
    /// Time of the slot, or of the last skipped slot.
    pub last: Timestamp,
    /// Number of slots that the line covers; `None` if they were not counted.
    pub slots: Option<i32>,
    pub origin: Origin,
    pub outcome: Outcome,
    /// Class of the error or reason for skipping.
    pub class: Option<String>,
    pub took: Option<Duration>,
    pub run: Option<RunId>,
    pub finished_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_means_what_it_stands_for() {
        for kind in JobKind::ALL {
            assert_eq!(JobKind::parse(kind.as_str()), Some(*kind));
        }
        assert_eq!(JobKind::parse("Cron"), None);
    }
}
