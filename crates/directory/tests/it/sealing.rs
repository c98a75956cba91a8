//! Secrets are stored sealed, and open only for their own field and tenant.

use holdfast_directory::{Directory, Error};
use holdfast_types::{Fault as _, Kind, TenantId};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::world::{BY, World, account, provider};

async fn model_key(directory: &Directory, tenant: TenantId) -> Result<String, Error> {
    let agent = directory.agents().default_agent(tenant).await?;
    let choice = directory.models().of_agent(tenant, &agent).await?;
    Ok(choice.api_key.unwrap().expose_secret().to_owned())
}

#[tokio::test]
async fn secrets_come_back_as_they_were_given_and_are_nowhere_in_the_tables() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let made = world.account(tenant.id, "bot", "123:telegram-token").await;
    let openai = provider("openai", Some("sk-model-key"), Some("gpt-5"));
    world.directory.providers().put(tenant.id, BY, openai).await.unwrap();

    let opened = world.again().accounts().get(tenant.id, made.id).await.unwrap();
    let key = model_key(&world.again(), tenant.id).await.unwrap();

    assert_eq!(opened.secrets, json!({"token": "123:telegram-token"}));
    assert_eq!(opened.account, made);
    assert_eq!(key, "sk-model-key");
    assert!(!format!("{opened:?}").contains("telegram-token"));
    let stored: String = sqlx::query_scalar(
        "select string_agg(encode(a.secrets, 'escape') || encode(p.api_key, 'escape'), '') \
         from control.accounts a, control.providers p",
    )
    .fetch_one(&mut world.admin().await)
    .await
    .unwrap();
    assert!(!stored.contains("telegram-token") && !stored.contains("model-key"), "{stored}");
}

#[tokio::test]
async fn a_sealed_value_that_is_moved_does_not_open() {
    let world = World::new().await;
    let (ours, _) = world.tenant("ours").await;
    let (theirs, _) = world.tenant("theirs").await;
    let first = world.account(ours.id, "first", "1:first").await;
    let second = world.account(ours.id, "second", "2:second").await;
    let foreign = world.account(theirs.id, "first", "3:foreign").await;
    for tenant in [ours.id, theirs.id] {
        let openai = provider("openai", Some("sk-1"), Some("gpt-5"));
        world.directory.providers().put(tenant, BY, openai).await.unwrap();
    }

    for (sql, what) in [
        (
            "update control.accounts a set secrets = b.secrets from control.accounts b \
          where a.account_id = $1 and b.account_id = $2",
            (first.id, second.id),
        ),
        (
            "update control.accounts a set secrets = b.secrets from control.accounts b \
          where a.account_id = $1 and b.account_id = $2",
            (second.id, foreign.id),
        ),
    ] {
        sqlx::query(sql)
            .bind(what.0.as_uuid())
            .bind(what.1.as_uuid())
            .execute(&mut world.admin().await)
            .await
            .unwrap();
        let refused = world.directory.accounts().get(ours.id, what.0).await.unwrap_err();
        assert!(matches!(refused, Error::Unsealable(_)), "{refused}");
        assert_eq!(refused.kind(), Kind::Internal);
    }

    // Moved from one field to another, of the same tenant.
    sqlx::query(
        "update control.providers set api_key = (select secrets from control.accounts \
         where account_id = $2) where tenant_id = $1",
    )
    .bind(theirs.id.as_uuid())
    .bind(foreign.id.as_uuid())
    .execute(&mut world.admin().await)
    .await
    .unwrap();
    assert!(matches!(model_key(&world.directory, theirs.id).await, Err(Error::Unsealable(_))));
    // A tenant's data key, moved to another tenant.
    assert_eq!(model_key(&world.directory, ours.id).await.unwrap(), "sk-1");
    sqlx::query(
        "update control.tenants a set data_key = b.data_key from control.tenants b \
         where a.tenant_id = $1 and b.tenant_id = $2",
    )
    .bind(ours.id.as_uuid())
    .bind(theirs.id.as_uuid())
    .execute(&mut world.admin().await)
    .await
    .unwrap();
    assert!(matches!(model_key(&world.directory, ours.id).await, Err(Error::Unsealable(_))));
}

#[tokio::test]
async fn another_key_encryption_key_opens_nothing() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let made = world.account(tenant.id, "bot", "1:a").await;

    let refused = world.with_another_kek().accounts().get(tenant.id, made.id).await.unwrap_err();

    assert!(matches!(refused, Error::Unsealable(_)), "{refused}");
}

#[tokio::test]
async fn secrets_open_before_during_and_after_a_change_of_the_key_encryption_key() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    world.tenant("other").await;
    let made = world.account(tenant.id, "bot", "1:a").await;
    let (rotating, rotated) = (world.rotating(), world.rotated());
    let secrets = async |directory: &Directory| {
        directory.accounts().get(tenant.id, made.id).await.map(|open| open.secrets)
    };
    let unsealed = secrets(&world.directory).await.unwrap();
    assert_eq!(secrets(&rotating).await.unwrap(), unsealed);
    assert!(secrets(&rotated).await.is_err());

    let mut resealed = 0;
    let last = rotating.tenants().reseal_batch(None, &mut resealed).await.unwrap();
    let end = rotating.tenants().reseal_batch(last, &mut resealed).await.unwrap();
    rotating.tenants().reseal_batch(None, &mut resealed).await.unwrap();

    assert_eq!((resealed, end), (2, None));
    assert_eq!(secrets(&rotating).await.unwrap(), unsealed);
    assert_eq!(secrets(&rotated).await.unwrap(), unsealed);
    assert!(secrets(&world.directory).await.is_err());
}

#[tokio::test]
async fn an_account_keeps_its_secrets_until_others_are_given() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let made = world.account(tenant.id, "bot", "1:a").await;

    let mut changed = account("renamed", "");
    changed.secrets = None;
    let kept = world.directory.accounts().update(tenant.id, BY, made.id, changed).await.unwrap();
    let secrets = world.directory.accounts().get(tenant.id, made.id).await.unwrap().secrets;
    let others = account("renamed", "2:b");
    world.directory.accounts().update(tenant.id, BY, made.id, others).await.unwrap();

    assert_eq!((kept.name.as_str(), kept.version), ("renamed", made.version + 1));
    assert_eq!(secrets, json!({"token": "1:a"}));
    let secrets = world.directory.accounts().get(tenant.id, made.id).await.unwrap().secrets;
    assert_eq!(secrets, json!({"token": "2:b"}));
}

#[tokio::test]
async fn a_stored_key_is_not_sent_to_another_place() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let put = async |new| world.directory.providers().put(tenant.id, BY, new).await;
    put(provider("openai", Some("sk-1"), Some("gpt-5"))).await.unwrap();
    let mut elsewhere = provider("openai", None, Some("gpt-5"));
    elsewhere.base_url = "https://thief.example/v1".into();

    let refused = put(elsewhere.clone()).await;
    elsewhere.api_key = Some("sk-2".into());
    let moved = put(elsewhere).await;

    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert!(moved.is_ok());
    assert_eq!(model_key(&world.directory, tenant.id).await.unwrap(), "sk-2");
}
