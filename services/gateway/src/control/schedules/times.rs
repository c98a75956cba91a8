//! Next and past times of a schedule.

use holdfast_proto::gateway::v1 as pb;
use holdfast_schedule::{Schedule, Zone};
use jiff::{SignedDuration, Timestamp};

use super::super::{invalid, timestamp};
use crate::Error;

/// Maximum number of slots of one backfill.
const MAX_BACKFILL_SLOTS: usize = 1_000;

/// Converts a timestamp of a request.
pub fn moment(field: &'static str, at: &prost_types::Timestamp) -> Result<Timestamp, Error> {
    Timestamp::new(at.seconds, at.nanos)
        .map_err(|_| invalid(format!("`{field}` is no moment that there is")))
}

/// Next times, in the schedule's time zone and in another.
pub fn next_times(
    schedule: &Schedule,
    zone: &Zone,
    now: Timestamp,
    count: usize,
) -> Vec<pb::NextTime> {
    let schedule = schedule.clone().anchored(now);
    let own = schedule.zone().cloned().unwrap_or_default();
    let slots = std::iter::successors(schedule.next_after(now), |at| schedule.next_after(*at));
    slots
        .take(count)
        .map(|at| pb::NextTime {
            at: Some(timestamp(at)),
            scheduled: format_time(at, &own),
            local: format_time(at, zone),
        })
        .collect()
}

fn format_time(at: Timestamp, zone: &Zone) -> String {
    let there = at.to_zoned(zone.rules().clone());
    format!("{} {}", there.strftime("%Y-%m-%d %H:%M %:z"), zone.name())
}

/// Slots from `from`, inclusive, to `until`, exclusive.
pub fn slots_between(
    schedule: &Schedule,
    from: Timestamp,
    until: Timestamp,
) -> Result<Vec<Timestamp>, Error> {
    let before = from.checked_sub(SignedDuration::from_millis(1)).unwrap_or(from);
    let mut slots = Vec::new();
    let mut last = before;
    while let Some(slot) = schedule.next_after(last).filter(|slot| *slot < until) {
        if slots.len() == MAX_BACKFILL_SLOTS {
            return Err(invalid(format!(
                "there are more than {MAX_BACKFILL_SLOTS} slots: choose a shorter time"
            )));
        }
        slots.push(slot);
        last = slot;
    }
    Ok(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn times_are_shown_on_both_clocks_across_their_changes() {
        let schedule = Schedule::cron("0 9 * * *", "Europe/Oslo".parse().unwrap()).unwrap();
        let tokyo = "Asia/Tokyo".parse().unwrap();

        let times = next_times(&schedule, &tokyo, at("2026-10-24T00:00:00Z"), 2);

        let shown: Vec<(&str, &str)> =
            times.iter().map(|time| (time.scheduled.as_str(), time.local.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("2026-10-24 09:00 +02:00 Europe/Oslo", "2026-10-24 16:00 +09:00 Asia/Tokyo"),
                ("2026-10-25 09:00 +01:00 Europe/Oslo", "2026-10-25 17:00 +09:00 Asia/Tokyo"),
            ]
        );
    }

    #[test]
    fn slots_between_two_moments_include_the_first_and_not_the_last() {
        let schedule = Schedule::every(60_000, Some(0)).unwrap();

        let slots =
            slots_between(&schedule, at("2026-01-01T00:00:00Z"), at("2026-01-01T00:02:00Z"));

        assert_eq!(slots.unwrap().len(), 2);
        let long = slots_between(&schedule, at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"));
        assert!(long.unwrap_err().to_string().contains("more than 1000 slots"));
    }
}
