//! `holdfast cron`.

mod job_options;

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    AddJobRequest, BackfillJobRequest, DeleteJobRequest, GetJobRequest, GetScheduleStatusRequest,
    Job, JobRun, ListJobRunsRequest, ListJobsRequest, ListNextTimesRequest, PauseJobRequest,
    ResumeJobRequest, RunJobRequest, UpdateJobRequest, WakeAgentRequest,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use self::job_options::{DEFAULT_ZONE, JobOptions, Schedule};
use super::super::option_values;
use crate::{
    client::Client,
    error::Error,
    screen::Screen,
    view::{time, timestamp},
};

const COLUMNS: [&str; 9] =
    ["id", "name", "agent", "made_by", "kind", "state", "next_run_at", "last_status", "last_error"];

const RUN_COLUMNS: [&str; 6] = ["at", "origin", "status", "error", "duration_ms", "run_id"];

#[derive(Debug, Subcommand)]
pub enum Cron {
    /// List jobs, of all agents or one
    List {
        /// Show only jobs of this agent, by name or id
        #[arg(long, default_value = "", hide_default_value = true)]
        agent: String,
        /// Show only jobs of this kind: cron, every, at, heartbeat, reminder, timer, or `all`
        #[arg(long, default_value = "", hide_default_value = true)]
        kind: String,
    },
    /// Show a job with all its settings
    Show {
        /// Id of the job, or its last eight characters
        job: String,
    },
    /// Create a job, from options or JSON
    Add {
        /// Name of the job, for example `morning news`
        name: Option<String>,
        #[command(flatten)]
        what: Box<JobOptions>,
        /// Name or id of the agent [default: the default agent]
        #[arg(long, default_value = "", hide_default_value = true)]
        agent: String,
        /// Id of the job in another system [default: a new id]
        #[arg(long, default_value = "", hide_default_value = true)]
        id: String,
        /// The whole job as JSON: text, `@file`, or `-` for stdin
        #[arg(long, conflicts_with = "name")]
        json: Option<String>,
        /// Idempotency key of your choice: the same request creates the job once
        #[arg(long, default_value = "", hide_default_value = true)]
        request_id: String,
    },
    /// Change a job; options that are not given stay unchanged
    Edit {
        /// Id of the job, or its last eight characters
        job: String,
        /// New name of the job
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        what: Box<JobOptions>,
        /// The change as JSON: text, `@file`, or `-` for stdin
        #[arg(long)]
        json: Option<String>,
    },
    /// Delete a job and its log
    Rm {
        /// Id of the job, or its last eight characters
        job: String,
    },
    /// Run a job immediately, whenever it is due
    Run {
        /// Id of the job, or its last eight characters
        job: String,
        /// Run it only if it is due
        #[arg(long)]
        due: bool,
    },
    /// List the runs of a job, newest first
    Runs {
        /// Id of the job, or its last eight characters
        job: String,
        /// Maximum number of runs to list, at most 100
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// List the next times of a job, or of a schedule without a job
    Next {
        /// Id of the job, or its last eight characters
        job: Option<String>,
        #[command(flatten)]
        schedule: Schedule,
        /// Number of times to list, at most 100
        #[arg(long, default_value_t = 5)]
        count: u32,
        /// Additional time zone in which the times are shown [default: the agent's]
        #[arg(long = "zone", default_value = "", hide_default_value = true)]
        zone: String,
    },
    /// Pause a job until it is resumed
    Pause {
        /// Id of the job, or its last eight characters
        job: String,
    },
    /// Resume a paused job; missed times are not made up for
    Resume {
        /// Id of the job, or its last eight characters
        job: String,
    },
    /// Run the past times of a job that were missed
    Backfill {
        /// Id of the job, or its last eight characters
        job: String,
        /// Start of the period, for example `2026-11-20T00:00:00Z`
        #[arg(long)]
        from: Timestamp,
        /// End of the period, exclusive [default: now]
        #[arg(long)]
        until: Option<Timestamp>,
    },
    /// Count jobs and show the next one
    Status,
    /// Send a text to an agent's main conversation
    Wake {
        /// The text; `@file`, or `-` for stdin
        text: String,
        /// Start a turn at once, instead of adding the text to the next turn
        #[arg(long)]
        now: bool,
        /// Name or id of the agent [default: the default agent]
        #[arg(long, default_value = "", hide_default_value = true)]
        agent: String,
    },
}

impl Cron {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { agent, kind } => list(client, screen, &agent, &kind).await,
            Self::Show { job } => {
                let request = client.request(GetJobRequest { job });
                let job = client.answer(client.schedules().get_job(request).await)?.job;
                screen.one(&COLUMNS, &view(&job.unwrap_or_default()))
            }
            Self::Add { name, what, agent, id, json, request_id } => {
                let job = match (json, name) {
                    (Some(json), _) => option_values::json(&json)?,
                    (None, Some(name)) => what.new_job(name)?,
                    (None, None) => {
                        return Err(Error::Usage("a job needs a name, or `--json`".to_owned()));
                    }
                };
                let request = AddJobRequest { job: job.to_string(), agent, id, request_id };
                let added = client.schedules().add_job(client.request(request)).await;
                screen.one(&COLUMNS, &view(&client.answer(added)?.job.unwrap_or_default()))
            }
            Self::Edit { job, name, what, json } => {
                let patch = match json {
                    Some(json) => option_values::json(&json)?,
                    None if what.needs_zone() => what.patch(name, &zone_of(client, &job).await?)?,
                    None => what.patch(name, DEFAULT_ZONE)?,
                };
                let request = UpdateJobRequest { job, patch: patch.to_string(), version: 0 };
                let changed = client.schedules().update_job(client.request(request)).await;
                screen.one(&COLUMNS, &view(&client.answer(changed)?.job.unwrap_or_default()))
            }
            Self::Rm { job } => {
                let request = client.request(DeleteJobRequest { job: job.clone() });
                let deleted = client.schedules().delete_job(request).await;
                match client.answer(deleted)?.existed {
                    true => screen.done("removed", &json!({"removed": job})),
                    false => screen.done("there was no such job", &json!({"removed": null})),
                }
            }
            Self::Run { job, due } => {
                let mode = if due { "due" } else { "force" }.to_owned();
                let request = RunJobRequest { job, mode, request_id: String::new() };
                let ran = client.schedules().run_job(client.request(request)).await;
                let ran = client.answer(ran)?;
                let told = match ran.reason.as_str() {
                    "" => ran.status.clone(),
                    reason => format!("{}: {reason}", ran.status),
                };
                screen.done(&told, &json!({"status": ran.status, "reason": ran.reason}))
            }
            Self::Runs { job, limit } => {
                let request = client.request(ListJobRunsRequest { job, limit });
                let runs = client.answer(client.schedules().list_job_runs(request).await)?.runs;
                screen.list(&RUN_COLUMNS, runs.iter().map(run_view).collect())
            }
            Self::Next { job, schedule, count, zone } => {
                let schedule =
                    schedule.json(DEFAULT_ZONE)?.map(|json| json.to_string()).unwrap_or_default();
                let job = job.unwrap_or_default();
                let request = ListNextTimesRequest { job, schedule, count, time_zone: zone };
                let times = client.schedules().list_next_times(client.request(request)).await;
                let times = client.answer(times)?.times;
                let rows = times.iter().map(|one| {
                    json!({"at": time(one.at.as_ref()), "scheduled": one.scheduled, "local": one.local})
                });
                screen.list(&["scheduled", "local"], rows.collect())
            }
            Self::Pause { job } => {
                let request = client.request(PauseJobRequest { job });
                let job = client.answer(client.schedules().pause_job(request).await)?.job;
                screen.one(&COLUMNS, &view(&job.unwrap_or_default()))
            }
            Self::Resume { job } => {
                let request = client.request(ResumeJobRequest { job });
                let job = client.answer(client.schedules().resume_job(request).await)?.job;
                screen.one(&COLUMNS, &view(&job.unwrap_or_default()))
            }
            Self::Backfill { job, from, until } => {
                let from = Some(timestamp(from));
                let request = BackfillJobRequest { job, from, until: until.map(timestamp) };
                let filled = client.schedules().backfill_job(client.request(request)).await;
                let count = client.answer(filled)?.count;
                screen.done(&format!("{count} to run"), &json!({"count": count}))
            }
            Self::Status => status(client, screen).await,
            Self::Wake { text, now, agent } => {
                let mode = if now { "now" } else { "next-heartbeat" }.to_owned();
                let text = option_values::text(&text)?;
                let request = WakeAgentRequest { agent, text, mode, request_id: String::new() };
                client.answer(client.schedules().wake_agent(client.request(request)).await)?;
                screen.done("told", &json!({"ok": true}))
            }
        }
    }
}

