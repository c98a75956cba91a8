//! Decisions about due slots, including those that passed while nothing ran (spec CRN-019).
//!
//! Each due slot is decided once: it runs or is skipped. The work per decision is bounded for any
//! schedule and any downtime: skipped slots are a range, not a list.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::schedule::Schedule;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "policy", rename_all = "snake_case", deny_unknown_fields)]
pub enum Missed {
    #[default]
    Skip,
    /// The last missed slot runs, however late.
    #[serde(alias = "run_once")]
    Once,
    /// All missed slots within the window run, in order.
    All {
        /// Maximum lateness of a run, in milliseconds.
        within_ms: u32,
    },
}

/// Limits for lateness and for the number of slots that run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lateness {
    /// Age up to which a slot counts as on time.
    pub grace: SignedDuration,
    /// The same for one-time schedules, which have no later slot to make up for it.
    pub grace_once: SignedDuration,
    /// Maximum slots that run at once; if there are more, the newest run.
    pub most: usize,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            grace: SignedDuration::from_secs(60),
            grace_once: SignedDuration::from_hours(24),
            most: 100,
        }
    }
}

/// Decision about the slots up to now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Slots that run, in order.
    pub run: Vec<Timestamp>,
    /// First and last skipped slot; all slots between them are skipped too.
    pub skipped: Option<(Timestamp, Timestamp)>,
    /// First slot that is not due yet.
    pub next: Option<Timestamp>,
}

/// Decides about all slots from the first undecided one up to now.
///
/// `first` is the stored next slot. If it is in the future, there is nothing to decide.
#[must_use]
pub fn due(
    schedule: &Schedule,
    first: Timestamp,
    now: Timestamp,
    policy: Missed,
    lateness: Lateness,
) -> Due {
    if first > now {
        return Due { run: Vec::new(), skipped: None, next: Some(first) };
    }
    let grace = if schedule.is_once() { lateness.grace_once } else { lateness.grace };
    // The stored slot counts even if the schedule was changed and no longer contains it.
    let last_until = |until: Timestamp| {
        schedule.last_within(first, until).or_else(|| (first <= until).then_some(first))
    };
    let last = last_until(now).unwrap_or(first);
    let run = match policy {
        Missed::Skip if now.duration_since(last) <= grace => vec![last],
        Missed::Skip => Vec::new(),
        Missed::Once => vec![last],
        Missed::All { within_ms } => {
            let window = SignedDuration::from_millis(i64::from(within_ms)).max(grace);
            let since = now.checked_sub(window).unwrap_or(first);
            newest(last, since, lateness.most, last_until)
        }
    };
    let skipped = match run.first() {
        None => Some((first, last)),
        Some(oldest) => last_until(before(*oldest)).map(|last| (first, last)),
    };
    Due { run, skipped, next: schedule.next_after(now) }
}

/// Returns the newest slots from `last` back to `since`, in ascending order.
fn newest(
    last: Timestamp,
    since: Timestamp,
    most: usize,
    last_until: impl Fn(Timestamp) -> Option<Timestamp>,
) -> Vec<Timestamp> {
    // Backwards, so that the number of computed slots is bounded.
    let mut found: Vec<Timestamp> =
        std::iter::successors(Some(last), |slot| last_until(before(*slot)))
            .take_while(|slot| *slot >= since)
            .take(most)
            .collect();
    found.reverse();
    found
}

