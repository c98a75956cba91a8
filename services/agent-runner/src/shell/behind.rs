//! Commands behind the turns: from the moment that nobody waits for one until its session knows how
//! it ended.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures::future::join_all;
use holdfast_sandbox::{Ended, Owner, ProcessId, State};
use holdfast_session::NewMessage;
use holdfast_types::{Body, Fault as _, Kind, QueueMode, Source};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    Shell, afar,
    jobs::{End, Job},
    running::Running,
};
use crate::upkeep::jittered;

/// How long a command that was asked to end, or was killed, may take until its changes are kept.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(10);

/// How often to look for what nobody needs any more.
const TIDY: Duration = Duration::from_secs(60);

/// Waiting goes on until there is an end.
const LONG: Duration = Duration::from_secs(3600);

/// The name of the event by which a session is told of a command's end.
const ENDED: &str = "process";

impl Shell {
    /// Lets a command go on in the background.
    pub(super) fn go_on(&self, running: Running, title: String) -> ProcessId {
        let (owner, id) = (running.owner, running.id);
        let job = Arc::new(Job::new(id, title, running.began));
        if let Some(gone) = self.0.jobs.add(owner, &job) {
            tokio::spawn(afar::answer(self.clone(), owner, gone));
        }
        tokio::spawn(watch(self.clone(), running, job));
        id
    }

    /// Ends all that runs in the background, and waits until what it changed is kept. What is
    /// waited for goes there from now on: drain again when no turn runs any more.
    pub(crate) async fn drain(&self) {
        self.0.stopping.cancel();
        let ending = self.0.jobs.unsettled().into_iter().map(|(owner, job)| async move {
            // One that has ended by itself is not there any more.
            drop(self.0.processes.stop(owner, job.id).await);
            if timeout(LAST_WORDS, job.settled.cancelled()).await.is_err() {
                warn!("what a background command changed is not kept");
            }
        });
        join_all(ending).await;
    }

    /// Ends what runs behind sessions that were deleted: nobody can look after it any more.
    async fn end_orphans(&self) {
        let owners: HashSet<Owner> =
            self.0.jobs.unsettled().into_iter().map(|(owner, _)| owner).collect();
        for owner in owners {
            let found = self.0.sessions.session(owner.tenant, owner.session).await;
            if !found.is_err_and(|error| error.kind() == Kind::NotFound) {
                continue;
            }
            let ending = self.0.jobs.of(owner).into_iter().map(|job| async move {
                // One that has ended by itself is not there any more.
                drop(self.0.processes.stop(owner, job.id).await);
            });
            join_all(ending).await;
        }
    }

    /// Ends what no session can reach, forgets what ended long ago, and removes folders that nobody
    /// used for long.
    pub(crate) async fn tidy(self, stop: CancellationToken) {
        let every = TIDY.min(self.0.idle.max(Duration::from_millis(100)));
        while stop.run_until_cancelled(sleep(jittered(every))).await.is_some() {
            self.end_orphans().await;
            for (owner, id) in self.0.jobs.forget(self.0.idle) {
                self.0.processes.forget(owner, id);
            }
            self.0.folders.tidy().await;
            let running = self.0.jobs.unsettled().len();
            metrics::gauge!("holdfast_runner_background_commands")
                .set(f64::from(u32::try_from(running).unwrap_or(u32::MAX)));
        }
    }

    /// Tells a session that a command of its has ended. If it cannot be told, `process` knows.
    async fn tell(&self, owner: Owner, job: &Job, end: &End) {
        let view = match self.0.sessions.session(owner.tenant, owner.session).await {
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
            source: Source::Internal(ENDED.to_owned()),
            idem_key: job.id.to_string(),
            body: Body { event: Some(ENDED.to_owned()), ..Body::text(words(job, end)) },
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

/// Waits for a command's end, keeps what it changed, and tells its session.
async fn watch(shell: Shell, mut running: Running, job: Arc<Job>) {
    let (owner, id) = (running.owner, running.id);
    let ended = loop {
        match shell.0.processes.wait(owner, id, LONG).await {
            Ok(State::Ended(ended)) => break ended,
            Ok(State::Running) => {}
            // Somebody forgot it, which ended it.
            Err(_) => break Ended::Cancelled,
        }
    };
    let took = running.began.elapsed();
    let kept = running.keep(ended).await;
    count(ended);
    let end = End { ended, kept, took, at: Instant::now() };
    job.ends(end.clone());
    if job.is_unseen().await {
        shell.tell(owner, &job, &end).await;
    }
    job.settled.cancel();
}

/// What a session is told. What the command wrote is read with `process`: it is no one's word.
fn words(job: &Job, end: &End) -> String {
    let End { ended, kept, took, .. } = end;
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

/// Counts a command's end.
pub(super) fn count(ended: Ended) {
    let outcome = match ended {
        Ended::Exited(0) => "completed",
        Ended::Exited(_) | Ended::Signalled(_) => "failed",
        Ended::TimedOut => "timeout",
        Ended::Cancelled => "cancelled",
        Ended::Limit(_) => "limit",
    };
    metrics::counter!("holdfast_runner_commands_total", "outcome" => outcome).increment(1);
}
