//! A tenant is created once, with everything that it needs.

use std::collections::HashSet;

use holdfast_directory::{Error, Product, TenantChanges, TenantState};
use holdfast_types::{Fault as _, Kind};
use secrecy::ExposeSecret as _;

use crate::world::{BY, World};

#[tokio::test]
async fn a_new_tenant_has_an_agent_and_a_key() {
    let world = World::new().await;

    let (tenant, text) = world.tenant("acme").await;
    let agents = world.directory.agents().list(tenant.id).await.unwrap();
    let who = world.directory.keys().authenticate(&text).await.unwrap();

    assert_eq!(agents.len(), 1);
    assert_eq!((agents[0].name.as_str(), agents[0].is_default), ("main", true));
    assert!(agents[0].instructions.len() > 200);
    assert_eq!(who.scopes, ["chat", "read", "approve", "admin", "owner"]);
    assert_eq!(world.directory.tenants().get("acme").await.unwrap(), tenant);
    assert_eq!(world.directory.tenants().get(&tenant.id.to_string()).await.unwrap(), tenant);
    assert_eq!(world.directory.tenants().list().await.unwrap(), [tenant]);
}

#[tokio::test]
async fn a_name_is_taken_once() {
    let world = World::new().await;
    world.tenant("acme").await;

    let again = world.directory.tenants().create(BY, "acme").await.unwrap_err();
    let wrong = world.directory.tenants().create(BY, "Acme Corp").await.unwrap_err();

    assert_eq!((again.kind(), wrong.kind()), (Kind::Conflict, Kind::Invalid));
    assert_eq!(world.directory.tenants().list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn many_who_ensure_one_tenant_at_once_get_the_same_one_and_one_key() {
    let world = World::new().await;
    let asked = (0..12).map(|_| {
        let directory = world.again();
        tokio::spawn(async move { directory.tenants().ensure("development").await.unwrap() })
    });
    let asked: Vec<_> = asked.collect();
    let mut got = Vec::new();
    for task in asked {
        got.push(task.await.unwrap());
    }

    let ids: HashSet<_> = got.iter().map(|(tenant, _)| tenant.id).collect();
    let keys: Vec<_> = got.iter().filter_map(|(_, key)| key.as_ref()).collect();
    assert_eq!((ids.len(), keys.len()), (1, 1));
    let who = world.directory.keys().authenticate(keys[0].expose_secret()).await.unwrap();
    assert!(ids.contains(&who.tenant));
    assert_eq!(world.directory.agents().list(who.tenant).await.unwrap().len(), 1);
    let (later, key) = world.directory.tenants().ensure("development").await.unwrap();
    assert!(ids.contains(&later.id) && key.is_none());
}

#[tokio::test]
async fn only_what_is_given_of_a_tenant_changes() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let update = async |changes| world.directory.tenants().update(tenant.id, BY, changes).await;

    let faster = update(TenantChanges { rate: Some(9), ..TenantChanges::default() }).await.unwrap();
    let state = Some(TenantState::Suspended);
    let suspended = update(TenantChanges { state, ..TenantChanges::default() }).await.unwrap();
    let never = update(TenantChanges { rate: Some(0), ..TenantChanges::default() }).await;

    let acme = Product { name: "Acme".to_owned(), ..Product::default() };
    let product = Some(acme.clone());
    let named = update(TenantChanges { product, ..TenantChanges::default() }).await.unwrap();

    assert_eq!((faster.rate, faster.state), (9, TenantState::Active));
    assert_eq!((suspended.rate, suspended.state), (9, TenantState::Suspended));
    assert_eq!((suspended.product, &named.product), (Product::default(), &acme));
    assert_eq!((named.rate, named.state), (9, TenantState::Suspended));
    assert_eq!(world.directory.tenants().list().await.unwrap()[0].product, acme);
    assert!(matches!(never, Err(Error::Invalid(_))));
}

#[tokio::test]
async fn a_suspended_tenants_accounts_are_not_served() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let account = world.account(tenant.id, "bot", "1:a").await;
    let served = async || {
        let all = world.directory.accounts().all(&["telegram"]).await.unwrap();
        (all.len(), world.directory.accounts().tenant_of(account.id).await.unwrap())
    };
    let before = served().await;

    let changes = TenantChanges { state: Some(TenantState::Suspended), ..TenantChanges::default() };
    world.directory.tenants().update(tenant.id, BY, changes).await.unwrap();

    assert_eq!(before, (1, Some(tenant.id)));
    assert_eq!(served().await, (0, None));
}
