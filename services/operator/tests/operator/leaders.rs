//! Two operators: one acts.

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{World, eventually};

/// Long enough that a machine that stalls renews in time.
const LEASE: Duration = Duration::from_secs(20);

fn holder(world: &World) -> Value {
    let lease = world.kube.get_in("holdfast", "Lease", "holdfast-operator").unwrap_or_default();
    lease["spec"]["holderIdentity"].clone()
}

#[tokio::test]
async fn of_two_operators_one_acts_and_the_other_takes_over() {
    let world = World::start().await;
    let url = world.kube.url();
    let start = || world.operator_with(&url, |own| own.lease_duration = LEASE);
    let first = start().await;
    assert!(eventually(|| holder(&world).is_string()).await);
    let leader = holder(&world);
    let second = start().await;
    let tenant = world.tenant("acme").await;
    for number in 0..20 {
        world.apply("Agent", &format!("a{number}"), &json!({"tenant": "acme"}));
    }
    for number in 0..20 {
        world.until_ready("Agent", &format!("a{number}")).await;
    }
    assert_eq!(holder(&world), leader);
    // Had both acted, agents would have been created twice or their events published twice.
    for number in 0..20 {
        world.until_events(&format!("a{number}"), &["Created"]).await;
    }
    assert_eq!(world.directory.agents().list(tenant).await.unwrap().len(), 21);

    // One that stops hands over at once; one that dies is waited for.
    first.stop().await;
    assert_ne!(holder(&world), leader, "the lease is not given up");
    world.apply("Agent", "late", &json!({"tenant": "acme"}));
    world.until_ready("Agent", "late").await;
    assert_ne!(holder(&world), leader);
    let leader = holder(&world);
    let third = start().await;
    tokio::time::sleep(LEASE + Duration::from_secs(1)).await;
    assert_eq!(holder(&world), leader, "a live leader was replaced");
    drop(second);
    world.apply("Agent", "later", &json!({"tenant": "acme"}));
    world.until_ready("Agent", "later").await;
    assert_ne!(holder(&world), leader);
    drop(third);
    world.check();
}
