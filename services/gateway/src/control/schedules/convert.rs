//! Conversion of jobs and their runs to protos.

use std::{collections::HashMap, time::Duration};

use holdfast_proto::gateway::v1 as pb;
use holdfast_schedule::store::{Job, JobKind, RunLine};

use super::super::{AgentNames, timestamp};

/// Names of what jobs refer to.
pub struct JobNames {
    pub agents: AgentNames,
    /// By author id.
    pub authors: HashMap<String, String>,
}

pub fn job_of(job: &Job, names: &JobNames) -> pb::Job {
    let last = job.last.as_ref();
    let author = job.author.as_ref().map(|author| author.id.clone()).unwrap_or_default();
    pb::Job {
        id: job.external_id.clone(),
        long_id: job.id.to_string(),
        name: job.name.clone(),
        description: job.description.clone(),
        agent: names.agents.of(job.agent),
        owner: job.owner.clone().unwrap_or_default(),
        author_name: names.authors.get(&author).cloned().unwrap_or_default(),
        author,
        kind: job.kind.as_str().to_owned(),
        state: job.state.as_str().to_owned(),
        what: what_of(job),
        next_run_at: job.next_slot.map(timestamp),
        running: job.running.is_some(),
        last_run_at: last.map(|last| timestamp(last.at)),
        last_status: last.map(|last| last.outcome.as_str().to_owned()).unwrap_or_default(),
        last_error: last.and_then(|last| last.class.clone()).unwrap_or_default(),
        last_duration_ms: last.and_then(|last| last.took).map(millis).unwrap_or_default(),
        consecutive_errors: u32::try_from(job.errors).unwrap_or(0),
        version: job.version,
        created_at: Some(timestamp(job.created_at)),
        updated_at: Some(timestamp(job.updated_at)),
    }
}

/// JSON of a cron job in the form that users write; empty for other kinds.
fn what_of(job: &Job) -> String {
    match job.kind {
        JobKind::Cron | JobKind::Every | JobKind::At | JobKind::Timer => {
            let what = job.written().map(|written| written.what);
            what.ok().and_then(|what| serde_json::to_string(&what).ok()).unwrap_or_default()
        }
        JobKind::Heartbeat | JobKind::Reminder => String::new(),
    }
}

pub fn run_of(run: RunLine) -> pb::JobRun {
    pb::JobRun {
        at: Some(timestamp(run.at)),
        last: Some(timestamp(run.last)),
        origin: run.origin.as_str().to_owned(),
        status: run.outcome.as_str().to_owned(),
        error: run.class.unwrap_or_default(),
        duration_ms: run.took.map(millis).unwrap_or_default(),
        run_id: run.run.map(|run| run.to_string()).unwrap_or_default(),
        finished_at: Some(timestamp(run.finished_at)),
    }
}

fn millis(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}
