//! Validation of a job's fields.

use serde_json::Value;

use crate::store::{Error, JobKind};

/// Fields that are validated together when a job is added or changed.
pub(crate) struct Fields<'a> {
    pub kind: JobKind,
    pub external_id: &'a str,
    pub owner: Option<&'a str>,
    pub name: &'a str,
    pub description: &'a str,
    pub spec: &'a Value,
    pub payload: &'a Value,
    pub session_target: Option<&'a str>,
    pub wake_mode: Option<&'a str>,
    pub isolation: Option<&'a Value>,
}

const MAX_ID_BYTES: usize = 256;
const MAX_NAME_CHARS: usize = 200;
const MAX_DESCRIPTION_CHARS: usize = 2000;
const MAX_SPEC_BYTES: usize = 8000;
const MAX_PAYLOAD_BYTES: usize = 64_000;

impl Fields<'_> {
    pub fn check(&self) -> Result<(), Error> {
        bytes("id", self.external_id)?;
        self.owner.map_or(Ok(()), |owner| bytes("owner", owner))?;
        text("name", self.name, MAX_NAME_CHARS)?;
        text("description", self.description, MAX_DESCRIPTION_CHARS)?;
        object("schedule", self.spec, MAX_SPEC_BYTES)?;
        object("payload", self.payload, MAX_PAYLOAD_BYTES)?;
        if let Some(isolation) = self.isolation {
            object("isolation", isolation, MAX_SPEC_BYTES)?;
        }
        one_of("session target", self.session_target, &["main", "isolated"])?;
        one_of("wake mode", self.wake_mode, &["now", "next-heartbeat"])?;
        self.check_target()
    }

    /// Checks that a main-session job sends an event or a fixed message, and that an isolated job
    /// runs a turn (CRN-006).
    fn check_target(&self) -> Result<(), Error> {
        match self.kind {
            JobKind::Cron | JobKind::Every | JobKind::At => {}
            JobKind::Heartbeat | JobKind::Reminder | JobKind::Timer => return Ok(()),
        }
        let payload = self.payload.get("kind").and_then(Value::as_str);
        match (self.session_target, payload) {
            (Some("main"), payload) if !matches!(payload, Some("systemEvent" | "message")) => {
                Err(Error::Payload("main session must use systemEvent payload"))
            }
            (Some("isolated"), payload) if payload != Some("agentTurn") => {
                Err(Error::Payload("isolated session must use agentTurn payload"))
            }
            _ => Ok(()),
        }
    }
}

fn bytes(field: &'static str, text: &str) -> Result<(), Error> {
    no_nul(field, text)?;
    match text.len() {
        0 => Err(Error::field(field, "is empty: leave it out, or give it a name")),
        got if got > MAX_ID_BYTES => Err(Error::field(
            field,
            format!("has {MAX_ID_BYTES} bytes at most, and this one {got}"),
        )),
        _ => Ok(()),
    }
}

fn text(field: &'static str, text: &str, limit: usize) -> Result<(), Error> {
    no_nul(field, text)?;
    match text.chars().count() {
        got if got > limit => {
            Err(Error::field(field, format!("has {limit} characters at most, and this one {got}")))
        }
        _ => Ok(()),
    }
}

fn no_nul(field: &'static str, text: &str) -> Result<(), Error> {
    if text.contains('\0') {
        return Err(Error::field(field, "has a NUL character in it: remove it"));
    }
    Ok(())
}

fn object(field: &'static str, value: &Value, limit: usize) -> Result<(), Error> {
    if !value.is_object() {
        return Err(Error::field(field, "must be a JSON object"));
    }
    if has_nul(value) {
        return Err(Error::field(field, "has a NUL character in it: remove it"));
    }
    match value.to_string().len() {
        got if got > limit => {
            Err(Error::field(field, format!("has {limit} bytes at most, and this one {got}")))
        }
        _ => Ok(()),
    }
}

/// Returns whether a string in the value contains NUL, which Postgres' jsonb cannot store.
fn has_nul(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| name.contains('\0') || has_nul(value))
        }
    }
}

fn one_of(field: &'static str, word: Option<&str>, words: &[&str]) -> Result<(), Error> {
    match word {
        Some(word) if !words.contains(&word) => {
            Err(Error::field(field, format!("is one of {}", words.join(", "))))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(target: Option<&str>, payload: &Value) -> Result<(), String> {
        let fields = Fields {
            kind: JobKind::Cron,
            external_id: "cron_1",
            owner: None,
            name: "",
            description: "",
            spec: &json!({}),
            payload,
            session_target: target,
            wake_mode: None,
            isolation: None,
        };
        fields.check().map_err(|error| error.to_string())
    }

    #[test]
    fn the_main_session_is_told_events_and_isolated_ones_get_turns() {
        let (event, turn) = (json!({"kind": "systemEvent"}), json!({"kind": "agentTurn"}));

        assert_eq!(check(Some("main"), &event), Ok(()));
        assert_eq!(check(Some("main"), &json!({"kind": "message"})), Ok(()));
        assert_eq!(check(Some("isolated"), &turn), Ok(()));
        assert_eq!(check(None, &turn), Ok(()));
        assert_eq!(
            check(Some("main"), &turn),
            Err("main session must use systemEvent payload".to_owned())
        );
        assert_eq!(
            check(Some("isolated"), &event),
            Err("isolated session must use agentTurn payload".to_owned())
        );
    }

    #[test]
    fn what_is_too_large_or_cannot_be_stored_is_refused_with_the_limit() {
        let huge = json!({"message": "x".repeat(70_000)});
        let nul = json!({"message": "a\u{0}b"});

        assert!(check(None, &huge).unwrap_err().contains("64000 bytes at most"));
        assert!(check(None, &nul).unwrap_err().contains("NUL"));
        assert!(check(Some("elsewhere"), &json!({})).unwrap_err().contains("main, isolated"));
        assert!(check(None, &json!([])).unwrap_err().contains("JSON object"));
    }
}
