//! Keeping what a command changed: a commit to the agent's tree, by the agent, in its run.
//!
//! Nothing that a command wrote is lost to another session that was faster. The file stays as the
//! other made it, and what the command wrote is put beside it, for the agent to merge.

use std::time::Duration;

use holdfast_tools::{FileMark, Kept};
use holdfast_types::{Fault as _, TreePath};
use holdfast_workspace::{Base, By, Committed, Edit, Error, Stray};
use tokio::time::sleep;
use tracing::warn;

use super::folders::Folder;
use crate::fail;

/// The most files of one command that others may have changed meanwhile.
const MOST_CLASHES: usize = 64;

/// The most things that were not kept of which the model is told.
const MOST_NOTES: usize = 20;

/// Between tries to commit while the database does not answer.
const AGAIN: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2)];

/// Commits what a command changed, and says what became of it.
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
            // Another made a file where this is a folder, or the other way round.
            Err(error) => return Err(error),
        }
    }
    Err(Error::Invalid(format!("others changed more than {MOST_CLASHES} of its files meanwhile")))
}

/// Commits, and tries again while nobody knows whether it was done; its key makes it once.
async fn commit(folder: &mut Folder, by: &By, edits: Vec<Edit>) -> Result<Committed, Error> {
    for wait in AGAIN {
        match folder.scratch.commit(by, edits.clone()).await {
            Err(error) if error.kind().is_transient() && !is_full(&error) => sleep(wait).await,
            done => return done,
        }
    }
    folder.scratch.commit(by, edits).await
}

/// Whether a tree has no room: asking again helps nobody.
const fn is_full(error: &Error) -> bool {
    matches!(
        error,
        Error::TreeTooLarge { .. } | Error::TooManyFiles { .. } | Error::TooManyBranches { .. }
    )
}

/// Puts what was to be written to a file beside it; `None` if it was to be deleted, or there is no
/// name for it.
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
