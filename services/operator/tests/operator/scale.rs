//! Many resources at once.

use std::time::Duration;

use serde_json::json;

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_agents_at_once_are_all_applied() {
    let world = World::start().await;
    // A comparison of all of them every 2 s would be most of the work.
    let resync = |own: &mut operator::Operator| own.resync = Duration::from_secs(60);
    let _operator = world.operator_with(&world.kube.url(), resync).await;
    let tenants = ["acme", "globex"];
    for tenant in tenants {
        world.apply("Tenant", tenant, &json!({"rate": 100_000}));
    }
    for number in 0..500 {
        let tenant = tenants[number % 2];
        world.apply(
            "Agent",
            &format!("a{number}"),
            &json!({"tenant": tenant, "description": "many"}),
        );
    }
    for number in 0..500 {
        world.until_ready("Agent", &format!("a{number}")).await;
    }
    for tenant in tenants {
        let id = world.tenant_id(tenant).await;
        let agents = world.directory.agents().list(id).await.unwrap();
        assert_eq!(agents.iter().filter(|agent| agent.description == "many").count(), 250);
    }
    // Each takes a few writes, whatever the number of them.
    let requests = world.kube.requests();
    let patches = requests.get("patch agents").copied().unwrap_or_default();
    assert!(patches < 500 * 8, "{requests:#?}");
    world.check();
}
