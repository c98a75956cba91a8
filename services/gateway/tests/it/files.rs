//! Agents' files: read and changed over gRPC.

use holdfast_proto::gateway::v1::{self as pb, files_client::FilesClient};
use tonic::{Code, transport::Channel};

use crate::world::World;

async fn files(world: &World) -> FilesClient<Channel> {
    FilesClient::new(world.channel().await.unwrap())
}

#[tokio::test]
async fn what_is_written_can_be_read_compared_and_taken_back() {
    let world = World::start().await.unwrap();
    let mut files = files(&world).await;
    let ask = |text: &str| pb::WriteFileRequest {
        path: "notes/trip.md".into(),
        content: text.into(),
        reason: "a trip".into(),
        request_id: text.into(),
        ..Default::default()
    };

    let listed = files.list_files(world.anna.request(pb::ListFilesRequest::default())).await;
    let first = files.write_file(world.anna.request(ask("Oslo\n"))).await.unwrap().into_inner();
    let again = files.write_file(world.anna.request(ask("Oslo\n"))).await.unwrap().into_inner();
    let second = files.write_file(world.anna.request(ask("Bergen\n"))).await.unwrap().into_inner();
    let read = pb::ReadFileRequest { path: "notes/trip.md".into(), ..Default::default() };
    let now = files.read_file(world.anna.request(read.clone())).await.unwrap().into_inner();
    let wanted = pb::DiffFilesRequest { from: first.revision, ..Default::default() };
    let diff = files.diff_files(world.anna.request(wanted)).await.unwrap().into_inner().diff;
    let back = pb::RestoreFilesRequest { revision: first.revision, ..Default::default() };
    let back = files.restore_files(world.anna.request(back)).await.unwrap().into_inner();
    let then = files.read_file(world.anna.request(read)).await.unwrap().into_inner();
    let log = pb::GetFileLogRequest { path: "notes/trip.md".into(), ..Default::default() };
    let log = files.get_file_log(world.anna.request(log)).await.unwrap().into_inner().revisions;
    let of_folder = pb::GetFileLogRequest { path: "notes".into(), ..Default::default() };
    let of_folder = files.get_file_log(world.anna.request(of_folder)).await.unwrap();

    let listed = listed.unwrap().into_inner().files;
    assert!(listed.iter().any(|file| file.path == "SOUL.md"), "{listed:?}");
    assert_eq!(first.revision, again.revision);
    assert!(second.revision > first.revision && back.revision > second.revision);
    assert_eq!((now.content, then.content), (b"Bergen\n".to_vec(), b"Oslo\n".to_vec()));
    assert!(diff.contains("-Oslo") && diff.contains("+Bergen"), "{diff}");
    assert_eq!(log.len(), 3);
    assert_eq!(of_folder.into_inner().revisions, log);
    assert!(log.iter().all(|one| one.author.starts_with("key_")), "{log:?}");
    assert_eq!(log.last().unwrap().reason, "a trip");
}

#[tokio::test]
async fn a_change_on_what_is_no_longer_so_is_refused_and_a_bad_path_says_what_to_do() {
    let world = World::start().await.unwrap();
    let mut files = files(&world).await;
    let write = |path: &str, base: &str| pb::WriteFileRequest {
        path: path.into(),
        content: b"x".to_vec(),
        base_hash: base.into(),
        ..Default::default()
    };

    let stale = files.write_file(world.anna.request(write("SOUL.md", &"0".repeat(64)))).await;
    let outside = files.write_file(world.anna.request(write("../etc/passwd", ""))).await;
    let missing = pb::ReadFileRequest { path: "nowhere.md".into(), ..Default::default() };
    let missing = files.read_file(world.anna.request(missing)).await.unwrap_err();

    let nothing = pb::RestoreFilesRequest::default();
    let nothing = files.restore_files(world.anna.request(nothing)).await.unwrap_err();

    assert_eq!(nothing.code(), Code::InvalidArgument);
    assert!(nothing.message().contains("GetFileLog"), "{nothing:?}");
    let stale = stale.unwrap_err();
    assert!(matches!(stale.code(), Code::Aborted | Code::FailedPrecondition), "{stale:?}");
    assert!(stale.message().contains("read it again"), "{stale:?}");
    assert_eq!(outside.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(missing.code(), Code::NotFound);
}

#[tokio::test]
async fn an_agent_s_files_go_from_one_agent_to_another_as_an_archive() {
    let world = World::start().await.unwrap();
    world.agent(&world.anna, "twin", holdfast_types::QueueMode::Steer).await.unwrap();
    let mut files = files(&world).await;
    let write = pb::WriteFileRequest {
        path: "SOUL.md".into(),
        content: b"Be brave.".to_vec(),
        ..Default::default()
    };
    files.write_file(world.anna.request(write)).await.unwrap();

    let exported = files.export_files(world.anna.request(pb::ExportFilesRequest::default())).await;
    let archive = exported.unwrap().into_inner().archive;
    let import = pb::ImportFilesRequest {
        agent: "twin".into(),
        archive,
        replace: true,
        ..Default::default()
    };
    files.import_files(world.anna.request(import)).await.unwrap();

    let read =
        pb::ReadFileRequest { agent: "twin".into(), path: "SOUL.md".into(), ..Default::default() };
    let read = files.read_file(world.anna.request(read)).await.unwrap().into_inner();
    assert_eq!(read.content, b"Be brave.");
}
