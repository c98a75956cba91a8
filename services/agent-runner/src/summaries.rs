//! Background summaries of long conversations (spec CMP-008, C-22).
//!
//! After a turn that leaves more than 20 messages, or three quarters of the context window, this
//! process asks the model to summarise all but the newest. A lease in Redis allows one summary at a
//! time per session, on any runner. No turn waits for it, and idle sessions are not searched. A
//! summary that is lost in a crash does no harm: the end of the next turn requests it again.
//!
//! **What can go wrong.** New messages arrive meanwhile. The summary is written only while the
//! session is idle, and records how many newer entries it does not cover; see
//! [`Sessions::keep_summary`](holdfast_session::Sessions::keep_summary). Without Redis two
//! summaries may be made at once: the second finds the first and is dropped.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::try_join_all;
use holdfast_agent::{
    compact::{Plan, Progress, SUMMARY_TIMEOUT_SECS, Summary, SummaryRequest},
    tokens::CjkAware,
};
use holdfast_llm::{Delta, Request};
use holdfast_session::{Charge, NewSummary, SummaryResult, WriteCost};
use holdfast_types::{Entry, Fault as _, Reply, RunId, SessionId, SessionKind, TenantId};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info_span, warn};

use crate::{
    agents::AgentSnapshot,
    budget::{Reservation, ReservationRequest},
    turn::Turn,
    worker::Worker,
};

/// Limit on the queue; further conversations are queued after their next turn.
const MAX_QUEUED: usize = 256;

/// Time after which the lease of a crashed process expires.
const LEASE_DURATION: Duration = Duration::from_secs(30);

/// Attempts to store a summary while turns are running, and the delay between them.
const MAX_STORE_ATTEMPTS: u32 = 40;
const STORE_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Turns before a conversation is summarised: conversations that an API client makes for one
/// question have one.
const MIN_TURNS: usize = 2;

#[derive(Default)]
pub(crate) struct SummaryQueue {
    jobs: Mutex<VecDeque<SummaryJob>>,
    added: Notify,
}

impl fmt::Debug for SummaryQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

/// A conversation to summarise.
struct SummaryJob {
    tenant: TenantId,
    session: SessionId,
    run: RunId,
    brief: Arc<AgentSnapshot>,
    plan: Plan,
    /// Next `seq` of the journal when the summary was planned.
    next_entry: i64,
}

impl SummaryQueue {
    fn push(&self, job: SummaryJob) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.len() < MAX_QUEUED {
            jobs.push_back(job);
            drop(jobs);
            self.added.notify_one();
        }
    }

    fn pop(&self) -> Option<SummaryJob> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Turn<'_> {
    /// Queues the conversation of an ended turn if it is long.
    pub(crate) fn queue_summary(&self, brief: &Arc<AgentSnapshot>) {
        let journal = self.journal.entries();
        let is_due = continues_after_turn(self.kind)
            && self.journal.is_stored()
            && count_turns(journal) >= MIN_TURNS;
        if self.worker.config.summaries == 0 || !is_due {
            return;
        }
        let Some(plan) = Plan::background(&self.conversation(), self.context_tokens, &CjkAware)
        else {
            return;
        };
        self.worker.summaries.push(SummaryJob {
            tenant: self.hold.claim.tenant,
            session: self.hold.claim.session,
            run: self.run,
            brief: Arc::clone(brief),
            plan,
            next_entry: self.journal.next_entry(),
        });
    }
}

/// Whether conversations of this kind continue after a turn.
const fn continues_after_turn(kind: SessionKind) -> bool {
    match kind {
        SessionKind::Main
        | SessionKind::Dm
        | SessionKind::Group
        | SessionKind::Topic
        | SessionKind::Work
        | SessionKind::Api
        | SessionKind::Global => true,
        SessionKind::Subagent | SessionKind::Cron | SessionKind::Heartbeat => false,
    }
}

/// Number of answered turns.
fn count_turns(journal: &[Entry]) -> usize {
    let is_answer =
        |entry: &&Entry| matches!(entry, Entry::Thought { calls, .. } if calls.is_empty());
    journal.iter().filter(is_answer).count()
}

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
    let brief = &job.brief;
    let lasts = Duration::from_secs(SUMMARY_TIMEOUT_SECS);
    let until = Instant::now() + lasts;
    let mut request = Request {
        max_output: Some(wanted.max_output),
        card: Some(Arc::clone(&brief.card)),
        ..Request::new(brief.model_id.clone(), wanted.chat(), until)
    };
    let reserved = reserve_cost(worker, job, at, (&mut request, lasts)).await?;
    let cancelled = CancellationToken::new();
    let mut pass_over = |_: Delta| {};
    let replied = brief.model.reply(&request, &mut pass_over, &cancelled).await;
    if let Ok(reply) = &replied {
        charge_reply(worker, job, reply).await;
    }
    if let Some(reserved) = reserved {
        // Only after the usage is stored.
        worker.release_reservation(reserved).await;
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
    let AgentSnapshot { card, ledger, .. } = &*job.brief;
    if ledger.budgets.is_empty() {
        return Ok(None);
    }
    let id = format!("{}:summary:{at}", job.session);
    let asking = ReservationRequest { tenant: job.tenant, id, expires_after: lasts, card, ledger };
    match worker.reserve_budget(asking, request).await {
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
    let ledger = &job.brief.ledger;
    let micros = ledger.micros(&reply.model, &reply.usage);
    let tokens = reply.usage.input.saturating_add(reply.usage.output);
    let spent = WriteCost {
        run_micros: micros,
        charge: Charge { tokens, micros },
        budgets: ledger.owners(),
    };
    let charged = worker.sessions.charge(job.tenant, job.run, &reply.usage, &spent).await;
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

#[cfg(test)]
mod tests {
    use holdfast_types::{Body, Usage};

    use super::*;

    #[test]
    fn only_answers_count_as_turns() {
        let thought = |calls: usize| Entry::Thought {
            text: "t".into(),
            calls: (0..calls)
                .map(|n| holdfast_types::ToolCall {
                    id: n.to_string(),
                    tool: "read".into(),
                    input: "{}".into(),
                })
                .collect(),
            usage: Usage::default(),
            model: String::new(),
            carry: None,
        };
        let seeded = Entry::Heard {
            seq: 1,
            body: Body { role: Some("assistant".into()), ..Body::text("before") },
        };

        assert_eq!(count_turns(&[seeded.clone(), thought(1), thought(0)]), 1);
        assert_eq!(count_turns(&[seeded, thought(0), thought(2), thought(0)]), 2);
        assert!(
            continues_after_turn(SessionKind::Main)
                && !continues_after_turn(SessionKind::Heartbeat)
        );
    }
}
