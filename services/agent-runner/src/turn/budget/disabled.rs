//! Agents that a person has disabled or archived: they begin no turn, and their messages wait.

use holdfast_directory::AgentState;
use holdfast_session::{Claim, LoadedSession};

use super::hit_points;
use crate::{agents::snapshots::AgentSnapshot, error::Error, worker::Worker};

const NOTICE: &str = "I am disabled at the moment. I keep your message, and answer by myself when \
                      I am enabled again.";

/// Lets the session rest if its agent is disabled. Enabling the agent wakes it.
///
/// # Errors
///
/// [`Error::Resting`] if the session was released.
pub(crate) async fn rest_if_disabled(
    worker: &Worker,
    claim: &Claim,
    loaded: &LoadedSession,
    snapshot: &AgentSnapshot,
) -> Result<(), Error> {
    if snapshot.state == AgentState::Enabled {
        return Ok(());
    }
    hit_points::rest(worker, claim, loaded, (hit_points::MAX_REST, NOTICE)).await?;
    Err(Error::Resting)
}
