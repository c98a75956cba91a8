//! `holdfast worklog`, `holdfast tasks` and `holdfast ledger`.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    GetTaskTreeRequest, LedgerEntry, ListLedgerRequest, ListWorklogRequest, VerifyLedgerRequest,
    WorkTask, WorklogRecord,
};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const RECORD_COLUMNS: [&str; 6] = ["seq", "at", "type", "step", "status", "digest"];
const TASK_COLUMNS: [&str; 6] = ["kind", "name", "step", "status", "tokens", "cost_micros"];
const ENTRY_COLUMNS: [&str; 7] =
    ["position", "at", "kind", "name", "outcome", "cost_micros", "duration_ms"];

#[derive(Debug, Args)]
pub struct Worklog {
    /// Id or key of the session
    session: String,
    /// Show only records before this one, by its `seq`
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    before: i64,
    /// Maximum number of records to list, at most 256
    #[arg(long, default_value_t = 64)]
    limit: u32,
}

impl Worklog {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let Self { session, before, limit } = self;
        let request = client.request(ListWorklogRequest { session, before, limit });
        let listed = client.answer(client.work().list_worklog(request).await)?;
        screen.list(&RECORD_COLUMNS, listed.records.iter().map(record).collect())
    }
}

#[derive(Debug, Args)]
pub struct Tasks {
    /// Id or key of the session; a subagent's tasks are those of its own session
    session: String,
    /// Number of the newest steps to show, at most 200
    #[arg(long, default_value_t = 50)]
    steps: u32,
}

impl Tasks {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let Self { session, steps } = self;
        let request = client.request(GetTaskTreeRequest { session, steps });
        let tree = client.answer(client.work().get_task_tree(request).await)?;
        if screen.is_json() {
            let tasks: Vec<Value> = tree.tasks.iter().map(task).collect();
            return screen.one(
                &[],
                &json!({
                    "session_id": tree.session_id,
                    "tasks": tasks,
                    "subagent_session_ids": tree.subagent_session_ids,
                }),
            );
        }
        let rows = tree.tasks.iter().map(|one| {
            let mut row = task(one);
            if !one.parent_id.is_empty() {
                row["kind"] = json!(format!("└ {}", one.kind));
            }
            row
        });
        screen.list(&TASK_COLUMNS, rows.collect())?;
        for subagent in &tree.subagent_session_ids {
            screen.aside(&format!("a subagent has its own: holdfast tasks {subagent}"))?;
        }
        Ok(())
    }
}

#[derive(Debug, Subcommand)]
pub enum Ledger {
    /// List entries of the tenant's ledger, newest first
    List {
        /// Show only entries of this session, by its id or key
        #[arg(long, default_value = "", hide_default_value = true)]
        session: String,
        /// Show only entries before this one, by its id
        #[arg(long, default_value = "", hide_default_value = true)]
        before: String,
        /// Maximum number of entries to list, at most 500
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Compute the chain of hashes again: shows whether an entry was changed or removed
    Verify,
}

impl Ledger {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { session, before, limit } => {
                let request = client.request(ListLedgerRequest { session, before, limit });
                let listed = client.answer(client.work().list_ledger(request).await)?;
                screen.list(&ENTRY_COLUMNS, listed.entries.iter().map(entry).collect())
            }
            Self::Verify => {
                let request = client.request(VerifyLedgerRequest {});
                let check = client.answer(client.work().verify_ledger(request).await)?;
                if check.broken_at > 0 {
                    return Err(Error::NoAnswer(format!(
                        "the chain of the ledger is broken at position {}",
                        check.broken_at
                    )));
                }
                let sentence = format!(
                    "the chain is whole: {} entries, {} more are not chained yet; it ends with {}",
                    check.entries, check.unchained, check.head
                );
                let thing = json!({
                    "entries": check.entries,
                    "unchained": check.unchained,
                    "head": check.head,
                });
                screen.done(&sentence, &thing)
            }
        }
    }
}

fn record(record: &WorklogRecord) -> Value {
    json!({
        "seq": record.seq,
        "id": record.id,
        "at": time(record.at.as_ref()),
        "type": record.r#type,
        "scope": record.scope,
        "agent": record.agent,
        "session_id": record.session_id,
        "run_id": record.run_id,
        "behavior": record.behavior,
        "step": record.step,
        "todo": record.todo,
        "impact_level": record.impact_level,
        "impact_domain": record.impact_domain,
        "importance": record.importance,
        "status": record.status,
        "error": record.error,
        "digest": record.digest,
        "detail": record.detail,
        "payload": serde_json::from_str::<Value>(&record.payload).unwrap_or(Value::Null),
        "artifacts": record.artifacts,
        "commit_state": record.commit_state,
        "trace": record.trace,
    })
}

fn task(task: &WorkTask) -> Value {
    json!({
        "id": task.id,
        "parent_id": task.parent_id,
        "run_id": task.run_id,
        "kind": task.kind,
        "name": task.name,
        "step": task.step,
        "status": task.status,
        "tokens": task.input_tokens + task.output_tokens,
        "input_tokens": task.input_tokens,
        "cached_tokens": task.cached_tokens,
        "output_tokens": task.output_tokens,
        "cost_micros": task.cost_micros,
        "error": task.error,
        "result": task.result,
        "started_at": time(task.started_at.as_ref()),
        "finished_at": time(task.finished_at.as_ref()),
    })
}

fn entry(entry: &LedgerEntry) -> Value {
    json!({
        "id": entry.id,
        "at": time(entry.at.as_ref()),
        "kind": entry.kind,
        "agent": entry.agent,
        "session_id": entry.session_id,
        "run_id": entry.run_id,
        "name": entry.name,
        "outcome": entry.outcome,
        "input_tokens": entry.input_tokens,
        "cached_tokens": entry.cached_tokens,
        "output_tokens": entry.output_tokens,
        "cost_micros": entry.cost_micros,
        "duration_ms": entry.duration_ms,
        "steps": entry.steps,
        "trace": entry.trace,
        "position": entry.position,
        "hash": entry.hash,
    })
}
