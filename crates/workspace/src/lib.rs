//! Agent workspaces: versioned file trees in Postgres.
//!
//! A tree maps paths to contents. Every change makes a new revision with its author, run, reason
//! and time. Revisions are never removed, so each can be undone by another. A content is stored
//! once per tenant under its SHA-256; tenants share no contents.
//!
//! [`Workspaces`] owns the Postgres schema `workspace`; no other code accesses it:
//!
//! | methods | purpose | file |
//! |---|---|---|
//! | head, forget | the newest revision; deletion with an agent | `workspaces.rs` |
//! | list, read, read_many | files at the newest or an earlier revision | `read.rs` |
//! | commit | change files, all or none | `commit.rs`, `record.rs` |
//! | restore | return to an earlier revision | `restore.rs` |
//! | undo_changes | take back changes of a run, within the caller's transaction | `restore/undo.rs` |
//! | log, diff | history, differences between revisions | `log.rs`, `diff.rs` |
//! | branch, patch, merge | a copy to work on, and its changes | `branch.rs` |
//! | export, import | the tree as a `.tar.gz` | `export.rs`, `import.rs` |
//! | keep_media, content | media files that were received or generated | `media.rs` |
//! | to_index, claim_index, indexed | notes to index for search | `note_index.rs` |
//! | create_named, named, list_named, archive_named | workspaces of sessions | `named.rs` |
//! | tenants_with_watches, changed_watches, move_watch | sessions that wait for changes | `log/watches.rs` |
//! | seed | a new agent's first files | `seed.rs`, `templates.rs` |
//! | briefing, change_skill, skill_used | skills, their changes and uses | `skills.rs` |
//!
//! [`Scratch`] is a scratch folder: a copy of a tree on a runner's disk in which commands run.
//! [`Scratch::bring`] brings it to a revision, [`Scratch::changes`] finds what a command changed.
//! [`ContentCache`] keeps fetched contents on disk (`scratch.rs`, `scratch/`).
//!
//! ## Retention
//!
//! History is kept until the agent's tree is forgotten: revisions, changes, and every content that
//! they name. [`Limits`] bound the current tree, not its history.
//!
//! ## What can go wrong
//!
//! Two sessions of one agent work on one tree. An edit names the content that its author read
//! ([`Base`]). If a file has changed since, the whole change is refused, and the error says who
//! changed which file. A change whose answer was lost is sent again with its idempotency key, and
//! is made once.

mod branch;
mod branch_state;
mod commit;
mod diff;
mod erase;
mod error;
mod export;
mod hash;
mod import;
mod limits;
mod log;
mod media;
mod model;
mod named;
mod note_index;
mod read;
mod record;
mod restore;
mod revision;
mod scratch;
mod seed;
mod skills;
mod templates;
mod workspaces;

pub use branch::{MAX_OPEN_BRANCHES, Patch};
pub use branch_state::BranchState;
pub use diff::{Diff, DiffBody, FileDiff};
pub use error::{Clash, Error};
pub use hash::ContentHash;
pub use import::{ImportMode, ImportOutcome};
pub use limits::Limits;
pub use log::{
    LogEntry, LogFilter,
    watches::{ChangedWatch, FILE_CHANGED, FileWatch, WatchState, watch_files},
};
pub use media::{MAX_MEDIA_BYTES, NewMedia};
pub use model::{
    Base, ChangeAuthor, ChangeStep, CommitOutcome, ContentRef, Edit, File, FileChange, FileEntry,
};
pub use named::{
    NamedWorkspace, NewWorkspace, WorkspaceKind, WorkspaceLock, WorkspaceOwner, WorkspaceStatus,
};
pub use note_index::{LONG_TERM_NOTES_FILE, NOTES_FOLDER, is_note, is_unchanged_template};
pub use restore::undo::{FileConflict, UndoneFiles};
pub use revision::Revision;
pub use scratch::{
    BringOutcome, ContentCache, PathView, Scratch, ScratchChanges, UnstorableEntry,
    UnstorableReason,
};
pub use skills::{SkillAction, SkillChange, SkillChangeRecord, SkillHead, SkillUse, TurnFiles};
pub use templates::TEMPLATES;
pub use workspaces::Workspaces;
