//! `cron.*` and `wake`: jobs of the tenant's agents.

use holdfast_proto::gateway::v1::{self as pb, schedules_server::Schedules as _};
use holdfast_types::JobId;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    super::{
        call::{Call, rpc},
        connection::now_ms,
        error::{ErrorKind, MethodError},
        events::{Audience, Event},
        snapshot::{self, millis},
    },
    ADMIN, Method, READ, Reply, WRITE, method,
    sessions::NoParams,
};
use crate::permissions::rights::ConversationRight;

pub const METHODS: &[Method] = &[
    method!(
        "cron.list",
        READ,
        list,
        ["trigger", "compact", "includeDeliveryPreviews", "sessionKey", "sessionAgentId"]
    ),
    method!("cron.status", READ, status),
    method!("cron.get", READ, get),
    method!(
        "cron.add",
        ADMIN,
        add,
        ["declarationKey", "displayName", "owner", "sessionKey", "pacing", "failureAlert",]
    ),
    method!("cron.update", ADMIN, update, ["expectedConfigRevision"]),
    method!("cron.remove", ADMIN, remove),
    method!("cron.run", ADMIN, run, ["expectedProcessInstanceId"]),
    method!(
        "cron.runs",
        READ,
        runs,
        ["scope", "runId", "deliveryStatuses", "deliveryStatus", "query",]
    ),
    method!("wake", WRITE, wake),
];

/// Jobs of a tenant that one list looks through.
const MAX_JOBS: usize = 1_000;

/// Jobs of one page.
const MAX_PAGE: usize = 200;

/// Jobs of one page of the gRPC method.
const PAGE: u32 = 200;

/// Runs of one page.
const DEFAULT_RUNS: usize = 50;
const MAX_RUNS: usize = 200;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ListParams {
    include_disabled: Option<bool>,
    limit: Option<usize>,
    offset: Option<usize>,
    /// Place to go on from: of a snapshot, or `nextCursor` of an earlier answer.
    cursor: Option<String>,
    query: Option<String>,
    enabled: Option<String>,
    schedule_kind: Option<String>,
    last_run_status: Option<String>,
    sort_by: Option<String>,
    sort_dir: Option<String>,
    agent_id: Option<String>,
}

async fn list(call: Call, params: ListParams) -> Reply {
    if let Some(after) = params.cursor.clone() {
        return list_after(&call, after, &params).await;
    }
    let jobs = all(&call, params.agent_id.clone().unwrap_or_default()).await?;
    let mut rows: Vec<Value> =
        jobs.iter().map(job_of).filter(|job| matches(job, &params)).collect();
    let by = params.sort_by.as_deref().unwrap_or("nextRunAtMs");
    rows.sort_by(|one, other| match by {
        "name" => one["name"].as_str().cmp(&other["name"].as_str()),
        "updatedAtMs" => one["updatedAtMs"].as_i64().cmp(&other["updatedAtMs"].as_i64()),
        _ => {
            let next = |job: &Value| job["state"]["nextRunAtMs"].as_i64().unwrap_or(i64::MAX);
            next(one).cmp(&next(other))
        }
    });
    if params.sort_dir.as_deref() == Some("desc") {
        rows.reverse();
    }
    let (total, offset) = (rows.len(), params.offset.unwrap_or(0));
    let limit = params.limit.unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE);
    // Clients begin anew if it changes from page to page.
    let newest = jobs.iter().map(|job| millis(job.updated_at.as_ref())).max().unwrap_or(0);
    let revision = format!("{total}-{newest}");
    let page: Vec<Value> = rows.into_iter().skip(offset).take(limit).collect();
    let next = offset + page.len();
    Ok(json!({
        "jobs": page,
        "snapshotRevision": revision,
        "total": total,
        "offset": offset,
        "limit": limit,
        "hasMore": next < total,
        "nextOffset": (next < total).then_some(next),
    }))
}

