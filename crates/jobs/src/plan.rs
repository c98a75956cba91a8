//! What the store asks whoever knows schedules: the crate that reads them is plugged in here.

use holdfast_types::{JobId, TenantId};
use jiff::Timestamp;
use serde_json::Value;

use crate::{JobKind, slot::whole};

/// The next slot, and when it is to be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// The time that the schedule says.
    pub slot: Timestamp,
    /// The same, or later by a jitter.
    pub due: Timestamp,
}

/// A job as its planner sees it.
#[derive(Debug, Clone, Copy)]
pub struct Scheduled<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Which one.
    pub job: JobId,
    /// Its kind.
    pub kind: JobKind,
    /// When, as the kind says it.
    pub spec: &'a Value,
}

/// A job whose next slot has come.
#[derive(Debug, Clone, Copy)]
pub struct Due<'a> {
    /// The job.
    pub job: Scheduled<'a>,
    /// Its earliest slot that nothing was decided of yet.
    pub slot: Timestamp,
    /// The database's time.
    pub now: Timestamp,
}

/// Slots that are not made up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// The first of them.
    pub first: Timestamp,
    /// The last of them.
    pub last: Timestamp,
    /// How many they are, one at least, if that is known.
    pub count: Option<u32>,
}

/// What becomes of the slots that have come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Planned {
    /// Those that fire, in their order, 1,000 at most; what is left may come with `next`.
    pub fire: Vec<Timestamp>,
    /// Those that do not.
    pub missed: Option<Missed>,
    /// The first slot after all of these, in the future or not; `None` if there is none.
    pub next: Option<Next>,
}

/// A schedule that cannot be followed, and why: lower case, no full stop, no text of a user's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unplannable(pub String);

/// Who knows schedules. Pure: it is called within transactions.
pub trait Planner: std::fmt::Debug + Send + Sync {
    /// The first slot of a job that is made, changed or resumed at `now`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If its schedule is not one.
    fn first(&self, job: Scheduled<'_>, now: Timestamp) -> Result<Option<Next>, Unplannable>;

    /// What becomes of the slots up to now. The earliest must be among those that fire or are
    /// missed, and `next` must be after all of these.
    ///
    /// # Errors
    ///
    /// If its schedule is one no more. The job then stops, and says so.
    fn plan(&self, due: Due<'_>) -> Result<Planned, Unplannable>;
}

/// The most slots of a job that may fire at once.
const MOST_AT_ONCE: usize = 1000;

impl Planned {
    /// The same in whole microseconds, if it decides what it was asked to and moves on.
    ///
    /// A planner that does not would make the job due for ever, or lose a slot unseen.
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
        if self.fire.len() > MOST_AT_ONCE {
            return wrong("gave more than 1000 slots at once");
        }
        if let Some(next) = &mut self.next {
            *next = Next { slot: whole(next.slot), due: whole(next.due) };
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

    fn next(second: i64) -> Option<Next> {
        Some(Next { slot: at(second), due: at(second) })
    }

    #[test]
    fn a_plan_must_decide_the_earliest_slot_and_move_on() {
        let missed = Some(Missed { first: at(10), last: at(20), count: Some(2) });
        let good = [
            Planned { fire: vec![at(10)], missed: None, next: next(20) },
            Planned { fire: vec![at(30)], missed, next: next(40) },
            Planned { fire: vec![], missed, next: None },
        ];
        let bad = [
            Planned::default(),
            Planned { fire: vec![at(20)], missed: None, next: next(30) },
            Planned { fire: vec![at(10)], missed: None, next: next(10) },
            Planned { fire: vec![at(10), at(30), at(20)], missed: None, next: None },
            Planned { fire: vec![], missed, next: next(20) },
        ];

        for plan in good {
            assert_eq!(plan.clone().checked(at(10)), Ok(plan));
        }
        for plan in bad {
            assert!(plan.checked(at(10)).is_err());
        }
    }
}
