//! Tool `cron`: jobs of the calling agent.

use std::time::Duration;

use holdfast_agent::person::OWNER;
use holdfast_schedule::store::{
    Changes, Editor, Job, JobFilter, JobKind, NewJob, Reminder, RunMode, RunRequestOutcome,
};
use holdfast_schedule::{
    AgentTurn, FixedMessage, JobPatch, NewJob as JobFields, Payload, Schedule, SessionTarget, Zone,
    reminder::Locale,
};
use holdfast_session::{NewMessage, NewSystemEvent};
use holdfast_tools::{Call, CronJobs, CronRequest, JobTime, ShortJob};
use holdfast_types::{Body, Fault, JobId, Kind, QueueMode, SessionKey, Source};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{ScheduleTools, job_id};
use crate::tools::{mesh::SessionTools, tool_context::ToolContext};

/// Jobs per read.
const PAGE_SIZE: u32 = 200;

/// Event name and source of a message that is delivered immediately.
const WAKE_EVENT: &str = "wake";

type Answer = anyhow::Result<Result<Value, String>>;

impl CronJobs for ScheduleTools {
    async fn cron(&self, call: &Call, wish: CronRequest) -> Answer {
        if !SessionTools::is_owner_or_agent(call)? {
            let told = "jobs are for a conversation with your owner; `scheduler_add` reminds whoever \
                        you speak with";
            return Ok(Err(told.to_owned()));
        }
        match wish {
            CronRequest::Status => self.job_status(call).await,
            CronRequest::List => self.list_jobs(call).await,
            CronRequest::Add(job) => match JobFields::from_json(job) {
                Ok(what) => self.add_job(call, what).await,
                Err(error) => Ok(Err(error.to_string())),
            },
            CronRequest::AddShort(saying) => self.add_short_job(call, saying).await,
            CronRequest::Update { id, patch } => self.update_job(call, &id, patch).await,
            CronRequest::Remove(id) => self.remove_job(call, &id).await,
            CronRequest::Run { id, force } => self.run_job(call, &id, force).await,
            CronRequest::Runs(id) => self.job_runs(call, &id).await,
            CronRequest::Wake { text, now } => self.wake_main_session(call, text, now).await,
        }
    }
}

impl ScheduleTools {
    async fn job_status(&self, call: &Call) -> Answer {
        let jobs = self.own_jobs(call).await?;
        let next = jobs.iter().filter_map(|job| job.next_slot).min();
        let running = jobs.iter().filter(|job| job.running.is_some()).count();
        Ok(Ok(json!({
            "jobs_count": jobs.len(), "running": running, "next_run": next.map(|at| at.to_string()),
        })))
    }

    async fn list_jobs(&self, call: &Call) -> Answer {
        let jobs = self.own_jobs(call).await?;
        let lines = jobs.iter().map(job_json).collect::<Result<Vec<Value>, _>>()?;
        Ok(Ok(Value::Array(lines)))
    }

    /// Jobs of the agent that this tool can create.
    async fn own_jobs(&self, call: &Call) -> anyhow::Result<Vec<Job>> {
        let mut own = Vec::new();
        // Read by kind: an agent may have many more reminders than jobs.
        for kind in JobKind::ALL.iter().copied().filter(|kind| is_cron(*kind)) {
            let mut filter = JobFilter {
                agent: Some(call.agent),
                kind: Some(kind),
                limit: PAGE_SIZE,
                ..JobFilter::default()
            };
            loop {
                let page = self.jobs.list(call.tenant, &filter).await?;
                filter.after = page.last().map(|job| job.id);
                let is_last = page.len() < PAGE_SIZE as usize;
                own.extend(page);
                if is_last {
                    break;
                }
            }
        }
        own.sort_by_key(|job| job.id);
        Ok(own)
    }

