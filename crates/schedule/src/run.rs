//! Consequences of a run: when the job is next due, and whether it is disabled or deleted (spec
//! CRN-015 to CRN-017, C-19, C-20, C-60).

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::schedule::Schedule;

/// Delay after the first, second … consecutive failure; the last value repeats.
pub const RETRY_DELAYS: [SignedDuration; 5] = [
    SignedDuration::from_secs(30),
    SignedDuration::from_secs(60),
    SignedDuration::from_mins(5),
    SignedDuration::from_mins(15),
    SignedDuration::from_mins(60),
];

/// Maximum retries of a one-time job.
pub const MAX_RETRIES: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    Ok,
    Error,
    Skipped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunFollowUp {
    Again {
        at: Timestamp,
    },
    /// The job stays, but does not run until a user enables it.
    Disabled,
    Deleted,
}

/// Returns the delay after a number of consecutive failures.
#[must_use]
pub fn retry_delay(failures: u32) -> SignedDuration {
    match usize::try_from(failures).unwrap_or(usize::MAX).min(RETRY_DELAYS.len()).checked_sub(1) {
        Some(at) => RETRY_DELAYS[at],
        None => SignedDuration::ZERO,
    }
}

/// Decides about a job whose run has ended.
///
/// A recurring job waits for the first slot after the delay, so that it keeps its times. A one-time
/// job is retried after the delay itself, three times; then it is disabled, so that its user can
/// see it. `delete_after_run` applies to one-time jobs only, and only after success. `failures`
/// counts consecutive failures, including this one.
#[must_use]
pub fn after_run(
    schedule: &Schedule,
    delete_after_run: bool,
    status: RunStatus,
    failures: u32,
    now: Timestamp,
) -> RunFollowUp {
    let is_error = status == RunStatus::Error;
    let wait = if is_error { retry_delay(failures.max(1)) } else { SignedDuration::ZERO };
    let earliest = now.checked_add(wait).unwrap_or(Timestamp::MAX);
    if schedule.is_once() {
        return match status {
            RunStatus::Error if failures <= MAX_RETRIES => RunFollowUp::Again { at: earliest },
            RunStatus::Ok if delete_after_run => RunFollowUp::Deleted,
            RunStatus::Ok | RunStatus::Error | RunStatus::Skipped => RunFollowUp::Disabled,
        };
    }
    // A slot exactly at the end of the delay is acceptable.
    let after = if is_error {
        earliest.checked_sub(SignedDuration::from_millis(1)).unwrap_or(now).max(now)
    } else {
        now
    };
    match schedule.next_after(after) {
        Some(at) => RunFollowUp::Again { at },
        None => RunFollowUp::Disabled,
    }
}

/// Handling of a slot that comes while the previous run goes on. Two runs of a job never overlap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    #[default]
    Skip,
    /// The slot waits. If several wait, the newest runs and the others are skipped.
    Wait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartDecision {
    Run,
    /// Not yet; at `until` at the latest, the previous run counts as lost.
    Wait {
        until: Timestamp,
    },
    Skip,
}

/// Decides whether a slot may run while the previous run, whose lease ends at `running_until`, goes
/// on.
///
/// A run with an expired lease has died and blocks nothing (spec CRN-017).
#[must_use]
pub fn decide_start(
    policy: Overlap,
    running_until: Option<Timestamp>,
    now: Timestamp,
) -> StartDecision {
    match (running_until, policy) {
        (Some(until), Overlap::Skip) if until > now => StartDecision::Skip,
        (Some(until), Overlap::Wait) if until > now => StartDecision::Wait { until },
        (Some(_) | None, Overlap::Skip | Overlap::Wait) => StartDecision::Run,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn minutely() -> Schedule {
        Schedule::every(60_000, Some(0)).unwrap()
    }

    #[test]
    fn a_job_that_recurs_is_due_again_whatever_came_of_its_run() {
        for (status, failures, next) in [
            (RunStatus::Ok, 0, 1_020),
            (RunStatus::Skipped, 0, 1_020),
            (RunStatus::Error, 1, 1_080),
            (RunStatus::Error, 2, 1_080),
            (RunStatus::Error, 3, 1_320),
            (RunStatus::Error, 4, 1_920),
            (RunStatus::Error, 5, 4_620),
            (RunStatus::Error, 6, 4_620),
            (RunStatus::Error, u32::MAX, 4_620),
        ] {
            let then = after_run(&minutely(), true, status, failures, at(1_019));
            assert_eq!(then, RunFollowUp::Again { at: at(next) }, "{status:?} {failures}");
        }
    }

    #[test]
    fn a_job_that_is_due_once_never_fires_again_by_itself() {
        let once = Schedule::at(1_000_000).unwrap();
        let then = |delete, status, failures| after_run(&once, delete, status, failures, at(1_000));

        assert_eq!(then(true, RunStatus::Ok, 0), RunFollowUp::Deleted);
        assert_eq!(then(false, RunStatus::Ok, 0), RunFollowUp::Disabled);
        assert_eq!(then(true, RunStatus::Error, 1), RunFollowUp::Again { at: at(1_030) });
        assert_eq!(then(true, RunStatus::Error, 3), RunFollowUp::Again { at: at(1_300) });
        assert_eq!(then(true, RunStatus::Error, 4), RunFollowUp::Disabled);
        assert_eq!(then(true, RunStatus::Skipped, 0), RunFollowUp::Disabled);
    }

    #[test]
    fn two_runs_never_go_at_once_and_a_dead_one_holds_up_nothing() {
        for policy in [Overlap::Skip, Overlap::Wait] {
            assert_eq!(decide_start(policy, None, at(5)), StartDecision::Run);
            assert_eq!(decide_start(policy, Some(at(5)), at(5)), StartDecision::Run);
        }
        assert_eq!(decide_start(Overlap::Skip, Some(at(6)), at(5)), StartDecision::Skip);
        assert_eq!(
            decide_start(Overlap::Wait, Some(at(6)), at(5)),
            StartDecision::Wait { until: at(6) }
        );
    }
}
