//! Compaction: keeps the conversation within the model's context window (spec CMP, C-22).
//!
//! Runs before a model request if the conversation no longer fits, and after the model refused a
//! request as too long. The older part is summarised; it stays in the journal, and the prompt
//! begins with the summary. If summarising does not help, the oldest half is dropped, at most
//! twice. None of this counts as a retry of a key.
//!
//! **What can go wrong.** The summary is stored separately, before the next thought: if the runner
//! crashes in between, the next one continues with the summary.

use std::{sync::Arc, time::Duration};

use futures::future::try_join_all;
use holdfast_agent::{
    Conversation,
    compact::{
        Budget, OverflowMeasures, Plan, Progress, RESERVE_TOKENS, Reason, Remedy,
        SUMMARY_TIMEOUT_SECS, Summary, SummaryRequest, drop_oldest, remedy,
    },
    tokens::{CjkAware, Tokenizer as _},
};
use holdfast_llm::{Delta, Request};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::{agents::snapshots::AgentSnapshot, error::Error, turn::state::TurnState};

impl TurnState<'_> {
    pub(crate) fn conversation(&self) -> Conversation<'_> {
        Conversation::read(self.journal.entries(), self.kind)
    }
}

/// Compacts the conversation before a request if it does not fit.
pub(crate) async fn compact_if_needed(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
) -> Result<(), Error> {
    compact(turn, snapshot, Reason::Proactive, "").await.map(drop)
}

/// Compacts the conversation after a request was refused as too long. Returns `false` if
/// nothing more can be removed.
pub(crate) async fn recover_from_overflow(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    tried: &mut OverflowMeasures,
) -> Result<bool, Error> {
    loop {
        match remedy(*tried) {
            Remedy::Compact => {
                tried.is_compacted = true;
                if compact(turn, snapshot, Reason::Overflow, "").await? {
                    return Ok(true);
                }
            }
            Remedy::DropOldest => {
                tried.drops += 1;
                let dropped = drop_oldest(&turn.conversation());
                return match dropped {
                    Some(summary) => store_summary(turn, summary, "dropped").await.map(|()| true),
                    None => Ok(false),
                };
            }
            Remedy::GiveUp => return Ok(false),
        }
    }
}

/// Summarises the older part. Returns `false` if there is nothing to summarise or no summary
/// was made.
pub(crate) async fn compact(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    reason: Reason,
    wish: &str,
) -> Result<bool, Error> {
    let budget = budget(turn, snapshot);
    let Some(plan) = Plan::compact(&turn.conversation(), reason, budget, &CjkAware) else {
        return Ok(false);
    };
    let mut plan = plan.with_wish(wish);
    loop {
        let asked = plan.requests().iter().map(|request| summarise(turn, snapshot, request));
        let answers = match try_join_all(asked).await {
            Ok(answers) => answers,
            Err(Some(error)) => return Err(error),
            Err(None) => return Ok(false),
        };
        plan = match plan.take_answers(answers) {
            Ok(Progress::Ask(further)) => further,
            Ok(Progress::Done(summary)) => {
                return store_summary(turn, summary, "summarised").await.map(|()| true);
            }
            Err(error) => {
                debug!(%error, "a conversation was not summarised");
                return Ok(false);
            }
        };
    }
}

/// Whether there is anything to summarise on the user's request.
pub(crate) fn can_compact(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> bool {
    let budget = budget(turn, snapshot);
    Plan::compact(&turn.conversation(), Reason::Asked, budget, &CjkAware).is_some()
}

/// Whether anything can be summarised or dropped after a model refused the conversation.
pub(crate) fn can_shorten(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> bool {
    let conversation = turn.conversation();
    Plan::compact(&conversation, Reason::Overflow, budget(turn, snapshot), &CjkAware).is_some()
        || drop_oldest(&conversation).is_some()
}

/// Context window, and the part of it that is not for the conversation.
pub(crate) fn budget(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> Budget {
    let documents: usize = snapshot
        .files
        .iter()
        .filter_map(|file| file.content.as_deref())
        .map(|text| CjkAware.count(text))
        .sum();
    let instructions = documents + CjkAware.count(&snapshot.instructions);
    let window = turn.context_tokens;
    // The usual reserve would take all of a small window, so at most a quarter of it is
    // reserved.
    Budget { window, reserve: RESERVE_TOKENS.min(window / 4), instructions }
}

/// Asks for one summary. `None` in the error means that the summary failed and the turn goes on
/// without it.
async fn summarise(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    wanted: &SummaryRequest,
) -> Result<String, Option<Error>> {
    turn.ensure_owned().await.map_err(Some)?;
    let timeout = Instant::now() + Duration::from_secs(SUMMARY_TIMEOUT_SECS);
    let request = Request {
        max_output: Some(wanted.max_output),
        temperature: Some(SummaryRequest::TEMPERATURE),
        card: Some(Arc::clone(&snapshot.card)),
        ..Request::new(snapshot.model_id.clone(), wanted.chat(), timeout.min(turn.deadline))
    };
    let cancelled = CancellationToken::new();
    let mut pass_over = |_: Delta| {};
    let replied = tokio::select! {
        replied = snapshot.model.reply(&request, &mut pass_over, &cancelled) => replied,
        () = turn.lease.lost.cancelled() => return Err(Some(Error::Lost)),
        () = turn.worker.giving_up.cancelled() => return Err(Some(Error::ReleaseRequested)),
    };
    match replied {
        Ok(reply) => {
            turn.journal.charge_reply(&reply.model, &reply.usage);
            Ok(reply.text)
        }
        Err(error) => {
            info!(error = &error as &dyn std::error::Error, "no summary of a conversation");
            Err(None)
        }
    }
}

/// Stores a summary, with which the conversation begins from now on.
async fn store_summary(
    turn: &mut TurnState<'_>,
    summary: Summary,
    how: &'static str,
) -> Result<(), Error> {
    metrics::counter!("holdfast_runner_compactions_total", "how" => how).increment(1);
    turn.append(vec![summary.entry(0)]).await.map(drop)
}
