//! Memory flush: the agent writes down what it must not forget before a compaction (spec C-22).
//!
//! Runs as a silent part of a turn when a compaction is near or due, at most once per compaction.
//! Thoughts and calls of the flush are journal entries between two marks, so another runner can
//! continue it and nothing is written twice. Only the file tools are available, and they can write
//! only the agent's notes; nothing is streamed or sent. If a flush fails, it ends and the
//! compaction goes on.

use holdfast_agent::{
    bootstrap::Audience,
    compact::{
        FLUSH_TOOLS, FlushConditions, Plan, Reason, flush_counts, flush_entry, flush_instruction,
        flush_messages, flush_rounds, is_flushing, needs_memory_flush,
    },
    file_view::NOTES_FOLDER,
    tokens::{CjkAware, Tokenizer as _, messages_tokens},
};
use holdfast_llm::{Delta, Request};
use holdfast_types::{Entry, Note, Reply, ToolSpec};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    agents::{notes, snapshots::AgentSnapshot},
    error::Error,
    failpoints,
    tools::files::FileScope,
    turn::{budget, calls, context::compaction, prompt, state::TurnState, think},
};

/// Model requests per flush.
const MAX_FLUSH_ROUNDS: usize = 6;

impl TurnState<'_> {
    pub(crate) fn is_flushing(&self) -> bool {
        is_flushing(self.journal.entries())
    }
}

/// Files that the tools may access during a flush.
pub(crate) fn flush_scope() -> FileScope {
    FileScope { read: None, write: Some(vec![NOTES_FOLDER.to_owned()]) }
}

pub(crate) fn flush_tools() -> Vec<String> {
    FLUSH_TOOLS.map(str::to_owned).to_vec()
}

/// Starts a flush if a compaction is near and had none yet.
pub(crate) async fn begin_flush(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    reason: Reason,
) -> Result<bool, Error> {
    let (compactions, flushed_at) = flush_counts(turn.journal.entries());
    let is_owner = turn.access(snapshot).audience == Audience::Owner;
    if !is_owner || flushed_at == Some(compactions) {
        return Ok(false);
    }
    let budget = compaction::budget(turn, snapshot);
    let conversation = turn.conversation();
    let before = conversation.summary().map_or(0, |summary| CjkAware.count(summary));
    let wanted = needs_memory_flush(&FlushConditions {
        reason,
        tokens: before + messages_tokens(&CjkAware, conversation.messages()),
        budget,
        kind: turn.kind,
        may_write: calls::allowed_tools(turn, snapshot).allows("write"),
        compactions,
        flushed_at,
    });
    let plan = Plan::compact(&conversation, reason, budget, &CjkAware);
    let keeps = match (&plan, reason) {
        (Some(plan), _) => plan.keeps(),
        // A compaction is near but not due: it will replace everything.
        (None, Reason::Proactive) => 0,
        (None, Reason::Overflow | Reason::Asked) => return Ok(false),
    };
    if !wanted {
        return Ok(false);
    }
    let today = notes::note_path(turn.local_date(snapshot));
    metrics::counter!("holdfast_runner_flushes_total").increment(1);
    turn.append(vec![flush_entry(flush_instruction(&today), keeps)]).await?;
    Ok(true)
}

/// Asks the model what to write down. The flush ends when the model makes no more calls.
pub(crate) async fn run_flush(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
) -> Result<(), Error> {
    if flush_rounds(turn.journal.entries()) >= MAX_FLUSH_ROUNDS {
        return end_flush(turn, "asked often enough").await;
    }
    turn.ensure_owned().await?;
    failpoints::point("runner.before_flush").await;
    // The provider may count more tokens than we do: retry with half and a quarter of the room.
    for part in [1, 2, 4] {
        let mut request = flush_request(turn, snapshot, part);
        if budget::reserve(turn, snapshot, &mut request).await?.is_some() {
            return end_flush(turn, "a budget is spent").await;
        }
        let cancelled = CancellationToken::new();
        let mut pass_over = |_: Delta| {};
        let replied = tokio::select! {
            replied = snapshot.model.reply(&request, &mut pass_over, &cancelled) => replied,
            unwanted = think::until_interrupted(turn) => {
                unwanted?;
                budget::charge_read(turn);
                return turn.reload_inbox().await;
            }
        };
        match replied {
            Ok(reply) => return on_flush_reply(turn, reply).await,
            Err(holdfast_llm::Error::ContextOverflow) => {}
            Err(error) => {
                info!(error = &error as &dyn std::error::Error, "memory was not written down");
                return end_flush(turn, "the model did not answer").await;
            }
        }
    }
    end_flush(turn, "too much to read").await
}

async fn on_flush_reply(turn: &mut TurnState<'_>, reply: Reply) -> Result<(), Error> {
    let Reply { text, calls, usage, model, carry, record, .. } = reply;
    if calls.is_empty() {
        // No thought is stored for this reply, so it is charged here.
        turn.journal.charge_reply(&model, &usage);
        return end_flush(turn, "done").await;
    }
    turn.append(vec![Entry::Thought { text, calls, usage, model, carry, record }]).await.map(drop)
}

async fn end_flush(turn: &mut TurnState<'_>, how: &str) -> Result<(), Error> {
    turn.append(vec![Entry::noted(Note::Flushed, how)]).await.map(drop)
}

/// The usual request, but with the part of the conversation that will be removed, and only the
/// file tools. `part` divides the available room.
fn flush_request(turn: &TurnState<'_>, snapshot: &AgentSnapshot, part: usize) -> Request {
    let mut request = prompt::model_request(turn, snapshot, true);
    let budget = compaction::budget(turn, snapshot);
    let room = budget.window.saturating_sub(budget.reserve + budget.instructions) / part;
    if let Some(messages) = flush_messages(turn.journal.entries(), turn.kind, room) {
        request.chat.messages = messages;
    }
    let allowed = calls::allowed_tools(turn, snapshot);
    let is_one =
        |spec: &ToolSpec| FLUSH_TOOLS.contains(&spec.name.as_str()) && allowed.allows(&spec.name);
    let mut tools = turn.tools.registry().specs();
    tools.retain(is_one);
    request.chat.tools = tools;
    request
}
