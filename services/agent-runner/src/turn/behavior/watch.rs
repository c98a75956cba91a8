//! The watch of a session that waits for a change of its agent's files.

use holdfast_types::Wait;
use holdfast_workspace::{FILE_CHANGED, FileWatch};

use crate::{agents::snapshots::AgentSnapshot, turn::state::TurnState};

/// Returns `None` if the session waits for something else.
pub(super) fn watch_of(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    wait: &Wait,
) -> Option<FileWatch> {
    let Wait::Event { filter, .. } = wait else { return None };
    if !filter.is_for_event(FILE_CHANGED) {
        return None;
    }
    Some(FileWatch {
        session: turn.lease.claim.session,
        agent: turn.workspace_branch().unwrap_or(snapshot.agent),
        view: serde_json::to_value(turn.access(snapshot).file_view()).ok()?,
        part: filter.contains.clone(),
    })
}
