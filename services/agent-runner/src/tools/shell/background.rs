//! Background commands: from the moment that no turn waits for a command until its session is told
//! of its end.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures::future::join_all;
use holdfast_sandbox::{CommandEnd, Owner, ProcessId, State};
use holdfast_session::NewMessage;
use holdfast_types::{Body, Fault as _, Kind, QueueMode, Source};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    Shell,
    jobs::{BackgroundJob, JobEnd},
    remote_jobs,
    running_command::RunningCommand,
};
use crate::jitter::jittered;

/// Time for a stopped command to exit and for its changes to be saved.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval of the clean-up.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(60);

/// Length of one wait, which is repeated until the command ends.
const WAIT_INTERVAL: Duration = Duration::from_secs(3600);

/// Event name of the message about a command's end.
const PROCESS_EVENT: &str = "process";

impl Shell {
    /// Moves a command to the background.
    pub(super) fn move_to_background(&self, running: RunningCommand, title: String) -> ProcessId {
        let (owner, id) = (running.owner, running.id);
        let traits = running.traits.clone();
        let job = Arc::new(BackgroundJob::new(id, title, running.began, traits));
        if let Some(gone) = self.0.jobs.add(owner, &job) {
            tokio::spawn(remote_jobs::serve_questions(self.clone(), owner, gone));
        }
        tokio::spawn(watch(self.clone(), running, job));
        id
    }

    /// Stops all background commands and waits until their changes are saved. Commands that turns
    /// still wait for move to the background from now on: drain again after the last turn.
    pub(crate) async fn stop_all(&self) {
        self.0.stopping.cancel();
        let ending = self.0.jobs.unsettled().into_iter().map(|(owner, job)| async move {
            // A process that ended by itself is not known any more.
            drop(self.0.processes.stop(owner, job.id).await);
            if timeout(STOP_TIMEOUT, job.settled.cancelled()).await.is_err() {
                warn!("what a background command changed is not kept");
            }
        });
        join_all(ending).await;
    }

    /// Ids and titles of a session's commands that run in the background here.
    pub(crate) fn running_commands(&self, owner: Owner) -> Vec<(ProcessId, String)> {
        let jobs = self.0.jobs.of_session(owner).into_iter();
        jobs.filter(|job| job.end().is_none()).map(|job| (job.id, job.title.clone())).collect()
    }

    /// Stops a command of which its session was told that it is lost.
    pub(crate) async fn stop_lost(&self, owner: Owner, id: &str) {
        let Ok(id) = id.parse() else { return };
        // A process that ended by itself is not known any more.
        drop(self.0.processes.stop(owner, id).await);
    }

    /// Stops the background commands of deleted sessions, which nobody can reach.
    async fn stop_orphans(&self) {
        let owners: HashSet<Owner> =
            self.0.jobs.unsettled().into_iter().map(|(owner, _)| owner).collect();
        for owner in owners {
            let found = self.0.sessions.views().session(owner.tenant, owner.session).await;
            if !found.is_err_and(|error| error.kind() == Kind::NotFound) {
                continue;
            }
            let ending = self.0.jobs.of_session(owner).into_iter().map(|job| async move {
                // A process that ended by itself is not known any more.
                drop(self.0.processes.stop(owner, job.id).await);
            });
            join_all(ending).await;
        }
    }

    /// Stops unreachable commands, forgets those that ended long ago, and removes unused folders.
    pub(crate) async fn run_cleanup(self, stop: CancellationToken) {
        let every = CLEANUP_INTERVAL.min(self.0.idle.max(Duration::from_millis(100)));
        while stop.run_until_cancelled(sleep(jittered(every))).await.is_some() {
            self.stop_orphans().await;
            for (owner, id) in self.0.jobs.remove_old(self.0.idle) {
                self.0.processes.forget(owner, id);
            }
            self.0.folders.remove_unused().await;
            let running = self.0.jobs.unsettled().len();
            metrics::gauge!("holdfast_runner_background_commands")
                .set(f64::from(u32::try_from(running).unwrap_or(u32::MAX)));
        }
    }

    /// Tells a session that its command ended. On failure the tool `process` still shows it.
    async fn announce_end(&self, owner: Owner, job: &BackgroundJob, end: &JobEnd) {
        let view = match self.0.sessions.views().session(owner.tenant, owner.session).await {
            Ok(view) => view,
            Err(error) if error.kind() == Kind::NotFound => return,
            Err(error) => {
                debug!(error = &error as &dyn std::error::Error, "a session was not told");
                return;
            }
        };
        let Ok(key) = view.key.parse() else { return };
        let message = NewMessage {
            key,
            agent: view.agent,
            label: None,
            source: Source::Internal(PROCESS_EVENT.to_owned()),
            idem_key: job.id.to_string(),
            body: Body { event: Some(PROCESS_EVENT.to_owned()), ..Body::text(end_text(job, end)) },
            target: view.last_target,
            mode: QueueMode::Steer,
            debounce: Duration::ZERO,
            trace: None,
        };
        match self.0.sessions.ingest(owner.tenant, message).await {
            Ok(accepted) => {
                if accepted.wake.is_some() {
                    self.0.bus.wake_run(0);
                }
            }
            Err(error) => {
                debug!(error = &error as &dyn std::error::Error, "a session was not told");
            }
        }
    }
}

/// Waits for a command's end, saves its changes, and tells its session.
async fn watch(shell: Shell, mut running: RunningCommand, job: Arc<BackgroundJob>) {
    let (owner, id) = (running.owner, running.id);
    let ended = loop {
        match shell.0.processes.wait(owner, id, WAIT_INTERVAL).await {
            Ok(State::Ended(ended)) => break ended,
            Ok(State::Running) => {}
            // Somebody removed the process, which ended it.
            Err(_) => break CommandEnd::Cancelled,
        }
    };
    let took = running.began.elapsed();
    let kept = running.commit_changes(ended).await;
    count_end(ended);
    let end = JobEnd { ended, kept, took, at: Instant::now() };
    job.set_end(end.clone());
    if job.must_announce().await {
        shell.announce_end(owner, &job, &end).await;
    }
    job.settled.cancel();
}

/// Text of the message. The command's output is left out, as it is untrusted; `process` shows it.
fn end_text(job: &BackgroundJob, end: &JobEnd) -> String {
    let JobEnd { ended, kept, took, .. } = end;
    let mut text = format!(
        "A command of yours in the background has ended ({}, `{}`): {ended} after {} s",
        job.id,
        job.title.replace('`', "'"),
        took.as_secs(),
    );
    match (kept.changes.len(), &kept.revision) {
        (changed, Some(revision)) => {
            text.push_str(&format!("; it changed {changed} files (revision {revision})"));
        }
        (_, None) => text.push_str("; it changed no files"),
    }
    if !kept.notes.is_empty() {
        text.push_str("; not all was kept");
    }
    text.push_str(". `process` with `status` shows what it wrote.");
    text
}

pub(super) fn count_end(ended: CommandEnd) {
    let outcome = match ended {
        CommandEnd::Exited(0) => "completed",
        CommandEnd::Exited(_) | CommandEnd::Signalled(_) => "failed",
        CommandEnd::TimedOut => "timeout",
        CommandEnd::Cancelled => "cancelled",
        CommandEnd::Limit(_) => "limit",
        CommandEnd::Lost(_) => "lost",
    };
    metrics::counter!("holdfast_runner_commands_total", "outcome" => outcome).increment(1);
}