/// Lists the jobs that were made after the one of a cursor, the oldest first. `limit` are read, and
/// fewer are in the answer if some do not match the filters.
async fn list_after(call: &Call, after: String, params: &ListParams) -> Reply {
    let wrong = |why: &str| Err(MethodError::invalid(format!("invalid cron.list params: {why}")));
    if params.offset.is_some() || params.sort_by.is_some() || params.sort_dir.is_some() {
        return wrong(
            "leave out offset, sortBy and sortDir with `cursor`: the order is of creation",
        );
    }
    if after.parse::<JobId>().is_err() {
        return wrong(
            "cursor: must be `cronJobsCursor` of a snapshot or `nextCursor` of an answer",
        );
    }
    let limit = params.limit.unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE);
    let agent = params.agent_id.clone().unwrap_or_default();
    let page_limit = u32::try_from(limit).unwrap_or(PAGE);
    let request = pb::ListJobsRequest { agent, limit: page_limit, after, ..Default::default() };
    let handler = call.service.schedules.clone();
    let page = rpc!(call, "Schedules/ListJobs", handler, list_jobs, request)?;
    let jobs: Vec<Value> =
        page.jobs.iter().map(job_of).filter(|job| matches(job, params)).collect();
    Ok(json!({
        "jobs": jobs,
        "limit": limit,
        "hasMore": !page.next.is_empty(),
        "nextCursor": snapshot::cursor(page.next),
    }))
}

fn matches(job: &Value, params: &ListParams) -> bool {
    let is = |asked: &Option<String>, value: &Value| {
        asked.as_deref().is_none_or(|asked| asked == "all" || value == asked)
    };
    let is_enabled = job["enabled"] == true;
    let shown = match params.enabled.as_deref() {
        Some("enabled") => is_enabled,
        Some("disabled") => !is_enabled,
        Some(_) => true,
        None => is_enabled || params.include_disabled.unwrap_or(false),
    };
    let found = params.query.as_deref().is_none_or(|query| {
        let text = format!("{} {}", job["name"], job["description"]).to_lowercase();
        text.contains(&query.to_lowercase())
    });
    shown
        && found
        && is(&params.schedule_kind, &job["schedule"]["kind"])
        && is(&params.last_run_status, &job["state"]["lastRunStatus"])
}

async fn all(call: &Call, agent: String) -> Result<Vec<pb::Job>, MethodError> {
    let (mut jobs, mut after) = (Vec::new(), String::new());
    while jobs.len() < MAX_JOBS {
        let agent = agent.clone();
        let request = pb::ListJobsRequest { agent, limit: PAGE, after, ..Default::default() };
        let handler = call.service.schedules.clone();
        let page = rpc!(call, "Schedules/ListJobs", handler, list_jobs, request)?;
        jobs.extend(page.jobs);
        after = page.next;
        if after.is_empty() {
            break;
        }
    }
    Ok(jobs)
}

/// A job as clients show it.
fn job_of(job: &pb::Job) -> Value {
    let what: Value = serde_json::from_str(&job.what).unwrap_or_default();
    let text = |value: &Value, fallback: &str| value.as_str().unwrap_or(fallback).to_owned();
    let mut state = Map::new();
    let mut put = |field: &str, at: Option<&prost_types::Timestamp>| {
        if at.is_some() {
            state.insert(field.to_owned(), millis(at).into());
        }
    };
    put("nextRunAtMs", job.next_run_at.as_ref());
    put("lastRunAtMs", job.last_run_at.as_ref());
    if job.running {
        put("runningAtMs", job.updated_at.as_ref());
    }
    if !job.last_status.is_empty() {
        state.insert("lastRunStatus".to_owned(), job.last_status.as_str().into());
        state.insert("lastStatus".to_owned(), job.last_status.as_str().into());
        state.insert("lastDurationMs".to_owned(), job.last_duration_ms.into());
    }
    if !job.last_error.is_empty() {
        state.insert("lastError".to_owned(), job.last_error.as_str().into());
    }
    state.insert("consecutiveErrors".to_owned(), job.consecutive_errors.into());
    let mut shown = json!({
        "id": job.id,
        "agentId": job.agent,
        "name": job.name,
        "enabled": job.state == "active",
        "deleteAfterRun": what["delete_after_run"].as_bool().unwrap_or(false),
        "createdAtMs": millis(job.created_at.as_ref()),
        "updatedAtMs": millis(job.updated_at.as_ref()),
        "configRevision": job.version.to_string(),
        "schedule": shown_schedule(&what["schedule"]),
        "sessionTarget": text(&what["session_target"], "main"),
        "wakeMode": text(&what["wake_mode"], "next-heartbeat"),
        "payload": shown_payload(&what["payload"]),
        "delivery": shown_delivery(&what["payload"]),
        "state": state,
    });
    if !job.description.is_empty() {
        shown["description"] = job.description.as_str().into();
    }
    for field in ["nextRunAtMs", "lastRunAtMs", "lastRunStatus"] {
        if let Some(value) = shown["state"].get(field).cloned() {
            shown[field] = value;
        }
    }
    shown
}

