//! Tells sessions that wait for the event `file_changed` of changed files.

use holdfast_agent::file_view::FileView;
use holdfast_session::FamilyEvent;
use holdfast_types::{Fault as _, Kind, TenantId};
use holdfast_workspace::{ChangedWatch, FILE_CHANGED, WatchState};
use tracing::debug;

use crate::worker::Worker;

/// Files that one event names.
const MAX_NAMED_FILES: usize = 32;

/// Tells of changes that were made since the last look.
pub(super) async fn tell_changes(worker: &Worker) -> anyhow::Result<()> {
    for tenant in worker.workspaces.tenants_with_watches().await? {
        for watch in worker.workspaces.changed_watches(tenant).await? {
            match tell_change(worker, tenant, &watch).await {
                Ok(Some(state)) => {
                    let moved = (watch.head, state);
                    worker.workspaces.move_watch(tenant, watch.session, moved).await?;
                }
                // Its turn still runs, and may wait for the change when it has ended.
                Ok(None) => {}
                Err(error) if error.kind() == Kind::Exhausted => {
                    debug!(%error, session.id = %watch.session, "a change is not told yet");
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

async fn tell_change(
    worker: &Worker,
    tenant: TenantId,
    watch: &ChangedWatch,
) -> Result<Option<WatchState>, holdfast_session::Error> {
    let paths = visible_paths(watch);
    if paths.is_empty() {
        return Ok(Some(WatchState::Waits));
    }
    let (named, more) = paths.split_at(paths.len().min(MAX_NAMED_FILES));
    let mut text = format!("Files were changed:\n{}", named.join("\n"));
    if !more.is_empty() {
        text.push_str(&format!("\nand {} more", more.len()));
    }
    let event = FamilyEvent {
        name: FILE_CHANGED,
        root: watch.session,
        cause: None,
        idem_key: format!("files:{}", watch.head.number()),
        text,
        // Paths only.
        outside: false,
    };
    let result = worker.sessions.tell_session(tenant, &event).await?;
    let is_running = result.is_any_running;
    super::work::wake(worker, result);
    Ok(Some(WatchState::Ended).filter(|_| !is_running))
}

/// Paths of the changed files that the session sees and waits for, as its conversation names them.
fn visible_paths(watch: &ChangedWatch) -> Vec<String> {
    // Another version's view: nothing is told rather than too much.
    let Ok(view) = serde_json::from_value::<FileView>(watch.view.clone()) else {
        return Vec::new();
    };
    let part = watch.part.as_deref().unwrap_or_default().to_lowercase();
    let seen = watch.paths.iter().filter_map(|path| view.view_path(path));
    seen.map(|path| path.to_string()).filter(|path| path.to_lowercase().contains(&part)).collect()
}
