//! Unknown outcomes: a call whose runner crashed is not repeated, but its tool may know how it
//! ended.

use holdfast_agent::UNKNOWN_OUTCOME;
use holdfast_types::{Entry, ToolCall};
use tokio::time::{Instant, timeout_at};

use crate::{
    agents::snapshots::AgentSnapshot,
    error::Error,
    turn::{calls, state::TurnState},
};

/// Result of a call that was begun and whose end is unknown.
pub(crate) async fn recover_result(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    call: &ToolCall,
) -> Result<Entry, Error> {
    let registry = turn.tools.registry();
    let context = calls::call_context(turn, snapshot, call);
    let limit = registry.timeout(&call.tool).unwrap_or(turn.worker.config.tool_timeout);
    let until = (Instant::now() + limit).min(turn.deadline);
    let asked = timeout_at(until, registry.find_outcome(&context, &call.tool, &call.input));
    let found = tokio::select! {
        found = asked => found.ok().flatten(),
        () = turn.lease.lost.cancelled() => return Err(Error::Lost),
        () = turn.worker.giving_up.cancelled() => return Err(Error::ReleaseRequested),
    };
    Ok(match found {
        Some(output) => Entry::returned(&call.id, output.for_llm, false),
        None => Entry::returned(&call.id, UNKNOWN_OUTCOME.to_owned(), true),
    })
}
