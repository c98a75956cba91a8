//! Where commands run: away from the mesh, from other tenants and from the host.
//!
//! A [`Command`] is a script, a workspace and what it may use; a [`Sandbox`] runs it
//! and says how it [`Ended`]. [`open`] makes the one that the [`Config`] asks for, and
//! tries it before anyone depends on it.
//!
//! | | |
//! |---|---|
//! | [`Backend::Bubblewrap`] | namespaces, a system call filter, resource limits and a watcher |
//! | [`Backend::Plain`] | no isolation: for trusted development, refused where tenants are hosted |
//! | [`Processes`] | what runs on behind a session's turns, and dies with the session |
//! | [`Root`] | files of a workspace, for those who are outside the sandbox |
//! | [`Guard`] | a first filter on scripts, before the walls |
//!
//! Scripts come from models, and files from scripts: nothing in either is trusted. What
//! each wall guarantees, and what none does, is in `docs/sandbox.md`.

mod background;
mod bubblewrap;
mod command;
mod config;
mod disk;
mod error;
mod guard;
mod limits;
mod local;
mod open;
mod outcome;
mod output;
mod plain;
mod process;
mod processes;
mod root;
mod sandbox;
mod seccomp;
mod spawner;
mod supervise;
mod tree;
mod work_path;

pub use command::{Access, Command, Network, Scope, Workspace};
pub use config::{Choice, Config, NetworkPolicy};
pub use error::Error;
pub use guard::{Blocked, Class, Guard, GuardConfig};
pub use limits::Limits;
pub use open::open;
pub use outcome::{Ended, Limit, Outcome};
pub use output::{Captured, Chunk};
pub use process::{Piped, Process, Signal, State, Stream};
pub use processes::{Listed, Owner, ProcessId, Processes, Unread};
pub use root::{Entry, EntryKind, PathError, Root};
pub use sandbox::{Backend, Sandbox};
pub use work_path::{MOUNT, WorkPath};
