//! Tenants, their keys, and their deletion.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_directory::{Actor, NewKey, NewPlan, PlanLimits, TenantChanges, TenantState};
use holdfast_types::TenantId;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::world::{PATIENCE, World, eventually};

/// The key in the operator's Secret of a tenant.
fn key(world: &World, tenant: &str) -> String {
    let secret = world.kube.get("Secret", &format!("holdfast-tenant-{tenant}")).unwrap_or_default();
    let text = secret["data"]["key"].as_str().unwrap_or_default();
    String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
}

#[tokio::test]
async fn a_tenant_has_its_settings_and_one_key_that_works() {
    let world = World::start().await;
    let _operator = world.operator().await;

    world.apply(
        "Tenant",
        "acme",
        &json!({"rate": 100, "retention": {"messages": 7}, "product": {"name": "Acme"}}),
    );
    world.until_ready("Tenant", "acme").await;

    let tenant = world.directory.tenants().get("acme").await.unwrap();
    assert_eq!((tenant.rate, &*tenant.product.name), (100, "Acme"));
    let caller = world.directory.keys().authenticate(&key(&world, "acme")).await.unwrap();
    assert_eq!(caller.tenant, tenant.id);
    assert_eq!(caller.scopes, ["read", "admin", "owner"]);
    let keys = world.directory.keys().list(tenant.id).await.unwrap();
    let usable: Vec<_> = keys.iter().filter(|key| key.revoked_at.is_none()).collect();
    assert_eq!(usable.len(), 1, "{usable:#?}");
    let status = world.kube.get("Tenant", "acme").unwrap()["status"].to_string();
    assert!(!status.contains("hf_"), "{status}");
    let secret = world.kube.get("Secret", "holdfast-tenant-acme").unwrap();
    assert_eq!(secret["metadata"]["ownerReferences"][0]["kind"], "Tenant");

    // What is not described keeps its value; what is described returns to it.
    world.apply("Tenant", "acme", &json!({"rate": 50}));
    world.until_ready("Tenant", "acme").await;
    let tenant = world.directory.tenants().get("acme").await.unwrap();
    assert_eq!((tenant.rate, &*tenant.product.name), (50, "Acme"));
    world.check();
}

#[tokio::test]
async fn a_revoked_or_lost_key_is_replaced() {
    let world = World::start().await;
    let _operator = world.operator().await;
    let tenant = world.tenant("acme").await;
    world.apply("Agent", "coach", &json!({"tenant": "acme"}));
    world.until_ready("Agent", "coach").await;

    let first = key(&world, "acme");
    let id = world.directory.keys().authenticate(&first).await.unwrap().key;
    world.directory.keys().revoke(tenant, Actor::Operator, id).await.unwrap();
    assert!(eventually(|| !key(&world, "acme").is_empty() && key(&world, "acme") != first).await);

    let second = key(&world, "acme");
    world.kube.delete("Secret", "holdfast-tenant-acme").unwrap();
    assert!(eventually(|| world.kube.get("Secret", "holdfast-tenant-acme").is_some()).await);
    assert_ne!(key(&world, "acme"), second);
    world.apply("Agent", "coach", &json!({"tenant": "acme", "description": "x"}));
    world.until_ready("Agent", "coach").await;
    until_one_key_is_valid(&world, tenant).await;
    world.check();
}

