//! Production planner: follows the schedules of `holdfast-schedule`.

use crate::{Lateness, Schedule, due, jitter};
use jiff::{SignedDuration, Timestamp};

use crate::store::{
    Due, JobKind, Missed, NextSlot, Planner, ScheduledJob, SlotPlan, Spec, Unplannable,
    model::allows_schedule,
};

/// Planner for jobs whose `spec` is a [`Spec`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Calendar {
    lateness: Lateness,
}

impl Calendar {
    /// Creates a planner with another limit for late slots.
    #[must_use]
    pub const fn new(lateness: Lateness) -> Self {
        Self { lateness }
    }
}

impl Planner for Calendar {
    fn first(
        &self,
        job: ScheduledJob<'_>,
        now: Timestamp,
    ) -> Result<Option<NextSlot>, Unplannable> {
        let spec = read(job)?;
        // For a one-time schedule, a time that has just passed still counts.
        let after = match spec.schedule.is_once() {
            true => {
                let late = self.lateness.grace.saturating_add(SignedDuration::from_millis(1));
                now.checked_sub(late).unwrap_or(now)
            }
            false => now,
        };
        Ok(spec.schedule.next_after(after).map(|slot| next(job, &spec, slot)))
    }

    fn plan(&self, asked: Due<'_>) -> Result<SlotPlan, Unplannable> {
        let spec = read(asked.job)?;
        // Jitter delays all slots of a job by the same amount; that delay does not count as
        // lateness.
        let spread = jitter_of(asked.job, &spec);
        let now = asked.now.checked_sub(spread).unwrap_or(asked.now).max(asked.slot);
        let due = due(&spec.schedule, asked.slot, now, spec.missed, self.lateness);
        Ok(SlotPlan {
            fire: due.run,
            missed: due.skipped.map(|(first, last)| Missed {
                first,
                last,
                count: (first == last).then_some(1),
            }),
            next: due.next.map(|slot| next(asked.job, &spec, slot)),
        })
    }
}

fn read(job: ScheduledJob<'_>) -> Result<Spec, Unplannable> {
    let spec = Spec::read(job.spec).map_err(|error| Unplannable(error.to_string()))?;
    if allows_schedule(job.kind, &spec.schedule) {
        return Ok(spec);
    }
    Err(Unplannable(format!("a job of kind {} is not due {}", job.kind.as_str(), spec.schedule)))
}

fn next(job: ScheduledJob<'_>, spec: &Spec, slot: Timestamp) -> NextSlot {
    NextSlot { slot, due: slot.checked_add(jitter_of(job, spec)).unwrap_or(slot) }
}

fn jitter_of(job: ScheduledJob<'_>, spec: &Spec) -> SignedDuration {
    jitter(&job.job.to_string(), SignedDuration::from_millis(i64::from(spec.jitter_ms)))
}

impl JobKind {
    /// Returns the kind of a cron-service job with this schedule.
    #[must_use]
    pub fn of(schedule: &Schedule) -> Self {
        match schedule.kind_name() {
            "at" => Self::At,
            "every" => Self::Every,
            _ => Self::Cron,
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::{JobId, TenantId};
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn job(kind: JobKind, spec: &Value) -> ScheduledJob<'_> {
        let (tenant, job) = (TenantId::from(uuid::Uuid::from_u128(1)), uuid::Uuid::from_u128(2));
        ScheduledJob { tenant, job: JobId::from(job), kind, spec }
    }

    #[test]
    fn a_job_is_first_due_at_the_first_slot_after_now_or_at_the_only_one_that_is_just_over() {
        let every = json!({"schedule": {"kind": "every", "every_ms": 60_000, "anchor_ms": 0}});
        let once = json!({"schedule": {"kind": "at", "at_ms": 600_000}});
        let first = |kind, spec, now| Calendar::default().first(job(kind, spec), at(now));
        let due = |second| Ok(Some(NextSlot { slot: at(second), due: at(second) }));

        assert_eq!(first(JobKind::Every, &every, 60), due(120));
        assert_eq!(first(JobKind::At, &once, 660), due(600));
        assert_eq!(first(JobKind::At, &once, 661), Ok(None));
    }

    #[test]
    fn a_slot_that_is_spread_over_more_than_the_grace_is_in_time_when_it_comes() {
        let spec = json!({
            "schedule": {"kind": "every", "every_ms": 3_600_000, "anchor_ms": 0},
            "jitter_ms": 1_800_000,
        });
        let calendar = Calendar::default();
        let first = calendar.first(job(JobKind::Every, &spec), at(1)).unwrap().unwrap();
        assert_eq!(first.slot, at(3_600));
        assert!(first.due > at(3_660), "the spread of this job is longer than the grace");

        let due = Due { job: job(JobKind::Every, &spec), slot: first.slot, now: first.due };
        let planned = calendar.plan(due).unwrap();

        assert_eq!((planned.fire, planned.missed), (vec![at(3_600)], None));
        let after = planned.next.unwrap();
        assert_eq!(after.slot, at(7_200));
        assert_eq!(after.due.duration_since(after.slot), first.due.duration_since(first.slot));
    }

    #[test]
    fn what_was_missed_is_told_and_the_next_slot_is_to_come() {
        let spec = json!({"schedule": {"kind": "every", "every_ms": 60_000, "anchor_ms": 0}});
        let due = Due { job: job(JobKind::Every, &spec), slot: at(60), now: at(365) };

        let planned = Calendar::default().plan(due).unwrap();

        assert_eq!(planned.fire, [at(360)]);
        assert_eq!(planned.missed, Some(Missed { first: at(60), last: at(300), count: None }));
        assert_eq!(planned.next, Some(NextSlot { slot: at(420), due: at(420) }));
    }

    #[test]
    fn a_schedule_that_is_none_or_not_of_its_kind_is_told() {
        let zone = json!({"schedule": {"kind": "cron", "expr": "0 9 * * *", "tz": "Mars/Olympus"}});
        let every = json!({"schedule": {"kind": "every", "every_ms": 60_000}});
        let why =
            |kind, spec: &Value| Calendar::default().first(job(kind, spec), at(0)).unwrap_err().0;

        assert!(why(JobKind::Cron, &zone).contains("`Mars/Olympus` is not a time zone"));
        assert_eq!(why(JobKind::Reminder, &every), "a job of kind reminder is not due every 1m");
    }
}
