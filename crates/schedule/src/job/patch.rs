//! Patch of a job (spec CRN-023).

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::Overlap;
use super::read;
use crate::{
    error::Error,
    missed_slots::Missed,
    payload::{Isolation, Payload, SessionTarget, WakeMode},
    schedule::Schedule,
};

/// Changes to a job; absent fields stay as they are.
///
/// All fields that may change are listed here (CRN-023); id, owner and run state may not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobPatch {
    pub name: Option<String>,
    pub description: Option<String>,
    pub enabled: Option<bool>,
    #[serde(alias = "deleteAfterRun")]
    pub delete_after_run: Option<bool>,
    pub schedule: Option<Schedule>,
    #[serde(alias = "sessionTarget")]
    pub session_target: Option<SessionTarget>,
    #[serde(alias = "wakeMode")]
    pub wake_mode: Option<WakeMode>,
    pub payload: Option<Payload>,
    /// New [`NewJob::isolation`](super::NewJob::isolation); `null` removes it.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Option<Isolation>>,
    pub missed: Option<Missed>,
    pub overlap: Option<Overlap>,
}

impl JobPatch {
    /// Parses a patch written by a caller.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`] says which field cannot be changed, and which can.
    pub fn from_json(json: Value) -> Result<Self, Error> {
        read(json)
    }
}

/// Deserializes a present field, even if it is `null`.
fn given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}
