//! Texts that are sent to an address on a channel, outside of any conversation.

use holdfast_directory::{Actor, NewAccount};
use holdfast_proto::gateway::v1::{
    self as pb, SendTextRequest, SendTextResponse, channels_client::ChannelsClient,
    operations_client::OperationsClient,
};
use serde_json::json;
use tonic::{Code, Status};

use crate::world::{Tenant, World};

async fn account(world: &World, of: &Tenant, name: &str) {
    let new = NewAccount {
        channel: "telegram".into(),
        name: name.into(),
        enabled: name != "off",
        settings: json!({}),
        secrets: Some(json!({"token": "42:TEST-token"})),
    };
    world.directory.accounts().create(of.id, Actor::Operator, new).await.unwrap();
}

async fn send(
    world: &World,
    by: &Tenant,
    request: SendTextRequest,
) -> Result<SendTextResponse, Status> {
    let mut client = ChannelsClient::new(world.channel().await.unwrap());
    client.send_text(by.request(request)).await.map(tonic::Response::into_inner)
}

async fn deliveries(world: &World, of: &Tenant) -> Vec<pb::Delivery> {
    let mut client = OperationsClient::new(world.channel().await.unwrap());
    let request = of.request(pb::ListDeliveriesRequest::default());
    client.list_deliveries(request).await.unwrap().into_inner().deliveries
}

fn text(text: &str, request_id: &str) -> SendTextRequest {
    SendTextRequest {
        channel: "telegram".into(),
        chat: "7".into(),
        text: text.into(),
        request_id: request_id.into(),
        ..SendTextRequest::default()
    }
}

#[tokio::test]
async fn a_text_is_queued_once_for_the_address() {
    let world = World::start().await.unwrap();
    account(&world, &world.anna, "default").await;

    let first = send(&world, &world.anna, text("hello", "r1")).await.unwrap();
    let again = send(&world, &world.anna, text("hello", "r1")).await.unwrap();
    let other = send(&world, &world.anna, text("hello", "")).await.unwrap();

    assert!(!first.duplicate && again.duplicate && !other.duplicate);
    assert_eq!(first.delivery_id, again.delivery_id);
    assert_ne!(first.delivery_id, other.delivery_id);
    let queued = deliveries(&world, &world.anna).await;
    let found = queued.iter().find(|one| one.id == first.delivery_id).unwrap();
    assert_eq!((queued.len(), &*found.chat, &*found.state), (2, "7", "pending"));
    let order = "select body from session.deliveries order by out_seq";
    assert_eq!(world.texts(order).await.unwrap(), ["hello", "hello"]);

    let reused = send(&world, &world.anna, text("another", "r1")).await.unwrap_err();
    assert_eq!(reused.code(), Code::Aborted, "{reused:?}");
    // A message with the same key is another request.
    let message = pb::SendRequest { request_id: "r1".into(), ..crate::world::message("hi") };
    assert!(!world.send(&world.anna, message).await.unwrap().duplicate);
}

#[tokio::test]
async fn only_administrators_send_and_only_to_accounts_of_their_tenant() {
    let world = World::start().await.unwrap();
    account(&world, &world.anna, "default").await;
    account(&world, &world.anna, "off").await;
    let chat = world.key(&world.anna, &["chat", "read"], None).await.unwrap();

    let refused = send(&world, &world.anna.by(&chat), text("hello", "")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    let foreign = send(&world, &world.ben, text("hello", "")).await.unwrap_err();
    assert_eq!(foreign.code(), Code::NotFound, "{foreign:?}");
    assert!(foreign.message().contains("`telegram/default`"), "{foreign:?}");
    for (request, told) in [
        (SendTextRequest { account: "off".into(), ..text("x", "") }, "is disabled"),
        (SendTextRequest { chat: " ".into(), ..text("x", "") }, "`chat` is empty"),
        (SendTextRequest { chat: "a\nb".into(), ..text("x", "") }, "in one line"),
        (text(" ", ""), "`text` is empty"),
        (text(&"x".repeat(70_000), ""), "65536 bytes at most"),
        (text("x", &"k".repeat(300)), "256"),
    ] {
        let refused = send(&world, &world.anna, request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().contains(told), "{refused:?}");
    }
    assert!(deliveries(&world, &world.anna).await.is_empty());
    assert!(deliveries(&world, &world.ben).await.is_empty());
}

#[tokio::test]
async fn what_was_sent_to_a_person_is_erased_with_them() {
    let world = World::start_with_memory().await.unwrap();
    account(&world, &world.anna, "default").await;
    send(&world, &world.anna, text("for seven", "")).await.unwrap();
    let other = SendTextRequest { chat: "8".into(), ..text("for eight", "") };
    send(&world, &world.anna, other).await.unwrap();

    let mut memories = pb::memories_client::MemoriesClient::new(world.channel().await.unwrap());
    let request = pb::EraseMemoriesRequest {
        user: "telegram:7".into(),
        everywhere: true,
        ..Default::default()
    };
    memories.erase_memories(world.anna.request(request)).await.unwrap();

    let left = world.texts("select body from session.deliveries").await.unwrap();
    assert_eq!(left, ["for eight"]);
}
