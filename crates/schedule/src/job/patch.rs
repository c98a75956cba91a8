//! Patch of a job (spec CRN-023).

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::Overlap;
use super::read;
use crate::{
    error::Error,
    missed_slots::Missed,
    payload::{Isolation, Payload, SessionTarget, WakeMode},
    schedule::Schedule,
};

/// Fields of an object as a caller wrote them.
pub type Fields = Map<String, Value>;

/// Changes to a job; absent fields stay as they are, also those inside `schedule`, `payload` and
/// `isolation`. There, `null` sets a field to its default, and another `kind` replaces all fields.
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
    pub schedule: Option<Fields>,
    #[serde(alias = "sessionTarget")]
    pub session_target: Option<SessionTarget>,
    #[serde(alias = "wakeMode")]
    pub wake_mode: Option<WakeMode>,
    pub payload: Option<Fields>,
    /// New [`NewJob::isolation`](super::NewJob::isolation); `null` removes it.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Option<Fields>>,
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

/// Returns a schedule with these fields changed. An interval that is set without an anchor is
/// counted anew.
pub(super) fn patch_schedule(was: &Schedule, fields: Fields) -> Result<Schedule, Error> {
    let mut was = fields_of(was);
    if fields.keys().any(|key| canonical(key) == "everyms") {
        was.remove("anchor_ms");
    }
    merge(was, fields)
}

/// Returns a payload with these fields changed. The recipient belongs to its channel, so another
/// channel without one begins without.
pub(super) fn patch_payload(was: &Payload, fields: Fields) -> Result<Payload, Error> {
    let mut was = fields_of(was);
    if fields.get("channel").is_some_and(|channel| was.get("channel") != Some(channel)) {
        was.remove("to");
    }
    merge(was, fields)
}

pub(super) fn patch_isolation(was: &Isolation, fields: Fields) -> Result<Isolation, Error> {
    merge(fields_of(was), fields)
}

fn fields_of<T: Serialize>(value: &T) -> Fields {
    match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Fields::new(),
    }
}

fn merge<T: DeserializeOwned>(mut was: Fields, changes: Fields) -> Result<T, Error> {
    let is_other_kind = changes.get("kind").is_some_and(|kind| was.get("kind") != Some(kind));
    if is_other_kind {
        was.clear();
    }
    for (name, value) in changes {
        was.retain(|known, _| canonical(known) != canonical(&name));
        if !value.is_null() {
            was.insert(name, value);
        }
    }
    read(Value::Object(was))
}

/// Returns the form that a field's name and its aliases share (`at_ms`, `atMs`).
fn canonical(name: &str) -> String {
    match name {
        "text" => "message".to_owned(),
        name => name.replace('_', "").to_ascii_lowercase(),
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
