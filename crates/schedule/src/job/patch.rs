//! What may be changed of a job (spec CRN-023).

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::read;
use crate::{
    error::Error,
    missed::Missed,
    payload::{Isolation, Payload, SessionTarget, WakeMode},
    run::Overlap,
    schedule::Schedule,
};

/// What is to be another thing about a job; what is absent stays.
///
/// The fields are those that may be changed, and no others (CRN-023): not the id, whose it is, or
/// what its runs left.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobPatch {
    /// See [`NewJob::name`](super::NewJob::name).
    pub name: Option<String>,
    /// See [`NewJob::description`](super::NewJob::description).
    pub description: Option<String>,
    /// See [`NewJob::enabled`](super::NewJob::enabled).
    pub enabled: Option<bool>,
    /// See [`NewJob::delete_after_run`](super::NewJob::delete_after_run).
    #[serde(alias = "deleteAfterRun")]
    pub delete_after_run: Option<bool>,
    /// See [`NewJob::schedule`](super::NewJob::schedule).
    pub schedule: Option<Schedule>,
    /// See [`NewJob::session_target`](super::NewJob::session_target).
    #[serde(alias = "sessionTarget")]
    pub session_target: Option<SessionTarget>,
    /// See [`NewJob::wake_mode`](super::NewJob::wake_mode).
    #[serde(alias = "wakeMode")]
    pub wake_mode: Option<WakeMode>,
    /// See [`NewJob::payload`](super::NewJob::payload).
    pub payload: Option<Payload>,
    /// See [`NewJob::isolation`](super::NewJob::isolation); `null` takes it away.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Option<Isolation>>,
    /// See [`NewJob::missed`](super::NewJob::missed).
    pub missed: Option<Missed>,
    /// See [`NewJob::overlap`](super::NewJob::overlap).
    pub overlap: Option<Overlap>,
}

impl JobPatch {
    /// Reads what a caller wrote.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`] says which field cannot be changed, and which can.
    pub fn from_json(json: Value) -> Result<Self, Error> {
        read(json)
    }
}

/// A field that was written, be it as `null`.
fn given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}
