//! NATS may go away at any moment, and come back empty.

use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_bus::{Bus, Subject};
use holdfast_testkit::{OwnBackends, backends::Server};
use holdfast_types::{Fault as _, Kind, SessionId, TenantId};

use crate::world::{config, connect, connected, publish, soon};

#[tokio::test]
async fn without_nats_a_service_starts_and_nobody_waits() {
    let began = Instant::now();
    let bus = Bus::connect(&config("nats://127.0.0.1:1", ""), "test").await.unwrap();
    let _wakes = bus.run_wakes("").await.unwrap();
    for _ in 0..10_000 {
        bus.wake_run(0);
    }
    bus.flush().await;
    let subject = Subject::event(TenantId::generate(), "runs", SessionId::generate());
    let error = bus.publish_event(&subject, "1", Bytes::new()).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(!bus.is_connected());
    // Publishing does not wait for the network, only for the machine to drop the message.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn subscriptions_outlive_a_crash_and_the_stream_a_wiped_disk() {
    let own = OwnBackends::start().await.unwrap();
    let url = own.urls().nats_url.clone();
    let bus = connect(&config(&url, "")).await;
    let mut wakes = bus.run_wakes("").await.unwrap();
    let subject = Subject::event(TenantId::generate(), "runs", SessionId::generate());
    publish(&bus, &subject, "1", "{}").await;

    own.kill(Server::Nats).await.unwrap();
    own.wipe_nats().await.unwrap();
    soon(async {
        while bus.is_connected() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let late = Bus::connect(&config(&url, ""), "late").await.unwrap();
    let mut deltas = late.subscribe(&Subject::wake_run()).await.unwrap();
    bus.wake_run(0);
    assert!(bus.publish_event(&subject, "2", Bytes::new()).await.is_err());
    own.restart(Server::Nats).await.unwrap();

    connected(&bus).await;
    connected(&late).await;
    publish(&bus, &subject, "3", "{}").await;
    late.flush().await;
    // Subscriptions are restored a moment after the connection.
    tokio::time::sleep(Duration::from_secs(1)).await;
    bus.wake_run(0);
    soon(wakes.next()).await.unwrap();
    soon(deltas.next()).await.unwrap();
    // Messages sent during the outage were dropped, not buffered.
    let more = tokio::time::timeout(Duration::from_millis(200), wakes.next()).await;
    assert!(more.is_err());
}