async fn list(client: &Client, screen: &Screen, agent: &str, kind: &str) -> Result<(), Error> {
    let jobs = load_jobs(client, agent, kind).await?;
    screen.list(&COLUMNS, jobs.iter().map(view).collect())
}

/// Returns the jobs of all agents or one, of one kind or all.
pub async fn load_jobs(client: &Client, agent: &str, kind: &str) -> Result<Vec<Job>, Error> {
    let (mut jobs, mut after) = (Vec::new(), String::new());
    loop {
        let (agent, kind) = (agent.to_owned(), kind.to_owned());
        let request = ListJobsRequest { agent, kind, limit: 200, after, authors: Vec::new() };
        let page = client.schedules().list_jobs(client.request(request)).await;
        let page = client.answer(page)?;
        jobs.extend(page.jobs);
        if page.next.is_empty() {
            return Ok(jobs);
        }
        after = page.next;
    }
}

/// Returns the zone of a job's schedule.
async fn zone_of(client: &Client, job: &str) -> Result<String, Error> {
    let request = client.request(GetJobRequest { job: job.to_owned() });
    let job = client.answer(client.schedules().get_job(request).await)?.job.unwrap_or_default();
    let what: Value = serde_json::from_str(&job.what).unwrap_or_default();
    Ok(what["schedule"]["tz"].as_str().unwrap_or(DEFAULT_ZONE).to_owned())
}

