//! The service `Files`: agents' workspaces.

pub mod workspaces;

use std::io::Cursor;

use holdfast_agent::{
    bootstrap::Audience,
    file_view::{FileSpace, FileView},
    person,
};
use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{
    self as pb, DeleteFileRequest, DeleteFileResponse, DiffFilesRequest, DiffFilesResponse,
    ExportFilesRequest, ExportFilesResponse, GetFileLogRequest, GetFileLogResponse,
    ImportFilesRequest, ImportFilesResponse, ListFilesRequest, ListFilesResponse,
    ReadAttachmentRequest, ReadAttachmentResponse, ReadFileRequest, ReadFileResponse,
    RestoreFilesRequest, RestoreFilesResponse, WriteFileRequest, WriteFileResponse,
    files_server::Files as Service,
};
use holdfast_types::{AgentId, SessionKind, TenantId, TreePath, media_type};
use holdfast_workspace::{
    Base, ChangeAuthor, ContentHash, Edit, FileEntry, ImportMode, LogEntry, LogFilter, Revision,
};
use tonic::{Request, Response, Status};

use super::{State, non_empty, page_size, timestamp};
use crate::{
    Error, audit,
    permissions::{
        self,
        rights::{self, ConversationRight},
    },
};

/// Implements `holdfast.gateway.v1.Files`.
#[derive(Debug)]
pub struct Files(pub State);

impl Files {
    /// Id of the named agent, or of the default one. Creates the initial files if the workspace is
    /// empty.
    async fn agent(&self, tenant: TenantId, named: &str) -> Result<AgentId, Error> {
        let agent = match named {
            "" => self.0.directory.agents().default_agent(tenant).await?,
            named => self.0.directory.agents().get(tenant, named).await?,
        };
        if self.0.workspaces.head(tenant, agent.id).await? == Revision::EMPTY {
            self.0.workspaces.seed(tenant, agent.id).await?;
        }
        Ok(agent.id)
    }
}

#[tonic::async_trait]
impl Service for Files {
    async fn list_files(
        &self,
        request: Request<ListFilesRequest>,
    ) -> Result<Response<ListFilesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let (at, within) = (revision(request.revision), path_of(request.path)?);
        let Some(view) = own_view(&caller, ConversationRight::Read)? else {
            let files = self.0.workspaces.list(caller.tenant, agent, at, within.as_ref()).await;
            let files = files.map_err(Error::from)?.into_iter().map(file_of).collect();
            return Ok(Response::new(ListFilesResponse { files }));
        };

        let files = self.0.workspaces.list(caller.tenant, agent, at, None).await;

