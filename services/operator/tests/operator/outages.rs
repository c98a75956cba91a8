//! An API server that is away, forgets its history, or refuses.

use std::time::Duration;

use holdfast_testkit::Proxy;
use serde_json::json;

use crate::world::World;

/// Time that the API server is away; `HOLDFAST_LONG=1` takes a minute.
fn outage() -> Duration {
    match std::env::var_os("HOLDFAST_LONG") {
        Some(_) => Duration::from_secs(60),
        None => Duration::from_secs(6),
    }
}

#[tokio::test]
async fn an_operator_survives_an_api_server_that_is_away() {
    let world = World::start().await;
    let proxy = Proxy::in_front_of(&world.kube.url()).await.unwrap();
    // The outage costs it the lease.
    let lease = |own: &mut operator::Operator| own.lease_duration = Duration::from_secs(3);
    let _operator = world.operator_with(&proxy.through(&world.kube.url()), lease).await;
    let tenant = world.tenant("acme").await;
    world.apply("Agent", "coach", &json!({"tenant": "acme", "description": "1"}));
    world.apply("Agent", "gone", &json!({"tenant": "acme"}));
    world.until_ready("Agent", "coach").await;
    world.until_ready("Agent", "gone").await;

    // Meanwhile resources change, one is deleted, one is new, and the history is compacted.
    proxy.refuse().await.unwrap();
    proxy.cut();
    world.apply("Agent", "coach", &json!({"tenant": "acme", "description": "2"}));
    world.apply("Agent", "new", &json!({"tenant": "acme"}));
    world.kube.delete("Agent", "gone").unwrap();
    world.kube.compact();
    tokio::time::sleep(outage()).await;
    assert_eq!(world.agent(tenant, "coach").await.unwrap().description, "1");
    proxy.accept().await.unwrap();

    world.until_ready("Agent", "coach").await;
    world.until_ready("Agent", "new").await;
    world.until_gone("Agent", "gone").await;
    assert_eq!(world.agent(tenant, "coach").await.unwrap().description, "2");
    assert!(world.agent(tenant, "gone").await.is_none());

    // A silent one too: no answer, no end of the connection.
    proxy.stall();
    tokio::time::sleep(outage()).await;
    proxy.resume();
    proxy.cut();
    world.apply("Agent", "coach", &json!({"tenant": "acme", "description": "3"}));
    world.until_ready("Agent", "coach").await;
    world.check();
}

#[tokio::test]
async fn a_compacted_history_is_listed_anew() {
    let world = World::start().await;
    let _operator = world.operator().await;
    world.tenant("acme").await;
    for number in 0..5 {
        world.kube.compact();
        let name = format!("a{number}");
        world.apply("Agent", &name, &json!({"tenant": "acme"}));
        world.kube.compact();
        world.until_ready("Agent", &name).await;
    }
    world.check();
}

#[tokio::test]
async fn a_gateway_that_is_away_is_told_and_tried_again() {
    let world = World::start().await;
    let proxy = Proxy::in_front_of(world.gateway_url()).await.unwrap();
    let url = proxy.through(world.gateway_url());
    let _operator = world.operator_with(&world.kube.url(), |own| own.gateway_url = url).await;
    world.tenant("acme").await;

    proxy.refuse().await.unwrap();
    proxy.cut();
    world.apply("Agent", "coach", &json!({"tenant": "acme"}));
    world.until_reason("Agent", "coach", "GatewayUnavailable").await;
    proxy.accept().await.unwrap();

    world.until_ready("Agent", "coach").await;
    world.check();
}
