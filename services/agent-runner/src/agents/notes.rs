//! Daily notes of an agent (spec MEM-007): `memory/202612/20261201.md`, in its user's time zone.
//!
//! Those of the last three days are in the prompt wherever `MEMORY.md` is. The older form of the
//! path (`memory/2026-12-01.md`) is still read.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_agent::prompt::DailyNote;
use jiff::{Timestamp, ToSpan as _, civil::Date, tz};

/// Days whose notes are in the prompt.
const DAYS_IN_PROMPT: i32 = 3;

/// Notes of the days that are among the last ones in some time zone.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecentNotes {
    notes: BTreeMap<Date, Vec<DailyNote>>,
    /// Days with a note that may have text from outside.
    outside: BTreeSet<Date>,
}

impl RecentNotes {
    /// Adds a note; those of one day stay in their order.
    pub(crate) fn add(&mut self, day: Date, note: DailyNote) {
        self.notes.entry(day).or_default().push(note);
    }

    /// Records that a note of this day may have text from outside.
    pub(crate) fn mark_outside(&mut self, day: Date) {
        self.outside.insert(day);
    }

    /// Returns the notes of the last days, newest first.
    pub(crate) fn of_last_days(&self, today: Date) -> Vec<DailyNote> {
        self.notes
            .range(first_day(today)..=today)
            .rev()
            .flat_map(|(_, notes)| notes.clone())
            .collect()
    }

    /// Whether text from outside may be among the notes of the last days.
    pub(crate) fn has_outside_text(&self, today: Date) -> bool {
        self.outside.range(first_day(today)..=today).next().is_some()
    }
}

fn first_day(today: Date) -> Date {
    today.saturating_sub((DAYS_IN_PROMPT - 1).days())
}

/// Path of a day's note.
pub(crate) fn note_path(day: Date) -> String {
    format!("memory/{}.md", day.strftime("%Y%m/%Y%m%d"))
}

/// Possible paths of the notes that are among the last days' in some time zone, with their days.
pub(crate) fn recent_paths(now: Timestamp) -> Vec<(Date, String)> {
    let there = |hours: i8| now.to_zoned(tz::offset(hours).to_time_zone()).date();
    let (last, mut day) = (there(14), there(-12).saturating_sub((DAYS_IN_PROMPT - 1).days()));
    let mut paths = Vec::new();
    while day <= last {
        paths.push((day, note_path(day)));
        paths.push((day, format!("memory/{}.md", day.strftime("%Y-%m-%d"))));
        day = day.saturating_add(1.day());
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_days_of_every_calendar_are_looked_for() {
        let now: Timestamp = "2026-03-01T23:30:00Z".parse().unwrap();

        let paths: Vec<String> = recent_paths(now).into_iter().map(|(_, path)| path).collect();

        assert_eq!(paths.first().unwrap(), "memory/202602/20260227.md");
        assert_eq!(paths[1], "memory/2026-02-27.md");
        assert_eq!(paths.last().unwrap(), "memory/2026-03-02.md");
        assert_eq!(paths.len(), 8);
    }

    #[test]
    fn the_days_are_those_of_the_user_s_calendar() {
        let day = |day: i8| Date::constant(2026, 3, day);
        let mut notes = RecentNotes::default();
        for number in 1..=5 {
            let text = number.to_string();
            notes.add(day(number), DailyNote { path: note_path(day(number)), text });
        }

        let texts = |today: Date| -> Vec<String> {
            notes.of_last_days(today).into_iter().map(|note| note.text).collect()
        };

        assert_eq!(texts(day(4)), ["4", "3", "2"]);
        assert_eq!(texts(day(5)), ["5", "4", "3"]);
        assert_eq!(texts(day(9)), Vec::<String>::new());
        assert!(!notes.has_outside_text(day(4)));
        notes.mark_outside(day(2));
        assert!(notes.has_outside_text(day(4)) && !notes.has_outside_text(day(5)));
    }
}
