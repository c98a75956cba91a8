//! JSON forms of values that several commands show.

use holdfast_proto::gateway::v1::{Entry, Outcome, Run, Usage};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Returns a time as RFC 3339 in UTC, or null.
pub fn time(at: Option<&prost_types::Timestamp>) -> Value {
    let at = at.and_then(|at| Timestamp::new(at.seconds, at.nanos).ok());
    at.map_or(Value::Null, |at| Value::String(at.to_string()))
}

pub fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
}

/// Returns the name of a turn's outcome.
pub fn outcome(outcome: i32) -> &'static str {
    match Outcome::try_from(outcome) {
        Ok(Outcome::Completed) => "completed",
        Ok(Outcome::Interrupted) => "interrupted",
        Ok(Outcome::Cancelled) => "cancelled",
        Ok(Outcome::Failed) => "failed",
        Ok(Outcome::Dead) => "dead",
        Ok(Outcome::Unspecified) | Err(_) => "running",
    }
}

pub fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    })
}

/// Converts a journal entry. Its detail is JSON inside a string.
pub fn entry(entry: &Entry) -> Value {
    let detail = serde_json::from_str(&entry.detail).unwrap_or(Value::Null);
    json!({
        "seq": entry.seq,
        "run_id": entry.run_id,
        "kind": entry.kind,
        "text": entry.text,
        "detail": detail,
        "created_at": time(entry.created_at.as_ref()),
    })
}

pub fn run(run: &Run) -> Value {
    json!({
        "id": run.id,
        "session_id": run.session_id,
        "agent": run.agent,
        "outcome": outcome(run.outcome),
        "status": run.status,
        "reason": run.reason,
        "steps": run.steps,
        "model": run.model,
        "usage": run.usage.as_ref().map(usage),
        "text": run.text,
        "started_at": time(run.started_at.as_ref()),
        "finished_at": time(run.finished_at.as_ref()),
    })
}

/// Columns of a table of journal entries.
pub const ENTRY_COLUMNS: [&str; 4] = ["seq", "created_at", "kind", "text"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_out_and_impossible_ones_are_none() {
        let at = prost_types::Timestamp { seconds: 1_700_000_000, nanos: 0 };
        assert_eq!(time(Some(&at)), json!("2023-11-14T22:13:20Z"));

        let never = prost_types::Timestamp { seconds: i64::MAX, nanos: 0 };
        assert_eq!(time(Some(&never)), Value::Null);
        assert_eq!(time(None), Value::Null);
    }

    #[test]
    fn what_an_entry_holds_is_json_in_json() {
        let call = Entry { detail: r#"{"tool": "message"}"#.to_owned(), ..Entry::default() };
        assert_eq!(entry(&call)["detail"]["tool"], "message");
        assert_eq!(entry(&Entry::default())["detail"], Value::Null);
    }
}
