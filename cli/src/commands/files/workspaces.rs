//! `holdfast workspaces`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use holdfast_proto::gateway::v1::{
    ArchiveWorkspaceRequest, BindWorkspaceRequest, CreateWorkspaceRequest, ExportFilesRequest,
    FileRevision, GetFileLogRequest, ImportFilesRequest, ListFilesRequest, ListWorkspacesRequest,
    ReadFileRequest, Workspace,
};
use serde_json::{Value, json};

use super::{
    archive::{Files, read_archive, write_archive},
    local_folder::LocalFolder,
    repository::clone_repository,
    repository_copy::{copy_repository, is_repository, origin_of},
};
use crate::{client::Client, error::Error, screen::Screen};

/// Reason of the revision that a clone makes.
const CLONE_REASON: &str = "clone of a repository";

const REVISIONS_PER_PAGE: u32 = 100;

const COLUMNS: [&str; 5] = ["name", "kind", "status", "owner", "folder"];

#[derive(Debug, Subcommand)]
pub enum Workspaces {
    /// List the workspaces of an agent
    List {
        #[command(flatten)]
        of: WorkspaceAgent,
    },
    /// Create a workspace, or show the one with this name
    Create {
        #[command(flatten)]
        of: WorkspaceAgent,
        /// Name of the workspace
        name: String,
        /// Kind of the workspace
        #[arg(long, value_enum, default_value = "folder")]
        kind: WorkspaceKind,
        /// Folder of the person whose files it is in, such as `people/api=anna` [default: the owner's
        /// files]
        #[arg(long, default_value = "", hide_default_value = true)]
        within: String,
        /// A session keeps it until its todos are finished, not only to the end of its turn
        #[arg(long)]
        until_todos_are_finished: bool,
        /// Address of a repository to begin with. Git clones it on this machine, with your credentials
        #[arg(long, value_name = "ADDRESS")]
        git: Option<String>,
        /// Branch of the repository [default: that of its server]
        #[arg(long, requires = "git")]
        branch: Option<String>,
    },
    /// Copy the files of a workspace to a local folder, for example to push its commits from there
    Copy {
        #[command(flatten)]
        of: WorkspaceAgent,
        /// Name, folder or id of the workspace
        workspace: String,
        /// The local folder, which must be new or empty
        to: PathBuf,
    },
    /// Bind a session to a workspace: no other session that is bound to it runs meanwhile
    Bind {
        /// Id or key of the session
        session: String,
        /// Name, folder or id of the workspace [default: none, which ends the binding]
        #[arg(default_value = "", hide_default_value = true)]
        workspace: String,
    },
    /// Archive a workspace; its files stay
    Archive {
        #[command(flatten)]
        of: WorkspaceAgent,
        /// Name, folder or id of the workspace
        workspace: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum WorkspaceKind {
    Folder,
    Git,
}

#[derive(Debug, Args)]
pub struct WorkspaceAgent {
    /// Name of the agent [default: the default agent]
    #[arg(long, default_value = "", hide_default_value = true)]
    agent: String,
}

impl Workspaces {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { of } => {
                let request = client.request(ListWorkspacesRequest { agent: of.agent });
                let listed = client.answer(client.workspaces().list_workspaces(request).await)?;
                screen.list(&COLUMNS, listed.workspaces.iter().map(workspace).collect())
            }
            Self::Create { of, name, kind, within, until_todos_are_finished, git, branch } => {
                let lock_mode = if until_todos_are_finished { "todo_drain" } else { "session" };
                let kind = match kind {
                    WorkspaceKind::Folder if git.is_none() => "folder",
                    WorkspaceKind::Folder | WorkspaceKind::Git => "git",
                };
                if let Some(address) = git {
                    let files = clone_repository(&address, branch.as_deref())?;
                    let folder = match within.as_str() {
                        "" => format!("workspaces/{name}"),
                        within => format!("{within}/workspaces/{name}"),
                    };
                    import(client, &of.agent, &folder, files).await?;
                }
                let request = client.request(CreateWorkspaceRequest {
                    agent: of.agent,
                    name,
                    kind: kind.to_owned(),
                    within,
                    lock_mode: lock_mode.to_owned(),
                });
                let made = client.answer(client.workspaces().create_workspace(request).await)?;
                let made = made.workspace.unwrap_or_default();
                let sentence = format!("workspace {} is in `{}`", made.name, made.folder);
                screen.done(&sentence, &workspace(&made))
            }
            Self::Copy { of, workspace, to } => {
                copy(client, screen, of.agent, &workspace, &to).await
            }
            Self::Bind { session, workspace } => {
                let sentence = match workspace.as_str() {
                    "" => format!("{session} is bound to no workspace"),
                    workspace => format!("{session} works in {workspace}"),
                };
                let thing = json!({ "session": session, "workspace": workspace });
                let request = client.request(BindWorkspaceRequest { session, workspace });
                client.answer(client.workspaces().bind_workspace(request).await)?;
                screen.done(&sentence, &thing)
            }
            Self::Archive { of, workspace } => {
                let sentence = format!("workspace {workspace} is archived");
                let thing = json!({ "workspace": workspace, "status": "archived" });
                let request =
                    client.request(ArchiveWorkspaceRequest { agent: of.agent, workspace });
                client.answer(client.workspaces().archive_workspace(request).await)?;
                screen.done(&sentence, &thing)
            }
        }
    }
}

