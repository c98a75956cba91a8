//! Upkeep of agents by themselves, begun by the runner with the duty of upkeep: an agent whose
//! conversations have rested long enough gets an event in a session of its own.
//!
//! The message has the same idempotency key until its run is noted, so a crash in between begins no
//! second run.

use std::{sync::Arc, time::Duration};

use holdfast_pg::FailureLog;
use holdfast_session::{NewMessage, SelfImprovementCandidate};
use holdfast_types::{Body, QueueMode, Source};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{jitter::jittered, worker::Worker};

/// Name of the event, and source of its message.
const EVENT: &str = "self_improve";

const TEXT: &str = "Nobody has needed you for a while: look after your own things.";

/// Begins the runs that are due, until `stop`.
pub(crate) async fn run(worker: Arc<Worker>, stop: CancellationToken) {
    let trouble = FailureLog::new("agents are not asked to look after themselves");
    while stop.run_until_cancelled(sleep(jittered(worker.config.sweep))).await.is_some() {
        if !worker.upkeep.is_held() {
            continue;
        }
        match begin_due(&worker).await {
            Ok(()) => trouble.on_success(),
            Err(error) => trouble.on_failure(&error),
        }
    }
}

async fn begin_due(worker: &Worker) -> Result<(), holdfast_session::Error> {
    for candidate in worker.sessions.self_improvement_candidates().await? {
        begin(worker, candidate).await?;
    }
    Ok(())
}

async fn begin(
    worker: &Worker,
    candidate: SelfImprovementCandidate,
) -> Result<(), holdfast_session::Error> {
    let Some(due) = worker.sessions.due_self_improvement(candidate).await? else { return Ok(()) };
    let message = NewMessage {
        key: due.key,
        agent: due.agent,
        label: None,
        source: Source::Internal(EVENT.to_owned()),
        idem_key: due.idem_key,
        body: Body { event: Some(EVENT.to_owned()), ..Body::text(TEXT) },
        target: None,
        mode: QueueMode::Followup,
        debounce: Duration::ZERO,
        trace: None,
    };
    let accepted = worker.sessions.ingest(candidate.tenant, message).await?;
    worker.sessions.note_self_improvement(candidate, accepted.session).await?;
    metrics::counter!("holdfast_runner_self_improvements_total").increment(1);
    if accepted.wake.is_some() {
        worker.wake.notify_one();
        worker.bus.wake_run(0);
    }
    Ok(())
}
