//! Operators that die in the middle of their work.

use std::time::Duration;

use serde_json::json;

use crate::world::World;

/// Lets operators die after ever longer times.
async fn with_crashes(world: &World) {
    for millis in [0, 5, 10, 20, 40, 60, 90, 150, 250] {
        let operator = world.operator().await;
        tokio::time::sleep(Duration::from_millis(millis)).await;
        drop(operator);
        // The lease of a dead operator is not waited for here; tests of leaders do that.
        if world.kube.get_in("holdfast", "Lease", "holdfast-operator").is_some() {
            world.kube.delete_in("holdfast", "Lease", "holdfast-operator").unwrap();
        }
    }
}

#[tokio::test]
async fn what_a_dead_operator_began_is_finished_by_the_next() {
    let world = World::start().await;
    world.secret("bot", "token", "1:aaa");
    world.secret("mine", "api-key", "sk-1");
    let apply = |description: &str, rate: u32| {
        world.apply("Tenant", "acme", &json!({"rate": rate}));
        world.apply("Agent", "coach", &json!({"tenant": "acme", "description": description}));
        world.apply(
            "Channel",
            "bot",
            &json!({"tenant": "acme", "type": "telegram", "enabled": rate == 1,
            "settings": {"allow": ["1"]}, "secret": {"name": "bot", "key": "token"}}),
        );
        world.apply("ModelProvider", "mine", &json!({"tenant": "acme", "kind": "openai",
            "defaultModel": format!("mine:{description}"), "apiKey": {"name": "mine", "key": "api-key"}}));
    };
    let all =
        [("Tenant", "acme"), ("ModelProvider", "mine"), ("Agent", "coach"), ("Channel", "bot")];

    // Creation.
    apply("one", 1_000);
    with_crashes(&world).await;
    let operator = world.operator().await;
    for (kind, name) in all {
        world.until_ready(kind, name).await;
    }
    operator.stop().await;
    let tenant = world.tenant_id("acme").await;
    let agents = world.directory.agents().list(tenant).await.unwrap();
    assert_eq!(agents.len(), 2, "main and coach: {agents:#?}");
    assert_eq!(world.directory.accounts().list(tenant, None).await.unwrap().len(), 1);
    let keys = world.directory.keys().list(tenant).await.unwrap();
    assert!(keys.iter().any(|key| key.revoked_at.is_none()), "{keys:#?}");

    // Change.
    apply("two", 2_000);
    with_crashes(&world).await;
    let operator = world.operator().await;
    for (kind, name) in all {
        world.until_ready(kind, name).await;
    }
    operator.stop().await;
    assert_eq!(world.agent(tenant, "coach").await.unwrap().description, "two");
    assert_eq!(world.directory.tenants().get("acme").await.unwrap().rate, 2_000);

    // Deletion.
    let confirm = json!({"metadata": {"annotations": {"holdfast.dev/confirm-delete": "acme"}}});
    for (kind, name) in [("Agent", "coach"), ("Channel", "bot"), ("ModelProvider", "mine")] {
        world.kube.delete(kind, name).unwrap();
    }
    with_crashes(&world).await;
    let operator = world.operator().await;
    for (kind, name) in [("Agent", "coach"), ("Channel", "bot"), ("ModelProvider", "mine")] {
        world.until_gone(kind, name).await;
    }
    operator.stop().await;
    assert_eq!(world.directory.agents().list(tenant).await.unwrap().len(), 1);
    assert!(world.directory.accounts().list(tenant, None).await.unwrap().is_empty());
    assert!(world.directory.providers().list(tenant).await.unwrap().is_empty());
    world.kube.merge("Tenant", "acme", confirm).unwrap();
    world.kube.delete("Tenant", "acme").unwrap();
    with_crashes(&world).await;
    let _operator = world.operator().await;
    world.until_gone("Tenant", "acme").await;
    world.check();
}

#[tokio::test]
async fn an_operator_that_starts_waits_until_it_knows_all_tenants_and_then_applies_all() {
    let world = World::start().await;
    world.apply("Tenant", "acme", &json!({}));
    let agents: Vec<String> = (0..20).map(|number| format!("a{number}")).collect();
    for agent in &agents {
        world.apply("Agent", agent, &json!({"tenant": "acme"}));
    }
    // The agents are known long before the tenants.
    world.kube.delay("list tenants", Duration::from_secs(1));

    let _operator = world.operator().await;

    for agent in &agents {
        world.until_ready("Agent", agent).await;
        let told = world.events(agent);
        assert!(!told.contains(&"TenantNotFound".to_owned()), "{told:?}");
    }
    world.check();
}
