//! What a job is called, and what it is for (spec CRN-003, C-18).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, bounds, shown};

/// The longest id, in bytes: others' ids are kept when their jobs are imported.
const LONGEST_ID: usize = 128;

/// What a job is for (C-18): one table and one loop serve all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// An agent looks whether something needs doing.
    Heartbeat,
    /// What a person or an agent scheduled.
    Cron,
    /// What a person is to be reminded of.
    Reminder,
    /// An agent is woken, without a model being asked.
    Timer,
}

impl JobKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Heartbeat, Self::Cron, Self::Reminder, Self::Timer];

    /// The word for it.
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

/// The id of a new job: `cron_` and eight digits, of random bits that the caller has.
#[must_use]
pub fn job_id(bits: u32) -> String {
    format!("cron_{bits:08x}")
}

/// Whether an id that another system gave may stay as it is.
///
/// # Errors
///
/// If it is empty, longer than 128 bytes or has more in it than letters, digits and `_-.:@`.
pub fn check_id(id: &str) -> Result<(), Error> {
    let is_fine = |c: char| c.is_alphanumeric() || "_-.:@".contains(c);
    if (1..=LONGEST_ID).contains(&id.len()) && id.chars().all(is_fine) {
        return Ok(());
    }
    Err(bounds("id", format!("`{}`", shown(id)), "1 to 128 letters, digits and `_-.:@`"))
}
