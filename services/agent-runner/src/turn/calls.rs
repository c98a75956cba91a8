//! Execution of the tool calls that the model asked for.
//!
//! | effect | stored before | stored after |
//! |---|---|---|
//! | reads | – | the results of all calls that ran together: with the next thought if they were quick, else in one commit |
//! | writes | – | the result and the messages the tool sent, in one commit |
//! | acts | `Called`, committed | the result |

pub(crate) mod unknown_outcomes;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::join_all;
use holdfast_agent::{UNKNOWN_OUTCOME, bootstrap::Audience};
use holdfast_bus::DeltaBody;
use holdfast_sandbox::Owner;
use holdfast_session::CompletionResult;
use holdfast_tools::{AllowedHosts, AllowedTools, Call, HostContext, Output, ToolError};
use holdfast_types::{CallRecord, ConnectionKind, Directives, Effect, Entry, Media, ToolCall};
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, field::Empty, info_span};

use crate::{
    agents::{skills::Secrets, snapshots::AgentSnapshot},
    error::Error,
    failpoints, held_state,
    tools::{
        canvas, connections,
        memory_subject::MemorySubject,
        tool_context::{CallEffects, ToolContext},
    },
    turn::{
        approvals::{self, ApprovalCheck, approval_need, outside_text},
        context::media,
        participants,
        reply::progress_messages,
        requester,
        skills::invocation,
        state::{TurnState, count_thoughts},
    },
};

/// Read-only calls that took this long are stored before the model is asked. After a crash, quicker
/// ones are simply repeated (decision 0004).
const MIN_STORED_READ_TIME: Duration = Duration::from_millis(500);

/// Maximum size of a tool's details in the ledger of calls, as JSON.
const MAX_DETAILS_BYTES: usize = 16 * 1024;

/// Makes these calls in parallel and stores their results.
pub(crate) async fn run_calls(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    calls: &[ToolCall],
) -> Result<Option<CompletionResult>, Error> {
    turn.ensure_owned().await?;
    let calls = match approvals::check_approvals(turn, snapshot, calls).await? {
        ApprovalCheck::Pending(completed) => return Ok(Some(completed)),
        ApprovalCheck::Make(calls) if calls.is_empty() => return Ok(None),
        ApprovalCheck::Make(calls) => calls,
    };
    let acts: Vec<Entry> = calls
        .iter()
        .map(|call| (call, turn.tools.effect(&call.tool)))
        .filter(|(_, effect)| *effect == Effect::Acts)
        .map(|(call, effect)| Entry::Called { call: call.id.clone(), effect })
        .collect();
    let told = progress_messages::announce_calls(turn, &calls);
    if told || !acts.is_empty() {
        turn.append(acts).await?;
        turn.ensure_owned().await?;
    }
    failpoints::point("runner.before_call").await;
    let began = Instant::now();
    let made = join_all(calls.iter().map(|call| run_call(turn, snapshot, call)));
    let results = tokio::select! {
        results = made => results,
        () = turn.lease.lost.cancelled() => return Err(Error::Lost),
        () = turn.worker.giving_up.cancelled() => return Err(Error::ReleaseRequested),
    };
    turn.timing.tools += began.elapsed();
    // Before the results are stored: the model knows of nothing that is not recorded.
    let canonical = |call: &ToolCall| turn.tools.canonical_name(&call.tool).unwrap_or_default();
    if calls.iter().any(|call| held_state::may_change_held(canonical(call))) {
        let claim = &turn.lease.claim;
        let owner = Owner { tenant: claim.tenant, session: claim.session };
        turn.worker.held.record(owner, snapshot.agent).await;
    }
    failpoints::point("runner.after_call").await;
    let mut returned = Vec::with_capacity(results.len());
    for (mut entry, effects) in results {
        if let Ok(Entry::Returned { record, .. }) = &mut entry {
            record.cost_micros = turn.journal.cost_micros(&effects.usage);
        }
        apply(turn, effects);
        returned.push(entry);
    }
    let returned = returned.into_iter().collect::<Result<Vec<Entry>, Error>>()?;
    let reads = calls.iter().all(|call| turn.tools.effect(&call.tool) == Effect::Reads);
    // A message for the user is stored at once, so that it is sent now.
    let told = turn.journal.has_outbox();
    if reads && !told && began.elapsed() < MIN_STORED_READ_TIME {
        returned.into_iter().for_each(|entry| turn.journal.add_unstored(entry));
        return Ok(None);
    }
    turn.append(returned).await?;
    Ok(None)
}

