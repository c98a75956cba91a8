//! Firing of a job, as a message carries it.

use serde::{Deserialize, Serialize};

use super::{Author, Target};
use crate::JobId;

/// Source of messages that are firings of jobs.
pub const SCHEDULE_SOURCE: &str = "schedule";

/// Source of messages that tell a conversation what a heartbeat sent.
pub const HEARTBEAT_SOURCE: &str = "heartbeat";

/// Whether schedulers write messages of this source; no other is theirs
/// (`crates/pg/src/service_rights.sql`).
#[must_use]
pub fn is_scheduler_source(source: &str) -> bool {
    matches!(source, SCHEDULE_SOURCE | HEARTBEAT_SOURCE)
}

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

/// Proof that the author of a job's message is the job's: an HMAC over the message, which a service
/// made that may act for the author. Schedulers have no key for it (decision 0130).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSignature {
    pub job: JobId,
    /// Key of the session that the job names; `None` for the session of its run, or the agent's main
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default)]
    pub destination: JobDestination,
    /// HMAC-SHA-256 in base64url.
    pub mac: String,
}

/// Where the answer to a job's message may be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDestination {
    #[serde(default)]
    pub is_delivered: bool,
    /// The only channel that is allowed; `None` means any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The only chat of the channel that is allowed; `None` means any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat: Option<String>,
}

impl JobDestination {
    #[must_use]
    pub fn allows(&self, target: &Target) -> bool {
        let allows =
            |only: &Option<String>, given: &str| only.as_deref().is_none_or(|only| only == given);
        self.is_delivered
            && allows(&self.channel, &target.channel)
            && allows(&self.chat, &target.chat)
    }
}

/// Author of a job's text that waits for the next turn of a session, with the proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedAuthor {
    /// Whoever made the job; `None` is the mesh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    pub signature: JobSignature,
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
