//! Isolated execution of commands: away from the mesh, from other tenants and from the host.
//!
//! A [`Command`] is a script, a workspace and what it may use; a [`Sandbox`] runs it and returns
//! how it [`CommandEnd`]. [`open`] makes the sandbox that the [`Config`] asks for, and runs a test
//! command in it before any other code uses it.
//!
//! | | |
//! |---|---|
//! | [`Backend::Bubblewrap`] | namespaces, a system call filter, resource limits and a watcher |
//! | [`Backend::Plain`] | no isolation: for trusted development, refused where tenants are hosted |
//! | [`Backend::Pods`] | pods of a Kubernetes cluster; `holdfast-sandbox-pods` |
//! | [`Processes`] | background processes, which outlive a session's turns and die with the session |
//! | [`ScriptGuard`] | first filter on scripts, before they run |
//!
//! Scripts come from models, and files from scripts: nothing in either is trusted.
//! `docs/sandbox.md` lists the guarantees of each isolation mechanism, and what none of them
//! guarantees.

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
mod pipes;
mod plain;
mod process;
mod processes;
mod root;
mod sandbox;
mod seccomp;
mod slices;
mod spawner;
mod supervise;
mod tree;
mod work_path;

pub use background::{Background, Input, OutputWriter, SupervisorIo};
pub use command::{Access, Command, CommandTerms, Network, Workspace};
pub use config::{BackendChoice, Config, NetworkPolicy};
pub use error::{Error, PathError};
pub use guard::{DangerClass, GuardConfig, ScriptGuard, ScriptRefusal};
pub use limits::Limits;
pub use open::open;
pub use outcome::{CommandEnd, Limit, LossReason, Outcome};
pub use output::{CapturedOutput, OutputChunk};
pub use process::{PipedProcess, Process, Signal, State, Stream};
pub use processes::{Owner, ProcessEntry, ProcessId, Processes, UnreadOutput};
pub use sandbox::{Backend, LocalSandbox, Sandbox};
pub use slices::TenantLimits;
pub use work_path::{MOUNT, WorkPath};
