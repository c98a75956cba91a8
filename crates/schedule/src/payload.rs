//! Payload of a job: what is done when it is due, and in which session (spec CRN-002, CRN-006).
//!
//! Field names are those of the predecessor, whose jobs can be imported unchanged.

use holdfast_types::{AgentName, SessionKey};
use serde::{Deserialize, Serialize};

use crate::error::{Error, bounds, shown};

/// Maximum characters of a job's message.
const MAX_MESSAGE_CHARS: usize = 16_000;

/// Maximum characters of a model's, channel's or recipient's name.
const MAX_NAME_CHARS: usize = 256;

/// Maximum time of an agent's turn in seconds: one day.
const MAX_TURN_SECONDS: u32 = 86_400;

/// Session that receives a job's payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionTarget {
    #[default]
    Main,
    Isolated,
}

/// Time at which a job's payload is processed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WakeMode {
    #[default]
    NextHeartbeat,
    Now,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", deny_unknown_fields)]
pub enum Payload {
    /// Puts a text into the main session.
    SystemEvent {
        /// The text; the field name `text` is accepted too (C-14).
        #[serde(alias = "text")]
        message: String,
    },
    /// Runs an agent's turn in an isolated session.
    AgentTurn(AgentTurn),
    /// Says a text in a session as the agent's answer, without a model (spec CRN-020).
    Message(FixedMessage),
    /// Sends a silent event to a session. No turn runs unless the session waits for that event.
    Timer(Timer),
}

/// Agent's turn in an isolated session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentTurn {
    pub message: String,
    /// Model instead of the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Thinking level; `None` means `medium` (CRN-008).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// Time limit of the turn, in seconds.
    #[serde(default = "an_hour", alias = "timeoutSeconds")]
    pub timeout_seconds: u32,
    /// Whether the answer is sent to a channel.
    #[serde(default = "yes")]
    pub deliver: bool,
    /// Channel name, or `last` for the one that was used last.
    #[serde(default = "last")]
    pub channel: String,
    /// Recipient; `None` means the last one who wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Whether the run succeeds even if its answer could not be sent.
    #[serde(default, alias = "bestEffortDeliver")]
    pub best_effort_deliver: bool,
}

/// Text that is said as it is (spec CRN-020).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedMessage {
    #[serde(alias = "text")]
    pub message: String,
    /// Key of a session of the job's agent; `None` means its main session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

impl FixedMessage {
    /// Returns the session in which the text is said.
    ///
    /// # Errors
    ///
    /// The key is malformed, or of another agent's session.
    pub fn session_of(&self, agent: &AgentName) -> Result<SessionKey, Error> {
        session_of(self.session.as_deref(), agent)
    }
}

/// Silent event of a timer (spec HBT-021).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timer {
    /// Name of the event after `timer.`.
    pub event: String,
    /// Key of a session of the job's agent; `None` means its main session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

impl Timer {
    /// Returns the event's name. It begins with `timer.`, so that no timer can be taken for an
    /// internal event.
    #[must_use]
    pub fn event_name(&self) -> String {
        format!("timer.{}", self.event)
    }

    /// Returns the session that gets the event.
    ///
    /// # Errors
    ///
    /// The key is malformed, or of another agent's session.
    pub fn session_of(&self, agent: &AgentName) -> Result<SessionKey, Error> {
        session_of(self.session.as_deref(), agent)
    }

    fn check(&self) -> Result<(), Error> {
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        if !(1..=64).contains(&self.event.len()) || !self.event.chars().all(is_part) {
            let must = "1 to 64 lowercase letters, digits, `.`, `_` and `-`";
            return Err(bounds("payload.event", format!("`{}`", shown(&self.event)), must));
        }
        Ok(())
    }
}

fn session_of(session: Option<&str>, agent: &AgentName) -> Result<SessionKey, Error> {
    let Some(session) = session else { return Ok(SessionKey::main(agent)) };
    let key = session.parse::<SessionKey>().ok().filter(|key| key.agent() == Some(agent));
    let must = "the key of a session of the job's agent, as `agent:main:main`";
    key.ok_or_else(|| bounds("payload.session", "another", must))
}

fn an_hour() -> u32 {
    3_600
}