async fn status(client: &Client, screen: &Screen) -> Result<(), Error> {
    let request = client.request(GetScheduleStatusRequest {});
    let status = client.answer(client.schedules().get_schedule_status(request).await)?;
    let shown = json!({
        "jobs_count": status.jobs_count,
        "active_count": status.active_count,
        "running_count": status.running_count,
        "next_run_at": time(status.next_run_at.as_ref()),
        "next_job": status.next_job,
    });
    screen.one(&["jobs_count", "active_count", "running_count", "next_run_at", "next_job"], &shown)
}

fn view(job: &Job) -> Value {
    json!({
        "id": job.id,
        "long_id": job.long_id,
        "name": job.name,
        "description": job.description,
        "agent": job.agent,
        "owner": job.owner,
        "author": job.author,
        "made_by": if job.author_name.is_empty() { &job.author } else { &job.author_name },
        "kind": job.kind,
        "state": job.state,
        "what": serde_json::from_str::<Value>(&job.what).unwrap_or(Value::Null),
        "next_run_at": time(job.next_run_at.as_ref()),
        "running": job.running,
        "last_run_at": time(job.last_run_at.as_ref()),
        "last_status": job.last_status,
        "last_error": job.last_error,
        "last_duration_ms": job.last_duration_ms,
        "consecutive_errors": job.consecutive_errors,
        "version": job.version,
        "created_at": time(job.created_at.as_ref()),
        "updated_at": time(job.updated_at.as_ref()),
    })
}

fn run_view(run: &JobRun) -> Value {
    json!({
        "at": time(run.at.as_ref()),
        "last": time(run.last.as_ref()),
        "origin": run.origin,
        "status": run.status,
        "error": run.error,
        "duration_ms": run.duration_ms,
        "run_id": run.run_id,
        "finished_at": time(run.finished_at.as_ref()),
    })
}
