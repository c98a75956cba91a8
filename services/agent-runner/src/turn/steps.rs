//! Turn: runs step by step until the session is idle.
//!
//! ```text
//! load ─▶ hear the inbox ─▶ next? ─▶ think ─▶ … call … ─▶ think ─▶ complete
//!              ▲                                │
//!              └────────── end of a step ───────┘  paused, stopping, cancelled, interrupted?
//! ```
//!
//! A turn without tools commits twice: the claim, and its end. A heard message is stored with the
//! thought that follows it; until then only this process knows that it was heard, and a successor
//! hears it again.

use std::{collections::BTreeSet, sync::Arc};

use holdfast_agent::{CallResult, Step, next, recently_used_tools};
use holdfast_session::CompletionResult;
use holdfast_types::{Command, Entry, Note, ToolCall, Wait};
use tokio::time::Instant;
use tracing::{Instrument as _, info_span};

use crate::{
    agents::snapshots::AgentSnapshot,
    error::Error,
    failpoints,
    tools::mcp::{self, ToolRefresh},
    turn::{
        approvals::{self, decisions, outside_text},
        behavior,
        calls::{self, unknown_outcomes},
        client_options::client_tools,
        commands,
        context::{
            compact_command,
            memory_prefetch::{self},
            recordings,
        },
        firings,
        intake::Intake,
        limits::reached_limit,
        participants,
        reply::{completion, replies::Failure},
        skills::{
            dispatch,
            invocation::{self},
        },
        state::{TurnState, count_thoughts},
        think, time_zone,
    },
};

/// Runs steps until the session is idle.
pub(crate) async fn run_steps(
    turn: &mut TurnState<'_>,
    home: &Arc<AgentSnapshot>,
) -> Result<CompletionResult, Error> {
    let mut answering: Option<Arc<AgentSnapshot>> = None;
    loop {
        if let Some(completed) = finish_without_agent(turn).await? {
            return Ok(completed);
        }
        // Before an agent is chosen, which may depend on what was said.
        recordings::transcribe_recordings(turn).await?;
        let snapshot = match &answering {
            Some(found) => Arc::clone(found),
            None => match Box::pin(find_answering_agent(turn, home)).await? {
                AnsweringAgent::Found(found) => Arc::clone(answering.insert(found)),
                AnsweringAgent::Completed(completed) => return Ok(completed),
                AnsweringAgent::NewInput => continue,
            },
        };
        if let Some(completed) = prepare_step(turn, &snapshot).await? {
            return Ok(completed);
        }
        if let Some(completed) = execute_step(turn, &snapshot).await? {
            return Ok(completed);
        }
    }
}

/// Ends the step before. Returns `Some` if the turn ended with it, or needs no agent.
async fn finish_without_agent(turn: &mut TurnState<'_>) -> Result<Option<CompletionResult>, Error> {
    if let Some(completed) = end_of_step(turn).await? {
        return Ok(Some(completed));
    }
    if let Some(command) = commands::command(turn)
        && !matches!(command, Command::Compact(_))
    {
        return commands::execute_command(turn, command).await.map(Some);
    }
    if let Some(text) = firings::fixed_text(turn) {
        return firings::finish_with_fixed_text(turn, text).await.map(Some);
    }
    finish_task(turn).await
}

enum AnsweringAgent {
    Found(Arc<AgentSnapshot>),
    /// A command was answered instead.
    Completed(CompletionResult),
    /// New input must be handled first.
    NewInput,
}

/// Determines the agent that answers, which a model may choose.
async fn find_answering_agent(
    turn: &mut TurnState<'_>,
    home: &Arc<AgentSnapshot>,
) -> Result<AnsweringAgent, Error> {
    if turn.is_housekeeping() {
        limit_context(turn, home);
        return Ok(AnsweringAgent::Found(Arc::new(home.for_housekeeping())));
    }
    if let Some(completed) = dispatch::dispatch_command(turn, home).await? {
        return Ok(AnsweringAgent::Completed(completed));
    }
    let Some(found) = dispatch::answering_agent(turn, home).await? else {
        return Ok(AnsweringAgent::NewInput);
    };
    if let Some(completed) = dispatch::dispatch_command(turn, &found).await? {
        return Ok(AnsweringAgent::Completed(completed));
    }
    limit_context(turn, &found);
    Ok(AnsweringAgent::Found(found))
}

/// Keeps the conversation within the context window of an agent's model.
fn limit_context(turn: &mut TurnState<'_>, snapshot: &AgentSnapshot) {
    let window = usize::try_from(snapshot.card.context).unwrap_or(usize::MAX);
    turn.context_tokens = turn.context_tokens.min(window);
}

