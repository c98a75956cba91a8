//! Budget of an agent that looks after itself.

use crate::{agents::snapshots::AgentSnapshot, error::Error, turn::state::TurnState};

use super::effects;

/// Whether the session has used up its tokens of the day. An agent whose setting was turned off has
/// none.
pub(super) async fn is_spent(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
) -> Result<bool, Error> {
    let Some(settings) = snapshot.self_improve else { return Ok(true) };
    let claim = &turn.lease.claim;
    let used = turn.worker.work.tokens_of_day(claim.tenant, claim.session).await;
    let used = used.map_err(effects::session_error)?;
    Ok(used >= u64::from(settings.max_tokens))
}