/// Waits until all keys of the tenant but one are revoked.
async fn until_one_key_is_valid(world: &World, tenant: TenantId) {
    let end = Instant::now() + PATIENCE;
    loop {
        let keys = world.directory.keys().list(tenant).await.unwrap();
        if keys.iter().filter(|key| key.revoked_at.is_none()).count() == 1 {
            return;
        }
        assert!(Instant::now() < end, "{keys:#?}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_key_beside_the_stored_one_is_revoked() {
    let world = World::start().await;
    let _operator = world.operator().await;
    let tenant = world.tenant("acme").await;
    let stored = key(&world, "acme");

    // As an operator leaves it that ends before it has revoked its earlier keys.
    let scopes = vec!["read".to_owned(), "admin".to_owned()];
    let new = NewKey {
        name: "kubernetes operator".to_owned(),
        scopes,
        lifetime: None,
        person: None,
        agent: None,
        origins: Vec::new(),
    };
    world.directory.keys().create(tenant, Actor::Operator, new).await.unwrap();

    until_one_key_is_valid(&world, tenant).await;
    assert!(world.directory.keys().authenticate(&stored).await.is_ok());
    world.check();
}

#[tokio::test]
async fn a_tenant_is_deleted_only_with_its_confirmation() {
    let world = World::start().await;
    let _operator = world.operator().await;
    world.tenant("acme").await;
    world.apply("Agent", "coach", &json!({"tenant": "acme"}));
    world.until_ready("Agent", "coach").await;

    world.kube.delete("Tenant", "acme").unwrap();
    let message = world.until_reason("Tenant", "acme", "ConfirmationMissing").await;
    assert!(message.contains("holdfast.dev/confirm-delete: acme"), "{message}");
    assert_eq!(world.directory.tenants().get("acme").await.unwrap().state, TenantState::Active);
    let confirm = |name: &str| {
        let annotations = json!({"annotations": {"holdfast.dev/confirm-delete": name}});
        world.kube.merge("Tenant", "acme", json!({"metadata": annotations})).unwrap();
    };
    confirm("other");
    sleep(Duration::from_secs(3)).await;
    assert!(world.kube.get("Tenant", "acme").is_some());

    confirm("acme");
    world.until_gone("Tenant", "acme").await;
    assert_eq!(world.directory.tenants().get("acme").await.unwrap().state, TenantState::Deleting);
    assert!(world.kube.get("Secret", "holdfast-tenant-acme").is_none());
    // Its agent goes without a call, and a tenant of the same name waits.
    world.kube.delete("Agent", "coach").unwrap();
    world.until_gone("Agent", "coach").await;
    world.apply("Tenant", "acme", &json!({}));
    world.until_reason("Tenant", "acme", "TenantDeleting").await;
    world.check();
}

#[tokio::test]
async fn a_suspended_tenant_is_left_alone_until_it_is_active() {
    let world = World::start().await;
    let _operator = world.operator().await;
    let tenant = world.tenant("acme").await;
    world.apply("Tenant", "acme", &json!({"suspended": true}));
    world.until_ready("Tenant", "acme").await;
    assert_eq!(world.directory.tenants().get("acme").await.unwrap().state, TenantState::Suspended);

    world.apply("Agent", "coach", &json!({"tenant": "acme"}));
    world.until_reason("Agent", "coach", "TenantSuspended").await;
    world.apply("Tenant", "acme", &json!({"suspended": false}));
    world.until_ready("Agent", "coach").await;
    assert!(world.agent(tenant, "coach").await.is_some());
    world.check();
}

#[tokio::test]
async fn plan_and_suspension_return_to_the_description_when_they_are_changed_by_hand() {
    let world = World::start().await;
    let _operator = world.operator().await;
    let limits = PlanLimits { parallel_runs: Some(3), ..PlanLimits::default() };
    for name in ["basic", "pro"] {
        let plan = NewPlan { name: name.into(), limits, ..NewPlan::default() };
        world.directory.plans().put(&plan).await.unwrap();
    }
    let tenant = world.tenant("acme").await;
    world.apply("Tenant", "acme", &json!({"plan": "gold"}));
    let told = world.until_reason("Tenant", "acme", "NotFound").await;
    assert!(told.contains("there is no plan `gold`"), "{told}");

    world.apply("Tenant", "acme", &json!({"plan": "basic", "suspended": false}));
    world.until_ready("Tenant", "acme").await;
    let now = async || world.directory.tenants().get("acme").await.unwrap();
    assert_eq!(now().await.plan.as_deref(), Some("basic"));
    assert_eq!(now().await.limits, limits);

    let plan = Some(Some("pro".to_owned()));
    let state = Some(TenantState::Suspended);
    let by_hand = TenantChanges { plan, state, ..TenantChanges::default() };
    world.directory.tenants().update(tenant, Actor::Operator, by_hand).await.unwrap();
    let end = Instant::now() + PATIENCE;
    loop {
        let found = now().await;
        if found.plan.as_deref() == Some("basic") && found.state == TenantState::Active {
            break;
        }
        assert!(Instant::now() < end, "{found:?}");
        sleep(Duration::from_millis(50)).await;
    }

    world.apply("Tenant", "acme", &json!({"plan": ""}));
    world.until_ready("Tenant", "acme").await;
    assert_eq!(now().await.plan, None);
    world.check();
}

#[tokio::test]
async fn a_key_without_the_right_is_told() {
    let world = World::start().await;
    let url = world.kube.url();
    let _operator = world.operator_with(&url, |own| own.key = "hf_1_2".into()).await;

    world.apply("Tenant", "acme", &json!({}));
    let message = world.until_reason("Tenant", "acme", "OperatorKeyRefused").await;

    assert!(message.contains("scope `platform`"), "{message}");
    let tenant = world.kube.get("Tenant", "acme").unwrap();
    assert_eq!(tenant["metadata"].get("finalizers"), None::<&Value>);
    world.check();
}
