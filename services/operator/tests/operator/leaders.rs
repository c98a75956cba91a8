//! Two operators: one acts.

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{World, eventually};

fn holder(world: &World) -> Value {
    let lease = world.kube.get_in("holdfast", "Lease", "holdfast-operator").unwrap_or_default();
    lease["spec"]["holderIdentity"].clone()
}

#[tokio::test]
async fn of_two_operators_one_acts_and_the_other_takes_over() {
    let world = World::start().await;
    let first = world.operator().await;
    assert!(eventually(|| holder(&world).is_string()).await);
    let leader = holder(&world);
    let second = world.operator().await;
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
    let begun = std::time::Instant::now();
    first.stop().await;
    world.apply("Agent", "late", &json!({"tenant": "acme"}));
    world.until_ready("Agent", "late").await;
    assert_ne!(holder(&world), leader);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let leader = holder(&world);
    let third = world.operator().await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(holder(&world), leader, "a live leader was replaced");
    drop(second);
    world.apply("Agent", "later", &json!({"tenant": "acme"}));
    world.until_ready("Agent", "later").await;
    assert_ne!(holder(&world), leader);
    drop(third);
    world.check();
}
