//! Daily notes of an agent (spec MEM-007): `memory/202612/20261201.md`, in its user's time zone.
//!
//! Those of the last three days are in the prompt wherever `MEMORY.md` is. The older form of the
//! path (`memory/2026-12-01.md`) is still read.

use jiff::{Timestamp, ToSpan as _, civil::Date, tz::TimeZone};

/// Days whose notes are in the prompt.
const DAYS_IN_PROMPT: usize = 3;

/// Path of a day's note.
pub(crate) fn note_path(day: Date) -> String {
    format!("memory/{}.md", day.strftime("%Y%m/%Y%m%d"))
}

/// Possible paths of the last days' notes, newest first.
pub(crate) fn recent_paths(now: Timestamp, zone: &TimeZone) -> Vec<String> {
    let mut day = now.to_zoned(zone.clone()).date();
    let mut paths = Vec::with_capacity(2 * DAYS_IN_PROMPT);
    for _ in 0..DAYS_IN_PROMPT {
        paths.push(note_path(day));
        paths.push(format!("memory/{}.md", day.strftime("%Y-%m-%d")));
        let Ok(before) = day.checked_sub(1.day()) else { break };
        day = before;
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_days_are_those_of_the_user_s_calendar() {
        let now: Timestamp = "2026-03-01T23:30:00Z".parse().unwrap();
        let oslo = TimeZone::get("Europe/Oslo").unwrap();

        let there = recent_paths(now, &oslo);

        assert_eq!(
            there,
            [
                "memory/202603/20260302.md",
                "memory/2026-03-02.md",
                "memory/202603/20260301.md",
                "memory/2026-03-01.md",
                "memory/202602/20260228.md",
                "memory/2026-02-28.md",
            ]
        );
        assert_eq!(recent_paths(now, &TimeZone::UTC)[0], "memory/202603/20260301.md");
    }
}
