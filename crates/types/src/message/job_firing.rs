//! Firing of a job, as a message carries it.

use serde::{Deserialize, Serialize};

use crate::JobId;

/// Source of messages that are firings of jobs.
pub const SCHEDULE_SOURCE: &str = "schedule";

/// Firing that a message carries.
///
/// Only the mesh creates one; no edge accepts one from outside. Stored as JSON: fields are only
/// ever added, with a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFiring {
    pub job: JobId,
    /// Slot, in milliseconds since 1970.
    pub at_ms: i64,
    /// The text is sent as the answer, without asking a model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_is: bool,
    /// Owner of the reminder; `None` if the job is not a reminder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Number of consecutive reminders that led to this one without a message from their owner.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chain: u32,
    /// Set if the answer is also posted to the agent's main session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post: Option<MainSessionPost>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl JobFiring {
    #[must_use]
    pub const fn new(job: JobId, at_ms: i64) -> Self {
        Self { job, at_ms, as_is: false, owner: None, chain: 0, post: None }
    }
}

/// How the answer of an isolated turn is posted to the agent's main session, where the next turn
/// sees it (spec CRN-009).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MainSessionPost {
    pub prefix: String,
    /// Posts the whole answer instead of its first paragraph.
    pub full: bool,
    /// Maximum length of the posted text, in characters.
    pub max_chars: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Body;

    #[test]
    fn a_firing_that_another_version_wrote_is_read_and_most_messages_are_none() {
        let job = JobId::generate();
        let stored = format!(r#"{{"job":"{job}","at_ms":5,"of_tomorrow":1}}"#);

        assert_eq!(serde_json::from_str::<JobFiring>(&stored).unwrap(), JobFiring::new(job, 5));
        assert_eq!(serde_json::to_string(&Body::text("a")).unwrap(), r#"{"text":"a"}"#);
    }
}
