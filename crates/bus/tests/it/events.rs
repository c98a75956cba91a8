//! Events are stored, and limits never prevent publishing.

use async_nats::jetstream::{self, stream::Stream};
use bytes::Bytes;
use futures::future::join_all;
use holdfast_bus::{Config, Error, Subject};
use holdfast_types::{SessionId, TenantId};

use crate::world::{World, ensure_streams, publish};

async fn stream(world: &World) -> Stream {
    let client = holdfast_testkit::nats::connect(world.namespace.url()).await.unwrap();
    let name = format!("{}_EVENTS", world.namespace.prefix());
    jetstream::new(client).get_stream(name).await.unwrap()
}

async fn kept(world: &World) -> jetstream::stream::State {
    stream(world).await.info().await.unwrap().state.clone()
}

#[tokio::test]
async fn an_event_that_is_sent_twice_is_stored_once() {
    let world = World::new().await;
    ensure_streams(&world.bus).await;
    ensure_streams(&world.bus).await;
    let subject = Subject::event(TenantId::generate(), "runs", SessionId::generate());

    for id in ["1", "1", "2"] {
        publish(&world.bus, &subject, id, "{}").await;
    }

    assert_eq!(kept(&world).await.messages, 2);
}

#[tokio::test]
async fn the_stream_is_made_when_it_is_missing() {
    let world = World::new().await;
    let subject = Subject::event(TenantId::generate(), "runs", SessionId::generate());

    publish(&world.bus, &subject, "1", "{}").await;

    assert_eq!(kept(&world).await.messages, 1);
}

#[tokio::test]
async fn an_event_may_be_so_large_and_no_larger() {
    let world = World::new().await;
    let subject = Subject::event(TenantId::generate(), "runs", SessionId::generate());

    let largest = Bytes::from(vec![b'x'; 256 * 1024]);
    publish(&world.bus, &subject, "1", largest).await;
    let larger = Bytes::from(vec![b'x'; 256 * 1024 + 1]);
    let refused = world.bus.publish_event(&subject, "2", larger).await.unwrap_err();

    assert!(matches!(refused, Error::TooLarge { size: 262_145, limit: 262_144 }));
}

#[tokio::test]
async fn a_runaway_tenant_fills_its_bounds_and_stops_nobody() {
    const LIMIT: u64 = 4 * 1024 * 1024;
    let world = World::with(|config| Config { events_max_bytes: LIMIT, ..config }).await;
    ensure_streams(&world.bus).await;
    let (runaway, quiet) = (TenantId::generate(), TenantId::generate());

    // Three times the limit, in many sessions, so that the limit per session does not apply.
    for round in 0..12 {
        let sent = (0..16).map(|n| {
            let (bus, id) = (world.bus.clone(), format!("{round}-{n}"));
            let subject = Subject::event(runaway, "runs", SessionId::generate());
            async move { publish(&bus, &subject, &id, vec![0_u8; 64 * 1024]).await }
        });
        join_all(sent).await;
    }
    let subject = Subject::event(quiet, "runs", SessionId::generate());
    publish(&world.bus, &subject, "quiet", "hello").await;

    assert!(kept(&world).await.bytes <= LIMIT);
    let subject = format!("{}.{subject}", world.namespace.prefix());
    let found = stream(&world).await.get_last_raw_message_by_subject(&subject).await.unwrap();
    assert_eq!(found.payload.as_ref(), b"hello");
}

#[tokio::test]
async fn a_runaway_session_pushes_out_only_its_own_past() {
    let world = World::new().await;
    ensure_streams(&world.bus).await;
    let quiet = Subject::event(TenantId::generate(), "runs", SessionId::generate());
    publish(&world.bus, &quiet, "quiet", "hello").await;
    let runaway = Subject::event(TenantId::generate(), "runs", SessionId::generate());

    for round in 0..50 {
        let sent = (0..100).map(|n| {
            let (bus, runaway) = (world.bus.clone(), runaway.clone());
            let id = format!("{round}-{n}");
            async move { publish(&bus, &runaway, &id, "again").await }
        });
        join_all(sent).await;
    }

    assert_eq!(kept(&world).await.messages, 4096 + 1);
}