    async fn find_own(&self, call: &Call, id: &str) -> anyhow::Result<Result<Job, String>> {
        match self.jobs.find(call.tenant, id, None).await {
            Ok(job) if job.agent == call.agent && is_cron(job.kind) => Ok(Ok(job)),
            Ok(_) | Err(holdfast_schedule::store::Error::NotFound(_)) => Ok(Err(not_found(id))),
            Err(error @ holdfast_schedule::store::Error::Ambiguous(_)) => {
                Ok(Err(error.to_string()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a job, or a reminder of this conversation's user.
    async fn remove_job(&self, call: &Call, id: &str) -> Answer {
        let job = match self.jobs.find(call.tenant, id, None).await {
            Ok(job) => job,
            // A repeated call after a crash has reached its aim.
            Err(holdfast_schedule::store::Error::NotFound(_)) => {
                return Ok(Ok(json!({ "removed": null })));
            }
            Err(error) => return to_answer(error),
        };
        let is_theirs = match job.kind {
            JobKind::Reminder => job.owner == Some(self.reminder_owner(call)?),
            kind => is_cron(kind),
        };
        if job.agent != call.agent || !is_theirs {
            return Ok(Err(not_found(id)));
        }
        self.jobs.remove(call.tenant, job.id).await?;
        Ok(Ok(json!({ "removed": job.external_id })))
    }

    /// Owner of reminders that are created here.
    fn reminder_owner(&self, call: &Call) -> anyhow::Result<String> {
        let user = ToolContext::of(call)?.requester.user.clone();
        Ok(user.unwrap_or_else(|| OWNER.to_owned()))
    }

    async fn add_job(&self, call: &Call, mut what: JobFields) -> Answer {
        if what.agent_id.is_some() {
            return Ok(Err("leave `agent_id` out: the job is yours".to_owned()));
        }
        if let Some(session) = what.payload.session_mut()
            && session.is_none()
        {
            *session = Some(self.job_session(call)?.0.to_string());
        }
        if let Err(error) = what.payload.check_session(&call.agent_name) {
            return Ok(Err(error.to_string()));
        }
        let (id, now) = (job_id(&call.key), Timestamp::now());
        let author = ToolContext::of(call)?.requester.author.clone();
        let allowed = self.rules.allowed();
        let new = match NewJob::cron(id, call.agent, None, what, now, allowed) {
            Ok(new) => NewJob { external_id: Some(job_name(id)), author, ..new },
            Err(error) => match self.jobs.get(call.tenant, id).await {
                // The time may have passed since: this is a repetition of the call.
                Ok(there) => return Ok(Ok(job_json(&there)?)),
                Err(_) => return Ok(Err(error.to_string())),
            },
        };
        self.create_job(call, new).await
    }

    async fn create_job(&self, call: &Call, new: NewJob) -> Answer {
        match self.jobs.add(call.tenant, new).await {
            Ok(added) => {
                self.mesh.bus.wake_schedule();
                Ok(Ok(job_json(&added.into_job())?))
            }
            Err(error) => to_answer(error),
        }
    }

    /// Creates a job from a short text: a reminder in this conversation, a text that is said here
    /// again and again, or a turn of its own whose answer is sent here.
    async fn add_short_job(&self, call: &Call, saying: ShortJob) -> Answer {
        let (session, target) = self.job_session(call)?;
        let id = job_id(&call.key);
        if let Ok(there) = self.jobs.get(call.tenant, id).await {
            return Ok(Ok(job_json(&there)?));
        }
        let zone = ToolContext::of(call)?.requester.zone.clone();
        let now = Timestamp::now();
        let schedule = match to_schedule(&saying.when, now, zone) {
            Ok(schedule) => schedule,
            Err(error) => return Ok(Err(error.to_string())),
        };
        if let (JobTime::In(_), true, None) = (&saying.when, saying.deliver, &saying.command) {
            let reminder = Reminder {
                content: saying.message.clone(),
                session: session.to_string(),
                auto_continue: false,
                locale: Locale::detect(&saying.message).tag().to_owned(),
                target,
                renewals: 0,
                author: ToolContext::of(call)?.requester.author.clone(),
                // After text from outside, a person has approved the job.
                outside: false,
            };
            let new =
                NewJob::reminder(id, call.agent, self.reminder_owner(call)?, schedule, &reminder);
            return self.create_job(call, NewJob { delete_after_run: false, ..new }).await;
        }
        let (place, payload) = match (saying.deliver, &saying.command) {
            (true, None) => {
                let (message, session) = (saying.message.clone(), Some(session.to_string()));
                (SessionTarget::Main, Payload::Message(FixedMessage { message, session }))
            }
            (true | false, Some(_)) | (false, None) => {
                let (channel, to) = match target {
                    Some(target) => (target.channel, Some(target.chat)),
                    None => (AgentTurn::LAST_CHANNEL.to_owned(), None),
                };
                let turn = AgentTurn { channel, to, ..AgentTurn::new(turn_prompt(&saying)) };
                (SessionTarget::Isolated, Payload::AgentTurn(turn))
            }
        };
        let name = saying.command.as_deref().unwrap_or(&saying.message);
        let job = json!({
            "name": name.trim().chars().take(30).collect::<String>(), "schedule": schedule,
            "session_target": place, "payload": payload,
        });
        match JobFields::from_json(job) {
            Ok(what) => self.add_job(call, what).await,
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    async fn update_job(&self, call: &Call, id: &str, patch: Value) -> Answer {
        let patch = match JobPatch::from_json(patch) {
            Ok(patch) => patch,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let has_payload = patch.payload.is_some();
        let job = match self.find_own(call, id).await? {
            Ok(job) => job,
            Err(told) => return Ok(Err(told)),
        };
        let changes = match Changes::of(&job, patch, Timestamp::now(), self.rules.allowed()) {
            Ok(changes) => changes,
            Err(error) => return to_answer(error),
        };
        if has_payload && let Err(error) = changes.check_session(&call.agent_name) {
            return Ok(Err(error.to_string()));
        }
        let context = ToolContext::of(call)?;
        let is_owner = context.audience.has_owner_rights();
        let author = context.requester.author.clone();
        let editor = author.map(|author| Editor { author, is_owner });
        let changes = Changes { editor, ..changes };
        match self.jobs.update(call.tenant, job.id, Some(job.version), changes).await {
            Ok(job) => {
                self.mesh.bus.wake_schedule();
                Ok(Ok(job_json(&job)?))
            }
            Err(error) => to_answer(error),
        }
    }

    async fn run_job(&self, call: &Call, id: &str, force: bool) -> Answer {
        let job = match self.find_own(call, id).await? {
            Ok(job) => job,
            Err(told) => return Ok(Err(told)),
        };
        let (request, mode) =
            (job_id(&call.key).as_uuid(), if force { RunMode::Force } else { RunMode::Due });
        let ran = self.jobs.run_now(call.tenant, job.id, request, mode).await?;
        self.mesh.bus.wake_schedule();
        Ok(Ok(match ran {
            RunRequestOutcome::Fired(_) | RunRequestOutcome::Due => json!({ "status": "started" }),
            RunRequestOutcome::Skipped(reason) => json!({ "status": "skipped", "reason": reason }),
        }))
    }

    async fn job_runs(&self, call: &Call, id: &str) -> Answer {
        let job = match self.find_own(call, id).await? {
            Ok(job) => job,
            Err(told) => return Ok(Err(told)),
        };
        let runs = self.jobs.runs(call.tenant, job.id, 20).await?;
        let lines = runs.into_iter().map(|run| {
            json!({
                "at": run.at.to_string(), "status": run.outcome.as_str(), "error": run.class,
                "duration_ms": run.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            })
        });
        Ok(Ok(lines.collect()))
    }

    /// Adds a message to the agent's main conversation: to its next turn, or as a turn of its own.
    async fn wake_main_session(&self, call: &Call, text: String, now: bool) -> Answer {
        let key = SessionKey::main(&call.agent_name);
        let sessions = &self.mesh.sessions;
        let context = ToolContext::of(call)?;
        let outside = context.repeats_outside_text();
        if !now {
            let idem_key = call.key.clone();
            let event = NewSystemEvent { key, idem_key, text, outside, signed: None };
            sessions.add_system_event(call.tenant, &event).await?;
            return Ok(Ok(json!({ "ok": true })));
        }
        let target = match sessions.views().find(call.tenant, &key).await? {
            Some(session) => sessions.views().session(call.tenant, session).await?.last_target,
            None => None,
        };
        let message = NewMessage {
            key,
            agent: call.agent,
            label: None,
            source: Source::Internal(WAKE_EVENT.to_owned()),
            idem_key: call.key.clone(),
            body: Body {
                event: Some(WAKE_EVENT.to_owned()),
                author: context.requester.author.clone(),
                outside,
                ..Body::text(text)
            },
            target,
            mode: QueueMode::Followup,
            debounce: Duration::ZERO,
            trace: holdfast_kit::trace::current(),
        };
        match sessions.ingest(call.tenant, message).await {
            Ok(accepted) => {
                if accepted.wake.is_some() {
                    self.mesh.bus.wake_run(0);
                }
                Ok(Ok(json!({ "ok": true })))
            }
            Err(error) => to_answer(error),
        }
    }
}

/// Whether this tool creates jobs of this kind.
const fn is_cron(kind: JobKind) -> bool {
    match kind {
        JobKind::Cron | JobKind::Every | JobKind::At | JobKind::Timer => true,
        JobKind::Heartbeat | JobKind::Reminder => false,
    }
}

fn not_found(id: &str) -> String {
    format!("Job not found: {}", id.chars().take(80).collect::<String>())
}

/// Name of a new job (CRN-003).
fn job_name(id: JobId) -> String {
    let digits = id.as_uuid().simple().to_string();
    format!("cron_{}", &digits[digits.len() - 8..])
}

fn to_schedule(
    when: &JobTime,
    now: Timestamp,
    zone: Zone,
) -> Result<Schedule, holdfast_schedule::Error> {
    let ms = |seconds: u32| i64::from(seconds).saturating_mul(1_000);
    match when {
        JobTime::In(seconds) => Schedule::at(now.as_millisecond().saturating_add(ms(*seconds))),
        JobTime::Every(seconds) => Schedule::every(ms(*seconds), None),
        JobTime::Cron(expr) => Schedule::cron(expr, zone),
    }
}

/// Prompt of the agent turn for a short text.
fn turn_prompt(saying: &ShortJob) -> String {
    let message = saying.message.trim();
    match &saying.command {
        Some(command) => format!(
            "Run this command with `exec` and answer with what it says, or why it failed:\n\
             {command}\n{message}"
        ),
        None => message.to_owned(),
    }
}

/// A job as the model reads it.
fn job_json(job: &Job) -> Result<Value, holdfast_schedule::store::Error> {
    let next = job.next_slot.map(|at| at.to_string());
    if !is_cron(job.kind) {
        return Ok(json!({ "id": job.external_id, "name": job.name, "next_run": next }));
    }
    let written = job.written()?;
    Ok(json!({
        "id": written.id, "name": written.what.name, "enabled": written.what.enabled,
        "schedule": written.what.schedule, "session_target": written.what.session_target,
        "payload": written.what.payload, "next_run": next,
        "last_status": written.state.last_status, "last_error": written.state.last_error,
    }))
}

/// Errors that the model can solve become tool results; the others are internal.
fn to_answer<E: Fault + std::error::Error + Send + Sync + 'static>(error: E) -> Answer {
    match error.kind() {
        Kind::Invalid | Kind::NotFound | Kind::Forbidden | Kind::Conflict | Kind::Exhausted => {
            Ok(Err(error.to_string()))
        }
        Kind::Unauthenticated | Kind::Unavailable | Kind::Internal => Err(error.into()),
    }
}
