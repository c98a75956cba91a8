//! What jobs, firings and their log are.

use std::time::Duration;

use holdfast_types::{AgentId, JobId, RunId, TenantId};
use jiff::Timestamp;
use serde_json::Value;

use crate::{FiringRef, Slot};

/// An enum that is stored as a word of each case.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$case_doc])* $case),+
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$case),+];

            /// Its word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$case => $word),+
                }
            }

            /// What a word means; `None` if it is not one of them.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|case| case.as_str() == word)
            }
        }
    };
}

words!(
    /// What sort of thing a job is.
    JobKind {
        /// An expression in a time zone.
        Cron = "cron",
        /// An interval from an anchor.
        Every = "every",
        /// Once.
        At = "at",
        /// An agent's look at what there is to do.
        Heartbeat = "heartbeat",
        /// A user's reminder.
        Reminder = "reminder",
        /// A wake-up that asks no model.
        Timer = "timer",
    }
);

words!(
    /// Whether a job fires.
    JobState {
        /// It does.
        Active = "active",
        /// Somebody switched it off.
        Paused = "paused",
        /// It has no slot left.
        Done = "done",
        /// Its schedule can no longer be followed.
        Broken = "broken",
    }
);

words!(
    /// What becomes of a slot that comes while an earlier one runs.
    Overlap {
        /// It is skipped.
        Skip = "skip",
        /// It waits for the other's end.
        Queue = "queue",
        /// It runs beside it.
        Allow = "allow",
    }
);

words!(
    /// Why there is a firing.
    Origin {
        /// Its time came.
        Due = "due",
        /// Somebody asked for it.
        Forced = "forced",
        /// Somebody asked for a slot that is past.
        Backfill = "backfill",
        /// The first try of something that has only one slot failed.
        Retry = "retry",
    }
);

words!(
    /// How far a firing is.
    FiringState {
        /// It is to be delivered.
        Pending = "pending",
        /// It was, and runs.
        Delivered = "delivered",
        /// It has run.
        Done = "done",
        /// It could not be delivered.
        Refused = "refused",
    }
);

words!(
    /// How a run went.
    Outcome {
        /// Well.
        Ok = "ok",
        /// Not.
        Error = "error",
        /// Nothing was done.
        Skipped = "skipped",
    }
);

/// Whether a job of a kind may have a schedule.
pub(crate) fn fits(kind: JobKind, schedule: &holdfast_schedule::Schedule) -> bool {
    match kind {
        JobKind::Cron | JobKind::Every | JobKind::At => kind == JobKind::of(schedule),
        JobKind::Reminder => schedule.is_once(),
        JobKind::Heartbeat => schedule.word() == "every",
        JobKind::Timer => true,
    }
}

/// A job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Whose.
    pub tenant: TenantId,
    /// Its id.
    pub id: JobId,
    /// What its maker calls it.
    pub external_id: String,
    /// The eight letters and digits by which people call it.
    pub short_id: String,
    /// Its kind.
    pub kind: JobKind,
    /// Who does it.
    pub agent: AgentId,
    /// The user whose it is; `None` is the tenant's own.
    pub owner: Option<String>,
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// When, as the kind says it.
    pub spec: Value,
    /// What is done then.
    pub payload: Value,
    /// `main` or `isolated`.
    pub session_target: Option<String>,
    /// `now` or `next-heartbeat`.
    pub wake_mode: Option<String>,
    /// How an isolated run tells the main session of its end.
    pub isolation: Option<Value>,
    /// What becomes of a slot that comes while an earlier one runs.
    pub overlap: Overlap,
    /// Whether it goes once it has done well and has no slot left.
    pub delete_after_run: bool,
    /// Whether it fires.
    pub state: JobState,
    /// Its next slot.
    pub next_slot: Option<Timestamp>,
    /// When that is due: later than the slot by a jitter, or after errors.
    pub next_due: Option<Timestamp>,
    /// What runs.
    pub running: Option<Running>,
    /// Errors one after another.
    pub errors: i32,
    /// How it went last.
    pub last: Option<LastRun>,
    /// Grows with each change that somebody made.
    pub version: i64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// A firing that is out, or runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    /// Which one.
    pub slot: Slot,
    /// Until when it counts as running if nothing is heard of it.
    pub until: Timestamp,
}

/// How a job went last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastRun {
    /// When it ended.
    pub at: Timestamp,
    /// How.
    pub outcome: Outcome,
    /// What was wrong, in a word.
    pub class: Option<String>,
    /// How long it took.
    pub took: Option<Duration>,
}

/// A firing that was handed out: deliver it, and say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Firing {
    /// Which one.
    pub id: FiringRef,
    /// What sort of job it is.
    pub kind: JobKind,
    /// Why there is one.
    pub origin: Origin,
    /// The time of its slot; of one that was asked for, when it was.
    pub at: Timestamp,
    /// How often it was handed out, this time included. It is the fence of a refusal.
    pub attempt: i32,
    /// How many of those who delivered it were never heard of again ([`Jobs::begun`](crate::Jobs::begun)).
    pub lost: i32,
}

/// A firing as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FiringView {
    /// Which one.
    pub id: FiringRef,
    /// Why there is one.
    pub origin: Origin,
    /// How far it is.
    pub state: FiringState,
    /// How often it was handed out.
    pub attempts: i32,
    /// What it became.
    pub run: Option<RunId>,
}

/// A line of a job's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLine {
    /// Its number, from 1; it grows.
    pub n: i64,
    /// Which firing; `None` for slots that were skipped.
    pub slot: Option<Slot>,
    /// Its time, or the first of those that were skipped.
    pub at: Timestamp,
    /// The same, or the last of those that were skipped.
    pub last: Timestamp,
    /// How many slots it stands for, if anybody counted them.
    pub slots: Option<i32>,
    /// Why there was a firing.
    pub origin: Origin,
    /// How it went.
    pub outcome: Outcome,
    /// What was wrong, or why nothing was done, in a word.
    pub class: Option<String>,
    /// How long it took.
    pub took: Option<Duration>,
    /// What it became.
    pub run: Option<RunId>,
    /// When it ended.
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
