//! `holdfast files`.

pub mod archive;
pub mod local_folder;
mod repository;
mod repository_copy;
pub mod workspaces;

use std::{
    fs,
    io::{self, Read as _, Write as _},
};

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    DeleteFileRequest, DiffFilesRequest, ExportFilesRequest, File, FileRevision, GetFileLogRequest,
    ImportFilesRequest, ListFilesRequest, ReadFileRequest, RestoreFilesRequest, WriteFileRequest,
};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const FILE_COLUMNS: [&str; 4] = ["path", "size", "revision", "changed_at"];
const REVISION_COLUMNS: [&str; 5] = ["revision", "created_at", "author", "reason", "paths"];

#[derive(Debug, Subcommand)]
pub enum Files {
    /// List the files of an agent
    List {
        #[command(flatten)]
        of: FilesOwner,
        /// Show only this file or folder
        #[arg(default_value = "", hide_default_value = true)]
        path: String,
        /// Revision of the files [default: the newest]
        #[arg(long, default_value_t = 0, hide_default_value = true)]
        at: i64,
    },
    /// Print a file to stdout
    Read {
        #[command(flatten)]
        of: FilesOwner,
        /// Path of the file in the agent's workspace
        path: String,
        /// Revision of the file [default: the newest]
        #[arg(long, default_value_t = 0, hide_default_value = true)]
        at: i64,
    },
    /// Store a local file, or stdin, as a file of the agent
    Write {
        #[command(flatten)]
        of: FilesOwner,
        #[command(flatten)]
        why: ChangeReason,
        /// Path of the file in the agent's workspace
        path: String,
        /// The local file; `-` is stdin
        #[arg(default_value = "-")]
        from: String,
    },
    /// Delete a file of an agent
    Delete {
        #[command(flatten)]
        of: FilesOwner,
        #[command(flatten)]
        why: ChangeReason,
        /// Path of the file in the agent's workspace
        path: String,
    },
    /// List changes with author, time and reason
    History {
        #[command(flatten)]
        of: FilesOwner,
        /// Show only changes in this file or folder
        #[arg(default_value = "", hide_default_value = true)]
        path: String,
        /// Maximum number of changes to list
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// Show only changes before this revision
        #[arg(long, default_value_t = 0, hide_default_value = true)]
        before: i64,
    },
    /// Show the differences between two revisions
    Diff {
        #[command(flatten)]
        of: FilesOwner,
        /// The older revision to compare
        from: i64,
        /// The newer revision to compare [default: the newest]
        #[arg(default_value_t = 0, hide_default_value = true)]
        to: i64,
        /// Show only this file or folder
        #[arg(long, default_value = "", hide_default_value = true)]
        path: String,
    },
    /// Restore files from an old revision, as a new revision
    Restore {
        #[command(flatten)]
        of: FilesOwner,
        #[command(flatten)]
        why: ChangeReason,
        /// Revision from which the files are restored
        revision: i64,
        /// Restore only this file or folder [default: all]
        #[arg(default_value = "", hide_default_value = true)]
        path: String,
    },
    /// Export all files to a local `.tar.gz`
    Export {
        #[command(flatten)]
        of: FilesOwner,
        /// The local file; `-` is stdout
        to: String,
        /// Revision of the files [default: the newest]
        #[arg(long, default_value_t = 0, hide_default_value = true)]
        at: i64,
    },
    /// Import files from a local `.tar.gz` or `.tar`
    Import {
        #[command(flatten)]
        of: FilesOwner,
        #[command(flatten)]
        why: ChangeReason,
        /// The local file; `-` is stdin
        from: String,
        /// Delete files that the archive does not contain
        #[arg(long)]
        replace: bool,
    },
}

/// The agent whose files are meant
#[derive(Debug, Args)]
pub struct FilesOwner {
    /// Name or id of the agent [default: the tenant's default agent]
    #[arg(long, default_value = "", hide_default_value = true)]
    agent: String,
}

/// The reason that is recorded with a change
#[derive(Debug, Args)]
pub struct ChangeReason {
    /// Reason of the change, for the history
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
}

