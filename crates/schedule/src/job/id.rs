//! Ids and kinds of jobs (spec CRN-003, C-18).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, bounds, shown};

/// Maximum length of an id in bytes; imported jobs keep their ids.
const MAX_ID_BYTES: usize = 128;

/// Kinds of jobs (C-18); all share one table and one loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Regular check by an agent whether anything needs doing.
    Heartbeat,
    /// Work scheduled by a person or an agent.
    Cron,
    Reminder,
    /// Wake-up of an agent without a model call.
    Timer,
}

impl JobKind {
    pub const ALL: [Self; 4] = [Self::Heartbeat, Self::Cron, Self::Reminder, Self::Timer];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Heartbeat => "heartbeat",
            Self::Cron => "cron",
            Self::Reminder => "reminder",
            Self::Timer => "timer",
        }
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Validates an id that comes from another system.
///
/// # Errors
///
/// If the id is empty, longer than 128 bytes or has characters other than letters, digits and
/// `_-.:@`.
pub fn check_id(id: &str) -> Result<(), Error> {
    let is_fine = |c: char| c.is_alphanumeric() || "_-.:@".contains(c);
    if (1..=MAX_ID_BYTES).contains(&id.len()) && id.chars().all(is_fine) {
        return Ok(());
    }
    Err(bounds("id", format!("`{}`", shown(id)), "1 to 128 letters, digits and `_-.:@`"))
}
