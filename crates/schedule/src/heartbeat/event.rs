//! What others are told of a heartbeat (spec HBT-003).

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How much of what was said others are told, in characters.
const PREVIEW: usize = 100;

/// What came of a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Something was delivered.
    Sent,
    /// There was nothing to ask, or nothing was said.
    OkEmpty,
    /// All is well.
    OkToken,
    /// It was left out.
    Skipped,
    /// It failed.
    Failed,
}

/// What a person is shown of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Indicator {
    /// It beats.
    Ok,
    /// It does not.
    Alert,
    /// It cannot.
    Error,
}

impl Status {
    /// What a person is shown.
    #[must_use]
    pub const fn indicator(self) -> Indicator {
        match self {
            Self::Sent | Self::OkEmpty | Self::OkToken => Indicator::Ok,
            Self::Skipped => Indicator::Alert,
            Self::Failed => Indicator::Error,
        }
    }
}

/// One heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatEvent {
    /// When, in milliseconds since 1970.
    pub ts: i64,
    /// What came of it.
    pub status: Status,
    /// To whom it was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The beginning of what was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
    /// Whether pictures, files or voice came with it.
    pub has_media: bool,
    /// Why, if nothing was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// On which channel it was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Whether nobody was sent anything.
    pub silent: bool,
    /// What a person is shown.
    pub indicator_type: Indicator,
}

impl HeartbeatEvent {
    /// A heartbeat that said nothing.
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

    /// The same with the beginning of what was said.
    #[must_use]
    pub fn with_preview(mut self, text: &str) -> Self {
        self.preview = Some(text.chars().take(PREVIEW).collect());
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
