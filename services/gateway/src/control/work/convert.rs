//! Conversion of todos, records, tasks and ledger entries to messages.

use holdfast_proto::gateway::v1 as pb;
use holdfast_types::RunId;
use holdfast_work::{
    LedgerEntry, Task, Todo, TodoCounts, TodoError, WorklogRecord, code_of, note_name, status_name,
};

use super::super::{AgentNames, timestamp, word_of};

pub(super) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn run_id(run: Option<RunId>) -> String {
    run.map(|run| run.to_string()).unwrap_or_default()
}

pub(super) fn todo(todo: Todo) -> pb::Todo {
    pb::Todo {
        code: todo.code(),
        title: todo.title,
        description: todo.description,
        r#type: word_of(&todo.kind),
        status: status_name(todo.status).to_owned(),
        priority: todo.priority,
        labels: todo.labels,
        skills: todo.skills,
        assignee: todo.assignee.unwrap_or_default(),
        deps: todo.deps.into_iter().map(code_of).collect(),
        attempts: todo.attempts,
        last_error: todo.last_error,
        notes: todo
            .notes
            .into_iter()
            .map(|note| pb::TodoNote {
                kind: note_name(note.kind).to_owned(),
                text: note.text,
                by: note.by,
                at: Some(timestamp(note.at)),
            })
            .collect(),
        created_by: todo.created_by,
        created_at: Some(timestamp(todo.created_at)),
        updated_at: Some(timestamp(todo.updated_at)),
        estimated_hp: todo.estimate.hp.unwrap_or_default(),
        estimated_walltime_ms: todo.estimate.walltime_ms.unwrap_or_default(),
        estimated_tokens: todo.estimate.tokens.unwrap_or_default(),
    }
}

pub(super) const fn counts(counts: TodoCounts) -> pb::TodoCounts {
    pb::TodoCounts {
        wait: counts.wait,
        in_progress: counts.in_progress,
        complete: counts.complete,
        failed: counts.failed,
        done: counts.done,
        check_failed: counts.check_failed,
    }
}

pub(super) fn result(result: Result<(), TodoError>) -> pb::TodoResult {
    match result {
        Ok(()) => pb::TodoResult { applied: true, ..pb::TodoResult::default() },
        Err(error) => pb::TodoResult {
            applied: false,
            error: error.kind.as_str().to_owned(),
            message: error.message,
        },
    }
}

pub(super) fn record(record: WorklogRecord, names: &AgentNames) -> pb::WorklogRecord {
    pb::WorklogRecord {
        seq: record.seq,
        id: record.id.to_string(),
        at: Some(timestamp(record.at)),
        r#type: record.kind,
        scope: record.scope,
        agent: names.of(record.agent),
        session_id: record.session.to_string(),
        run_id: run_id(record.run),
        behavior: record.behavior,
        step: record.step,
        todo: record.todo.unwrap_or_default(),
        impact_level: record.impact_level,
        impact_domain: record.domain,
        importance: record.importance.into(),
        status: record.status,
        error: record.error.unwrap_or_default(),
        digest: record.digest,
        detail: record.detail,
        payload: record.payload.to_string(),
        artifacts: record.artifacts,
        commit_state: record.commit_state,
        trace: record.trace.unwrap_or_default(),
    }
}

pub(super) fn task(task: Task) -> pb::WorkTask {
    pb::WorkTask {
        id: task.id.to_string(),
        parent_id: task.parent.map(|parent| parent.to_string()).unwrap_or_default(),
        run_id: run_id(task.run),
        kind: task.kind,
        name: task.name,
        step: task.step,
        status: task.status,
        input_tokens: number(task.usage.input),
        cached_tokens: number(task.usage.cached),
        output_tokens: number(task.usage.output),
        cost_micros: number(task.micros),
        error: task.error.unwrap_or_default(),
        result: task.result,
        started_at: Some(timestamp(task.started_at)),
        finished_at: Some(timestamp(task.finished_at)),
    }
}

pub(super) fn entry(entry: LedgerEntry, names: &AgentNames) -> pb::LedgerEntry {
    pb::LedgerEntry {
        id: entry.id.to_string(),
        at: Some(timestamp(entry.at)),
        kind: entry.kind,
        agent: names.of(entry.agent),
        session_id: entry.session.map(|session| session.to_string()).unwrap_or_default(),
        run_id: run_id(entry.run),
        name: entry.name,
        outcome: entry.outcome,
        input_tokens: number(entry.usage.input),
        cached_tokens: number(entry.usage.cached),
        output_tokens: number(entry.usage.output),
        cost_micros: number(entry.micros),
        duration_ms: i64::try_from(entry.duration.as_millis()).unwrap_or(i64::MAX),
        steps: entry.steps,
        trace: entry.trace.unwrap_or_default(),
        position: entry.position.unwrap_or_default(),
        hash: entry.hash,
        amount: entry.amount.unwrap_or_default(),
    }
}
