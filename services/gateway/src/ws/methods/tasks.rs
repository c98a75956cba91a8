//! `tasks.*`: subagents, which are the tasks of a session.

use holdfast_proto::gateway::v1::{self as pb, subagents_server::Subagents as _};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{
        call::{Call, rpc},
        error::MethodError,
        keys,
        snapshot::millis,
    },
    Method, READ, Reply, WRITE, method,
};
use crate::control::subagents::Subagents;
use crate::permissions::rights::ConversationRight;

pub const METHODS: &[Method] = &[
    method!("tasks.list", READ, tasks, ["agentId", "cursor", "sortBy"]),
    method!("tasks.get", READ, get),
    method!("tasks.cancel", WRITE, cancel, ["reason"]),
];

/// Tasks of one list, unless the client asks for others; and the most.
const DEFAULT_TASKS: u32 = 100;
const MAX_TASKS: u32 = 200;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct TasksParams {
    status: Option<Value>,
    session_key: Option<String>,
    limit: Option<u32>,
}

async fn tasks(call: Call, params: TasksParams) -> Reply {
    let session = match params.session_key {
        Some(key) => {
            let place = call.place("", &key, ConversationRight::Read).await?;
            let views = call.state().sessions.views();
            match views.find(call.tenant(), &place.key).await? {
                Some(session) => session.to_string(),
                None => return Ok(json!({ "tasks": [] })),
            }
        }
        None => String::new(),
    };
    let limit = params.limit.unwrap_or(DEFAULT_TASKS).min(MAX_TASKS);
    let request = pb::ListSubagentsRequest { session, limit, ..Default::default() };
    let handler = Subagents(call.state().clone());
    let listed = rpc!(call, "Subagents/ListSubagents", handler, list_subagents, request)?;
    let is_wanted = |task: &Value| match &params.status {
        None => true,
        Some(Value::Array(all)) => all.contains(&task["status"]),
        Some(status) => task["status"] == *status,
    };
    let tasks: Vec<Value> = listed.subagents.iter().map(task).filter(is_wanted).collect();
    Ok(json!({ "tasks": tasks }))
}

fn task(subagent: &pb::Subagent) -> Value {
    let status = match subagent.status.as_str() {
        "running" => "running",
        "completed" | "done" | "ok" => "completed",
        "cancelled" | "stopped" => "cancelled",
        "timeout" | "timed_out" => "timed_out",
        "queued" | "waiting" | "pending" => "queued",
        _ => "failed",
    };
    let mut row = json!({
        "id": subagent.session_id,
        "taskId": subagent.session_id,
        "kind": "subagent",
        "runtime": "subagent",
        "status": status,
        "title": if subagent.label.is_empty() { &subagent.task } else { &subagent.label },
        "childSessionKey": keys::shown(&subagent.session),
        "startedAt": millis(subagent.started_at.as_ref()),
    });
    for (field, text) in
        [("prompt", &subagent.task), ("result", &subagent.result), ("error", &subagent.error)]
    {
        if !text.is_empty() {
            row[field] = text.as_str().into();
        }
    }
    row
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct TaskParams {
    task_id: String,
}

/// Finds a task among the newest ones of the tenant.
async fn find(call: &Call, id: &str) -> Result<Option<pb::Subagent>, MethodError> {
    let request = pb::ListSubagentsRequest { limit: MAX_TASKS, ..Default::default() };
    let handler = Subagents(call.state().clone());
    let listed = rpc!(call, "Subagents/ListSubagents", handler, list_subagents, request)?;
    Ok(listed.subagents.into_iter().find(|subagent| subagent.session_id == id))
}

async fn get(call: Call, params: TaskParams) -> Reply {
    match find(&call, &params.task_id).await? {
        Some(subagent) => Ok(json!({ "task": task(&subagent) })),
        None => {
            let id: String = params.task_id.chars().take(80).collect();
            Err(MethodError::invalid(format!(
                "there is no task `{id}`: `tasks.list` has those there are"
            )))
        }
    }
}

async fn cancel(call: Call, params: TaskParams) -> Reply {
    let Some(subagent) = find(&call, &params.task_id).await? else {
        return Ok(json!({ "found": false, "cancelled": false }));
    };
    if !matches!(task(&subagent)["status"].as_str(), Some("running" | "queued")) {
        let reason = "the task has ended";
        return Ok(
            json!({ "found": true, "cancelled": false, "reason": reason, "task": task(&subagent) }),
        );
    }
    let request = pb::StopSubagentRequest { session: subagent.session_id };
    let handler = Subagents(call.state().clone());
    rpc!(call, "Subagents/StopSubagent", handler, stop_subagent, request)?;
    let stopped = find(&call, &params.task_id).await?;
    Ok(json!({ "found": true, "cancelled": true, "task": stopped.as_ref().map(task) }))
}