        let is_asked_for =
            |path: &TreePath| within.as_ref().is_none_or(|within| path.is_within(within));
        let seen = files.map_err(Error::from)?.into_iter().filter_map(|file| {
            let path = view.view_path(&file.path).filter(is_asked_for)?;
            Some(file_of(FileEntry { path, ..file }))
        });
        Ok(Response::new(ListFilesResponse { files: seen.collect() }))
    }

    async fn read_file(
        &self,
        request: Request<ReadFileRequest>,
    ) -> Result<Response<ReadFileResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let (path, at) = (path_to_read(&caller, &request.path)?, revision(request.revision));

        let found = self.0.workspaces.read(caller.tenant, agent, &path, at).await;

        let found = found.map_err(Error::from)?.ok_or_else(|| no_file(&path))?;
        Ok(Response::new(ReadFileResponse {
            hash: found.hash.to_string(),
            revision: found.revision.number(),
            content: found.content,
        }))
    }

    async fn read_attachment(
        &self,
        request: Request<ReadAttachmentRequest>,
    ) -> Result<Response<ReadAttachmentResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let hash: ContentHash = request.hash.parse().map_err(Error::from)?;
        if let Some(view) = own_view(&caller, ConversationRight::Read)? {
            let files = self.0.workspaces.list(caller.tenant, agent, None, None).await;
            let is_seen =
                |file: &FileEntry| file.hash == hash && view.view_path(&file.path).is_some();
            if !files.map_err(Error::from)?.iter().any(is_seen) {
                return Err(no_content(&hash).into());
            }
        }

        let found = self.0.workspaces.content_of_agent(caller.tenant, agent, &hash).await;

        let content = found.map_err(Error::from)?.ok_or_else(|| no_content(&hash))?;
        let media_type = media_type("", &content).to_owned();
        Ok(Response::new(ReadAttachmentResponse { content, media_type }))
    }

    async fn write_file(
        &self,
        request: Request<WriteFileRequest>,
    ) -> Result<Response<WriteFileResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.path);
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let base = match non_empty(request.base_hash) {
            Some(hash) => Base::Hash(hash.parse::<ContentHash>().map_err(Error::from)?),
            None => Base::Any,
        };
        let path = path_to_change(&caller, &request.path)?;
        let edit = Edit::Put { path, content: request.content, base };
        let by = change_author(&caller, request.reason, request.request_id);

        let committed = self.0.workspaces.commit(caller.tenant, agent, &by, vec![edit]).await;

        let revision = committed.map_err(Error::from)?.revision.number();
        Ok(Response::new(WriteFileResponse { revision }))
    }

    async fn delete_file(
        &self,
        request: Request<DeleteFileRequest>,
    ) -> Result<Response<DeleteFileResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.path);
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let path = path_to_change(&caller, &request.path)?;
        let edit = Edit::Delete { path, base: Base::Any };
        let by = change_author(&caller, request.reason, request.request_id);

        let committed = self.0.workspaces.commit(caller.tenant, agent, &by, vec![edit]).await;

        let revision = committed.map_err(Error::from)?.revision.number();
        Ok(Response::new(DeleteFileResponse { revision }))
    }

    async fn get_file_log(
        &self,
        request: Request<GetFileLogRequest>,
    ) -> Result<Response<GetFileLogResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let filter = LogFilter {
            path: path_of(request.path)?,
            before: revision(request.before),
            limit: page_size(request.limit, 50, 500)?,
        };

        let log = self.0.workspaces.log(caller.tenant, agent, &filter).await;

        let revisions = log.map_err(Error::from)?.into_iter().map(logged_of).collect();
        Ok(Response::new(GetFileLogResponse { revisions }))
    }

    async fn diff_files(
        &self,
        request: Request<DiffFilesRequest>,
    ) -> Result<Response<DiffFilesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let to = match revision(request.to) {
            Some(to) => to,
            None => self.0.workspaces.head(caller.tenant, agent).await.map_err(Error::from)?,
        };
        let (from, within) = (Revision::from(request.from), path_of(request.path)?);

        let diff = self.0.workspaces.diff(caller.tenant, agent, from, to, within.as_ref()).await;

        let diff = diff.map_err(Error::from)?.to_string();
        Ok(Response::new(DiffFilesResponse { diff }))
    }

    async fn restore_files(
        &self,
        request: Request<RestoreFilesRequest>,
    ) -> Result<Response<RestoreFilesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.path);
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let within = path_of(request.path)?;
        // Revision 0 is the empty tree: a missing field must not remove all files.
        if request.revision < 1 {
            return Err(Status::invalid_argument(
                "`revision` is missing: give the revision to go back to, of those that \
                 GetFileLog lists",
            ));
        }
        let by = change_author(&caller, request.reason, request.request_id);
        let (to, tenant) = (Revision::from(request.revision), caller.tenant);

        let restored = self.0.workspaces.restore(tenant, agent, &by, within.as_ref(), to).await;

        let revision = restored.map_err(Error::from)?.revision.number();
        Ok(Response::new(RestoreFilesResponse { revision }))
    }

    async fn export_files(
        &self,
        request: Request<ExportFilesRequest>,
    ) -> Result<Response<ExportFilesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;

        let at = revision(request.revision);
        let exported = self.0.workspaces.export(caller.tenant, agent, at).await;

        let (archive, revision) = exported.map_err(Error::from)?;
        Ok(Response::new(ExportFilesResponse { archive, revision: revision.number() }))
    }

    async fn import_files(
        &self,
        request: Request<ImportFilesRequest>,
    ) -> Result<Response<ImportFilesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.agent);
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let by = change_author(&caller, request.reason, request.request_id);
        let mode = if request.replace { ImportMode::Replace } else { ImportMode::Merge };
        let archive = Cursor::new(request.archive);

        let imported = self.0.workspaces.import(caller.tenant, agent, &by, archive, mode).await;

        let committed = imported.map_err(Error::from)?.committed;
        let (revision, changed) = (committed.revision.number(), committed.changed);
        Ok(Response::new(ImportFilesResponse { revision, changed }))
    }
}