/// Loads what the step needs. Returns `Some` if the turn ended instead.
async fn prepare_step(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
) -> Result<Option<CompletionResult>, Error> {
    behavior::load_behavior(turn, snapshot).await?;
    behavior::load_workspace(turn, snapshot).await?;
    if let Some(unusable) = invocation::find_invoked_skill(turn, snapshot) {
        return completion::finish_with_answer(turn, unusable).await.map(Some);
    }
    refresh_tools(turn, snapshot).await?;
    participants::load_policy(turn).await?;
    time_zone::load_preferences(turn, snapshot.dm_scope).await?;
    outside_text::mark_outside_files(turn, snapshot);
    if !turn.is_dispatched() {
        memory_prefetch::start_prefetch(turn, snapshot);
    }
    compact_command::run_compact_command(turn, snapshot).await
}

/// Executes the next step. Returns `Some` if the turn ended with it.
async fn execute_step(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
) -> Result<Option<CompletionResult>, Error> {
    let limits = turn.limits();
    let step = count_thoughts(turn.journal.turn());
    let span = info_span!("step", step);
    let tools = Arc::clone(&turn.tools);
    let effect = |name: &str| behavior::effect_of(&tools, name);
    if matches!(next(turn.journal.entries(), limits, effect), Step::Think | Step::ThinkWithoutTools)
    {
        firings::add_pending_events(turn);
    }
    match next(turn.journal.entries(), limits, effect) {
        Step::Rest => yield_session(turn).await.map(Some),
        Step::Think | Step::ThinkWithoutTools if turn.behavior.is_some() => {
            behavior::run_step(turn, snapshot).instrument(span).await
        }
        Step::Think => {
            let with_tools = !turn.is_housekeeping();
            think::think_and_release(turn, snapshot, with_tools).instrument(span).await
        }
        Step::ThinkWithoutTools => {
            think::think_and_release(turn, snapshot, false).instrument(span).await
        }
        Step::Call(calls) if turn.behavior.is_some() && behavior::is_result(calls[0]) => {
            let call = calls[0].clone();
            behavior::apply_result(turn, snapshot, &call).instrument(span).await
        }
        Step::Call(calls) => {
            let calls: Vec<ToolCall> = calls.into_iter().cloned().collect();
            calls::run_calls(turn, snapshot, &calls).instrument(span).await
        }
        Step::Await(calls) => {
            let calls: Vec<ToolCall> = calls.into_iter().cloned().collect();
            approvals::settle_approvals(turn, &calls).instrument(span).await
        }
        Step::Unknown(call) => {
            let call = call.clone();
            let returned = unknown_outcomes::recover_result(turn, snapshot, &call).await?;
            turn.append(vec![returned]).await.map(|_| None)
        }
        Step::Refuse(calls, limit) => {
            let told = holdfast_agent::limit_reached(limits, limit);
            let refused = calls.iter().map(|call| Entry::returned(&call.id, told.clone(), true));
            turn.append(refused.collect()).await.map(|_| None)
        }
        Step::HandOver(calls) => {
            let calls: Vec<ToolCall> = calls.into_iter().cloned().collect();
            client_tools::hand_over(turn, &calls).instrument(span).await
        }
        Step::Answer(call, came) => {
            let (call, output) = (call.clone(), came.output.to_owned());
            let came = CallResult { output: &output, ..came };
            dispatch::finish_dispatched(turn, &call, came).await.map(Some)
        }
        Step::Halt => completion::finish_with_failure(turn, &Failure::ToolLoop).await.map(Some),
    }
}

/// Loads the tools. Tools of MCP servers are refreshed only when they are needed.
async fn refresh_tools(turn: &mut TurnState<'_>, snapshot: &AgentSnapshot) -> Result<(), Error> {
    let limits = turn.limits();
    let effect = |name: &str| behavior::effect_of(&turn.tools, name);
    let look = match next(turn.journal.entries(), limits, effect) {
        Step::Call(calls) if calls.iter().any(|call| mcp::may_need_servers(&call.tool)) => {
            ToolRefresh::Refresh
        }
        Step::Think
            if snapshot.tools.as_deref().is_some_and(mcp::names_server_tools)
                || turn.given_tools().is_some_and(|tools| mcp::names_server_tools(tools))
                || mcp::names_server_tools(&recently_used_tools(turn.journal.entries())) =>
        {
            ToolRefresh::Refresh
        }
        Step::Call(_)
        | Step::Think
        | Step::Rest
        | Step::ThinkWithoutTools
        | Step::Await(_)
        | Step::Unknown(_)
        | Step::Refuse(..)
        | Step::HandOver(_)
        | Step::Answer(..)
        | Step::Halt => ToolRefresh::UseCached,
    };
    if look == ToolRefresh::Refresh {
        follow_server(turn, snapshot).await?;
    }
    load_tools(turn, snapshot, look).await
}

