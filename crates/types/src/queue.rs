//! Queue modes: treatment of messages that arrive while a turn runs.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::known_or_default;

/// Longest pause that can be set, in milliseconds.
const MAX_DEBOUNCE_MS: u32 = 60_000;
/// Greatest cap that can be set: as many messages as a session takes.
const MAX_CAP: u32 = 200;

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
    /// The next step sees new input, which is answered by a run of its own afterwards.
    SteerBacklog,
}

impl QueueMode {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Steer => "steer",
            Self::Followup => "followup",
            Self::Collect => "collect",
            Self::Interrupt => "interrupt",
            Self::SteerBacklog => "steer_backlog",
        }
    }
}

impl FromStr for QueueMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            // OpenClaw's former name of steer.
            "steer" | "queue" => Ok(Self::Steer),
            "followup" => Ok(Self::Followup),
            "collect" => Ok(Self::Collect),
            "interrupt" => Ok(Self::Interrupt),
            "steer_backlog" | "steer-backlog" | "steer+backlog" => Ok(Self::SteerBacklog),
            other => Err(format!(
                "`{other}` is not a queue mode: use steer, followup, collect, interrupt, \
                 steer_backlog or queue"
            )),
        }
    }
}

/// What becomes of messages beyond the cap when a turn begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropPolicy {
    /// The oldest are not answered.
    Old,
    /// The newest are not answered.
    New,
    /// The oldest are shortened, and read together with the next.
    #[default]
    Summarize,
}

impl DropPolicy {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::New => "new",
            Self::Summarize => "summarize",
        }
    }
}

impl FromStr for DropPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "old" => Ok(Self::Old),
            "new" => Ok(Self::New),
            "summarize" => Ok(Self::Summarize),
            other => Err(format!("`{other}` is no way to drop: use old, new or summarize")),
        }
    }
}

/// Queue settings that override others; `None` leaves them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueSettings {
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known_or_default")]
    pub mode: Option<QueueMode>,
    /// Pause that ends collecting, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debounce_ms: Option<u32>,
    /// Messages that may wait when a turn begins; `None` is no limit but the session's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u32>,
    /// `None` is [`DropPolicy::Summarize`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known_or_default")]
    pub drop: Option<DropPolicy>,
}

impl QueueSettings {
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// These settings, with those of `other` where they say nothing.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            mode: self.mode.or(other.mode),
            debounce_ms: self.debounce_ms.or(other.debounce_ms),
            cap: self.cap.or(other.cap),
            drop: self.drop.or(other.drop),
        }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// Which one is out of its range.
    pub fn check(&self) -> Result<(), String> {
        if self.debounce_ms.is_some_and(|given| given > MAX_DEBOUNCE_MS) {
            return Err(format!("`debounce` is {MAX_DEBOUNCE_MS} ms at most"));
        }
        if self.cap.is_some_and(|given| !(1..=MAX_CAP).contains(&given)) {
            return Err(format!("`cap` is 1 to {MAX_CAP} messages"));
        }
        Ok(())
    }

    /// Reads the words of `/queue`: a mode, `debounce:500ms`, `cap:10`, `drop:old`.
    ///
    /// # Errors
    ///
    /// Which word is wrong.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let mut settings = Self::default();
        for word in words {
            match word.split_once(':') {
                None => settings.mode = Some(word.parse()?),
                Some(("debounce", time)) => settings.debounce_ms = Some(milliseconds(time)?),
                Some(("cap", count)) => {
                    let count = count.parse().map_err(|_| format!("`{count}` is no number"))?;
                    settings.cap = Some(count);
                }
                Some(("drop", policy)) => settings.drop = Some(policy.parse()?),
                Some(_) => return Err(format!("`{word}` is unknown here")),
            }
        }
        settings.check()?;
        Ok(settings)
    }
}

impl fmt::Display for QueueSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            self.mode.map(|mode| mode.as_str().to_owned()),
            self.debounce_ms.map(|time| format!("debounce:{time}ms")),
            self.cap.map(|cap| format!("cap:{cap}")),
            self.drop.map(|policy| format!("drop:{}", policy.as_str())),
        ];
        f.write_str(&words.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

/// Reads a time such as `500ms`, `2s` or `500`.
fn milliseconds(text: &str) -> Result<u32, String> {
    let (number, factor) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1),
        (None, Some(number)) => (number, 1_000),
        (None, None) => (text, 1),
    };
    let time = number.parse::<u32>().ok().and_then(|number| number.checked_mul(factor));
    time.ok_or_else(|| format!("`{text}` is no time: write 500ms or 2s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_command_are_read_and_shown_alike() {
        let words = ["collect", "debounce:2s", "cap:10", "drop:old"];
        let settings = QueueSettings::parse(&words).unwrap();

        assert_eq!(settings.to_string(), "collect debounce:2000ms cap:10 drop:old");
        assert_eq!(QueueSettings::parse(&["queue"]).unwrap().mode, Some(QueueMode::Steer));
        let backlog = QueueSettings::parse(&["steer-backlog"]).unwrap();
        assert_eq!(backlog.mode, Some(QueueMode::SteerBacklog));
        for wrong in ["later", "cap:0", "cap:x", "debounce:61s", "drop:all", "size:3"] {
            assert!(QueueSettings::parse(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_not_said_is_as_it_was() {
        let usual = QueueSettings::parse(&["followup", "cap:5"]).unwrap();
        let own = QueueSettings::parse(&["collect"]).unwrap();

        assert_eq!(own.or(usual).to_string(), "collect cap:5");
        let newer: QueueSettings = serde_json::from_str(r#"{"mode":"braid","cap":2}"#).unwrap();
        assert_eq!(newer.to_string(), "cap:2");
    }
}
