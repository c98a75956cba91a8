//! `holdfast workspaces`.

use clap::{Args, Subcommand, ValueEnum};
use holdfast_proto::gateway::v1::{
    ArchiveWorkspaceRequest, BindWorkspaceRequest, CreateWorkspaceRequest, ListWorkspacesRequest,
    Workspace,
};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen};

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
            Self::Create { of, name, kind, within, until_todos_are_finished } => {
                let lock_mode = if until_todos_are_finished { "todo_drain" } else { "session" };
                let kind = match kind {
                    WorkspaceKind::Folder => "folder",
                    WorkspaceKind::Git => "git",
                };
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
