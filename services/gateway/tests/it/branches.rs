//! Branches of sessions: a message is changed, or an answer made again.

use holdfast_proto::gateway::v1::{
    self as pb, BranchSessionRequest, sessions_client::SessionsClient,
};
use tonic::{Code, Status, transport::Channel};

use crate::world::{Tenant, World, message};

async fn sessions(world: &World) -> SessionsClient<Channel> {
    SessionsClient::new(world.channel().await.unwrap())
}

async fn say(world: &World, session: &str, text: &str) -> pb::SendResponse {
    let request = pb::SendRequest { session: session.into(), ..message(text) };
    let sent = world.send(&world.anna, request).await.unwrap();
    world.follow(&world.anna, &sent.message_id).await.unwrap();
    sent
}

async fn branch(
    world: &World,
    of: &Tenant,
    request: BranchSessionRequest,
) -> Result<pb::BranchSessionResponse, Status> {
    Ok(sessions(world).await.branch_session(of.request(request)).await?.into_inner())
}

/// Texts of a session's journal.
async fn texts(world: &World, session: &str) -> Vec<String> {
    let request = pb::GetHistoryRequest { session: session.into(), ..Default::default() };
    let read = sessions(world).await.get_history(world.anna.request(request)).await.unwrap();
    read.into_inner().entries.into_iter().map(|entry| entry.text).collect()
}

async fn branches(world: &World, of: &Tenant, session: &str) -> Result<Vec<String>, Status> {
    let request = of.request(pb::ListBranchesRequest { session: session.into() });
    let found = sessions(world).await.list_branches(request).await?.into_inner().sessions;
    Ok(found.into_iter().map(|session| session.id).collect())
}

#[tokio::test]
async fn a_changed_message_is_answered_in_a_branch_and_the_session_stays() {
    let world = World::start().await.unwrap();
    let session = say(&world, "trip", "one").await.session_id;
    say(&world, "trip", "two").await;
    let change = BranchSessionRequest {
        session: session.clone(),
        before_message_seq: 3,
        text: "three".into(),
        label: "another day".into(),
        ..Default::default()
    };

    let made = branch(&world, &world.anna, change).await.unwrap();
    world.follow(&world.anna, &made.message_id).await.unwrap();

    let branched = made.session.unwrap();
    assert_eq!(texts(&world, &branched.id).await, ["one", "echo: one", "three", "echo: three"]);
    assert_eq!(texts(&world, &session).await, ["one", "echo: one", "two", "echo: two"]);
    assert_eq!((branched.branch_of, branched.branch_seq), (session.clone(), 2));
    assert_eq!((branched.label.as_str(), branched.kind.as_str()), ("another day", "api"));
    // The person of the conversation is the same.
    assert!(branched.key.starts_with("agent:main:api:trip/branch-"), "{}", branched.key);
    let of_branch = branches(&world, &world.anna, &branched.id).await.unwrap();
    assert_eq!(of_branch, [session.clone(), branched.id]);
    assert_eq!(branches(&world, &world.anna, &session).await.unwrap(), of_branch);
}

#[tokio::test]
async fn an_answer_is_made_again_once_for_a_request() {
    let world = World::start().await.unwrap();
    let session = say(&world, "trip", "one").await.session_id;
    let again = BranchSessionRequest {
        session: session.clone(),
        before_message_seq: 1,
        again: true,
        request_id: "r1".into(),
        ..Default::default()
    };

    let first = branch(&world, &world.anna, again.clone()).await.unwrap();
    let second = branch(&world, &world.anna, again.clone()).await.unwrap();
    world.follow(&world.anna, &first.message_id).await.unwrap();

    assert!(!first.duplicate && second.duplicate);
    assert_eq!(first.message_id, second.message_id);
    let branched = first.session.unwrap();
    assert_eq!(branched.id, second.session.unwrap().id);
    assert_eq!(texts(&world, &branched.id).await, ["one", "echo: one"]);
    // Without an id each request makes one.
    let other = BranchSessionRequest { request_id: String::new(), ..again };
    let third = branch(&world, &world.anna, other).await.unwrap();
    assert_ne!(third.session.unwrap().id, branched.id);
    assert_eq!(branches(&world, &world.anna, &session).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_branch_goes_on_from_an_entry_and_outlives_its_session() {
    let world = World::start().await.unwrap();
    let session = say(&world, "trip", "one").await.session_id;
    say(&world, "trip", "two").await;
    let request =
        BranchSessionRequest { session: session.clone(), at_seq: 2, ..Default::default() };
    let made = branch(&world, &world.anna, request).await.unwrap();
    let branched = made.session.unwrap().id;
    let request = world.anna.request(pb::DeleteSessionRequest { session });
    sessions(&world).await.delete_session(request).await.unwrap();

    say(&world, &branched, "history").await;

    let all = texts(&world, &branched).await;
    assert_eq!(all[..3], ["one", "echo: one", "history"]);
    assert!(all[3].contains("one"), "the runner has read what is shared: {}", all[3]);
    assert_eq!(made.message_id, "");
    assert_eq!(branches(&world, &world.anna, &branched).await.unwrap(), [branched]);
}

#[tokio::test]
async fn a_branch_that_cannot_be_is_refused() {
    let world = World::start().await.unwrap();
    let session = say(&world, "trip", "one").await.session_id;
    let request = pb::SendRequest { session: "trip".into(), ..message("steps") };
    let sent = world.send(&world.anna, request).await.unwrap();
    world.until_runs(&world.anna, &session).await.unwrap();
    while texts(&world, &session).await.len() < 4 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let at =
        |at_seq| BranchSessionRequest { session: session.clone(), at_seq, ..Default::default() };
    let before = |before_message_seq| BranchSessionRequest {
        session: session.clone(),
        before_message_seq,
        ..Default::default()
    };
    let refused =
        async |of: &Tenant, request| branch(&world, of, request).await.unwrap_err().code();

    // The third entry is the message of the turn that runs.
    assert_eq!(refused(&world.anna, at(3)).await, Code::Aborted);
    assert_eq!(refused(&world.anna, at(99)).await, Code::InvalidArgument);
    assert_eq!(refused(&world.anna, before(2)).await, Code::InvalidArgument);
    let both = BranchSessionRequest { again: true, text: "x".into(), ..before(1) };
    assert_eq!(refused(&world.anna, both).await, Code::InvalidArgument);
    assert_eq!(refused(&world.ben, at(2)).await, Code::NotFound);
    let read = world.anna.by(&world.key(&world.anna, &["read"], None).await.unwrap());
    assert_eq!(refused(&read, at(2)).await, Code::PermissionDenied);
    let none = branches(&world, &world.ben, &session).await.unwrap_err();
    assert_eq!(none.code(), Code::NotFound);
    assert_eq!(branches(&world, &world.anna, &session).await.unwrap().len(), 1);

    world.runner.release(1);
    world.follow(&world.anna, &sent.message_id).await.unwrap();
}
