//! Commit of a command's changes to the agent's workspace.
//!
//! Nothing that a command wrote is lost if another session was faster: the other's file stays, and
//! the command's version is put beside it for the agent to merge.

use std::time::Duration;

use holdfast_agent::file_view::is_instruction;
use holdfast_tools::{FileChangeKind, WorkspaceChanges};
use holdfast_types::{Fault as _, TreePath};
use holdfast_workspace::{
    Base, ChangeAuthor, CommitOutcome, Edit, Error, UnstorableEntry, UnstorableReason,
};
use tokio::time::sleep;
use tracing::warn;

use super::{folders::Folder, git_files};
use crate::failpoints;

/// Conflicting files of one command.
const MAX_CONFLICTS: usize = 64;

/// Notes for the model about files that were not saved.
const MAX_NOTES: usize = 20;

/// Delays between attempts while the database is unavailable.
const RETRY_DELAYS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2)];

/// Commits a command's changes and returns the result for the model. Changes of the agent's
/// instructions are left out unless `may_change_instructions`. Large leftovers do not stay on the
/// disk.
pub(super) async fn commit_changes(
    folder: &mut Folder,
    by: &ChangeAuthor,
    may_change_instructions: bool,
) -> WorkspaceChanges {
    let mut kept = WorkspaceChanges::default();
    failpoints::point("runner.before_keep").await;
    let committed = try_commit(folder, by, may_change_instructions, &mut kept).await;
    if !matches!(committed, Ok(Leftovers::Small)) {
        folder.clear().await;
    }
    if let Err(error) = committed {
        let error_ = &error as &dyn std::error::Error;
        if error.kind().is_transient() {
            warn!(error = error_, "what a command changed could not be kept");
        }
        kept.changes.clear();
        kept.notes.push(format!("nothing that it changed was kept: {error}"));
    }
    failpoints::point("runner.after_keep").await;
    if kept.notes.len() > MAX_NOTES {
        let more = kept.notes.len() - MAX_NOTES;
        kept.notes.truncate(MAX_NOTES);
        kept.notes.push(format!("{more} more were not kept"));
    }
    kept
}

/// Files of a command that were not stored and are still in its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leftovers {
    Small,
    Large,
}

async fn try_commit(
    folder: &mut Folder,
    by: &ChangeAuthor,
    may_change_instructions: bool,
    kept: &mut WorkspaceChanges,
) -> Result<Leftovers, Error> {
    let found = folder.scratch.changes().await?;
    // A closed folder may hold anything.
    let is_large = |entry: &UnstorableEntry| {
        matches!(entry.kind, UnstorableReason::Large | UnstorableReason::Unreadable)
    };
    let leftovers = match found.unstorable.iter().any(is_large) {
        true => Leftovers::Large,
        false => Leftovers::Small,
    };
    for UnstorableEntry { path, kind } in &found.unstorable {
        kept.notes.push(format!("`{path}` was not kept: {kind}"));
    }
    let view = &folder.view;
    let (mut edits, others): (Vec<Edit>, Vec<Edit>) =
        found.edits.into_iter().partition(|edit| view.may_change(edit.path().as_str()));
    for edit in others {
        kept.notes.push(format!(
            "`{}` was not kept: it is changed in a conversation with your owner only",
            edit.path()
        ));
    }
    edits.retain(|edit| {
        let path = edit.path();
        let is_kept = may_change_instructions || !is_instruction(path.as_str());
        if !is_kept {
            kept.notes.push(format!(
                "`{path}` was not kept: this conversation has read text from outside, or the command \
                 could; change the file with `write` or `edit`, with which a person can decide"
            ));
        }
        is_kept
    });
    edits.retain(|edit| {
        let refused = git_files::refusal(edit);
        let note = refused.as_ref().and_then(git_files::Refusal::note);
        kept.notes.extend(note.filter(|note| !kept.notes.contains(note)));
        refused.is_none()
    });
    for _ in 0..=MAX_CONFLICTS {
        if edits.is_empty() {
            return Ok(leftovers);
        }
        match commit_with_retries(folder, by, edits.clone()).await {
            Ok(committed) => {
                let told = edits.iter().filter(|edit| edit.path().within_git_database().is_none());
                kept.changes = told.map(change_mark).collect();
                if committed.changed > 0 {
                    kept.revision = Some(committed.revision.to_string());
                }
                return Ok(leftovers);
            }
            Err(Error::Clash { path, author, revision, .. }) => {
                let what =
                    format!("`{path}` was changed meanwhile by {author} (revision {revision})");
                kept.notes.push(match move_aside(&mut edits, &path, by) {
                    Some(beside) => format!(
                        "{what} and stays so; what the command wrote is in `{beside}`: merge them"
                    ),
                    None => format!("{what} and stays so"),
                });
            }
            // For example, another session created a file where this one has a folder.
            Err(error) => return Err(error),
        }
    }
    Err(Error::Invalid(format!("others changed more than {MAX_CONFLICTS} of its files meanwhile")))
}

/// Commits with retries; the key makes a repeated commit harmless.
async fn commit_with_retries(
    folder: &mut Folder,
    by: &ChangeAuthor,
    edits: Vec<Edit>,
) -> Result<CommitOutcome, Error> {
    for wait in RETRY_DELAYS {
        match folder.scratch.commit(by, edits.clone()).await {
            Err(error) if error.kind().is_transient() && !is_full(&error) => sleep(wait).await,
            done => return done,
        }
    }
    folder.scratch.commit(by, edits).await
}

/// Whether the workspace has no room, so that a retry is useless.
const fn is_full(error: &Error) -> bool {
    matches!(
        error,
        Error::TreeTooLarge { .. } | Error::TooManyFiles { .. } | Error::TooManyBranches { .. }
    )
}

/// Moves the conflicting version to a file beside the original. `None` if the command deleted the
/// file or no name fits.
fn move_aside(edits: &mut Vec<Edit>, path: &TreePath, by: &ChangeAuthor) -> Option<TreePath> {
    let at = edits.iter().position(|edit| edit.path() == path)?;
    let Edit::Put { content, .. } = edits.remove(at) else { return None };
    let run = by.run.map(|run| run.as_uuid().simple().to_string()).unwrap_or_default();
    let run = run.get(24..).unwrap_or("mine");
    let beside: TreePath = format!("{path}.conflict-{run}").parse().ok()?;
    edits.retain(|edit| *edit.path() != beside);
    edits.push(Edit::Put { path: beside.clone(), content, base: Base::Any });
    Some(beside)
}

fn change_mark(edit: &Edit) -> (FileChangeKind, String) {
    let mark = match edit {
        Edit::Put { base: Base::Hash(_), .. } => FileChangeKind::Changed,
        Edit::Put { base: Base::Absent | Base::Any, .. } => FileChangeKind::Made,
        Edit::Delete { .. } => FileChangeKind::Deleted,
    };
    (mark, edit.path().to_string())
}
