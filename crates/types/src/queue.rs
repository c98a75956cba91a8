//! What becomes of a message that arrives while its session is busy.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How a session takes input while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueMode {
    /// New input is seen at the next step; one run answers all that it has seen.
    #[default]
    Steer,
    /// One run for each message, in order.
    Followup,
    /// Messages gather until there is a pause, then one run answers them all.
    Collect,
    /// New input ends the running turn at once.
    Interrupt,
}

impl QueueMode {
    /// The word the database and the API use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Steer => "steer",
            Self::Followup => "followup",
            Self::Collect => "collect",
            Self::Interrupt => "interrupt",
        }
    }
}

impl FromStr for QueueMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "steer" => Ok(Self::Steer),
            "followup" => Ok(Self::Followup),
            "collect" => Ok(Self::Collect),
            "interrupt" => Ok(Self::Interrupt),
            other => Err(format!(
                "`{other}` is not a queue mode: use steer, followup, collect or interrupt"
            )),
        }
    }
}
