//! Workspaces over gRPC: made once, bound to sessions, archived.

use holdfast_proto::gateway::v1::{
    ArchiveWorkspaceRequest, BindWorkspaceRequest, CreateWorkspaceRequest, ListFilesRequest,
    ListWorkspacesRequest, ReadFileRequest, Workspace, files_client::FilesClient,
    workspaces_client::WorkspacesClient,
};
use tonic::{Code, transport::Channel};

use crate::world::{World, message};

async fn client(world: &World) -> WorkspacesClient<Channel> {
    WorkspacesClient::new(world.channel().await.unwrap())
}

async fn create(world: &World, name: &str, kind: &str) -> Result<Workspace, tonic::Status> {
    let request = CreateWorkspaceRequest {
        name: name.to_owned(),
        kind: kind.to_owned(),
        ..Default::default()
    };
    let made = client(world).await.create_workspace(world.anna.request(request)).await?;
    Ok(made.into_inner().workspace.unwrap())
}

async fn bound(world: &World, session: &str) -> Option<String> {
    let session = session.parse().unwrap();
    world.sessions.views().session(world.anna.id, session).await.unwrap().workspace
}

#[tokio::test]
async fn a_workspace_is_made_bound_and_archived_and_its_files_stay() {
    let world = World::start().await.unwrap();
    let session = world.stream(&world.anna, message("hi")).await.unwrap()[0].session_id.clone();
    let mut workspaces = client(&world).await;

    let made = create(&world, "garden", "git").await.unwrap();
    let again = create(&world, "garden", "git").await.unwrap();
    let listed = workspaces.list_workspaces(world.anna.request(ListWorkspacesRequest::default()));
    let listed = listed.await.unwrap().into_inner().workspaces;

    assert_eq!(made, again);
    assert_eq!(listed, std::slice::from_ref(&made));
    assert_eq!(
        (made.folder.as_str(), made.kind.as_str(), made.owner_kind.as_str(), made.status.as_str()),
        ("workspaces/garden", "git", "person", "ready")
    );
    for (name, kind) in [("../garden", ""), (".git", ""), ("", ""), ("a", "disk")] {
        let refused = create(&world, name, kind).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{name} {kind}: {refused:?}");
    }

    let bind = |workspace: &str| BindWorkspaceRequest {
        session: session.clone(),
        workspace: workspace.to_owned(),
    };
    let unknown = workspaces.bind_workspace(world.anna.request(bind("nowhere"))).await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
    workspaces.bind_workspace(world.anna.request(bind("garden"))).await.unwrap();
    assert_eq!(bound(&world, &session).await, Some(made.id.clone()));
    workspaces.bind_workspace(world.anna.request(bind(""))).await.unwrap();
    assert_eq!(bound(&world, &session).await, None);

    let archive =
        ArchiveWorkspaceRequest { workspace: "workspaces/garden".into(), ..Default::default() };
    workspaces.archive_workspace(world.anna.request(archive)).await.unwrap();
    let listed = workspaces.list_workspaces(world.anna.request(ListWorkspacesRequest::default()));
    assert_eq!(listed.await.unwrap().into_inner().workspaces[0].status, "archived");
    let refused = create(&world, "garden", "git").await.unwrap_err();
    assert!(refused.message().contains("is archived"), "{refused:?}");
    let mut files = FilesClient::new(world.channel().await.unwrap());
    let notes =
        ReadFileRequest { path: format!("{}/to_agent.md", made.folder), ..Default::default() };
    let notes = files.read_file(world.anna.request(notes)).await.unwrap().into_inner().content;
    let notes = String::from_utf8(notes).unwrap();
    for title in ["# garden\n", "## Commits\n", "## Pull requests\n", "## Issues\n"] {
        assert!(notes.contains(title), "{title}: {notes}");
    }
    let list = ListFilesRequest { path: made.folder, ..Default::default() };
    let files = files.list_files(world.anna.request(list)).await.unwrap().into_inner().files;
    assert!(files.iter().any(|file| file.path == "workspaces/garden/to_agent.md"), "{files:?}");
}