fn yes() -> bool {
    true
}

fn last() -> String {
    AgentTurn::LAST_CHANNEL.to_owned()
}

impl AgentTurn {
    /// Channel name for the place where the agent was last spoken to.
    pub const LAST_CHANNEL: &str = "last";

    /// Creates a turn with default settings.
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
    /// Returns the session that a message or a timer names; `None` for other payloads.
    pub fn session_mut(&mut self) -> Option<&mut Option<String>> {
        match self {
            Self::Message(message) => Some(&mut message.session),
            Self::Timer(timer) => Some(&mut timer.session),
            Self::SystemEvent { .. } | Self::AgentTurn(_) => None,
        }
    }

    /// Checks the session that a message or a timer names.
    ///
    /// # Errors
    ///
    /// The key is malformed, or of another agent's session.
    pub fn check_session(&self, agent: &AgentName) -> Result<(), Error> {
        match self {
            Self::Message(message) => message.session_of(agent).map(drop),
            Self::Timer(timer) => timer.session_of(agent).map(drop),
            Self::SystemEvent { .. } | Self::AgentTurn(_) => Ok(()),
        }
    }

    /// Validates the payload and its session target.
    ///
    /// # Errors
    ///
    /// [`Error::MainTakesEvents`], [`Error::IsolatedTakesTurns`], or [`Error::Bounds`] with what to
    /// write instead.
    pub fn check(&self, target: SessionTarget) -> Result<(), Error> {
        match (target, self) {
            (SessionTarget::Main, Self::AgentTurn(_)) => return Err(Error::MainTakesEvents),
            (
                SessionTarget::Isolated,
                Self::SystemEvent { .. } | Self::Message(_) | Self::Timer(_),
            ) => return Err(Error::IsolatedTakesTurns),
            (SessionTarget::Main, Self::SystemEvent { .. } | Self::Message(_) | Self::Timer(_))
            | (SessionTarget::Isolated, Self::AgentTurn(_)) => {}
        }
        let message = |message: &str| {
            let must = "a text of 1 to 16000 characters";
            text("payload.message", message, MAX_MESSAGE_CHARS, must)
        };
        let turn = match self {
            Self::SystemEvent { message: event } => return message(event),
            Self::Message(fixed) => return message(&fixed.message),
            Self::Timer(timer) => return timer.check(),
            Self::AgentTurn(turn) => turn,
        };
        message(&turn.message)?;
        if !(1..=MAX_TURN_SECONDS).contains(&turn.timeout_seconds) {
            let must = "from 1 to 86400 seconds";
            return Err(bounds("payload.timeout_seconds", turn.timeout_seconds, must));
        }
        let must = "a name of 1 to 256 characters";
        text("payload.channel", &turn.channel, MAX_NAME_CHARS, must)?;
        for (field, value) in [
            ("payload.model", &turn.model),
            ("payload.thinking", &turn.thinking),
            ("payload.to", &turn.to),
        ] {
            if let Some(value) = value {
                text(field, value, MAX_NAME_CHARS, must)?;
            }
        }
        Ok(())
    }
}

/// Refuses an empty or too long text. The error has the length, never the text.
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

/// How an isolated run reports to the main session (spec CRN-009).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Isolation {
    /// Prefix of the reported text.
    pub post_to_main_prefix: String,
    pub post_to_main_mode: PostMode,
    /// Maximum characters of the reported answer.
    pub post_to_main_max_chars: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PostMode {
    #[default]
    Summary,
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
    /// Validates the fields.
    ///
    /// # Errors
    ///
    /// What to write instead.
    pub fn check(&self) -> Result<(), Error> {
        let length = self.post_to_main_prefix.chars().count();
        if length > MAX_NAME_CHARS {
            let given = format!("{length} characters long");
            return Err(bounds("isolation.postToMainPrefix", given, "256 characters or fewer"));
        }
        if !(1..=MAX_MESSAGE_CHARS).contains(&self.post_to_main_max_chars) {
            let must = "from 1 to 16000";
            return Err(bounds("isolation.postToMainMaxChars", self.post_to_main_max_chars, must));
        }
        Ok(())
    }

    /// Returns the text for the main session; `None` if there is nothing to report.
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