/// Releases the session to the runner where a server of its agent runs as a process, so that the
/// agent has one. A session that has waited for that runner in vain stays.
async fn follow_server(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> Result<(), Error> {
    let (worker, claim) = (turn.worker, &turn.lease.claim);
    if turn.was_moved {
        return Ok(());
    }
    let servers = worker.mcp.absent_processes(claim.tenant, snapshot.agent).await?;
    if servers.is_empty() {
        return Ok(());
    }
    let found =
        worker.sessions.server_holder(claim.tenant, snapshot.agent, &servers, worker.id).await?;
    match found {
        Some(holder) if worker.sessions.hand_over(claim, holder).await? => {
            Err(Error::ReleaseRequested)
        }
        Some(_) | None => Ok(()),
    }
}

pub(crate) async fn load_tools(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    look: ToolRefresh,
) -> Result<(), Error> {
    let (worker, tenant) = (turn.worker, turn.lease.claim.tenant);
    let found = worker.mcp.toolbox(&worker.tools, tenant, snapshot.agent, look);
    turn.tools = tokio::select! {
        found = found => found?,
        () = turn.lease.lost.cancelled() => return Err(Error::Lost),
        () = worker.giving_up.cancelled() => return Err(Error::ReleaseRequested),
    };
    Ok(())
}

/// Ends the turn of a task that has ended or has reached a limit.
async fn finish_task(turn: &mut TurnState<'_>) -> Result<Option<CompletionResult>, Error> {
    let Some(task) = &turn.task else { return Ok(None) };
    if task.outcome.is_some() {
        // Messages that arrive after the end of the task are not part of it.
        let is_task = turn.heard_seqs().contains(&1);
        return match is_task {
            true => Ok(Some(
                completion::finish_early(turn, Note::Cancelled, turn.unfinished_seqs()).await?,
            )),
            false => Ok(None),
        };
    }
    match reached_limit(task, turn.journal.turn()) {
        Some(budget) => {
            Ok(Some(completion::finish_with_failure(turn, &Failure::TaskLimit(budget)).await?))
        }
        None => Ok(None),
    }
}

/// Ends a turn that cannot run, unless its user has cancelled it.
pub(crate) async fn finish_without_model(
    turn: &mut TurnState<'_>,
    failure: &Failure<'_>,
) -> Result<CompletionResult, Error> {
    if let Some(completed) = end_of_step(turn).await? {
        return Ok(completed);
    }
    if let Some(text) = firings::fixed_text(turn) {
        return firings::finish_with_fixed_text(turn, text).await;
    }
    match commands::command(turn) {
        Some(command) => commands::execute_command(turn, command).await,
        None => completion::finish_with_failure(turn, failure).await,
    }
}

/// End of a step: all signals from outside take effect here.
async fn end_of_step(turn: &mut TurnState<'_>) -> Result<Option<CompletionResult>, Error> {
    failpoints::point("runner.boundary").await;
    if turn.worker.draining.is_cancelled() || turn.lease.is_outranked() {
        return Err(Error::ReleaseRequested);
    }
    let signal = *turn.lease.subscribe().borrow();
    turn.cancel_upto = turn.cancel_upto.max(signal.cancel_upto);
    if turn.is_outdated(signal) {
        turn.reload_inbox().await?;
    }
    if turn.pause || signal.pause {
        return Err(Error::ReleaseRequested);
    }
    decisions::process_decisions(turn).await?;
    match turn.decide_intake() {
        Intake::Cancelled(seqs) => {
            turn.hear_messages(&seqs);
            // Messages that the turn has heard are cancelled with it.
            let heard = turn.heard_seqs();
            let with = heard.iter().any(|seq| seqs.contains(seq));
            let all: BTreeSet<i64> =
                seqs.into_iter().chain(heard.into_iter().filter(|_| with)).collect();
            Ok(Some(
                completion::finish_early(turn, Note::Cancelled, all.into_iter().collect()).await?,
            ))
        }
        Intake::Interrupted(seqs) => {
            turn.hear_messages(&seqs);
            // The next turn reads the message in its history, where it is not changed any more.
            recordings::transcribe_recordings(turn).await?;
            Ok(Some(
                completion::finish_early(turn, Note::Interrupted, turn.unfinished_seqs()).await?,
            ))
        }
        Intake::Hear(seqs) => {
            turn.hear_messages(&seqs);
            if Instant::now() >= turn.deadline {
                return Ok(Some(
                    completion::finish_with_failure(turn, &Failure::TurnTimedOut).await?,
                ));
            }
            Ok(None)
        }
    }
}

/// Ends the claim: there is no work.
async fn yield_session(turn: &TurnState<'_>) -> Result<CompletionResult, Error> {
    Ok(turn.worker.sessions.yield_session(&turn.lease.claim, Wait::Anything).await?)
}
