//! A key is valid for its tenant, its scopes and its lifetime, and only as a whole.

use std::time::Duration;

use holdfast_directory::{Error, NewKey, NewNode, TenantChanges, TenantState};
use holdfast_types::{ConnectionScope, Fault as _, Kind};
use secrecy::ExposeSecret as _;
use sqlx::Connection as _;
use uuid::Uuid;

use crate::world::{BY, World, key};

#[tokio::test]
async fn a_new_key_speaks_for_its_tenant_with_its_scopes() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;

    let (made, secret) =
        world.directory.keys().create(tenant.id, BY, key(&["read", "chat"])).await.unwrap();
    let who = world.directory.keys().authenticate(secret.expose_secret()).await.unwrap();

    assert_eq!((who.tenant, who.key, who.name.as_str()), (tenant.id, made.id, "ci"));
    assert_eq!(who.scopes, ["chat", "read"]);
    assert_eq!(who.rate, tenant.rate);
}

#[tokio::test]
async fn a_key_with_another_secret_or_another_id_is_not_known() {
    let world = World::new().await;
    let (_, ours) = world.tenant("acme").await;
    let (_, theirs) = world.tenant("other").await;
    let (our_id, our_secret) = ours.split_at(36);
    let (their_id, their_secret) = theirs.split_at(36);

    for text in [
        format!("{our_id}{their_secret}"),
        format!("{their_id}{our_secret}"),
        format!("hf_{}_{our_secret}", "0".repeat(32)),
        String::new(),
        "hf_".to_owned(),
        ours.replace("hf_", "sk_"),
        ours[..ours.len() - 1].to_owned(),
    ] {
        let refused = world.directory.keys().authenticate(&text).await.unwrap_err();
        assert!(matches!(refused, Error::UnknownKey), "{text}: {refused}");
        assert_eq!(refused.kind(), Kind::Unauthenticated);
    }
    assert!(world.directory.keys().authenticate(&ours).await.is_ok());
}

#[tokio::test]
async fn a_wrong_secret_does_not_make_a_revoked_key_known() {
    let world = World::new().await;
    let (tenant, ours) = world.tenant("acme").await;
    let id = world.directory.keys().list(tenant.id).await.unwrap()[0].id;
    world.directory.keys().revoke(tenant.id, BY, id).await.unwrap();
    let wrong = format!("{}{}", &ours[..36], &world.tenant("other").await.1[36..]);

    assert!(matches!(world.directory.keys().authenticate(&ours).await, Err(Error::KeyNotActive)));
    assert!(matches!(world.directory.keys().authenticate(&wrong).await, Err(Error::UnknownKey)));
}

#[tokio::test]
async fn a_revoked_key_ends_here_at_once_and_elsewhere_within_five_seconds() {
    let world = World::new().await;
    let elsewhere = world.again();
    let (tenant, text) = world.tenant("acme").await;
    let id = world.directory.keys().list(tenant.id).await.unwrap()[0].id;
    world.directory.keys().authenticate(&text).await.unwrap();
    elsewhere.keys().authenticate(&text).await.unwrap();

    world.directory.keys().revoke(tenant.id, BY, id).await.unwrap();
    let revoked_at = world.directory.keys().list(tenant.id).await.unwrap()[0].revoked_at;

    assert!(matches!(world.directory.keys().authenticate(&text).await, Err(Error::KeyNotActive)));
    tokio::time::sleep(Duration::from_millis(5_050)).await;
    assert!(matches!(elsewhere.keys().authenticate(&text).await, Err(Error::KeyNotActive)));
    // A repetition changes nothing.
    world.directory.keys().revoke(tenant.id, BY, id).await.unwrap();
    assert_eq!(world.directory.keys().list(tenant.id).await.unwrap()[0].revoked_at, revoked_at);
}

#[tokio::test]
async fn a_key_ends_when_its_time_is_over() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let new = NewKey { lifetime: Some(Duration::from_secs(60)), ..key(&["chat"]) };
    let (made, secret) = world.directory.keys().create(tenant.id, BY, new).await.unwrap();
    world.directory.keys().authenticate(secret.expose_secret()).await.unwrap();

    sqlx::query(
        "update control.keys set expires_at = now() - interval '1 second' where key_id = $1",
    )
    .bind(made.id.as_uuid())
    .execute(&mut world.admin().await)
    .await
    .unwrap();

    let refused = world.again().keys().authenticate(secret.expose_secret()).await;
    assert!(matches!(refused, Err(Error::KeyNotActive)), "{refused:?}");
    assert!(made.expires_at.unwrap() > made.created_at);
}

#[tokio::test]
async fn a_suspended_tenants_keys_are_refused_until_it_is_active_again() {
    let world = World::new().await;
    let (tenant, text) = world.tenant("acme").await;
    let set = async |state| {
        let changes = TenantChanges { state: Some(state), ..TenantChanges::default() };
        world.directory.tenants().update(tenant.id, BY, changes).await.unwrap()
    };

    set(TenantState::Suspended).await;
    let refused = world.again().keys().authenticate(&text).await.unwrap_err();
    set(TenantState::Active).await;

    assert!(matches!(refused, Error::TenantSuspended));
    assert_eq!(refused.kind(), Kind::Forbidden);
    assert!(world.again().keys().authenticate(&text).await.is_ok());
}