/// Author of a change made through this service.
fn change_author(caller: &Caller, reason: String, request_id: String) -> ChangeAuthor {
    ChangeAuthor { key: non_empty(request_id), ..ChangeAuthor::new(&caller.id(), &reason) }
}

/// Files that a person sees who reaches only their own; `None` for callers who reach all.
fn own_view(caller: &Caller, right: ConversationRight) -> Result<Option<FileView>, Error> {
    if rights::reaches_all(caller, right) {
        return Ok(None);
    }
    let Some(person) = caller.person else {
        return permissions::require(caller, right.permission()).map(|()| None);
    };
    let space = FileSpace::of_person(&person::of_id(person));
    // As in their direct messages.
    Ok(Some(FileView::new(SessionKind::Dm, Audience::Others, space)))
}

/// Path in the tree of a file that the caller names to read it.
fn path_to_read(caller: &Caller, named: &str) -> Result<TreePath, Error> {
    let seen = path(named)?;
    let Some(view) = own_view(caller, ConversationRight::Read)? else { return Ok(seen) };
    let stored = view.tree_path(&seen).map_err(holdfast_workspace::Error::from)?;
    match view.view_path(&stored) {
        Some(_) => Ok(stored),
        None => Err(Error::OthersFile(seen.to_string())),
    }
}

/// Path in the tree of a file that the caller names to change it.
fn path_to_change(caller: &Caller, named: &str) -> Result<TreePath, Error> {
    let seen = path(named)?;
    let Some(view) = own_view(caller, ConversationRight::Control)? else { return Ok(seen) };
    if !view.may_change(seen.as_str()) {
        return Err(Error::OthersFile(seen.to_string()));
    }
    Ok(view.tree_path(&seen).map_err(holdfast_workspace::Error::from)?)
}

fn path(path: &str) -> Result<TreePath, Error> {
    path.parse()
        .map_err(|error: holdfast_types::InvalidPath| holdfast_workspace::Error::from(error).into())
}

fn path_of(given: String) -> Result<Option<TreePath>, Error> {
    non_empty(given).map(|given| path(&given)).transpose()
}

fn revision(number: i64) -> Option<Revision> {
    (number != 0).then(|| Revision::from(number))
}

fn no_content(hash: &ContentHash) -> Error {
    holdfast_workspace::Error::NotFound { what: "file", name: hash.to_string() }.into()
}

fn no_file(path: &TreePath) -> Error {
    holdfast_workspace::Error::NotFound { what: "file", name: path.to_string() }.into()
}

fn file_of(file: FileEntry) -> pb::File {
    pb::File {
        path: file.path.to_string(),
        size: file.size,
        hash: file.hash.to_string(),
        revision: file.revision.number(),
        changed_at: Some(timestamp(file.changed_at)),
    }
}

fn logged_of(logged: LogEntry) -> pb::FileRevision {
    let step = logged.step.as_ref();
    pb::FileRevision {
        revision: logged.revision.number(),
        author: logged.author,
        run_id: logged.run.map(|run| run.to_string()).unwrap_or_default(),
        behavior: step.map(|step| step.behavior.clone()).unwrap_or_default(),
        step: step.map(|step| step.step).unwrap_or_default(),
        todo: step.and_then(|step| step.todo.clone()).unwrap_or_default(),
        reason: logged.reason,
        created_at: Some(timestamp(logged.at)),
        paths: logged.files.into_iter().map(|file| file.path.to_string()).collect(),
    }
}