/// Copies the files of a workspace to a local folder.
async fn copy(
    client: &Client,
    screen: &Screen,
    agent: String,
    named: &str,
    to: &Path,
) -> Result<(), Error> {
    let found = find(client, &agent, named).await?;
    let request = client.request(ExportFilesRequest { agent: agent.clone(), revision: 0 });
    let exported = client.answer(client.files().export_files(request).await)?;
    let folder = format!("{}/", found.folder);
    let files = read_archive(&exported.archive)?.into_iter();
    let files =
        files.filter_map(|(path, content)| Some((path.strip_prefix(&folder)?.to_owned(), content)));
    let files: Files = files.collect();
    let local = if found.kind == "git" && is_repository(&files) {
        let origin = origin(client, &agent, &found.folder).await?;
        let copied = copy_repository(to, &files, origin.as_deref())?;
        if origin.is_none() {
            screen
                .note("it was made without a server: `git remote add origin ADDRESS` names one")?;
        }
        copied
    } else {
        let mut local = LocalFolder::create(to)?;
        for (path, content) in &files {
            local.write(path, content)?;
        }
        local
    };
    local.note_left_out(screen)?;
    let sentence = format!("workspace {} is in {}", found.name, to.display());
    screen.done(&sentence, &json!({ "workspace": found.name, "to": to }))
}

/// Returns the address of the server that a workspace was cloned from, as the history of its files
/// has it: the agent may have changed the current configuration.
async fn origin(client: &Client, agent: &str, folder: &str) -> Result<Option<String>, Error> {
    let path = format!("{folder}/.git/config");
    let mut before = 0;
    loop {
        let request = GetFileLogRequest {
            agent: agent.to_owned(),
            path: path.clone(),
            limit: REVISIONS_PER_PAGE,
            before,
        };
        let log = client.answer(client.files().get_file_log(client.request(request)).await)?;
        let Some(last) = log.revisions.last() else { return Ok(None) };
        before = last.revision;
        let is_clone = |made: &&FileRevision| made.run_id.is_empty() && made.reason == CLONE_REASON;
        if let Some(clone) = log.revisions.iter().find(is_clone) {
            let request =
                ReadFileRequest { agent: agent.to_owned(), path, revision: clone.revision };
            let read = client.answer(client.files().read_file(client.request(request)).await)?;
            return origin_of(&read.content);
        }
    }
}

/// Finds a workspace by its id, its folder, or its name in the owner's files.
async fn find(client: &Client, agent: &str, named: &str) -> Result<Workspace, Error> {
    let request = client.request(ListWorkspacesRequest { agent: agent.to_owned() });
    let listed = client.answer(client.workspaces().list_workspaces(request).await)?.workspaces;
    let owners = format!("workspaces/{named}");
    let is_named = |one: &Workspace| one.id == named || one.folder == named || one.folder == owners;
    let found = listed.into_iter().find(is_named);
    found.ok_or_else(|| Error::NotFound(format!("there is no workspace `{named}`")))
}

/// Imports files into a folder of an agent that has none yet.
async fn import(client: &Client, agent: &str, folder: &str, files: Files) -> Result<(), Error> {
    let (agent, path) = (agent.to_owned(), folder.to_owned());
    let request = ListFilesRequest { agent: agent.clone(), revision: 0, path };
    let listed = client.answer(client.files().list_files(client.request(request)).await)?;
    if !listed.files.is_empty() {
        return Err(Error::Usage(format!("`{folder}` has files already: take another name")));
    }
    let files = files.into_iter().map(|(path, content)| (format!("{folder}/{path}"), content));
    let request = client.request(ImportFilesRequest {
        agent,
        archive: write_archive(&files.collect())?,
        reason: CLONE_REASON.to_owned(),
        ..ImportFilesRequest::default()
    });
    client.answer(client.files().import_files(request).await)?;
    Ok(())
}

fn workspace(workspace: &Workspace) -> Value {
    json!({
        "id": workspace.id,
        "name": workspace.name,
        "folder": workspace.folder,
        "kind": workspace.kind,
        "owner_kind": workspace.owner_kind,
        "owner": workspace.owner,
        "status": workspace.status,
        "lock_mode": workspace.lock_mode,
    })
}
