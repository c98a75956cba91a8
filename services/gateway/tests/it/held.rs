//! A paused conversation can be resumed by its user.

use std::time::Duration;

use holdfast_proto::gateway::v1::SendRequest;

use crate::world::{World, done, message};

#[tokio::test]
async fn a_message_lets_a_held_conversation_go_on_once() {
    let world = World::start().await.unwrap();
    let first = world.send(&world.anna, message("hi")).await.unwrap();
    world.follow(&world.anna, &first.message_id).await.unwrap();
    let (tenant, session) = (world.anna.id, first.session_id.parse().unwrap());
    world.sessions.pause(tenant, session).await.unwrap();
    let waiting = world.send(&world.anna, message("are you there?")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let held =
        world.sessions.views().answer(tenant, waiting.message_id.parse().unwrap()).await.unwrap();

    let resume = || SendRequest { request_id: "r1".into(), ..message("/resume") };
    let resumed = world.send(&world.anna, resume()).await.unwrap();

    assert_eq!(held.outcome, None);
    assert!(!done(&world.follow(&world.anna, &waiting.message_id).await.unwrap()).text.is_empty());
    world.follow(&world.anna, &resumed.message_id).await.unwrap();

    // The repeated request is answered already, and resumes nothing.
    world.sessions.pause(tenant, session).await.unwrap();
    let again = world.send(&world.anna, resume()).await.unwrap();
    assert_eq!(again.message_id, resumed.message_id);
    let view = world.sessions.views().session(tenant, session).await.unwrap();
    assert!(view.paused.is_some(), "{view:?}");
}
