//! Port to the schedule rules: the store asks a planner for slots.

use holdfast_types::{JobId, TenantId};
use jiff::Timestamp;
use serde_json::Value;

use crate::store::{JobKind, slot::whole};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextSlot {
    /// Time given by the schedule.
    pub slot: Timestamp,
    /// Time to claim the slot: the slot plus jitter.
    pub due: Timestamp,
}

/// Parts of a job that a planner needs.
#[derive(Debug, Clone, Copy)]
pub struct ScheduledJob<'a> {
    pub tenant: TenantId,
    pub job: JobId,
    pub kind: JobKind,
    /// Schedule as the kind defines it.
    pub spec: &'a Value,
}

/// Job whose next slot has come.
#[derive(Debug, Clone, Copy)]
pub struct Due<'a> {
    pub job: ScheduledJob<'a>,
    /// Earliest slot that is not decided yet.
    pub slot: Timestamp,
    pub now: Timestamp,
}

/// Missed slots that are not made up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    pub first: Timestamp,
    pub last: Timestamp,
    /// Number of slots, at least 1; `None` if not counted.
    pub count: Option<u32>,
}

/// Decision about the slots that have come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotPlan {
    /// Slots that fire, in order, at most 1,000; further ones may follow with `next`.
    pub fire: Vec<Timestamp>,
    pub missed: Option<Missed>,
    /// First slot after all of these, possibly in the past; `None` if there is none.
    pub next: Option<NextSlot>,
}

/// A schedule that cannot be followed. The reason is lower case, has no full stop and contains no
/// user's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unplannable(pub String);

/// Schedule rules. Implementations must be pure: they are called within transactions.
pub trait Planner: std::fmt::Debug + Send + Sync {
    /// Returns the first slot of a job that is added, changed or resumed at `now`; `None` if there
    /// is none.
    ///
    /// # Errors
    ///
    /// If the schedule is invalid.
    fn first(&self, job: ScheduledJob<'_>, now: Timestamp)
    -> Result<Option<NextSlot>, Unplannable>;

    /// Decides about the slots up to now. The earliest must be among those that fire or are missed,
    /// and `next` must be after all of them.
    ///
    /// # Errors
    ///
    /// If the schedule is no longer valid. The job then becomes broken.
    fn plan(&self, due: Due<'_>) -> Result<SlotPlan, Unplannable>;
}

/// Maximum slots of a job that fire at once.
const MAX_SLOTS_AT_ONCE: usize = 1000;

impl SlotPlan {
    /// Rounds to whole microseconds and checks that the plan decides `slot` and moves on.
    ///
    /// Without the check, a faulty planner would keep a job due for ever or lose a slot.
    pub(crate) fn checked(mut self, slot: Timestamp) -> Result<Self, Unplannable> {
        for time in &mut self.fire {
            *time = whole(*time);
        }
        let missed = self.missed.map(|missed| (whole(missed.first), whole(missed.last)));
        let first = self.fire.first().copied().into_iter().chain(missed.map(|m| m.0)).min();
        let last = self.fire.last().copied().into_iter().chain(missed.map(|m| m.1)).max();
        let wrong = |what: &str| Err(Unplannable(format!("the planner {what}")));
        if first != Some(slot) {
            return wrong("did not decide the earliest slot");
        }
        if !self.fire.is_sorted_by(|one, next| one < next) {
            return wrong("gave slots out of order");
        }
        if self.fire.len() > MAX_SLOTS_AT_ONCE {
            return wrong("gave more than 1000 slots at once");
        }
        if let Some(next) = &mut self.next {
            *next = NextSlot { slot: whole(next.slot), due: whole(next.due) };
            if last.is_some_and(|last| next.slot <= last) {
                return wrong("did not move on");
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn next(second: i64) -> Option<NextSlot> {
        Some(NextSlot { slot: at(second), due: at(second) })
    }

    #[test]
    fn a_plan_must_decide_the_earliest_slot_and_move_on() {
        let missed = Some(Missed { first: at(10), last: at(20), count: Some(2) });
        let good = [
            SlotPlan { fire: vec![at(10)], missed: None, next: next(20) },
            SlotPlan { fire: vec![at(30)], missed, next: next(40) },
            SlotPlan { fire: vec![], missed, next: None },
        ];
        let bad = [
            SlotPlan::default(),
            SlotPlan { fire: vec![at(20)], missed: None, next: next(30) },
            SlotPlan { fire: vec![at(10)], missed: None, next: next(10) },
            SlotPlan { fire: vec![at(10), at(30), at(20)], missed: None, next: None },
            SlotPlan { fire: vec![], missed, next: next(20) },
        ];

        for plan in good {
            assert_eq!(plan.clone().checked(at(10)), Ok(plan));
        }
        for plan in bad {
            assert!(plan.checked(at(10)).is_err());
        }
    }
}
