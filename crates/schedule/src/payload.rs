//! What a job does when it is due, and where (spec CRN-002, CRN-006).
//!
//! The words are the seed's, so that its jobs are read as they are.

use serde::{Deserialize, Serialize};

use crate::error::{Error, bounds};

/// The longest message of a job, in characters.
const LONGEST_MESSAGE: usize = 16_000;

/// The longest name of a model, a channel or a recipient, in characters.
const LONGEST_NAME: usize = 256;

/// How long an agent's turn may take, in seconds: a day.
const LONGEST_TURN: u32 = 86_400;

/// Which session a job speaks to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionTarget {
    /// The agent's main session.
    #[default]
    Main,
    /// A session of the run's own.
    Isolated,
}

/// When what a job says is heard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WakeMode {
    /// With the next heartbeat.
    #[default]
    NextHeartbeat,
    /// At once.
    Now,
}

/// What a job does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", deny_unknown_fields)]
pub enum Payload {
    /// A text is put into the main session.
    SystemEvent {
        /// The text; also read from `text` (C-14).
        #[serde(alias = "text")]
        message: String,
    },
    /// The agent takes a turn of its own.
    AgentTurn(AgentTurn),
}

/// A turn of an agent in a session of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentTurn {
    /// What it is told.
    pub message: String,
    /// Another model than the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much it thinks; without a word, `medium` (CRN-008).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// How long it may take.
    #[serde(default = "an_hour", alias = "timeoutSeconds")]
    pub timeout_seconds: u32,
    /// Whether what it answers is sent to somebody.
    #[serde(default = "yes")]
    pub deliver: bool,
    /// On which channel: `last`, or one by its name.
    #[serde(default = "last")]
    pub channel: String,
    /// To whom, if not to who wrote last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Whether a run is well even if its answer could not be sent.
    #[serde(default, alias = "bestEffortDeliver")]
    pub best_effort_deliver: bool,
}

fn an_hour() -> u32 {
    3_600
}

fn yes() -> bool {
    true
}

fn last() -> String {
    "last".to_owned()
}

impl AgentTurn {
    /// A turn of which nothing is said but its message.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            model: None,
            thinking: None,
            timeout_seconds: an_hour(),
            deliver: yes(),
            channel: last(),
            to: None,
            best_effort_deliver: false,
        }
    }
}

impl Payload {
    /// What it says.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::SystemEvent { message } => message,
            Self::AgentTurn(turn) => &turn.message,
        }
    }

    /// Whether it fits the session that it is for, and itself.
    ///
    /// # Errors
    ///
    /// The seed's two, and what to write instead where a field is out of bounds.
    pub fn check(&self, target: SessionTarget) -> Result<(), Error> {
        match (target, self) {
            (SessionTarget::Main, Self::AgentTurn(_)) => return Err(Error::MainTakesEvents),
            (SessionTarget::Isolated, Self::SystemEvent { .. }) => {
                return Err(Error::IsolatedTakesTurns);
            }
            (SessionTarget::Main, Self::SystemEvent { .. })
            | (SessionTarget::Isolated, Self::AgentTurn(_)) => {}
        }
        text(
            "payload.message",
            self.message(),
            LONGEST_MESSAGE,
            "a text of 1 to 16000 characters",
        )?;
        let Self::AgentTurn(turn) = self else { return Ok(()) };
        if !(1..=LONGEST_TURN).contains(&turn.timeout_seconds) {
            let must = "from 1 to 86400 seconds";
            return Err(bounds("payload.timeout_seconds", turn.timeout_seconds, must));
        }
        let must = "a name of 1 to 256 characters";
        text("payload.channel", &turn.channel, LONGEST_NAME, must)?;
        for (field, value) in [
            ("payload.model", &turn.model),
            ("payload.thinking", &turn.thinking),
            ("payload.to", &turn.to),
        ] {
            if let Some(value) = value {
                text(field, value, LONGEST_NAME, must)?;
            }
        }
        Ok(())
    }
}

/// Refuses a text that says nothing or too much. Its length is told, and not the text.
pub(crate) fn text(
    field: &'static str,
    value: &str,
    most: usize,
    must: &'static str,
) -> Result<(), Error> {
    let length = value.chars().count();
    if value.trim().is_empty() {
        return Err(bounds(field, "empty", must));
    }
    if length > most {
        return Err(bounds(field, format!("{length} characters long"), must));
    }
    Ok(())
}

/// What of an isolated run is told to the main session (spec CRN-009).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Isolation {
    /// What the text begins with.
    pub post_to_main_prefix: String,
    /// How much of it.
    pub post_to_main_mode: PostMode,
    /// The most of it, in characters.
    pub post_to_main_max_chars: usize,
}

/// How much of a run's answer is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PostMode {
    /// Its summary.
    #[default]
    Summary,
    /// All of it.
    Full,
}

impl Default for Isolation {
    fn default() -> Self {
        Self {
            post_to_main_prefix: "Cron".to_owned(),
            post_to_main_mode: PostMode::Summary,
            post_to_main_max_chars: 2_000,
        }
    }
}

impl Isolation {
    /// Whether its fields are within bounds.
    ///
    /// # Errors
    ///
    /// What to write instead.
    pub fn check(&self) -> Result<(), Error> {
        let length = self.post_to_main_prefix.chars().count();
        if length > LONGEST_NAME {
            let given = format!("{length} characters long");
            return Err(bounds("isolation.postToMainPrefix", given, "256 characters or fewer"));
        }
        if !(1..=LONGEST_MESSAGE).contains(&self.post_to_main_max_chars) {
            let must = "from 1 to 16000";
            return Err(bounds("isolation.postToMainMaxChars", self.post_to_main_max_chars, must));
        }
        Ok(())
    }

    /// The text that the main session gets; none if there is nothing to tell.
    #[must_use]
    pub fn post(&self, summary: &str, full: &str) -> Option<String> {
        let told = match self.post_to_main_mode {
            PostMode::Summary if !summary.trim().is_empty() => summary.trim(),
            PostMode::Summary | PostMode::Full => full.trim(),
        };
        if told.is_empty() {
            return None;
        }
        let told = match told.char_indices().nth(self.post_to_main_max_chars) {
            Some((end, _)) => format!("{}…", told[..end].trim_end()),
            None => told.to_owned(),
        };
        let prefix = self.post_to_main_prefix.trim();
        Some(if prefix.is_empty() { told } else { format!("{prefix}: {told}") })
    }
}

#[cfg(test)]
mod tests;
