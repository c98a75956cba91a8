//! Run of one claimed session, until it is idle, released, or lost to another runner.
//!
//! | reason why the turn stops | session |
//! |---|---|
//! | it is done | idle, or ready again |
//! | paused, this process stops, or a more urgent session waits | released; the attempt does not count |
//! | its agent is disabled | released until it is enabled; the attempt does not count |
//! | its agent has too few hit points | released until it has recovered; the attempt does not count |
//! | transient failure | released after a delay; the attempt does not count |
//! | lost to another runner | not touched |
//! | defect or panic | left until its lease expires, so that the attempt counts |

use std::{sync::Arc, time::Duration};

use holdfast_agent::{Limits, Step, may_begin_earlier, next};
use holdfast_kit::{Backoff, trace};
use holdfast_sandbox::Owner;
use holdfast_session::{
    Claim, Completion, CompletionResult, InboxMessage, LoadedSession, LossReason, LostItem,
    TurnOutcome,
};
use holdfast_types::{
    Effect, Entry, Fault as _, RunId, SessionKey, SessionKind, Usage, Wait, wakes,
};
use jiff::Timestamp;
use tokio::time::Instant;
use tracing::{Instrument as _, Span, error, field::Empty, info, info_span, warn};

use crate::{
    agents::snapshots::{AgentKey, AgentLookup},
    error::Error,
    failpoints,
    leases::Lease,
    scheduled_messages,
    turn::{
        after_turn, budget, client_options::client_tools, firings, heartbeats, journal::Journal,
        reply::replies::Failure, state::TurnState, steps,
    },
    worker::Worker,
};

/// Delay between attempts to load a session.
const LOAD_BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// Entries that are read if an open turn is longer than usual: behaviours may take hundreds of steps.
const MAX_TURN_ENTRIES: u32 = 10_000;

/// Silent messages that are stored in the journal although no turn is due.
const MAX_SILENT_MESSAGES: usize = 50;

/// Outcome of running a claimed session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunOutcome {
    /// The session is idle; `wake` tells whether it may be ready again.
    Idle { wake: bool },
    /// The session was released for other runners.
    Released,
    /// Lost to another runner, or left for the sweep.
    NotReleased,
}

pub(crate) async fn run_claimed_session(worker: Arc<Worker>, lease: Arc<Lease>) -> RunOutcome {
    let claim = lease.claim.clone();
    let span = info_span!(
        "run",
        tenant.id = %claim.tenant,
        session.id = %claim.session,
        attempt = claim.attempts,
        epoch = claim.epoch,
        run.id = Empty,
        agent.id = Empty,
        outcome = Empty,
    );
    let walked = Box::pin(run_session(&worker, &lease, &span)).await;
    // The span is entered late: it continues a trace that is only known once the session is loaded.
    end_claim(&worker, &claim, walked).instrument(span).await
}

async fn end_claim(
    worker: &Worker,
    claim: &Claim,
    walked: Result<CompletionResult, Error>,
) -> RunOutcome {
    let error = match walked {
        Ok(completed) => {
            worker.events.notify_one();
            worker.ended.notify_one();
            return RunOutcome::Idle { wake: completed.wake || completed.again };
        }
        Err(error) => error,
    };
    match &error {
        Error::Lost => {
            info!("the session is another runner's now");
            RunOutcome::NotReleased
        }
        Error::ReleaseRequested => release_session(worker, claim).await,
        Error::Resting => released_outcome(worker, Ok(())),
        // A transient failure is not the message's fault.
        passing if passing.kind().is_transient() => {
            warn!(error = &error as &dyn std::error::Error, "a turn stops for now");
            let released = worker.sessions.release_after_failure(claim).await;
            released_outcome(worker, released)
        }
        // The lease expires and the attempt counts, so a message that always fails is given up in
        // the end.
        _ => {
            error!(error = &error as &dyn std::error::Error, "a turn failed");
            metrics::counter!("holdfast_runner_defects_total").increment(1);
            RunOutcome::NotReleased
        }
    }
}

/// Releases a session. On failure its lease expires.
async fn release_session(worker: &Worker, claim: &Claim) -> RunOutcome {
    failpoints::point("runner.before_release").await;
    let released = worker.sessions.release(claim).await;
    released_outcome(worker, released)
}

fn released_outcome(worker: &Worker, released: Result<(), holdfast_session::Error>) -> RunOutcome {
    match released {
        Ok(()) => {
            worker.bus.wake_run(0);
            RunOutcome::Released
        }
        Err(error) => {
            if !error.is_fenced() {
                warn!(error = &error as &dyn std::error::Error, "a session was not given back");
            }
            RunOutcome::NotReleased
        }
    }
}

