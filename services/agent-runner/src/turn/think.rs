//! Model requests of a turn, and the events that end them early.

use std::{convert::Infallible, env, sync::Arc};

use holdfast_agent::{
    PromptInput, build_on,
    compact::{OverflowMeasures, Reason},
    prompt::{Channel, MEMORY_LIMIT, PromptMode, PromptSettings, Runtime, TurnContext},
    recently_used_tools,
    subagent::SubagentTask,
};
use holdfast_directory::channel;
use holdfast_llm::{Model as _, OnDelta, Request, ThinkingForm};
use holdfast_session::CompletionResult;
use holdfast_types::{
    ContextOptions, Entry, PromptStrategy, Reasoning, Reply, SessionKind, Thinking, ToolSpec,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    agents::snapshots::AgentSnapshot,
    error::Error,
    failpoints,
    turn::{
        budget, calls,
        context::{compaction, flush, media, memory_prefetch},
        heartbeats,
        intake::{Intake, decide_intake},
        reply::{completion, progress_messages, quotes, replies::Failure},
        skills::{
            invocation::{self, InvokedSkill},
            recommendations,
        },
        state::{TurnState, count_thoughts},
        time_zone,
    },
};

/// Outcome of a model request.
enum ModelOutcome {
    Replied(Box<Reply>),
    Failed(holdfast_llm::Error),
    /// The text for the user.
    Spent(String),
    /// New input or a cancellation must be handled first.
    Interrupted,
}

/// Whether a tool only describes other tools.
pub(crate) fn is_tool_lookup(tool: &str) -> bool {
    matches!(tool, "tool_search" | "tool_describe")
}

/// The agent's files, as its tools name the folder.
const WORKSPACE_PATH: &str = "/workspace";

/// Asks the model and stores its answer. Returns `Some` if that ends the turn.
pub(crate) async fn think_and_release(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    with_tools: bool,
) -> Result<Option<CompletionResult>, Error> {
    if turn.is_flushing() {
        let flushed = flush::run_flush(turn, snapshot).await;
        budget::release_reservation(turn).await;
        return flushed.map(|()| None);
    }
    let thought = run_think_step(turn, snapshot, with_tools).await;
    // Only after the usage is stored.
    budget::release_reservation(turn).await;
    thought
}

async fn run_think_step(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    with_tools: bool,
) -> Result<Option<CompletionResult>, Error> {
    turn.stream.begin_step(count_thoughts(turn.journal.turn()));
    if let Some(why) = budget::spent_budget(turn, snapshot).await? {
        return completion::finish_with_failure(turn, &Failure::BudgetSpent(&why)).await.map(Some);
    }
    if with_tools && flush::begin_flush(turn, snapshot, Reason::Proactive).await? {
        return Ok(None);
    }
    recommendations::recommend_skills(turn, snapshot).await?;
    compaction::compact_if_needed(turn, snapshot).await?;
    let mut tried = OverflowMeasures::default();
    if std::mem::take(&mut turn.is_too_long) {
        compaction::recover_from_overflow(turn, snapshot, &mut tried).await?;
    }
    let mut asked = ask_model(turn, snapshot, with_tools).await?;
    // The provider may count more tokens than we do.
    while let ModelOutcome::Failed(holdfast_llm::Error::ContextOverflow) = asked {
        if with_tools && flush::begin_flush(turn, snapshot, Reason::Overflow).await? {
            turn.is_too_long = true;
            return Ok(None);
        }
        if !compaction::recover_from_overflow(turn, snapshot, &mut tried).await? {
            break;
        }
        asked = ask_model(turn, snapshot, with_tools).await?;
    }
    let reply = match asked {
        ModelOutcome::Replied(reply) => *reply,
        ModelOutcome::Interrupted => {
            budget::charge_read(turn);
            return turn.reload_inbox().await.map(|()| None);
        }
        ModelOutcome::Spent(why) => {
            return completion::finish_with_failure(turn, &Failure::BudgetSpent(&why))
                .await
                .map(Some);
        }
        ModelOutcome::Failed(error) => {
            return completion::finish_with_failure(turn, &Failure::Model(&error)).await.map(Some);
        }
    };
    let Reply { text, thinking, mut calls, usage, model, carry, .. } = reply;
    progress_messages::send_reasoning(turn, &thinking);
    turn.reasoning = turn.sends_thinking().then_some(thinking);
    if !with_tools && !text.trim().is_empty() {
        // The model was told to answer and did; its calls were not offered.
        calls.clear();
    }
    let asks = !calls.is_empty();
    // The provider needs it only together with the results of calls.
    let carry = carry.filter(|_| asks);
    let (text, quote) = match asks {
        true => (text, None),
        false => quotes::extract_quote(&text),
    };
    turn.quote = quote;
    let thought = Entry::Thought { text, calls, usage, model, carry };
    if !asks {
        if let Some(beat) = turn.heartbeat().cloned() {
            return heartbeats::finish_heartbeat(turn, beat, thought).await.map(Some);
        }
        media::synthesize_answer(turn, snapshot, &thought).await?;
        return completion::finish_with_answer(turn, thought).await.map(Some);
    }
    turn.append(vec![thought]).await?;
    Ok(None)
}

