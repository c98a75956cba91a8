//! Commit of a command's changes to the agent's workspace.
//!
//! Nothing that a command wrote is lost if another session was faster: the other's file stays, and
//! the command's version is put beside it for the agent to merge.

use std::time::Duration;

use holdfast_tools::{FileMark, Kept};
use holdfast_types::{Fault as _, TreePath};
use holdfast_workspace::{Base, By, Committed, Edit, Error, Stray};
use tokio::time::sleep;
use tracing::warn;

use super::folders::Folder;
use crate::fail;

/// Conflicting files of one command.
const MOST_CLASHES: usize = 64;

/// Notes for the model about files that were not saved.
const MOST_NOTES: usize = 20;

/// Delays between attempts while the database is unavailable.
const AGAIN: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2)];

/// Commits a command's changes and returns the result for the model.
pub(super) async fn keep(folder: &mut Folder, by: &By) -> Kept {
    let mut kept = Kept::default();
    fail::point("runner.before_keep").await;
    if let Err(error) = try_keep(folder, by, &mut kept).await {
        let error_ = &error as &dyn std::error::Error;
        if error.kind().is_transient() {
            warn!(error = error_, "what a command changed could not be kept");
        }
        kept.changes.clear();
        kept.notes.push(format!("nothing that it changed was kept: {error}"));
    }
    fail::point("runner.after_keep").await;
    if kept.notes.len() > MOST_NOTES {
        let more = kept.notes.len() - MOST_NOTES;
        kept.notes.truncate(MOST_NOTES);
        kept.notes.push(format!("{more} more were not kept"));
    }
    kept
}

async fn try_keep(folder: &mut Folder, by: &By, kept: &mut Kept) -> Result<(), Error> {
    let found = folder.scratch.changes().await?;
    for Stray { path, kind } in &found.strays {
        kept.notes.push(format!("`{path}` was not kept: {kind}"));
    }
    let sight = folder.sight;
    let (mut edits, others): (Vec<Edit>, Vec<Edit>) =
        found.edits.into_iter().partition(|edit| sight.may_change(edit.path().as_str()));
    for edit in others {
        kept.notes.push(format!(
            "`{}` was not kept: it is changed in a conversation with your owner only",
            edit.path()
        ));
    }
    for _ in 0..=MOST_CLASHES {
        if edits.is_empty() {
            return Ok(());
        }
        match commit(folder, by, edits.clone()).await {
            Ok(committed) => {
                kept.changes = edits.iter().map(marked).collect();
                if committed.changed > 0 {
                    kept.revision = Some(committed.revision.to_string());
                }
                return Ok(());
            }
            Err(Error::Clash { path, author, revision, .. }) => {
                let what =
                    format!("`{path}` was changed meanwhile by {author} (revision {revision})");
                kept.notes.push(match put_aside(&mut edits, &path, by) {
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
    Err(Error::Invalid(format!("others changed more than {MOST_CLASHES} of its files meanwhile")))
}

/// Commits with retries; the key makes a repeated commit harmless.
async fn commit(folder: &mut Folder, by: &By, edits: Vec<Edit>) -> Result<Committed, Error> {
    for wait in AGAIN {
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
fn put_aside(edits: &mut Vec<Edit>, path: &TreePath, by: &By) -> Option<TreePath> {
    let at = edits.iter().position(|edit| edit.path() == path)?;
    let Edit::Put { content, .. } = edits.remove(at) else { return None };
    let run = by.run.map(|run| run.as_uuid().simple().to_string()).unwrap_or_default();
    let run = run.get(24..).unwrap_or("mine");
    let beside: TreePath = format!("{path}.conflict-{run}").parse().ok()?;
    edits.retain(|edit| *edit.path() != beside);
    edits.push(Edit::Put { path: beside.clone(), content, base: Base::Any });
    Some(beside)
}

fn marked(edit: &Edit) -> (FileMark, String) {
    let mark = match edit {
        Edit::Put { base: Base::Hash(_), .. } => FileMark::Changed,
        Edit::Put { base: Base::Absent | Base::Any, .. } => FileMark::Made,
        Edit::Delete { .. } => FileMark::Deleted,
    };
    (mark, edit.path().to_string())
}
