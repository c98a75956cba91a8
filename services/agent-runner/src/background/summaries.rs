//! Background summaries of long conversations (spec CMP-008, C-22).
//!
//! After a turn that leaves more than 20 messages, or three quarters of the context window, this
//! process asks the model to summarise all but the newest. A lease in Redis allows one summary at a
//! time per session, on any runner. No turn waits for it, and idle sessions are not searched. A
//! summary that is lost in a crash does no harm: the end of the next turn requests it again.
//!
//! **What can go wrong.** New messages arrive meanwhile. The summary is written only while the
//! session is idle, and records how many newer entries it does not cover; see
//! [`Sessions::store_summary`](holdfast_session::Sessions::store_summary). Without Redis two
//! summaries may be made at once: the second finds the first and is dropped.

use std::{sync::Arc, time::Duration};

use futures::future::try_join_all;
use holdfast_agent::compact::{Progress, SUMMARY_TIMEOUT_SECS, Summary, SummaryRequest};
use holdfast_llm::{Delta, Request};
use holdfast_session::{NewSummary, SummaryResult, WriteCost};
use holdfast_types::{Fault as _, Reply};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info_span, warn};

use crate::{
    agents::{
        budget::{Reservation, ReservationRequest},
        snapshots::AgentSnapshot,
    },
    queues::SummaryJob,
    worker::Worker,
};

/// Time after which the lease of a crashed process expires.
const LEASE_DURATION: Duration = Duration::from_secs(30);

/// Attempts to store a summary while turns are running, and the delay between them.
const MAX_STORE_ATTEMPTS: u32 = 40;
const STORE_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Makes the queued summaries, as many at once as configured.
pub(crate) async fn run_summaries(worker: Arc<Worker>, stop: CancellationToken) {
    let most = usize::try_from(worker.config.summaries).unwrap_or(usize::MAX);
    let mut tasks = JoinSet::new();
    loop {
        while tasks.len() < most
            && let Some(job) = worker.summaries.pop()
        {
            let span = info_span!("summary", tenant.id = %job.tenant, session.id = %job.session);
            tasks.spawn(summarise(Arc::clone(&worker), job).instrument(span));
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = worker.summaries.added.notified(), if tasks.len() < most => {}
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
        }
    }
}

async fn summarise(worker: Arc<Worker>, job: SummaryJob) {
    let name = format!("summary:{}:{}", job.tenant, job.session);
    let guard = match worker.redis_locks.try_acquire(&name, LEASE_DURATION).await {
        Ok(None) => return,
        Ok(guard) => guard,
        Err(error) => {
            debug!(error = &error as &dyn std::error::Error, "a summary is made without its guard");
            None
        }
    };
    let how = match make_summary(&worker, &job).await {
        Some(summary) => store_summary(&worker, &job, summary).await,
        None => "failed",
    };
    metrics::counter!("holdfast_runner_summaries_total", "how" => how).increment(1);
    if let Some(guard) = guard {
        // On failure the lease expires.
        let _ = guard.release().await;
    }
}

/// Asks the model until there is a summary; `None` on failure.
async fn make_summary(worker: &Worker, job: &SummaryJob) -> Option<Summary> {
    let mut plan = job.plan.clone();
    loop {
        let requests = plan.requests().iter().enumerate();
        let asked = requests.map(|(at, request)| ask_model(worker, job, at, request));
        let answers = try_join_all(asked).await.ok()?;
        match plan.take_answers(answers) {
            Ok(Progress::Ask(further)) => plan = further,
            Ok(Progress::Done(summary)) => return Some(summary),
            Err(error) => {
                debug!(%error, "a conversation was not summarised");
                return None;
            }
        }
    }
}

async fn ask_model(
    worker: &Worker,
    job: &SummaryJob,
    at: usize,
    wanted: &SummaryRequest,
) -> Result<String, ()> {
    let snapshot = &job.snapshot;
    let lasts = Duration::from_secs(SUMMARY_TIMEOUT_SECS);
    let until = Instant::now() + lasts;
    let mut request = Request {
        max_output: Some(wanted.max_output),
        temperature: Some(SummaryRequest::TEMPERATURE),
        card: Some(Arc::clone(&snapshot.card)),
        ..Request::new(snapshot.model_id.clone(), wanted.chat(), until)
    };
    let reserved = reserve_cost(worker, job, at, (&mut request, lasts)).await?;
    let cancelled = CancellationToken::new();
    let mut pass_over = |_: Delta| {};
    let replied = snapshot.model.reply(&request, &mut pass_over, &cancelled).await;
    if let Ok(reply) = &replied {
        charge_reply(worker, job, reply).await;
    }
    if let Some(reserved) = reserved {
        // Only after the usage is stored.
        worker.budgets().release(reserved).await;
    }
    match replied {
        Ok(reply) => Ok(reply.text),
        Err(error) => {
            debug!(error = &error as &dyn std::error::Error, "no summary of a conversation");
            Err(())
        }
    }
}

/// Reserves the cost of a summary. `Err` if not enough of a budget is left.
async fn reserve_cost(
    worker: &Worker,
    job: &SummaryJob,
    at: usize,
    (request, lasts): (&mut Request, Duration),
) -> Result<Option<Reservation>, ()> {
    let AgentSnapshot { card, ledger, .. } = &*job.snapshot;
    if ledger.budgets.is_empty() {
        return Ok(None);
    }
    let id = format!("{}:summary:{at}", job.session);
    let asking = ReservationRequest { tenant: job.tenant, id, expires_after: lasts, card, ledger };
    match worker.budgets().reserve(asking, request).await {
        Ok(Ok(reserved)) => Ok(Some(reserved)),
        Ok(Err(_)) => {
            debug!("no summary of a conversation: a budget is spent");
            Err(())
        }
        Err(error) => {
            debug!(error = &error as &dyn std::error::Error, "no summary of a conversation");
            Err(())
        }
    }
}

/// Adds the cost of an answer to its run.
async fn charge_reply(worker: &Worker, job: &SummaryJob, reply: &Reply) {
    let ledger = &job.snapshot.ledger;
    let charge = ledger.charge(&reply.model, &reply.usage);
    let spent = WriteCost {
        run_micros: charge.micros,
        run_platform_micros: charge.platform_micros,
        charge,
        budgets: ledger.owners(),
    };
    let charged = worker.sessions.usage().charge(job.tenant, job.run, &reply.usage, &spent).await;
    if let Err(error) = charged {
        warn!(error = &error as &dyn std::error::Error, "a summary is not charged");
    }
}

/// Stores the summary while no turn is running. Returns the outcome for the metric.
async fn store_summary(worker: &Worker, job: &SummaryJob, summary: Summary) -> &'static str {
    let Summary { text, keeps } = summary;
    let new = NewSummary { run: job.run, at: job.next_entry, text, keeps };
    for _ in 0..MAX_STORE_ATTEMPTS {
        match worker.sessions.store_summary(job.tenant, job.session, &new).await {
            Ok(SummaryResult::Stored) => return "stored",
            Ok(SummaryResult::Stale) => return "stale",
            Ok(SummaryResult::Busy) => {}
            Err(error) if error.kind().is_transient() => {}
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "a summary was not stored");
                return "failed";
            }
        }
        sleep(STORE_RETRY_DELAY).await;
    }
    "given_up"
}