impl Files {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { of, path, at } => {
                let request = ListFilesRequest { agent: of.agent, revision: at, path };
                let request = client.request(request);
                let listed = client.answer(client.files().list_files(request).await)?.files;
                screen.list(&FILE_COLUMNS, listed.iter().map(file).collect())
            }
            Self::Read { of, path, at } => {
                let request = ReadFileRequest { agent: of.agent, path, revision: at };
                let request = client.request(request);
                let read = client.answer(client.files().read_file(request).await)?;
                Ok(io::stdout().write_all(&read.content)?)
            }
            Self::Write { of, why, path, from } => {
                let request = WriteFileRequest {
                    agent: of.agent,
                    path,
                    content: read_local(&from)?,
                    reason: why.reason,
                    ..WriteFileRequest::default()
                };
                let request = client.request(request);
                let made = client.answer(client.files().write_file(request).await)?.revision;
                print_revision(*screen, made)
            }
            Self::Delete { of, why, path } => {
                let request = DeleteFileRequest {
                    agent: of.agent,
                    path,
                    reason: why.reason,
                    ..DeleteFileRequest::default()
                };
                let request = client.request(request);
                let made = client.answer(client.files().delete_file(request).await)?.revision;
                print_revision(*screen, made)
            }
            Self::History { of, path, limit, before } => {
                let request = GetFileLogRequest { agent: of.agent, path, limit, before };
                let request = client.request(request);
                let log = client.answer(client.files().get_file_log(request).await)?.revisions;
                screen.list(&REVISION_COLUMNS, log.iter().map(revision).collect())
            }
            Self::Diff { of, from, to, path } => {
                let request = DiffFilesRequest { agent: of.agent, from, to, path };
                let request = client.request(request);
                let diff = client.answer(client.files().diff_files(request).await)?.diff;
                screen.print(&diff)
            }
            Self::Restore { of, why, revision, path } => {
                let request = RestoreFilesRequest {
                    agent: of.agent,
                    revision,
                    path,
                    reason: why.reason,
                    ..RestoreFilesRequest::default()
                };
                let request = client.request(request);
                let made = client.answer(client.files().restore_files(request).await)?.revision;
                print_revision(*screen, made)
            }
            Self::Export { of, to, at } => {
                let request = ExportFilesRequest { agent: of.agent, revision: at };
                let request = client.request(request);
                let exported = client.answer(client.files().export_files(request).await)?;
                if to == "-" {
                    return Ok(io::stdout().write_all(&exported.archive)?);
                }
                fs::write(&to, &exported.archive)
                    .map_err(|error| Error::Usage(format!("cannot write `{to}`: {error}")))?;
                let sentence = format!("wrote revision {} to {to}", exported.revision);
                screen.done(&sentence, &json!({"revision": exported.revision, "file": to}))
            }
            Self::Import { of, why, from, replace } => {
                let request = ImportFilesRequest {
                    agent: of.agent,
                    archive: read_local(&from)?,
                    replace,
                    reason: why.reason,
                    ..ImportFilesRequest::default()
                };
                let request = client.request(request);
                let made = client.answer(client.files().import_files(request).await)?;
                let sentence =
                    format!("revision {}: {} files changed", made.revision, made.changed);
                screen.done(&sentence, &json!({"revision": made.revision, "changed": made.changed}))
            }
        }
    }
}

/// Reads a local file, or stdin for `-`.
pub fn read_local(from: &str) -> Result<Vec<u8>, Error> {
    if from == "-" {
        let mut content = Vec::new();
        io::stdin().read_to_end(&mut content)?;
        return Ok(content);
    }
    fs::read(from).map_err(|error| Error::Usage(format!("cannot read `{from}`: {error}")))
}

fn print_revision(screen: Screen, revision: i64) -> Result<(), Error> {
    screen.done(&format!("revision {revision}"), &json!({"revision": revision}))
}

fn file(file: &File) -> Value {
    json!({
        "path": file.path,
        "size": file.size,
        "hash": file.hash,
        "revision": file.revision,
        "changed_at": time(file.changed_at.as_ref()),
    })
}

fn revision(revision: &FileRevision) -> Value {
    json!({
        "revision": revision.revision,
        "author": revision.author,
        "run_id": revision.run_id,
        "reason": revision.reason,
        "created_at": time(revision.created_at.as_ref()),
        "paths": revision.paths,
        "behavior": revision.behavior,
        "step": revision.step,
        "todo": revision.todo,
    })
}
