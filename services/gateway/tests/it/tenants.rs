//! Two tenants with the same names, users and idempotency keys stay separate.

use holdfast_proto::gateway::v1::{CancelRequest, FollowRequest, SendRequest};
use holdfast_types::{SessionKey, TenantId};
use tonic::Code;

use crate::world::{World, done, message};

fn same() -> SendRequest {
    SendRequest { request_id: "same".into(), session: "same".into(), ..message("history") }
}

#[tokio::test]
async fn the_same_request_of_two_tenants_is_two_requests() {
    let world = World::start().await.unwrap();

    let annas = world.send(&world.anna, same()).await.unwrap();
    let bens = world.send(&world.ben, same()).await.unwrap();

    assert!(!annas.duplicate && !bens.duplicate);
    assert_ne!(annas.session_id, bens.session_id);
    for (who, sent) in [(&world.anna, &annas), (&world.ben, &bens)] {
        let events = world.follow(who, &sent.message_id).await.unwrap();
        assert_eq!(done(&events).text, "user=history");
    }
    assert_eq!((annas.seq, bens.seq), (1, 1));
}

#[tokio::test]
async fn the_same_user_of_two_tenants_is_two_people() {
    let world = World::start().await.unwrap();
    world.say(&world.anna, "u", "a secret of anna's").await.unwrap();

    let answer = world.say(&world.ben, "u", "history").await.unwrap();

    assert_eq!(answer["choices"][0]["message"]["content"], "user=history");
}

#[tokio::test]
async fn nothing_of_another_tenant_is_found_by_any_call() {
    let world = World::start().await.unwrap();
    let annas = world.send(&world.anna, message("hi")).await.unwrap();
    let mut client = world.messages().await.unwrap();

    let follow = FollowRequest { message_id: annas.message_id.clone() };
    let follow = client.follow(world.ben.request(follow)).await.unwrap_err();
    let into = || SendRequest { session: annas.session_id.clone(), ..message("hi") };
    let send = world.send(&world.ben, into()).await.unwrap_err();
    let stream = world.stream(&world.ben, into()).await.unwrap_err();
    let cancel = CancelRequest { session: annas.session_id.clone(), ..Default::default() };
    let cancel = client.cancel(world.ben.request(cancel)).await.unwrap_err();

    for (call, refused) in
        [("follow", follow), ("send", send), ("stream", stream), ("cancel", cancel)]
    {
        assert_eq!(refused.code(), Code::NotFound, "{call}: {}", refused.message());
    }
    let sessions = world.sessions.views().sessions(world.ben.id, filter()).await.unwrap();
    assert_eq!(sessions.len(), 0);
}

fn filter() -> holdfast_session::SessionFilter {
    holdfast_session::SessionFilter { limit: 10, ..Default::default() }
}

#[tokio::test]
async fn a_tenant_named_in_a_request_is_not_believed() {
    let world = World::start().await.unwrap();
    let mut request = world.ben.request(message("hi"));
    for header in ["x-tenant-id", "tenant-id", "holdfast-tenant"] {
        request.metadata_mut().insert(header, world.anna.id.to_string().parse().unwrap());
    }

    let sent = world.messages().await.unwrap().send(request).await.unwrap().into_inner();

    let main: SessionKey = "agent:main:main".parse().unwrap();
    let of = async |tenant: TenantId| world.sessions.views().find(tenant, &main).await.unwrap();
    assert_eq!(of(world.ben.id).await.unwrap().to_string(), sent.session_id);
    assert_eq!(of(world.anna.id).await, None);
}