fn shown_schedule(schedule: &Value) -> Value {
    match schedule["kind"].as_str() {
        Some("at") => {
            let at = schedule["at_ms"].as_i64().unwrap_or(0);
            let at_text = jiff::Timestamp::from_millisecond(at).unwrap_or_default().to_string();
            json!({ "kind": "at", "at": at_text })
        }
        Some("every") => {
            let mut shown = json!({ "kind": "every", "everyMs": schedule["every_ms"] });
            if schedule["anchor_ms"].is_i64() {
                shown["anchorMs"] = schedule["anchor_ms"].clone();
            }
            shown
        }
        _ => json!({ "kind": "cron", "expr": schedule["expr"], "tz": schedule["tz"] }),
    }
}

fn shown_payload(payload: &Value) -> Value {
    match payload["kind"].as_str() {
        Some("agentTurn") => {
            let mut shown = json!({
                "kind": "agentTurn",
                "message": payload["message"],
                "timeoutSeconds": payload["timeout_seconds"],
            });
            for field in ["model", "thinking"] {
                if payload[field].is_string() {
                    shown[field] = payload[field].clone();
                }
            }
            shown
        }
        Some("timer") => json!({ "kind": "systemEvent", "text": payload["event"] }),
        _ => json!({ "kind": "systemEvent", "text": payload["message"] }),
    }
}

fn shown_delivery(payload: &Value) -> Value {
    if payload["kind"] != "agentTurn" || payload["deliver"] == false {
        return json!({ "mode": "none" });
    }
    let mut shown = json!({ "mode": "announce", "channel": payload["channel"] });
    if payload["to"].is_string() {
        shown["to"] = payload["to"].clone();
    }
    shown
}

async fn status(call: Call, NoParams {}: NoParams) -> Reply {
    let handler = call.service.schedules.clone();
    let request = pb::GetScheduleStatusRequest {};
    let state = rpc!(call, "Schedules/GetScheduleStatus", handler, get_schedule_status, request)?;
    Ok(json!({
        "enabled": true,
        "jobs": state.jobs_count,
        "activeJobs": state.active_count,
        "runningJobs": state.running_count,
        "nextWakeAtMs": state.next_run_at.as_ref().map(|at| millis(Some(at))),
        "storePath": "",
    }))
}

/// Job of a request: clients write `id` or `jobId`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct JobParams {
    #[serde(alias = "jobId")]
    id: String,
}

async fn get(call: Call, params: JobParams) -> Reply {
    Ok(job_of(&find(&call, params.id).await?))
}

async fn find(call: &Call, id: String) -> Result<pb::Job, MethodError> {
    let handler = call.service.schedules.clone();
    let request = pb::GetJobRequest { job: id.clone() };
    let found = rpc!(call, "Schedules/GetJob", handler, get_job, request);
    let found = found.map_err(|error| unknown(error, &id))?;
    found.job.ok_or_else(|| MethodError::invalid("there is no such job"))
}