/// Returns the preceding moment; slots are whole milliseconds.
fn before(slot: Timestamp) -> Timestamp {
    slot.checked_sub(SignedDuration::from_millis(1)).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3_600_000;

    fn ms(at: i64) -> Timestamp {
        Timestamp::from_millisecond(at).unwrap()
    }

    fn hourly() -> Schedule {
        Schedule::every(HOUR, Some(0)).unwrap()
    }

    fn decided(now: i64, policy: Missed) -> Due {
        due(&hourly(), ms(10 * HOUR), ms(now), policy, Lateness::default())
    }

    #[test]
    fn what_is_in_time_runs_under_every_policy() {
        for policy in [Missed::Skip, Missed::Once, Missed::All { within_ms: 0 }] {
            let due = decided(10 * HOUR + 60_000, policy);
            assert_eq!(due.run, [ms(10 * HOUR)], "{policy:?}");
            assert_eq!((due.skipped, due.next), (None, Some(ms(11 * HOUR))));
        }
        let early = decided(10 * HOUR - 1, Missed::Once);
        assert_eq!((early.run, early.next), (vec![], Some(ms(10 * HOUR))));
    }

    #[test]
    fn what_was_missed_is_skipped_or_run_as_the_policy_says() {
        let now = 15 * HOUR + 61_000;

        let skip = decided(now, Missed::Skip);
        assert_eq!(
            (skip.run.as_slice(), skip.skipped),
            ([].as_slice(), Some((ms(10 * HOUR), ms(15 * HOUR))))
        );
        let once = decided(now, Missed::Once);
        assert_eq!(once.run, [ms(15 * HOUR)]);
        assert_eq!(once.skipped, Some((ms(10 * HOUR), ms(14 * HOUR))));
        let all = decided(now, Missed::All { within_ms: 7_200_000 });
        assert_eq!(all.run, [ms(14 * HOUR), ms(15 * HOUR)]);
        assert_eq!(all.skipped, Some((ms(10 * HOUR), ms(13 * HOUR))));
        assert_eq!(all.next, Some(ms(16 * HOUR)));
    }

    #[test]
    fn a_year_of_seconds_is_decided_at_once_and_runs_no_more_than_the_bound() {
        let each = Schedule::cron("* * * * * *", crate::Zone::utc()).unwrap();
        let now = ms(400 * 24 * HOUR);

        let all = Missed::All { within_ms: u32::MAX };
        let due = due(&each, ms(24 * HOUR), now, all, Lateness { most: 5, ..Lateness::default() });

        assert_eq!(due.run.len(), 5);
        assert_eq!(due.run.last(), Some(&now));
        assert_eq!(due.skipped, Some((ms(24 * HOUR), ms(400 * 24 * HOUR - 5_000))));
    }

    #[test]
    fn a_single_moment_runs_when_it_is_a_little_late_and_not_when_it_is_days_late() {
        let once = Schedule::at(24 * HOUR).unwrap();
        let at = |now, policy| due(&once, ms(24 * HOUR), ms(now), policy, Lateness::default());

        assert_eq!(at(40 * HOUR, Missed::Skip).run, [ms(24 * HOUR)]);
        assert_eq!(at(49 * HOUR, Missed::Skip).skipped, Some((ms(24 * HOUR), ms(24 * HOUR))));
        assert_eq!(at(49 * HOUR, Missed::Once).run, [ms(24 * HOUR)]);
        assert_eq!(at(40 * HOUR, Missed::Skip).next, None);
    }

    #[test]
    fn a_policy_is_written_by_its_name() {
        let json = |policy| serde_json::to_string(&policy).unwrap();

        assert_eq!(json(Missed::Skip), r#"{"policy":"skip"}"#);
        assert_eq!(json(Missed::All { within_ms: 5 }), r#"{"policy":"all","within_ms":5}"#);
        let read: Missed = serde_json::from_str(r#"{"policy":"run_once"}"#).unwrap();
        assert_eq!(read, Missed::Once);
    }

    proptest! {
        #[test]
        fn each_slot_up_to_now_is_decided_once(
            first in 1_i64..50, late in 0_i64..200 * HOUR, within_ms in 0_u32..500_000_000,
            which in 0_usize..3,
        ) {
            let schedule = Schedule::cron("7 */3 * * *", "Europe/Oslo".parse().unwrap()).unwrap();
            let first = schedule.next_after(ms(1_774_000_000_000 + first * 7 * HOUR)).unwrap();
            let now = ms(first.as_millisecond() + late);
            let policy = [Missed::Skip, Missed::Once, Missed::All { within_ms }][which];

            let due = due(&schedule, first, now, policy, Lateness::default());

            let mut slots = vec![first];
            while let Some(slot) = schedule.next_after(*slots.last().unwrap()).filter(|slot| *slot <= now) {
                slots.push(slot);
            }
            let skipped: Vec<Timestamp> = match due.skipped {
                Some((from, to)) => slots.iter().copied().filter(|slot| (from..=to).contains(slot)).collect(),
                None => Vec::new(),
            };
            prop_assert!(due.skipped.is_none_or(|(from, to)| slots.contains(&from) && slots.contains(&to)));
            prop_assert_eq!([skipped, due.run.clone()].concat(), slots);
            prop_assert_eq!(due.next, schedule.next_after(now));
        }
    }
}