async fn ask_model(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    with_tools: bool,
) -> Result<ModelOutcome, Error> {
    turn.ensure_owned().await?;
    failpoints::point("runner.before_model").await;
    media::load_images(turn).await?;
    memory_prefetch::await_prefetch(turn).await;
    let mut request = model_request(turn, snapshot, with_tools);
    if let Some(why) = budget::reserve(turn, snapshot, &mut request).await? {
        return Ok(ModelOutcome::Spent(why));
    }
    let model = snapshot.chain.for_conversation(turn.settings.profile.clone());
    let cancelled = CancellationToken::new();
    let began = Instant::now();
    turn.stream.set_reasoning(turn.effective_reasoning());
    let stream = &turn.stream;
    let mut take = |delta| stream.on_model_delta(delta);
    let on_delta: OnDelta<'_> = &mut take;
    // A branch that ends early drops the request, which aborts it.
    let asked = tokio::select! {
        answer = model.reply(&request, on_delta, &cancelled) => match answer {
            Ok(reply) => Ok(ModelOutcome::Replied(Box::new(reply))),
            Err(error) => Ok(ModelOutcome::Failed(error)),
        },
        unwanted = until_interrupted(turn) => unwanted.map(|()| ModelOutcome::Interrupted),
        never = turn.stream.send_pending() => match never {},
    };
    turn.stream.flush();
    let took = began.elapsed();
    metrics::histogram!("holdfast_runner_model_duration_seconds").record(took.as_secs_f64());
    turn.timing.model += took;
    store_key(turn, model.used_key()).await?;
    failpoints::point("runner.after_model").await;
    asked
}

/// Stores the key that answered, if there are several, so that the conversation keeps it.
async fn store_key(turn: &mut TurnState<'_>, used: Option<String>) -> Result<(), Error> {
    if used.is_none() || used == turn.settings.profile {
        return Ok(());
    }
    turn.settings.profile = used;
    Ok(turn.worker.sessions.settings().set(&turn.lease.claim, &turn.settings).await?)
}

/// Tools that the model is shown, and names of further ones that it may search for.
fn offered_tools(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    with_tools: bool,
) -> (Vec<ToolSpec>, Vec<String>) {
    if !with_tools {
        return (Vec::new(), Vec::new());
    }
    let (registry, allowed) = (turn.tools.registry(), calls::allowed_tools(turn, snapshot));
    // Tools that somebody named explicitly are all shown; otherwise the model sees a selection.
    let named = snapshot.tools.as_ref().or(snapshot.context.include_tools.as_ref());
    let (mut tools, more) = match named.or(turn.routed_tools()) {
        Some(_) => (registry.specs(), Vec::new()),
        None => {
            let used = recently_used_tools(turn.journal.entries());
            let used: Vec<&str> = used.iter().map(String::as_str).collect();
            let offer = registry.offered(&allowed, &used);
            (offer.tools, offer.searchable)
        }
    };
    tools.retain(|tool| is_tool_lookup(&tool.name) || allowed.allows(&tool.name));
    (tools, more)
}

