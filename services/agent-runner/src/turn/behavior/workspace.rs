//! The local workspace of a session: a folder of its agent's files in which it works alone.
//!
//! A step binds its session with `session_delta.workspace`. The binding is stored with the step, and
//! the claim ends: the next one holds the workspace's lease, and waits while another session does.

use holdfast_session::WorkspaceBinding;
use holdfast_types::{Fault as _, StepResult, TreePath};
use holdfast_workspace::{
    NamedWorkspace, NewWorkspace, WorkspaceKind, WorkspaceLock, WorkspaceOwner, WorkspaceStatus,
};
use uuid::Uuid;

use super::effects::session_error;
use crate::{agents::snapshots::AgentSnapshot, error::Error, turn::state::TurnState};

/// The session's local workspace.
#[derive(Debug, Clone)]
pub(crate) struct LocalWorkspace {
    name: String,
    kind: WorkspaceKind,
    /// Its folder, as the conversation sees it.
    pub(crate) seen: TreePath,
}

/// Loads the session's local workspace, once in a turn, with the list of its todos.
pub(crate) async fn load_workspace(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
) -> Result<(), Error> {
    let Some(id) = turn.bound_workspace.as_deref().filter(|_| turn.workspace.is_none()) else {
        return Ok(());
    };
    let Ok(id) = id.parse::<Uuid>() else { return Ok(()) };
    let (tenant, session) = (turn.lease.claim.tenant, turn.lease.claim.session);
    let found = turn.worker.workspaces.named(tenant, id).await?;
    turn.workspace = found.and_then(|found| local_workspace(turn, snapshot, found));
    let work = &turn.worker.work;
    let joined = match turn.workspace {
        Some(_) => work.join_list(tenant, snapshot.agent, session, id).await,
        // Its todos are not for a session that does not see the folder.
        None => work.leave_list(tenant, session).await,
    };
    Ok(joined.map_err(session_error)?)
}

/// Makes or finds the workspace that a result chooses. Returns it if the session is not bound to
/// it yet, or why it cannot be, for the model. A repetition makes it once.
pub(super) async fn choose_workspace(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    result: &StepResult,
) -> Result<Result<Option<(Uuid, WorkspaceBinding)>, String>, Error> {
    let Some(choice) = &result.session_delta.workspace else { return Ok(Ok(None)) };
    let refuse =
        |why: String| Ok(Err(format!("`session_delta.workspace` was not applied: {why}\n")));
    if turn.task.is_some() {
        return refuse("a subagent works in the files that it was given".to_owned());
    }
    let kind = match choice.kind.as_str() {
        "" => WorkspaceKind::Folder,
        word => match WorkspaceKind::parse(word) {
            Some(kind) => kind,
            None => return refuse("`kind` is `folder` or `git`".to_owned()),
        },
    };
    let space = turn.access(snapshot).files;
    let new = NewWorkspace {
        name: choice.name.clone(),
        within: space.folder().and_then(|folder| folder.parse().ok()),
        kind,
        owner: WorkspaceOwner::Agent(snapshot.name.to_string()),
        lock: WorkspaceLock::default(),
    };
    let tenant = turn.lease.claim.tenant;
    match turn.worker.workspaces.create_named(tenant, snapshot.agent, &new).await {
        Ok(made) => {
            let drains = made.lock == WorkspaceLock::TodoDrain;
            let binding = WorkspaceBinding { workspace: made.id.to_string(), drains };
            let is_new = turn.bound_workspace.as_ref() != Some(&binding.workspace);
            Ok(Ok(Some((made.id, binding)).filter(|_| is_new)))
        }
        Err(error) if error.kind().is_transient() => Err(error.into()),
        Err(error) => refuse(error.to_string()),
    }
}

/// What a step is told of the local workspace.
pub(super) fn summary(local: &LocalWorkspace) -> String {
    let LocalWorkspace { name, kind, seen } = local;
    let kind = match kind {
        WorkspaceKind::Folder => "a folder",
        WorkspaceKind::Git => "a Git repository",
    };
    format!(
        "You work in the workspace `{name}`, {kind}. Commands begin in it; for the tools that read \
         and write files its path is `{seen}`. No other session works in it meanwhile."
    )
}

/// Workspaces that the session can be bound to, a line for each.
pub(super) async fn list(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> Result<String, Error> {
    let all = turn.worker.workspaces.list_named(turn.lease.claim.tenant, snapshot.agent).await?;
    let space = turn.access(snapshot).files;
    // The name alone chooses one in the conversation's own files.
    let own = all.into_iter().filter(|one| {
        let folder = one.folder.folder().and_then(|folder| folder.folder());
        folder.as_ref().map(TreePath::as_str) == space.folder()
            && one.status == WorkspaceStatus::Ready
    });
    let lines = own.map(|one| format!("- {} ({})", one.name, one.kind.as_str()));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

fn local_workspace(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    found: NamedWorkspace,
) -> Option<LocalWorkspace> {
    let is_usable = found.agent == snapshot.agent && found.status == WorkspaceStatus::Ready;
    let seen = turn.access(snapshot).file_view().view_path(&found.folder).filter(|_| is_usable)?;
    Some(LocalWorkspace { name: found.name, kind: found.kind, seen })
}
