//! The service `Workspaces`: folders of an agent's files in which sessions work.

use holdfast_proto::gateway::v1::{
    self as pb, ArchiveWorkspaceRequest, ArchiveWorkspaceResponse, BindWorkspaceRequest,
    BindWorkspaceResponse, CreateWorkspaceRequest, CreateWorkspaceResponse, ListWorkspacesRequest,
    ListWorkspacesResponse, workspaces_server::Workspaces as Service,
};
use holdfast_session::WorkspaceBinding;
use holdfast_types::{AgentId, TenantId};
use holdfast_workspace::{
    NamedWorkspace, NewWorkspace, WorkspaceKind, WorkspaceLock, WorkspaceOwner,
};
use tonic::{Request, Response, Status};

use super::{Files, path_of};
use crate::permissions::rights::ConversationRight;
use crate::{
    Error, audit,
    control::{State, invalid, non_empty},
};

/// Implements `holdfast.gateway.v1.Workspaces`.
#[derive(Debug)]
pub struct Workspaces(pub State);

#[tonic::async_trait]
impl Service for Workspaces {
    async fn list_workspaces(
        &self,
        request: Request<ListWorkspacesRequest>,
    ) -> Result<Response<ListWorkspacesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;

        let all = self.0.workspaces.list_named(caller.tenant, agent).await;

        let workspaces = all.map_err(Error::from)?.into_iter().map(workspace_of).collect();
        Ok(Response::new(ListWorkspacesResponse { workspaces }))
    }

    async fn create_workspace(
        &self,
        request: Request<CreateWorkspaceRequest>,
    ) -> Result<Response<CreateWorkspaceResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let kind = match non_empty(request.kind) {
            None => WorkspaceKind::Folder,
            Some(word) => WorkspaceKind::parse(&word)
                .ok_or_else(|| invalid("`kind` is `folder` or `git`".to_owned()))?,
        };
        let lock = match non_empty(request.lock_mode) {
            None => WorkspaceLock::default(),
            Some(word) => WorkspaceLock::parse(&word)
                .ok_or_else(|| invalid("`lock_mode` is `session` or `todo_drain`".to_owned()))?,
        };
        let new = NewWorkspace {
            name: request.name,
            within: path_of(request.within)?,
            kind,
            owner: WorkspaceOwner::Person(caller.id()),
            lock,
        };

        let made = self.0.workspaces.create_named(caller.tenant, agent, &new).await;

        let workspace = Some(workspace_of(made.map_err(Error::from)?));
        Ok(Response::new(CreateWorkspaceResponse { workspace }))
    }

    async fn bind_workspace(
        &self,
        request: Request<BindWorkspaceRequest>,
    ) -> Result<Response<BindWorkspaceResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.session);
        let session = self.0.session(&caller, &request.session, ConversationRight::Control).await?;
        let view = self.0.sessions.views().session(caller.tenant, session).await;
        let agent = view.map_err(Error::from)?.agent;
        let binding = match non_empty(request.workspace) {
            Some(named) => Some(binding_of(&self.find(caller.tenant, agent, &named).await?)),
            None => None,
        };

        let bound = self.0.sessions.bind_workspace(caller.tenant, session, binding.as_ref()).await;

        bound.map_err(Error::from)?;
        // The session's next turn joins the list of its workspace, if it sees the folder.
        self.0.work.leave_list(caller.tenant, session).await.map_err(Error::from)?;
        Ok(Response::new(BindWorkspaceResponse {}))
    }

    async fn archive_workspace(
        &self,
        request: Request<ArchiveWorkspaceRequest>,
    ) -> Result<Response<ArchiveWorkspaceResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.workspace);
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let found = self.find(caller.tenant, agent, &request.workspace).await?;

        let archived = self.0.workspaces.archive_named(caller.tenant, found.id).await;

        archived.map_err(Error::from)?;
        Ok(Response::new(ArchiveWorkspaceResponse {}))
    }
}

impl Workspaces {
    async fn agent(&self, tenant: TenantId, named: &str) -> Result<AgentId, Error> {
        Files(self.0.clone()).agent(tenant, named).await
    }

    /// Finds a workspace by its id, its folder, or its name in the owner's files.
    async fn find(
        &self,
        tenant: TenantId,
        agent: AgentId,
        named: &str,
    ) -> Result<NamedWorkspace, Error> {
        let all = self.0.workspaces.list_named(tenant, agent).await?;
        let found = all.into_iter().find(|one| one.is_named(named));
        found.ok_or_else(|| {
            let name = named.to_owned();
            holdfast_workspace::Error::NotFound { what: "workspace", name }.into()
        })
    }
}

fn binding_of(workspace: &NamedWorkspace) -> WorkspaceBinding {
    let drains = workspace.lock == WorkspaceLock::TodoDrain;
    WorkspaceBinding { workspace: workspace.id.to_string(), drains }
}

fn workspace_of(workspace: NamedWorkspace) -> pb::Workspace {
    let (owner_kind, owner) = match workspace.owner {
        WorkspaceOwner::Agent(name) => ("agent", name),
        WorkspaceOwner::Person(id) => ("person", id),
    };
    pb::Workspace {
        id: workspace.id.to_string(),
        name: workspace.name,
        folder: workspace.folder.to_string(),
        kind: workspace.kind.as_str().to_owned(),
        owner_kind: owner_kind.to_owned(),
        owner,
        status: workspace.status.as_str().to_owned(),
        lock_mode: workspace.lock.as_str().to_owned(),
    }
}