#[tokio::test]
async fn another_pepper_knows_no_key() {
    let world = World::new().await;
    let (_, text) = world.tenant("acme").await;
    let peppered = world.with_another_pepper();

    assert!(matches!(peppered.keys().authenticate(&text).await, Err(Error::UnknownKey)));
}

#[tokio::test]
async fn a_key_that_is_used_while_the_pepper_changes_outlives_the_old_one() {
    let world = World::new().await;
    let (_, used) = world.tenant("acme").await;
    let (_, unused) = world.tenant("other").await;
    let rotating = world.rotating();

    let before = world.directory.keys().authenticate(&used).await.unwrap();
    let during = rotating.keys().authenticate(&used).await.unwrap();
    let again = rotating.keys().authenticate(&used).await.unwrap();
    let after = world.rotated().keys().authenticate(&used).await.unwrap();

    assert_eq!((&before, &before, &before), (&during, &again, &after));
    let wrong = format!("{}{}", &used[..36], &unused[36..]);
    assert!(matches!(rotating.keys().authenticate(&wrong).await, Err(Error::UnknownKey)));
    assert!(matches!(world.rotated().keys().authenticate(&unused).await, Err(Error::UnknownKey)));
}

#[tokio::test]
async fn keys_that_could_decide_before_there_was_a_scope_for_it_still_can() {
    const MIGRATION: &str = include_str!("../../../../migrations/0064_approve_scope.sql");
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let keys = world.directory.keys();
    let chats = keys.create(tenant.id, BY, key(&["chat", "read"])).await.unwrap().0.id;
    let reads = keys.create(tenant.id, BY, key(&["read", "admin"])).await.unwrap().0.id;
    assert!(!keys.get(tenant.id, chats).await.unwrap().may_approve());

    for _ in 0..2 {
        sqlx::raw_sql(MIGRATION).execute(&mut world.admin().await).await.unwrap();
    }

    let chats = keys.get(tenant.id, chats).await.unwrap();
    assert_eq!(
        (chats.may_approve(), chats.scopes),
        (true, vec!["chat".into(), "read".into(), "approve".into()])
    );
    let reads = keys.get(tenant.id, reads).await.unwrap();
    assert_eq!(reads.scopes, ["read", "admin"]);
}

#[tokio::test]
async fn what_is_stored_of_a_key_is_not_its_secret() {
    let world = World::new().await;
    let (_, text) = world.tenant("acme").await;

    let row: String =
        sqlx::query_scalar("select encode(digest, 'escape') || keys::text from control.keys")
            .fetch_one(&mut world.admin().await)
            .await
            .unwrap();

    assert!(!row.contains(&text[36..]));
}

#[tokio::test]
async fn invented_keys_do_not_take_all_connections() {
    let world = World::new().await;
    let mut admin = world.admin().await;
    let mut held = admin.begin().await.unwrap();
    sqlx::query("lock table control.keys in access exclusive mode")
        .execute(&mut *held)
        .await
        .unwrap();
    let invented = (0..20).map(|_| {
        let text = format!("hf_{}_{}", Uuid::now_v7().simple(), "A".repeat(43));
        let directory = world.directory.clone();
        tokio::spawn(async move { directory.keys().authenticate(&text).await.map(drop) })
    });
    let invented: Vec<_> = invented.collect();
    tokio::time::sleep(Duration::from_millis(300)).await;

    // Sooner than those that wait for the lock give up.
    let free = tokio::time::timeout(Duration::from_secs(8), world.pools.ping()).await;

    held.rollback().await.unwrap();
    assert!(matches!(free, Ok(Ok(()))), "{free:?}");
    for asked in invented {
        let refused = asked.await.unwrap().unwrap_err();
        assert!(matches!(refused, Error::UnknownKey | Error::TooManyUnknownKeys), "{refused}");
    }
}

#[tokio::test]
async fn who_repeats_a_wrong_token_does_not_reach_the_database() {
    let world = World::new().await;
    let (tenant, key) = world.tenant("acme").await;
    let new = NewNode { name: "laptop".to_owned(), used_by: ConnectionScope::Owner };
    let (_, token) = world.directory.nodes().create(tenant.id, BY, new).await.unwrap();
    let token = token.expose_secret();
    let invented = format!("hf_{}_{}", Uuid::now_v7().simple(), "A".repeat(43));
    // The id and the mark are right, and the rest of the secret is not.
    let wrong_key = format!("{}AAAA", &key[..key.len() - 4]);
    let wrong_token = format!("{}AAAA", &token[..token.len() - 4]);
    let authenticate = async || {
        let (keys, nodes) = (world.directory.keys(), world.directory.nodes());
        [
            keys.authenticate(&invented).await.map(drop),
            keys.authenticate(&wrong_key).await.map(drop),
            nodes.authenticate(&wrong_token).await.map(drop),
        ]
    };
    drop(authenticate().await);
    let mut admin = world.admin().await;
    let mut held = admin.begin().await.unwrap();
    let lock = "lock table control.keys, control.nodes in access exclusive mode";
    sqlx::query(lock).execute(&mut *held).await.unwrap();

    // What reaches the database fails by its lock timeout.
    let refused = authenticate().await;

    for refused in refused {
        assert!(matches!(refused, Err(Error::UnknownKey)), "{refused:?}");
    }
    held.rollback().await.unwrap();
}