/// Stores, charges and shows with the next write what a call left for the turn.
fn apply(turn: &mut TurnState<'_>, effects: CallEffects) {
    effects.usage.iter().for_each(|usage| turn.journal.charge_used(usage));
    turn.journal.enqueue(effects.deliveries);
    // At once: the next message must not find the old snapshot.
    if effects.is_snapshot_outdated {
        turn.worker.agents.invalidate(turn.lease.claim.tenant, turn.agent);
    }
}

/// State of the turn for the tools.
fn tool_context(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> ToolContext {
    let access = turn.access(snapshot);
    ToolContext {
        kind: turn.kind,
        audience: access.audience,
        key: turn.key.clone(),
        target: turn.conversation_target(),
        platform_message: turn.platform_message(),
        model: snapshot.model_id.to_string(),
        command_policy: participants::command_policy(turn, snapshot),
        reply_settings: Directives { elevated: Some(turn.effective_elevated()), ..turn.dials() },
        connections: usable_connections(turn, snapshot, access.audience),
        memory_subject: MemorySubject::of(&access),
        file_view: access.file_view(),
        scope: turn.file_scope(),
        is_read_only: turn.is_read_only(),
        skills: Arc::clone(&snapshot.skills.skill_set),
        secrets: Arc::clone(&snapshot.skills.secrets),
        has_read_outside_text: turn.has_read_outside_text(),
        is_flushing: turn.is_flushing(),
        workspace_branch: turn.workspace_branch(),
        workdir: turn.workspace.as_ref().map(|workspace| workspace.seen.to_string()),
        narrowed: turn.journal.tool_limits(),
        requester: requester::requester(turn, snapshot, &access),
        step: turn.behavior_step(),
        effects: Mutex::default(),
    }
}

async fn run_call(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    call: &ToolCall,
) -> (Result<Entry, Error>, CallEffects) {
    // Unknown tool names come from the model and may contain anything: they never become
    // labels.
    let tool = turn.tools.canonical_name(&call.tool).unwrap_or("unknown");
    let span = info_span!("tool", gen_ai.tool.name = tool, failed = Empty);
    let is_silent = turn.is_flushing();
    if !is_silent {
        let (call, tool) = (call.id.clone(), call.tool.clone());
        turn.stream.send(DeltaBody::ToolStarted { call, tool });
    }
    let (began, started_at) = (Instant::now(), Timestamp::now());
    let (made, mut effects) = dispatch(turn, snapshot, call).instrument(span.clone()).await;
    let made = redact_secrets(&snapshot.skills.secrets, made);
    let made = match made {
        Ok(mut output) => {
            let kept = media::store_files(turn, snapshot, tool, &mut output).await;
            kept.map(|media| (output, media))
        }
        Err(error) => Err(error),
    };
    let (output, failed, media, details) = match made {
        Ok((mut output, media)) => {
            invocation::record_skill_read(turn, snapshot, call).await;
            effects.deliveries.extend(media::user_message(turn, &call_key(turn, call), &output));
            let details = output.details.take();
            (output.for_llm, false, media, details)
        }
        Err(ToolError::Tell(text)) => (text, true, Media::default(), None),
        Err(ToolError::Broken(source)) => {
            return (Err(Error::Tool { name: tool.to_owned(), source }), effects);
        }
    };
    span.record("failed", failed);
    metrics::histogram!(
        "holdfast_runner_tool_duration_seconds",
        "tool" => turn.tools.metric_label(&call.tool),
        "outcome" => if failed { "failed" } else { "ok" },
    )
    .record(began.elapsed().as_secs_f64());
    effects.deliveries.extend(progress_messages::result_message(turn, call, &output, failed));
    if !is_silent {
        let surfaces = std::mem::take(&mut effects.changed_surfaces);
        if !surfaces.is_empty() {
            turn.stream.send(DeltaBody::Canvas { surfaces });
        }
        turn.stream.send(DeltaBody::ToolEnded { call: call.id.clone(), failed });
    }
    let record = CallRecord {
        started_at_ms: started_at.as_millisecond(),
        took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        // Known once the turn charges it.
        cost_micros: 0,
        details,
        outside: effects.has_read_outside_text
            || outside_text::is_outside_result(tool, &output)
            || outside_text::describes_server_tool(turn, tool, &output),
    };
    (Ok(Entry::Returned { call: call.id.clone(), output, failed, media, record }), effects)
}

async fn dispatch(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    call: &ToolCall,
) -> (Result<Output, ToolError>, CallEffects) {
    if let Err(refused) = participants::check_policy(turn, snapshot, call).await {
        return (Err(refused), CallEffects::default());
    }
    let context = call_context(turn, snapshot, call);
    let host = context.host.clone();
    let result = call_in_time(turn, context, call).await;
    (result, ToolContext::take_effects(&host))
}

/// Calls a tool, within its time limit and the turn's.
async fn call_in_time(
    turn: &TurnState<'_>,
    context: Call,
    call: &ToolCall,
) -> Result<Output, ToolError> {
    let registry = turn.tools.registry();
    let cancelled = context.cancelled.clone();
    let limit = registry.timeout(&call.tool).unwrap_or(turn.worker.config.tool_timeout);
    let until = (Instant::now() + limit).min(turn.deadline);
    let made = registry.call(context, &call.tool, &call.input);
    // The tool is polled first, so that a crash injected here happens during the call.
    let made = async { tokio::join!(made, failpoints::point("runner.in_call")).0 };
    if let Ok(result) = timeout_at(until, made).await {
        return result;
    }
    cancelled.cancel();
    Err(ToolError::Tell(match turn.tools.effect(&call.tool) {
        Effect::Acts => UNKNOWN_OUTCOME.to_owned(),
        Effect::Reads | Effect::Writes => {
            format!("the call took longer than {} s and was given up", limit.as_secs())
        }
    }))
}

/// Idempotency key of a call, the same on any runner: `session:turn:step:call`.
pub(crate) fn call_key(turn: &TurnState<'_>, call: &ToolCall) -> String {
    let step = count_thoughts(turn.journal.turn()).saturating_sub(1);
    format!("{}:{}:{step}:{}", turn.lease.claim.session, turn.run, call.id)
}

pub(crate) fn call_context(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    call: &ToolCall,
) -> Call {
    let claim = &turn.lease.claim;
    Call {
        tenant: claim.tenant,
        agent: snapshot.agent,
        agent_name: snapshot.name.clone(),
        session: claim.session,
        run: turn.run,
        key: call_key(turn, call),
        // Checked again here: the model may name a tool that it was not offered.
        allowed: allowed_tools(turn, snapshot),
        hosts: allowed_hosts(turn, snapshot, call),
        cancelled: CancellationToken::new(),
        host: HostContext::new(tool_context(turn, snapshot)),
    }
}

/// Tools that the participants of this turn may use.
pub(crate) fn allowed_tools(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> AllowedTools {
    let offered = AllowedTools::only(
        turn.policy.view(&participants::policy_subject(turn, snapshot)).offered(),
    );
    // Without a provider for speech, `tts` is not offered.
    let speaks = snapshot.speaks;
    // Without a search provider, neither is `web_search`.
    let searches = snapshot.has_search || turn.worker.config.web.search.has_provider();
    let offered = AllowedTools::matching(move |name| {
        offered.allows(name) && (speaks || name != "tts") && (searches || name != "web_search")
    });
    let connections = usable_connections(turn, snapshot, turn.access(snapshot).audience);
    let offered = connections::without_unconnected_tools(offered, &connections);
    canvas::without_unseen_canvas(offered, turn.kind, turn.reply_target().as_ref())
}

/// Hosts that the web tools may reach.
fn allowed_hosts(turn: &TurnState<'_>, snapshot: &AgentSnapshot, call: &ToolCall) -> AllowedHosts {
    let hosts = turn.policy.view(&participants::policy_subject(turn, snapshot)).hosts();
    let hosts = match hosts {
        Some(lists) => AllowedHosts::matching(move |host| lists.allows(host)),
        None => AllowedHosts::default(),
    };
    match approval_need::host_to_stay_on(turn, call) {
        Some(host) => hosts.staying_on(host),
        None => hosts,
    }
}

/// Connections that are meant for this conversation.
fn usable_connections(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    audience: Audience,
) -> Vec<(String, ConnectionKind)> {
    connections::usable_connections(&snapshot.connections, turn.kind, audience, &turn.key)
}

/// Removes the secrets of the agent's commands from a result, and details that are too long.
fn redact_secrets(secrets: &Secrets, made: Result<Output, ToolError>) -> Result<Output, ToolError> {
    let without = |text| secrets.redact(text);
    match made {
        Ok(output) => Ok(Output {
            for_llm: without(output.for_llm),
            for_user: output.for_user.map(without),
            details: output.details.and_then(|details| {
                let text = without(details.to_string());
                let is_stored = text.len() <= MAX_DETAILS_BYTES;
                is_stored.then(|| serde_json::from_str(&text).ok()).flatten()
            }),
            ..output
        }),
        Err(ToolError::Tell(text)) => Err(ToolError::Tell(without(text))),
        Err(broken @ ToolError::Broken(_)) => Err(broken),
    }
}
