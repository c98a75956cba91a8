//! Tags of sessions: those of behaviours, those that people give, and lists by a tag.

use holdfast_proto::gateway::v1::{
    self as pb, BranchSessionRequest, GetSessionRequest, ListSessionsRequest, SessionTags,
    UpdateSessionRequest, sessions_client::SessionsClient,
};
use holdfast_session::store_behavior;
use serde_json::json;
use tonic::{Code, Status, transport::Channel};

use crate::world::{Tenant, World, message};

async fn sessions(world: &World) -> SessionsClient<Channel> {
    SessionsClient::new(world.shared_channel().await.unwrap())
}

/// Answers a message in a session, and returns the session's id.
async fn say(world: &World, session: &str) -> String {
    let request = pb::SendRequest { session: session.into(), ..message("one") };
    let sent = world.send(&world.anna, request).await.unwrap();
    world.follow(&world.anna, &sent.message_id).await.unwrap();
    sent.session_id
}

/// Stores tags as a step of a behaviour does.
async fn store_tags(world: &World, session: &str, tags: &[&str]) -> anyhow::Result<()> {
    let mut tx = world.pools.tenant(world.anna.id).await?;
    let state = json!({ "behavior": "DO", "step": 0, "tags": tags });
    store_behavior(&mut tx, session.parse()?, &state).await?;
    Ok(tx.commit().await?)
}

async fn tags(world: &World, session: &str) -> Vec<String> {
    let request = world.anna.request(GetSessionRequest { session: session.into() });
    let found = sessions(world).await.get_session(request).await.unwrap();
    found.into_inner().session.unwrap().tags
}

/// Ids and tags of the sessions with a tag.
async fn tagged(world: &World, of: &Tenant, tag: &str) -> Vec<(String, Vec<String>)> {
    let request = of.request(ListSessionsRequest { tag: tag.into(), ..Default::default() });
    let listed = sessions(world).await.list_sessions(request).await.unwrap().into_inner();
    listed.sessions.into_iter().map(|session| (session.id, session.tags)).collect()
}

async fn give(world: &World, session: &str, tags: &[&str]) -> Result<Vec<String>, Status> {
    let tags = SessionTags { tags: tags.iter().map(|&tag| tag.to_owned()).collect() };
    let session = session.to_owned();
    let update = UpdateSessionRequest { session, tags: Some(tags), ..Default::default() };
    let updated = sessions(world).await.update_session(world.anna.request(update)).await?;
    Ok(updated.into_inner().session.unwrap().tags)
}

#[tokio::test]
async fn tags_of_behaviors_are_shown_until_people_give_others_and_again_after_that()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let (trip, other) = (say(&world, "trip").await, say(&world, "other").await);
    assert_eq!(tags(&world, &trip).await, Vec::<String>::new());
    store_tags(&world, &trip, &["garden", "tea"]).await?;

    assert_eq!(tags(&world, &trip).await, ["garden", "tea"]);
    let listed = tagged(&world, &world.anna, "tea").await;
    assert_eq!(listed, [(trip.clone(), vec!["garden".to_owned(), "tea".to_owned()])]);
    assert_eq!(tagged(&world, &world.anna, "te").await, []);
    assert_eq!(tagged(&world, &world.ben, "tea").await, []);

    assert_eq!(
        give(&world, &trip, &[" holiday ", "holiday", "Lisbon"]).await?,
        ["holiday", "Lisbon"]
    );
    // Steps go on with their own, which are not shown.
    store_tags(&world, &trip, &["garden", "tea"]).await?;
    assert_eq!(tags(&world, &trip).await, ["holiday", "Lisbon"]);
    assert_eq!(tagged(&world, &world.anna, "tea").await, []);
    assert_eq!(tagged(&world, &world.anna, "Lisbon").await.len(), 1);
    let label = Some("Trip".to_owned());
    let update = UpdateSessionRequest { session: trip.clone(), label, ..Default::default() };
    let update = world.anna.request(update);
    let named = sessions(&world).await.update_session(update).await?.into_inner();
    assert_eq!(named.session.unwrap().tags, ["holiday", "Lisbon"]);
    let branch = BranchSessionRequest { session: trip.clone(), at_seq: 2, ..Default::default() };
    let branch = sessions(&world).await.branch_session(world.anna.request(branch)).await?;
    assert_eq!(branch.into_inner().session.unwrap().tags, ["holiday", "Lisbon"]);

    assert_eq!(give(&world, &trip, &[]).await?, ["garden", "tea"]);
    assert_eq!(tags(&world, &other).await, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn tags_that_lists_could_not_show_are_refused() -> anyhow::Result<()> {
    let world = World::start().await?;
    let trip = say(&world, "trip").await;
    give(&world, &trip, &["tea"]).await?;

    for (wrong, says) in [
        (vec![" "], "1 to 64 characters"),
        (vec!["tea", "a\nb"], "none of them a control character"),
        (vec!["x"; 33], "at most 32 tags, and these are 33"),
    ] {
        let refused = give(&world, &trip, &wrong).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{wrong:?}");
        assert!(refused.message().contains(says), "{wrong:?}: {refused}");
    }
    assert_eq!(tags(&world, &trip).await, ["tea"]);
    Ok(())
}

#[tokio::test]
async fn a_list_of_several_kinds_has_those_alone() -> anyhow::Result<()> {
    let world = World::start().await?;
    say(&world, "trip").await;
    let listed = async |kinds: &[&str]| {
        let kinds = kinds.iter().map(|&kind| kind.to_owned()).collect();
        let request = ListSessionsRequest { kinds, ..Default::default() };
        let listed = sessions(&world).await.list_sessions(world.anna.request(request)).await?;
        anyhow::Ok(listed.into_inner().sessions.len())
    };

    assert_eq!(listed(&[]).await?, 1);
    assert_eq!(listed(&["main", "dm", "api"]).await?, 1);
    assert_eq!(listed(&["cron", "heartbeat"]).await?, 0);
    assert!(listed(&["tea"]).await.is_err());
    Ok(())
}
