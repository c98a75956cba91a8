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
use holdfast_session::{Charge, NewSummary, Spent, Summarised};
use holdfast_types::{Entry, Fault as _, Reply, RunId, SessionId, SessionKind, TenantId};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info_span, warn};

use crate::{
    agents::Brief,
    budget::{Asking, Reserved},
    turn::Turn,
    worker::Worker,
};

/// Limit on the queue; further conversations are queued after their next turn.
const MOST_WAITING: usize = 256;

/// Time after which the lease of a crashed process expires.
const GUARD: Duration = Duration::from_secs(30);

/// Attempts to store a summary while turns are running, and the delay between them.
const TRIES: u32 = 40;
const BETWEEN: Duration = Duration::from_millis(500);

/// Turns before a conversation is summarised: conversations that an API client makes for one
/// question have one.
const FEWEST_TURNS: usize = 2;

#[derive(Default)]
pub(crate) struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    came: Notify,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

/// A conversation to summarise.
struct Job {
    tenant: TenantId,
    session: SessionId,
    run: RunId,
    brief: Arc<Brief>,
    plan: Plan,
    /// Next `seq` of the journal when the summary was planned.
    at: i64,
}

impl Queue {
    fn push(&self, job: Job) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.len() < MOST_WAITING {
            jobs.push_back(job);
            drop(jobs);
            self.came.notify_one();
        }
    }

    fn pop(&self) -> Option<Job> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Turn<'_> {
    /// Queues the conversation of an ended turn if it is long.
    pub(crate) fn summarise_later(&self, brief: &Arc<Brief>) {
        let journal = self.journal.entries();
        let is_due =
            is_kept(self.kind) && self.journal.is_stored() && turns(journal) >= FEWEST_TURNS;
        if self.worker.config.summaries == 0 || !is_due {
            return;
        }
        let Some(plan) = Plan::gentle(&self.conversation(), self.context_tokens, &CjkAware) else {
            return;
        };
        self.worker.summaries.push(Job {
            tenant: self.hold.claim.tenant,
            session: self.hold.claim.session,
            run: self.run,
            brief: Arc::clone(brief),
            plan,
            at: self.journal.next_entry(),
        });
    }
}

/// Whether conversations of this kind continue after a turn.
const fn is_kept(kind: SessionKind) -> bool {
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
fn turns(journal: &[Entry]) -> usize {
    let is_answer =
        |entry: &&Entry| matches!(entry, Entry::Thought { calls, .. } if calls.is_empty());
    journal.iter().filter(is_answer).count()
}

/// Makes the queued summaries, as many at once as configured.
pub(crate) async fn write(worker: Arc<Worker>, stop: CancellationToken) {
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
            () = worker.summaries.came.notified(), if tasks.len() < most => {}
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
        }
    }
}

async fn summarise(worker: Arc<Worker>, job: Job) {
    let name = format!("summary:{}:{}", job.tenant, job.session);
    let guard = match worker.leases.try_acquire(&name, GUARD).await {
        Ok(None) => return,
        Ok(guard) => guard,
        Err(error) => {
            debug!(error = &error as &dyn std::error::Error, "a summary is made without its guard");
            None
        }
    };
    let how = match make(&worker, &job).await {
        Some(summary) => store(&worker, &job, summary).await,
        None => "failed",
    };
    metrics::counter!("holdfast_runner_summaries_total", "how" => how).increment(1);
    if let Some(guard) = guard {
        // On failure the lease expires.
        let _ = guard.release().await;
    }
}

/// Asks the model until there is a summary; `None` on failure.
async fn make(worker: &Worker, job: &Job) -> Option<Summary> {
    let mut plan = job.plan.clone();
    loop {
        let requests = plan.requests().iter().enumerate();
        let asked = requests.map(|(at, request)| ask(worker, job, at, request));
        let answers = try_join_all(asked).await.ok()?;
        match plan.answered(answers) {
            Ok(Progress::Ask(further)) => plan = further,
            Ok(Progress::Done(summary)) => return Some(summary),
            Err(error) => {
                debug!(%error, "a conversation was not summarised");
                return None;
            }
        }
    }
}

async fn ask(worker: &Worker, job: &Job, at: usize, wanted: &SummaryRequest) -> Result<String, ()> {
    let brief = &job.brief;
    let lasts = Duration::from_secs(SUMMARY_TIMEOUT_SECS);
    let until = Instant::now() + lasts;
    let mut request = Request {
        max_output: Some(wanted.max_output),
        card: Some(Arc::clone(&brief.card)),
        ..Request::new(brief.model_id.clone(), wanted.chat(), until)
    };
    let reserved = reserve(worker, job, at, (&mut request, lasts)).await?;
    let cancelled = CancellationToken::new();
    let mut pass_over = |_: Delta| {};
    let replied = brief.model.reply(&request, &mut pass_over, &cancelled).await;
    if let Ok(reply) = &replied {
        charge(worker, job, reply).await;
    }
    if let Some(reserved) = reserved {
        // Only after the usage is stored.
        worker.give_back(reserved).await;
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
async fn reserve(
    worker: &Worker,
    job: &Job,
    at: usize,
    (request, lasts): (&mut Request, Duration),
) -> Result<Option<Reserved>, ()> {
    let Brief { card, ledger, .. } = &*job.brief;
    if ledger.budgets.is_empty() {
        return Ok(None);
    }
    let id = format!("{}:summary:{at}", job.session);
    let asking = Asking { tenant: job.tenant, id, lasts, card, ledger };
    match worker.set_aside(asking, request).await {
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
async fn charge(worker: &Worker, job: &Job, reply: &Reply) {
    let ledger = &job.brief.ledger;
    let micros = ledger.micros(&reply.model, &reply.usage);
    let tokens = reply.usage.input.saturating_add(reply.usage.output);
    let spent =
        Spent { run_micros: micros, charge: Charge { tokens, micros }, budgets: ledger.owners() };
    let charged = worker.sessions.charge(job.tenant, job.run, &reply.usage, &spent).await;
    if let Err(error) = charged {
        warn!(error = &error as &dyn std::error::Error, "a summary is not charged");
    }
}

/// Stores the summary while no turn is running. Returns the outcome for the metric.
async fn store(worker: &Worker, job: &Job, summary: Summary) -> &'static str {
    let Summary { text, keeps } = summary;
    let new = NewSummary { run: job.run, at: job.at, text, keeps };
    for _ in 0..TRIES {
        match worker.sessions.keep_summary(job.tenant, job.session, &new).await {
            Ok(Summarised::Stored) => return "stored",
            Ok(Summarised::Stale) => return "stale",
            Ok(Summarised::Busy) => {}
            Err(error) if error.kind().is_transient() => {}
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "a summary was not stored");
                return "failed";
            }
        }
        sleep(BETWEEN).await;
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

        assert_eq!(turns(&[seeded.clone(), thought(1), thought(0)]), 1);
        assert_eq!(turns(&[seeded, thought(0), thought(2), thought(0)]), 2);
        assert!(is_kept(SessionKind::Main) && !is_kept(SessionKind::Heartbeat));
    }
}
