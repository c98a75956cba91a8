//! Reminder rules: times in natural language, texts and limits (spec REM).

mod clock;
mod cursor;
mod day;
mod duration;
mod limits;
mod read;
mod texts;
mod time;
mod words;

pub use limits::{Limits, Refused, ReminderCheck, Renewal};
pub use texts::{Locale, ReminderItem, ReminderMatch, match_reminder, short_id};
pub use time::{TimeError, parse_time};
