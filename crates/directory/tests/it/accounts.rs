//! An account that cannot be served is not stored.

use holdfast_directory::{Error, NewAccount};
use serde_json::{Value, json};

use crate::world::{BY, World};

fn telegram(settings: Value, secrets: Option<Value>) -> NewAccount {
    NewAccount { channel: "telegram".into(), name: "bot".into(), enabled: true, settings, secrets }
}

fn why<T: std::fmt::Debug>(refused: Result<T, Error>) -> String {
    match refused {
        Err(Error::Invalid(why)) => why,
        // Returns no refusal text, so that the test fails.
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn a_new_account_that_could_not_be_served_is_refused_with_the_field() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let create = async |new| world.directory.accounts().create(tenant.id, BY, new).await;
    let token = || Some(json!({"token": "1:a"}));

    let misspelt = why(create(telegram(json!({"alow": [1]}), token())).await);
    let half = why(create(telegram(json!({"mode": "webhook"}), token())).await);
    let webhook = NewAccount {
        channel: "webhook".into(),
        ..telegram(json!({"tolerance": 0}), Some(json!({"secret": "0123456789abcdef"})))
    };
    let webhook = why(create(webhook).await);

    assert_eq!(
        misspelt,
        "this telegram account could not be served: `settings` has no `alow`: \
         there are `mode`, `allow`, `groups`, `parse`, `api_base`, `streaming`"
    );
    assert!(half.contains("`secrets.webhook_secret` is missing"), "{half}");
    assert!(webhook.contains("`settings.tolerance` is 0 s"), "{webhook}");
    assert_eq!(world.directory.accounts().list(tenant.id, None).await.unwrap(), []);
}

#[tokio::test]
async fn a_change_is_checked_with_the_secrets_that_it_keeps() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let made = world.account(tenant.id, "bot", "1:a").await;
    let update = async |new| world.directory.accounts().update(tenant.id, BY, made.id, new).await;
    let hook = json!({"mode": "webhook"});

    let misspelt = why(update(telegram(json!({"alow": [1]}), None)).await);
    let half = why(update(telegram(hook.clone(), None)).await);
    let kept = world.directory.accounts().list(tenant.id, None).await.unwrap();
    let both = json!({"token": "1:a", "webhook_secret": "abcdefgh-12345678"});
    update(telegram(hook.clone(), Some(both))).await.unwrap();
    let again = update(telegram(json!({"mode": "webhook", "allow": [7]}), None)).await.unwrap();

    assert!(misspelt.contains("`settings` has no `alow`"), "{misspelt}");
    assert!(half.contains("`secrets.webhook_secret` is missing"), "{half}");
    assert_eq!(kept, std::slice::from_ref(&made));
    assert_eq!(again.version, made.version + 2);
}

#[tokio::test]
async fn an_account_from_before_it_was_checked_can_still_be_disabled() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let made = world.account(tenant.id, "bot", "1:a").await;
    let old = json!({"alow": [1]});
    sqlx::query("update control.accounts set settings = $2 where account_id = $1")
        .bind(made.id.as_uuid())
        .bind(&old)
        .execute(&mut world.admin().await)
        .await
        .unwrap();

    let disabled = NewAccount { enabled: false, ..telegram(old, None) };
    let disabled =
        world.directory.accounts().update(tenant.id, BY, made.id, disabled).await.unwrap();

    assert!(!disabled.enabled);
}