pub(crate) fn model_request(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    with_tools: bool,
) -> Request {
    let (tools, more) = offered_tools(turn, snapshot, with_tools);
    let place = turn.conversation_target();
    let (now, zone) = time_zone::local_time(turn, snapshot);
    let audience = turn.audience(snapshot);
    let (dials, thinking) = (turn.dials(), turn.thinking_level());
    let marks = snapshot.card.thinking.by == ThinkingForm::Marks && thinking != Thinking::Off;
    let skills = invocation::prompt_skills(snapshot, (&tools, &more));
    let setting = PromptSettings {
        instructions: &snapshot.instructions,
        zone: &zone,
        tools: &tools,
        more_tools: &more,
        skills: &skills,
        files: &snapshot.files,
        workspace: Some(WORKSPACE_PATH),
        mode: prompt_mode(turn.kind, snapshot.context.strategy),
        memory: snapshot.context.include_memory,
        marks_reasoning: marks,
        heartbeat_prompt: snapshot.heartbeat_prompt.as_deref(),
        ..PromptSettings::of(snapshot.name.as_str(), turn.kind, audience)
    };
    let channel = place.as_ref().map(|place| Channel {
        name: &place.channel,
        actions: &[],
        capabilities: channel::capabilities(&place.channel),
    });
    let model = snapshot.model_id.to_string();
    let runtime = Some(Runtime {
        host: "runner",
        os: env::consts::OS,
        arch: env::consts::ARCH,
        version: env!("CARGO_PKG_VERSION"),
        model: &model,
        thinking: thinking.as_str(),
        elevated: dials.elevated.map(|_| turn.effective_elevated().as_str()),
    });
    let runtime = runtime.filter(|_| includes_runtime(&snapshot.context));
    let requester = turn.task.as_ref().map(|task| task.parent.to_string());
    let task = turn.task.as_ref().map(|task| SubagentTask {
        task: Some(&task.task),
        label: Some(&task.label),
        requester: requester.as_deref(),
        session: &turn.key,
    });
    let recommended = turn.recommended.as_deref().unwrap_or_default();
    let recommended: Vec<&str> = recommended.iter().map(String::as_str).collect();
    let notes = snapshot.notes.of_last_days(turn.local_date(snapshot));
    let stable = turn.worker.prompts.stable_part(snapshot.version, &setting);
    let input = PromptInput {
        setting,
        moment: TurnContext {
            channel,
            runtime,
            task,
            called: turn.invoked_skill.as_ref().map(InvokedSkill::for_prompt),
            skills: &recommended,
            routed: turn.routing_choice.as_ref().map(|choice| choice.prompt.as_str()),
            pictures: &turn.pictures,
            memories: &turn.prefetch.memories,
            notes: &notes,
            memory_limit: MEMORY_LIMIT.min(turn.context_tokens / 10),
            ..TurnContext::at(&now)
        },
        journal: turn.journal.entries(),
        context_limit: turn.context_tokens,
    };
    let chat = build_on(stable, input);
    let timeout = Instant::now() + turn.worker.config.model_timeout;
    Request {
        cache_key: Some(snapshot.agent.to_string()),
        card: Some(Arc::clone(&snapshot.card)),
        thinking,
        shows_thinking: turn.effective_reasoning() != Reasoning::Off || turn.sends_thinking(),
        ..Request::new(snapshot.model_id.clone(), chat, timeout.min(turn.deadline))
    }
}

/// Completes when the answer is not wanted any more: cancelled or interrupted. Fails if the
/// session is lost or must be released.
pub(crate) async fn until_interrupted(turn: &TurnState<'_>) -> Result<(), Error> {
    tokio::select! {
        () = turn.lease.lost.cancelled() => Err(Error::Lost),
        () = turn.worker.giving_up.cancelled() => Err(Error::ReleaseRequested),
        () = until_signalled(turn) => Ok(()),
    }
}

async fn until_signalled(turn: &TurnState<'_>) {
    let mut signal = turn.lease.subscribe();
    let (mut next_in, mut hints) = (turn.next_in, turn.hints);
    loop {
        let now = *signal.borrow_and_update();
        if now.cancel_upto > turn.cancel_upto {
            return;
        }
        if now.next_in > next_in || now.hints > hints {
            (next_in, hints) = (now.next_in.max(next_in), now.hints);
            if is_interrupted(turn).await {
                return;
            }
        }
        if signal.changed().await.is_err() {
            // The sender is part of the lease, so this cannot happen.
            let _: Infallible = std::future::pending().await;
        }
    }
}

/// Whether new messages end the turn. On failure the turn goes on.
async fn is_interrupted(turn: &TurnState<'_>) -> bool {
    let Ok(loaded) = turn.worker.sessions.load(&turn.lease.claim, 0).await else {
        return false;
    };
    let upto = loaded.cancel_upto.max(turn.cancel_upto);
    match decide_intake(&loaded.waiting, &turn.heard_seqs(), true, upto) {
        Intake::Cancelled(_) | Intake::Interrupted(_) => true,
        Intake::Hear(_) => false,
    }
}

/// Extent of the prompt (spec CTX-001).
const fn prompt_mode(kind: SessionKind, strategy: PromptStrategy) -> PromptMode {
    match strategy {
        PromptStrategy::Lite => PromptMode::Lite,
        PromptStrategy::Full | PromptStrategy::Custom => PromptMode::of(kind),
    }
}

/// Whether the prompt describes the runtime (spec CTX-002).
fn includes_runtime(options: &ContextOptions) -> bool {
    options.include_runtime.unwrap_or(options.strategy != PromptStrategy::Lite)
}
