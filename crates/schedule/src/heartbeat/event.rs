//! Heartbeat event, as published to subscribers (spec HBT-003).

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Maximum characters of the answer in an event.
const MAX_PREVIEW_CHARS: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Sent,
    /// The file or the answer was empty.
    OkEmpty,
    OkToken,
    Skipped,
    Failed,
}

/// Status indicator for user interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Indicator {
    Ok,
    Alert,
    Error,
}

impl Status {
    #[must_use]
    pub const fn indicator(self) -> Indicator {
        match self {
            Self::Sent | Self::OkEmpty | Self::OkToken => Indicator::Ok,
            Self::Skipped => Indicator::Alert,
            Self::Failed => Indicator::Error,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatEvent {
    /// Milliseconds since 1970.
    pub ts: i64,
    pub status: Status,
    /// Recipient, if the answer was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Beginning of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    pub duration_ms: u64,
    /// Whether the answer has images, files or audio.
    pub has_media: bool,
    /// Reason, if nothing was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Channel, if the answer was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Whether nothing was sent to a person.
    pub silent: bool,
    pub indicator_type: Indicator,
}

impl HeartbeatEvent {
    /// Creates the event of a heartbeat that delivered nothing.
    #[must_use]
    pub fn quiet(status: Status, reason: Option<&str>, at: Timestamp, took: Duration) -> Self {
        Self {
            ts: at.as_millisecond(),
            status,
            to: None,
            preview: None,
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            has_media: false,
            reason: reason.map(str::to_owned),
            channel: None,
            silent: !matches!(status, Status::Sent),
            indicator_type: status.indicator(),
        }
    }

    /// Adds the beginning of the answer.
    #[must_use]
    pub fn with_preview(mut self, text: &str) -> Self {
        self.preview = Some(text.chars().take(MAX_PREVIEW_CHARS).collect());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_seeds_fields_and_words() {
        let at = Timestamp::from_millisecond(5).unwrap();
        let took = Duration::from_millis(7);

        let skipped = HeartbeatEvent::quiet(Status::Skipped, Some("quiet-hours"), at, took);
        let ok = HeartbeatEvent::quiet(Status::OkToken, None, at, took);

        assert_eq!(
            serde_json::to_string(&skipped).unwrap(),
            r#"{"ts":5,"status":"skipped","duration_ms":7,"has_media":false,"reason":"quiet-hours","silent":true,"indicator_type":"alert"}"#
        );
        assert_eq!((ok.status, ok.indicator_type), (Status::OkToken, Indicator::Ok));
        assert_eq!(Status::Failed.indicator(), Indicator::Error);
        assert_eq!(serde_json::to_string(&Status::OkEmpty).unwrap(), "\"ok-empty\"");
    }
}