/// Adds the protocol's code to an error about a job that does not exist.
fn unknown(error: MethodError, id: &str) -> MethodError {
    let id: String = id.chars().take(80).collect();
    match error.kind {
        ErrorKind::Invalid => {
            error.with_details(json!({ "code": "CRON_JOB_NOT_FOUND", "jobId": id }))
        }
        _ => error,
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AddParams {
    name: String,
    agent_id: Option<String>,
    description: Option<String>,
    enabled: Option<bool>,
    delete_after_run: Option<bool>,
    schedule: Value,
    session_target: Option<String>,
    wake_mode: Option<String>,
    payload: Value,
    delivery: Option<Value>,
}

async fn add(call: Call, params: AddParams) -> Reply {
    let mut job = json!({
        "name": params.name,
        "description": params.description.unwrap_or_default(),
        "enabled": params.enabled.unwrap_or(true),
        "schedule": schedule(&params.schedule)?,
        "payload": payload(&params.payload, params.delivery.as_ref())?,
        "session_target": session_target(params.session_target.as_deref(), &params.payload)?,
    });
    if let Some(payload) = job["payload"].as_object_mut() {
        payload.retain(|_, value| !value.is_null());
    }
    if let Some(mode) = params.wake_mode {
        job["wake_mode"] = mode.into();
    }
    let is_once = job["schedule"]["kind"] == "at";
    job["delete_after_run"] = params.delete_after_run.unwrap_or(is_once).into();
    let agent = params.agent_id.unwrap_or_default();
    let request = pb::AddJobRequest { job: job.to_string(), agent, ..Default::default() };
    let handler = call.service.schedules.clone();
    let added = rpc!(call, "Schedules/AddJob", handler, add_job, request)?;
    let job = job_of(&added.job.unwrap_or_default());
    tell(&call, &job["id"], "added");
    Ok(job)
}

/// A schedule in the form of the gRPC method.
fn schedule(given: &Value) -> Result<Value, MethodError> {
    let wrong = |why: &str| MethodError::invalid(format!("invalid cron params: schedule: {why}"));
    Ok(match given["kind"].as_str() {
        Some("at") => {
            let at = match (&given["at"], given["atMs"].as_i64()) {
                (Value::String(at), _) => at
                    .parse::<jiff::Timestamp>()
                    .map_err(|_| wrong("`at` must be a time, as 2026-11-20T08:00:00Z"))?
                    .as_millisecond(),
                (_, Some(at)) => at,
                (_, None) => return Err(wrong("`at` is missing")),
            };
            json!({ "kind": "at", "at_ms": at })
        }
        Some("every") => {
            let mut schedule = json!({ "kind": "every", "every_ms": given["everyMs"] });
            if !given["anchorMs"].is_null() {
                schedule["anchor_ms"] = given["anchorMs"].clone();
            }
            schedule
        }
        Some("cron") => {
            let mut schedule = json!({ "kind": "cron", "expr": given["expr"] });
            if given["tz"].is_string() {
                schedule["tz"] = given["tz"].clone();
            }
            schedule
        }
        _ => return Err(wrong("`kind` must be `at`, `every` or `cron`")),
    })
}

fn payload(given: &Value, delivery: Option<&Value>) -> Result<Value, MethodError> {
    let wrong = |why: &str| MethodError::invalid(format!("invalid cron params: payload: {why}"));
    match given["kind"].as_str() {
        Some("systemEvent") => Ok(json!({ "kind": "systemEvent", "message": given["text"] })),
        Some("agentTurn") => {
            let mut turn = json!({ "kind": "agentTurn", "message": given["message"] });
            let fields = [
                ("model", "model"),
                ("thinking", "thinking"),
                ("timeoutSeconds", "timeout_seconds"),
            ];
            for (theirs, ours) in fields {
                // A change sets a field to its default by `null`.
                if let Some(value) = given.get(theirs) {
                    turn[ours] = value.clone();
                }
            }
            if let Some(model) = turn["model"].as_str() {
                turn["model"] = model.replacen('/', ":", usize::from(!model.contains(':'))).into();
            }
            match delivery.and_then(|delivery| delivery["mode"].as_str()) {
                // Said in both cases: a change keeps what it does not name.
                Some("none") => turn["deliver"] = false.into(),
                Some("announce") => turn["deliver"] = true.into(),
                Some("webhook") => {
                    return Err(wrong(
                        "answers go to channels: `delivery.mode` is none or announce",
                    ));
                }
                Some(_) | None => {}
            }
            for field in ["channel", "to"] {
                let value = delivery.map(|delivery| &delivery[field]);
                if let Some(value) = value.filter(|value| value.is_string()) {
                    turn[field] = value.clone();
                }
            }
            Ok(turn)
        }
        _ => Err(wrong("`kind` must be `systemEvent` or `agentTurn`")),
    }
}

fn session_target(given: Option<&str>, payload: &Value) -> Result<&'static str, MethodError> {
    let is_turn = payload["kind"] == "agentTurn";
    match given {
        Some("main") if !is_turn => Ok("main"),
        None if !is_turn => Ok("main"),
        None | Some("isolated" | "current") if is_turn => Ok("isolated"),
        Some(_) | None => Err(MethodError::invalid(
            "invalid cron params: sessionTarget: `main` for a systemEvent, `isolated` for an \
             agentTurn",
        )),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct UpdateParams {
    #[serde(alias = "jobId")]
    id: String,
    patch: Patch,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Patch {
    name: Option<String>,
    description: Option<String>,
    enabled: Option<bool>,
    delete_after_run: Option<bool>,
    schedule: Option<Value>,
    session_target: Option<String>,
    wake_mode: Option<String>,
    payload: Option<Value>,
    delivery: Option<Value>,
    #[serde(rename = "displayName")]
    _display_name: Option<Value>,
    #[serde(rename = "agentId")]
    _agent: Option<Value>,
    #[serde(rename = "sessionKey")]
    _session: Option<Value>,
    #[serde(rename = "failureAlert")]
    _alert: Option<Value>,
    #[serde(rename = "pacing")]
    _pacing: Option<Value>,
    #[serde(rename = "trigger")]
    _trigger: Option<Value>,
    #[serde(rename = "state")]
    _state: Option<Value>,
}

async fn update(call: Call, params: UpdateParams) -> Reply {
    let UpdateParams { id, patch: given } = params;
    let before = find(&call, id.clone()).await?;
    let mut patch = Map::new();
    let mut put = |field: &str, value: Option<Value>| {
        if let Some(value) = value {
            patch.insert(field.to_owned(), value);
        }
    };
    put("name", given.name.map(Value::from));
    put("description", given.description.map(Value::from));
    put("enabled", given.enabled.map(Value::from));
    put("delete_after_run", given.delete_after_run.map(Value::from));
    put("wake_mode", given.wake_mode.map(Value::from));
    put("schedule", given.schedule.as_ref().map(schedule).transpose()?);
    if given.payload.is_some() || given.delivery.is_some() {
        let known = job_of(&before);
        let mut merged = known["payload"].clone();
        if let (Value::Object(merged), Some(Value::Object(changed))) = (&mut merged, given.payload)
        {
            let is_other = changed.get("kind").is_some_and(|kind| merged.get("kind") != Some(kind));
            if is_other {
                merged.clear();
            }
            merged.extend(changed);
        }
        let delivery = given.delivery.unwrap_or_else(|| known["delivery"].clone());
        put("payload", Some(of_same_kind(&before, payload(&merged, Some(&delivery))?)));
        let target = session_target(given.session_target.as_deref(), &merged)?;
        put("session_target", Some(target.into()));
    } else if let Some(target) = given.session_target {
        put("session_target", Some(target.into()));
    }
    let patch = Value::Object(patch).to_string();
    let request = pb::UpdateJobRequest { job: id, patch, version: before.version };
    let handler = call.service.schedules.clone();
    let updated = rpc!(call, "Schedules/UpdateJob", handler, update_job, request)?;
    let job = job_of(&updated.job.unwrap_or_default());
    tell(&call, &job["id"], "updated");
    Ok(job)
}

/// A new payload of a job. The protocol knows neither fixed messages nor timers and shows them as
/// system events, so an event for such a job is its new text or name.
fn of_same_kind(job: &pb::Job, mut payload: Value) -> Value {
    let what: Value = serde_json::from_str(&job.what).unwrap_or_default();
    let before = &what["payload"];
    if payload["kind"] == "systemEvent" {
        match before["kind"].as_str() {
            Some("message") => payload["kind"] = "message".into(),
            Some("timer") => payload = json!({ "kind": "timer", "event": payload["message"] }),
            _ => {}
        }
    }
    payload
}

async fn remove(call: Call, params: JobParams) -> Reply {
    let handler = call.service.schedules.clone();
    let request = pb::DeleteJobRequest { job: params.id.clone() };
    let removed = rpc!(call, "Schedules/DeleteJob", handler, delete_job, request)?;
    tell(&call, &params.id.into(), "removed");
    Ok(json!({ "ok": true, "removed": removed.existed }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RunParams {
    #[serde(alias = "jobId")]
    id: String,
    mode: Option<String>,
}

async fn run(call: Call, params: RunParams) -> Reply {
    let mode = match params.mode.as_deref() {
        None | Some("force" | "if-enabled") => "force",
        Some("due") => "due",
        Some(_) => {
            return Err(MethodError::invalid(
                "invalid cron.run params: mode: must be `force`, `if-enabled` or `due`",
            ));
        }
    };
    let handler = call.service.schedules.clone();
    let request =
        pb::RunJobRequest { job: params.id.clone(), mode: mode.to_owned(), ..Default::default() };
    let outcome = rpc!(call, "Schedules/RunJob", handler, run_job, request);
    let outcome = outcome.map_err(|error| unknown(error, &params.id))?;
    let is_run = !matches!(outcome.status.as_str(), "skipped" | "not_due");
    let mut reply = json!({ "ok": true, "ran": is_run, "enqueued": is_run });
    if !outcome.reason.is_empty() {
        reply["reason"] = outcome.reason.into();
    }
    tell(&call, &params.id.into(), "started");
    Ok(reply)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RunsParams {
    agent_id: Option<String>,
    #[serde(alias = "jobId")]
    id: Option<String>,
    limit: Option<usize>,
    offset: Option<usize>,
    statuses: Option<Vec<String>>,
    status: Option<String>,
    sort_dir: Option<String>,
}

async fn runs(call: Call, params: RunsParams) -> Reply {
    let jobs = match &params.id {
        Some(id) => vec![find(&call, id.clone()).await?],
        None => all(&call, params.agent_id.clone().unwrap_or_default()).await?,
    };
    let mut entries = Vec::new();
    for job in &jobs {
        let limit = u32::try_from(MAX_RUNS).unwrap_or(u32::MAX).min(100);
        let request = pb::ListJobRunsRequest { job: job.id.clone(), limit };
        let handler = call.service.schedules.clone();
        let listed = rpc!(call, "Schedules/ListJobRuns", handler, list_job_runs, request)?;
        entries.extend(listed.runs.iter().map(|run| run_of(job, run)));
    }
    let is_wanted = |entry: &Value| {
        params.status.as_deref().is_none_or(|status| status == "all" || entry["status"] == status)
            && params
                .statuses
                .as_ref()
                .is_none_or(|all| all.iter().any(|status| entry["status"] == **status))
    };
    entries.retain(is_wanted);
    entries.sort_by_key(|entry| std::cmp::Reverse(entry["ts"].as_i64()));
    if params.sort_dir.as_deref() == Some("asc") {
        entries.reverse();
    }
    let (total, offset) = (entries.len(), params.offset.unwrap_or(0));
    let limit = params.limit.unwrap_or(DEFAULT_RUNS).clamp(1, MAX_RUNS);
    let page: Vec<Value> = entries.into_iter().skip(offset).take(limit).collect();
    let next = offset + page.len();
    Ok(json!({
        "entries": page,
        "total": total,
        "offset": offset,
        "limit": limit,
        "hasMore": next < total,
        "nextOffset": (next < total).then_some(next),
    }))
}

fn run_of(job: &pb::Job, run: &pb::JobRun) -> Value {
    let mut entry = json!({
        "ts": millis(run.finished_at.as_ref()),
        "jobId": job.id,
        "jobName": job.name,
        "action": "finished",
        "status": run.status,
        "runAtMs": millis(run.at.as_ref()),
        "durationMs": run.duration_ms,
    });
    for (field, text) in [("error", &run.error), ("runId", &run.run_id)] {
        if !text.is_empty() {
            entry[field] = text.as_str().into();
        }
    }
    entry
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WakeParams {
    mode: String,
    text: String,
    #[serde(default)]
    session_key: String,
    #[serde(default)]
    agent_id: String,
}

async fn wake(call: Call, params: WakeParams) -> Reply {
    let place =
        call.place(&params.agent_id, &params.session_key, ConversationRight::Control).await?;
    let request = pb::WakeAgentRequest {
        agent: place.agent.name.to_string(),
        text: params.text,
        mode: params.mode,
        ..Default::default()
    };
    let handler = call.service.schedules.clone();
    rpc!(call, "Schedules/WakeAgent", handler, wake_agent, request)?;
    Ok(json!({ "ok": true }))
}

/// Tells that a job has changed.
fn tell(call: &Call, job: &Value, action: &str) {
    let payload = json!({ "jobId": job, "action": action, "ts": now_ms() });
    let names = ("cron", "cron.changed");
    call.hub.publish(&Event::new(names, &payload, Audience::Readers));
}
