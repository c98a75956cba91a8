//! Each change is in the audit log with its author; a refused change is not.

use holdfast_directory::{Actor, Identity, NewBinding, NewRule, TenantChanges};
use holdfast_types::KeyId;
use serde_json::json;

use crate::world::{World, account, agent, key, provider};

#[tokio::test]
async fn every_change_is_recorded_with_its_actor_and_subject() {
    let world = World::new().await;
    let directory = &world.directory;
    let (tenant, _) = world.tenant("acme").await;
    let t = tenant.id;
    let by = Actor::Key(KeyId::generate());

    directory
        .tenants()
        .update(t, by, TenantChanges { rate: Some(5), ..TenantChanges::default() })
        .await
        .unwrap();
    let (made, _) = directory.keys().create(t, by, key(&["chat"])).await.unwrap();
    directory.keys().revoke(t, by, made.id).await.unwrap();
    let coach = directory.agents().create(t, by, agent("coach")).await.unwrap();
    directory.agents().update(t, by, "coach", agent("coach")).await.unwrap();
    directory.providers().put(t, by, provider("openai", Some("sk-hush"), None)).await.unwrap();
    directory.providers().delete(t, by, "openai").await.unwrap();
    let bot = directory.accounts().create(t, by, account("bot", "1:hush")).await.unwrap();
    directory.accounts().update(t, by, bot.id, account("bot", "2:hush")).await.unwrap();
    directory.accounts().delete(t, by, bot.id).await.unwrap();
    let new = NewBinding { channel: "x".into(), agent: "coach".into(), ..NewBinding::default() };
    let binding = directory.routing().create_binding(t, by, new).await.unwrap();
    directory.routing().delete_binding(t, by, binding.id).await.unwrap();
    let rule = NewRule { agent: "coach".into(), ..NewRule::default() };
    directory.routing().put_rules(t, by, vec![rule], None).await.unwrap();
    let ann = Identity { channel: "x".into(), peer: "7".into(), canonical: "ann".into() };
    directory.routing().put_identity(t, by, ann).await.unwrap();
    directory.routing().delete_identity(t, by, "x", "7").await.unwrap();
    directory.policies().put(t, by, None, None, &json!({"deny": ["exec"]})).await.unwrap();
    directory.policies().put(t, by, Some(coach.id), Some(0), &json!({})).await.unwrap();
    directory.agents().delete(t, by, "coach").await.unwrap();

    let log = world.audit(t).await;
    let expected = [
        ("tenant.create", t.to_string()),
        ("tenant.update", t.to_string()),
        ("key.create", made.id.to_string()),
        ("key.revoke", made.id.to_string()),
        ("agent.create", coach.id.to_string()),
        ("agent.update", coach.id.to_string()),
        ("provider.put", "openai".to_owned()),
        ("provider.delete", "openai".to_owned()),
        ("account.create", bot.id.to_string()),
        ("account.update", bot.id.to_string()),
        ("account.delete", bot.id.to_string()),
        ("binding.create", binding.id.to_string()),
        ("binding.delete", binding.id.to_string()),
        ("rules.put", "1".to_owned()),
        ("identity.put", "x:7".to_owned()),
        ("identity.delete", "x:7".to_owned()),
        ("policy.put", t.to_string()),
        ("policy.put", coach.id.to_string()),
        ("agent.delete", coach.id.to_string()),
    ];
    assert_eq!(log.len(), expected.len());
    for ((actor, action, subject), (expected_action, expected_subject)) in log.iter().zip(expected)
    {
        let expected_actor =
            if action == "tenant.create" { "operator".to_owned() } else { by.to_string() };
        assert_eq!(
            (actor, action.as_str(), subject),
            (&expected_actor, expected_action, &expected_subject)
        );
    }
    assert!(!format!("{log:?}").contains("hush"));
}

#[tokio::test]
async fn what_is_refused_is_not_recorded() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let by = Actor::Operator;
    let before = world.audit(tenant.id).await;

    assert!(world.directory.agents().create(tenant.id, by, agent("main")).await.is_err());
    assert!(world.directory.agents().delete(tenant.id, by, "main").await.is_err());
    assert!(world.directory.keys().revoke(tenant.id, by, KeyId::generate()).await.is_err());

    assert_eq!(world.audit(tenant.id).await, before);
}

#[tokio::test]
async fn the_services_can_neither_change_nor_delete_what_is_recorded() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;

    let mut tx = world.pools.tenant(tenant.id).await.unwrap();
    let update = "update control.audit set actor = 'nobody'";
    let refused = holdfast_pg::query(update).execute(tx.conn()).await.unwrap_err();
    assert!(refused.to_string().contains("permission denied"), "{refused}");
    tx.rollback().await.unwrap();

    // Rows go with their tenant, and only then.
    let mut tx = world.pools.tenant(tenant.id).await.unwrap();
    let deleted = holdfast_pg::query("delete from control.audit").execute(tx.conn()).await.unwrap();
    assert_eq!(deleted.rows_affected(), 0);
}
