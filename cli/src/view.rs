//! JSON forms and texts of values that several commands show.

use holdfast_proto::gateway::v1::{
    Entry, Outcome, ProviderFailure, Run, StepProgress, ToolCall, Usage,
};
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

/// Returns an amount in millionths of a US dollar as text, rounded down to four decimals.
pub fn dollars(micros: u64) -> String {
    format!("${}.{:04}", micros / 1_000_000, micros % 1_000_000 / 100)
}

/// Returns how far a turn has come, in one line.
pub fn step_progress(progress: &StepProgress) -> String {
    let mut line = format!("{} step {}", progress.behavior, progress.step);
    if !progress.todo.is_empty() {
        line += &format!(", {}", progress.todo);
    }
    if progress.todos > 0 {
        line += &format!(", {} of {} done", progress.todos_done, progress.todos);
    }
    if progress.cost_micros > 0 {
        line += &format!(", {}", dollars(progress.cost_micros));
    }
    line
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
        "written_tokens": usage.written_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
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

/// Converts a tool call. Its details are JSON inside a string.
pub fn tool_call(call: &ToolCall) -> Value {
    json!({
        "id": call.id,
        "run_id": call.run_id,
        "tool": call.tool,
        "state": call.state,
        "requested_at": time(call.requested_at.as_ref()),
        "started_at": time(call.started_at.as_ref()),
        "ended_at": time(call.ended_at.as_ref()),
        "duration_ms": call.duration_ms,
        "cost_micros": call.cost_micros,
        "error": call.error,
        "details": serde_json::from_str::<Value>(&call.details).unwrap_or(Value::Null),
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
        "cost_micros": run.cost_micros,
        "text": run.text,
        "started_at": time(run.started_at.as_ref()),
        "finished_at": time(run.finished_at.as_ref()),
        "stop": run.stop,
        "provider_failures": run.provider_failures.iter().map(provider_failure).collect::<Vec<_>>(),
    })
}

/// Fields of a failed request to a model that are shown first.
pub const FAILURE_COLUMNS: [&str; 7] =
    ["model", "class", "status", "code", "attempts", "text", "repair"];

/// Failed request to a model's provider.
pub fn provider_failure(failure: &ProviderFailure) -> Value {
    json!({
        "provider": failure.provider,
        "model": failure.model,
        "class": failure.class,
        "status": (failure.status > 0).then_some(failure.status),
        "code": failure.code,
        "attempts": failure.attempts,
        "text": failure.text,
        "repair": failure.repair,
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
    fn progress_has_what_is_known() {
        let bare = StepProgress { behavior: "plan".into(), ..StepProgress::default() };
        assert_eq!(step_progress(&bare), "plan step 0");
        let all = StepProgress {
            behavior: "DO".into(),
            step: 2,
            todo: "T001".into(),
            todos_done: 1,
            todos: 3,
            cost_micros: 20_150,
        };
        assert_eq!(step_progress(&all), "DO step 2, T001, 1 of 3 done, $0.0201");
    }

    #[test]
    fn what_an_entry_holds_is_json_in_json() {
        let call = Entry { detail: r#"{"tool": "message"}"#.to_owned(), ..Entry::default() };
        assert_eq!(entry(&call)["detail"]["tool"], "message");
        assert_eq!(entry(&Entry::default())["detail"], Value::Null);
    }
}
