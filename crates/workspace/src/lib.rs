//! An agent's files: a versioned tree, kept in Postgres.
//!
//! A tree is paths and what they say. Every change makes a new revision with its author, run,
//! reason and time; none is ever taken back, so every one can be undone by another. What files
//! say is stored once in a tenant, by its SHA-256, and never shared between two tenants.
//!
//! [`Workspaces`] owns the Postgres schema `workspace` and is the only way to it:
//!
//! | verb | what | file |
//! |---|---|---|
//! | head, forget | the newest revision; the end of an agent | `workspaces.rs` |
//! | list, read, read_many | what is there, now or then | `read.rs` |
//! | commit | change files, all or none | `commit.rs`, `record.rs` |
//! | restore | what was, again | `restore.rs` |
//! | log, diff | who changed what | `log.rs`, `diff.rs` |
//! | branch, patch, merge | a copy to work on, and what was changed in it | `branch.rs` |
//! | export, import | the tree as a `.tar.gz` | `export.rs`, `import.rs` |
//! | keep_media, content | pictures and files from elsewhere | `media.rs` |
//! | to_index, claim_index, indexed | notes that are to be found by a search | `noted.rs` |
//! | seed | a new agent's first files | `templates.rs` |
//! | briefing, change_skill, skill_used | which skills there are; who changed and used them | `skills.rs` |
//!
//! [`Scratch`] is a tree on a runner's disk, for commands: brought to a revision, and looked
//! through afterwards for what they changed; [`Cache`] keeps what was fetched for it
//! (`scratch.rs`, `scratch/`).
//!
//! ## What is kept
//!
//! History, until the agent is forgotten: revisions, changes, and every content that one of them
//! names. [`Limits`] bound what a tree holds now, and not its history.
//!
//! ## What can go wrong
//!
//! Two sessions of one agent work on one tree. A change says what each file was when its editor
//! read it, and is refused whole if one is not so any more; the editor is told which and by whom.
//! A change whose answer was lost is sent again with its key, and is made once.

mod branch;
mod commit;
mod diff;
mod error;
mod export;
mod hash;
mod import;
mod limits;
mod log;
mod media;
mod model;
mod noted;
mod read;
mod record;
mod restore;
mod scratch;
mod skills;
mod templates;
mod workspaces;

pub use branch::{BranchState, MOST_BRANCHES, Patch};
pub use diff::{Diff, DiffBody, FileDiff};
pub use error::{Clash, Error};
pub use hash::ContentHash;
pub use import::{Import, Imported};
pub use limits::Limits;
pub use log::{LogFilter, Logged};
pub use media::{MOST_MEDIA, NewMedia};
pub use model::{Base, By, Committed, Edit, File, FileChange, Listed, Revision, Said};
pub use noted::{LONG_TERM, NOTES, is_note, is_template};
pub use scratch::{Brought, Cache, Changes, Scratch, Stray, StrayKind};
pub use skills::{Briefing, SkillAction, SkillChange, SkillChanged, SkillHead, SkillUse};
pub use templates::TEMPLATES;
pub use workspaces::Workspaces;