/// Loads a session, more than once after a transient failure.
async fn load(worker: &Worker, lease: &Lease) -> Result<LoadedSession, Error> {
    let (mut tried, mut history) = (0, worker.config.history_entries);
    loop {
        match scheduled_messages::load(worker, &lease.claim, i64::from(history)).await {
            Ok(loaded) if history < MAX_TURN_ENTRIES && is_cut(&loaded, history) => {
                history = MAX_TURN_ENTRIES;
            }
            Ok(loaded) => return Ok(loaded),
            Err(error) if error.kind().is_transient() && tried < 5 && lease.is_safe() => {
                tokio::time::sleep(LOAD_BACKOFF.delay(tried)).await;
                tried += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether an open turn began before the entries that were read.
fn is_cut(loaded: &LoadedSession, history: u32) -> bool {
    let is_full = u32::try_from(loaded.entries.len()).is_ok_and(|read| read >= history);
    let entries = || loaded.entries.iter().map(|(_, _, entry)| entry.clone()).collect::<Vec<_>>();
    is_full && may_begin_earlier(&entries())
}

/// Loads a session. If another runner held its state, that is settled first, and the session comes
/// with the note of what was lost. Returns whether another runner was the holder.
async fn load_and_settle(worker: &Worker, lease: &Lease) -> Result<(LoadedSession, bool), Error> {
    let loaded = load(worker, lease).await?;
    match loaded.holder {
        None => return Ok((loaded, false)),
        Some(holder) if holder == worker.id => {
            let Claim { tenant, session, .. } = lease.claim;
            worker.held.note_holder(Owner { tenant, session }, loaded.agent);
            return Ok((loaded, false));
        }
        Some(_) => {}
    }
    count_lost(&worker.sessions.settle_lost(&lease.claim, &loaded.key).await?);
    Ok((load(worker, lease).await?, true))
}

fn count_lost(lost: &[LostItem]) {
    for lost in lost {
        let reason = match lost.reason {
            LossReason::Died => "died",
            LossReason::Stopped => "stopped",
            LossReason::Busy => "busy",
        };
        metrics::counter!("holdfast_runner_lost_state_total", "reason" => reason).increment(1);
    }
}

async fn run_session(
    worker: &Arc<Worker>,
    lease: &Arc<Lease>,
    span: &Span,
) -> Result<CompletionResult, Error> {
    let began = Instant::now();
    let (mut loaded, was_moved) = load_and_settle(worker, lease).await?;
    failpoints::point("runner.after_load").await;
    if loaded.paused {
        return Err(Error::ReleaseRequested);
    }
    let (runs, mut entries): (Vec<RunId>, Vec<Entry>) =
        loaded.entries.drain(..).map(|(_, run, entry)| (run, entry)).unzip();
    let Some(begun) = TurnStart::determine(&loaded, &runs, &entries) else {
        return yield_without_turn(worker, &lease.claim, loaded).await;
    };
    if begun.overdue.is_some()
        && let Some(handover) = client_tools::pending_handover(&entries)
    {
        return client_tools::end_overdue_calls(worker, &lease.claim, &loaded, &handover).await;
    }
    if let Some(parent) = begun.trace.as_deref() {
        trace::continue_from(span, parent);
    }
    span.record("run.id", tracing::field::display(begun.run));
    span.record("agent.id", tracing::field::display(loaded.agent));
    let kind = loaded.key.parse().map(|key: SessionKey| key.kind());
    let task = match kind {
        Ok(SessionKind::Subagent) => {
            worker.sessions.subagents().get(lease.claim.tenant, lease.claim.session).await?
        }
        _ => None,
    };
    let instead =
        heartbeats::heartbeat_model(&loaded, begun.run).or_else(|| loaded.settings.model.clone());
    refresh_in_background(worker, (lease.claim.tenant, loaded.agent, instead.clone()));
    let found = worker.agents.find(lease.claim.tenant, loaded.agent, instead);
    // The policy is needed at the first step; loading both at the same time saves a round trip.
    let policy = worker.policies.find(&worker.tools, lease.claim.tenant, loaded.agent);
    let (found, policy) = tokio::try_join!(found.instrument(span.clone()), policy)?;
    let meter = budget::begin(worker, &lease.claim, (begun.run, &loaded), &found).await?;
    // The task holds the subagent's limits: without it nothing would bound the turn.
    let has_no_task = kind == Ok(SessionKind::Subagent) && task.is_none();
    let unusable_model;
    let snapshot = match found {
        _ if has_no_task => Err(Failure::NoTask),
        AgentLookup::Ready(snapshot) => Ok(snapshot),
        AgentLookup::NoAgent => Err(Failure::NoAgent),
        AgentLookup::NoModel(model) => {
            unusable_model = model;
            Err(Failure::NoModel(unusable_model.as_deref()))
        }
    };
    let first = runs.iter().rev().take_while(|run| begun.open && **run == begun.run).count();
    let is_outside = loaded.outside && kind != Ok(SessionKind::Heartbeat);
    heartbeats::drop_history(kind.ok(), &mut entries, first);
    let at = entries.len() - first;
    let sessions = worker.sessions.clone();
    let mut journal = Journal::new(sessions, Arc::clone(lease), entries, at, loaded.next_entry);
    if let Ok(snapshot) = &snapshot {
        journal.set_budgets(Arc::clone(&snapshot.ledger));
    }
    journal.set_hit_points(meter);
    if is_outside {
        journal.set_outside();
    }
    let events = loaded.events.drain(..).map(|pending| pending.event).collect();
    let is_new = !begun.open;
    let mut turn = TurnState::new(worker, Arc::clone(lease), loaded, begun, journal, began, task);
    turn.announce();
    // Whether the author of a message is a guest is asked when the turn hears it.
    turn.policy = policy;
    turn.was_moved = was_moved;
    firings::receive_system_events(&mut turn, events, is_new);
    let ended = async {
        match &snapshot {
            Ok(snapshot) => {
                let completed = Box::pin(steps::run_steps(&mut turn, snapshot)).await?;
                after_turn::after_turn(&turn, snapshot, &completed);
                Ok(completed)
            }
            Err(failure) => steps::finish_without_model(&mut turn, failure).await,
        }
    };
    Box::pin(ended.instrument(span.clone())).await
}

/// Refreshes the snapshot and the policy in the background if they expire soon.
fn refresh_in_background(worker: &Arc<Worker>, which: AgentKey) {
    if worker.agents.should_refresh(&which) {
        let worker = Arc::clone(worker);
        tokio::spawn(async move {
            let policy = worker.policies.refresh_if_aging(&worker.tools, which.0, which.1);
            tokio::join!(policy, worker.agents.refresh_snapshot(which.clone()));
        });
    }
}

/// Ends the claim of a session without work. Many silent messages are moved to the journal first,
/// without a turn: they would fill the inbox.
async fn yield_without_turn(
    worker: &Worker,
    claim: &Claim,
    loaded: LoadedSession,
) -> Result<CompletionResult, Error> {
    let silent = loaded.waiting.iter().filter(|row| row.body.silent).count();
    let first = loaded.waiting.first().filter(|_| silent == loaded.waiting.len());
    let Some(first) = first.filter(|_| silent >= MAX_SILENT_MESSAGES) else {
        return Ok(worker.sessions.yield_session(claim, loaded.wait).await?);
    };
    let run = RunId::from(first.message);
    let heard = |row: &InboxMessage| Entry::Heard { seq: row.seq, body: row.body.clone() };
    let completion = Completion {
        run,
        at: Some(loaded.next_entry),
        newest: loaded.waiting.last().map(|row| (row.seq, row.message)),
        entries: loaded.waiting.iter().map(heard).collect(),
        done: loaded.waiting.iter().map(|row| row.seq).collect(),
        outcome: TurnOutcome::Completed,
        reason: Some("nothing but silence".to_owned()),
        reply: None,
        deliveries: Vec::new(),
        usage: Usage::default(),
        model: String::new(),
        steps: 0,
        tools: Vec::new(),
        started_at: Timestamp::now(),
        wait: loaded.wait,
        last_target: None,
        effects: None,
    };
    Ok(worker.sessions.complete(claim, completion).await?)
}

/// Start of a turn, or of the turn that is already open.
pub(crate) struct TurnStart {
    pub(crate) run: RunId,
    /// Whether the turn is already in the journal.
    pub(crate) open: bool,
    /// Note of the wait whose deadline began the turn.
    pub(crate) overdue: Option<String>,
    pub(crate) trace: Option<String>,
}

impl TurnStart {
    /// Returns `None` if there is no work.
    fn determine(loaded: &LoadedSession, runs: &[RunId], entries: &[Entry]) -> Option<Self> {
        let step = next(entries, Limits::default(), |_| Effect::Reads);
        if step != Step::Rest
            && let Some(run) = runs.last()
        {
            let first = loaded.waiting.iter().find(|row| RunId::from(row.message) == *run);
            let trace = first.and_then(|row| row.trace.clone());
            return Some(Self { run: *run, open: true, overdue: None, trace });
        }
        let wanted =
            |row: &&InboxMessage| wakes(&loaded.wait, &row.body) || row.seq <= loaded.cancel_upto;
        if loaded.waiting.iter().any(|row| wanted(&row)) {
            // The first message that is not silent begins the turn; cancelled ones may all be
            // silent.
            let spoken = loaded.waiting.iter().find(|row| !row.body.silent);
            let first = spoken.or_else(|| loaded.waiting.first())?;
            let (run, trace) = (RunId::from(first.message), first.trace.clone());
            return Some(Self { run, open: false, overdue: None, trace });
        }
        let overdue = match &loaded.wait {
            Wait::Message { deadline_ms: Some(_), note, .. }
            | Wait::Event { deadline_ms: Some(_), note, .. } => Some(note.clone()),
            Wait::Message { .. } | Wait::Event { .. } | Wait::Anything => None,
        }?;
        Some(Self { run: RunId::generate(), open: false, overdue: Some(overdue), trace: None })
    }
}
