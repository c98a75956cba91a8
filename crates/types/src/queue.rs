//! Queue modes: treatment of messages that arrive while a turn runs.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Treatment of new input while a turn runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueMode {
    /// The next step sees new input; one run answers all that it has seen.
    #[default]
    Steer,
    /// One run for each message, in order.
    Followup,
    /// Messages are collected until there is a pause, then one run answers them all.
    Collect,
    /// New input ends the running turn at once.
    Interrupt,
}

impl QueueMode {
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
