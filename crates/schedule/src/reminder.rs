//! Reminder rules: times in natural language, texts and limits (spec REM).

mod clock;
mod cursor;
mod day;
mod later;
mod limits;
mod read;
mod texts;
mod time;
mod words;

pub use limits::{Asked, Limits, Refused, Renewal};
pub use texts::{Item, Locale, Named, external_id, names, short_id};
pub use time::{TimeError, parse_time};
