//! A node authenticates by its token, and only one of its connections is current.

use holdfast_directory::{
    AuthenticatedNode, Directory, Error, NewNode, NodeConnectionState, NodeReport, TenantChanges,
    TenantState,
};
use holdfast_types::{ConnectionScope, TenantId};
use secrecy::ExposeSecret as _;
use uuid::Uuid;

use crate::world::{BY, World};

fn new(name: &str) -> NewNode {
    NewNode { name: name.to_owned(), used_by: ConnectionScope::Owner }
}

async fn known(directory: &Directory, tenant: TenantId, name: &str) -> (AuthenticatedNode, String) {
    let (_, token) = directory.nodes().create(tenant, BY, new(name)).await.unwrap();
    let token = token.expose_secret().to_owned();
    (directory.nodes().authenticate(&token).await.unwrap(), token)
}

#[tokio::test]
async fn a_node_that_connects_while_the_pepper_changes_outlives_the_old_one() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let (laptop, token) = known(&world.directory, tenant.id, "laptop").await;

    let during = world.rotating().nodes().authenticate(&token).await.unwrap();
    let after = world.rotated().nodes().authenticate(&token).await.unwrap();

    assert_eq!((laptop.node, laptop.node), (during.node, after.node));
}

#[tokio::test]
async fn a_token_is_of_its_node_until_it_is_revoked_and_no_part_of_it_is_stored() {
    let world = World::new().await;
    let (tenant, key) = world.tenant("acme").await;
    let (laptop, token) = known(&world.directory, tenant.id, "laptop").await;

    assert_eq!((laptop.tenant, laptop.name.as_str()), (tenant.id, "laptop"));
    let wrong = format!("{}{}", &token[..token.len() - 4], "AAAA");
    for wrong in [wrong.as_str(), "", "hfn_x", key.as_str()] {
        let refused = world.directory.nodes().authenticate(wrong).await.unwrap_err();
        assert!(matches!(refused, Error::UnknownKey), "{wrong}: {refused}");
    }
    let as_key = world.directory.keys().authenticate(&token).await.unwrap_err();
    assert!(matches!(as_key, Error::UnknownKey));
    let changes = TenantChanges { state: Some(TenantState::Suspended), ..Default::default() };
    world.directory.tenants().update(tenant.id, BY, changes).await.unwrap();
    let refused = world.again().nodes().authenticate(&token).await.unwrap_err();
    assert!(matches!(refused, Error::TenantSuspended));
    let changes = TenantChanges { state: Some(TenantState::Active), ..Default::default() };
    world.directory.tenants().update(tenant.id, BY, changes).await.unwrap();

    world.directory.nodes().revoke(tenant.id, BY, "laptop").await.unwrap();
    let refused = world.again().nodes().authenticate(&token).await.unwrap_err();
    assert!(matches!(refused, Error::KeyNotActive));
    // The name is free again, and the node is still listed.
    let (again, _) = known(&world.directory, tenant.id, "laptop").await;
    assert_ne!(again.node, laptop.node);
    let listed = world.directory.nodes().list(tenant.id).await.unwrap();
    assert_eq!(listed.iter().filter(|node| node.revoked_at.is_some()).count(), 1);
    let named = world.directory.nodes().get(tenant.id, "laptop").await.unwrap();
    assert_eq!(named.id, again.node);
}

#[tokio::test]
async fn of_two_connections_the_newer_counts_and_the_older_s_end_changes_nothing() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let (laptop, _) = known(&world.directory, tenant.id, "laptop").await;
    let (older, newer) = (Uuid::now_v7(), Uuid::now_v7());
    let stands = async |connection| {
        world.directory.nodes().connection_state(&laptop, connection).await.unwrap()
    };
    let said = NodeReport {
        platform: "linux".into(),
        version: "1".into(),
        commands: vec!["git *".into()],
    };

    world.directory.nodes().record_connection(&laptop, older, NodeReport::default()).await.unwrap();
    assert_eq!(stands(older).await, NodeConnectionState::Current);
    world.directory.nodes().record_connection(&laptop, newer, said.clone()).await.unwrap();
    world.directory.nodes().record_disconnection(&laptop, older).await.unwrap();

    assert_eq!(stands(older).await, NodeConnectionState::Replaced);
    assert_eq!(stands(newer).await, NodeConnectionState::Current);
    let node = world.directory.nodes().get(tenant.id, "laptop").await.unwrap();
    assert_eq!((node.report, node.may_be_connected), (said, true));
    world.directory.nodes().revoke(tenant.id, BY, &laptop.node.to_string()).await.unwrap();
    assert_eq!(stands(newer).await, NodeConnectionState::Revoked);
    let late =
        world.directory.nodes().record_connection(&laptop, newer, NodeReport::default()).await;
    assert!(matches!(late, Err(Error::KeyNotActive)));
    world.directory.nodes().record_disconnection(&laptop, newer).await.unwrap();
    let node = world.directory.nodes().get(tenant.id, &laptop.node.to_string()).await.unwrap();
    assert!(!node.may_be_connected && node.last_seen_at.is_some());
}

#[tokio::test]
async fn another_tenant_has_nodes_of_its_own_by_the_same_names() {
    let world = World::new().await;
    let (ours, _) = world.tenant("acme").await;
    let (theirs, _) = world.tenant("other").await;
    let (laptop, _) = known(&world.directory, ours.id, "laptop").await;

    assert!(world.directory.nodes().list(theirs.id).await.unwrap().is_empty());
    for named in ["laptop".to_owned(), laptop.node.to_string()] {
        let missing = world.directory.nodes().get(theirs.id, &named).await.unwrap_err();
        assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
        let missing = world.directory.nodes().revoke(theirs.id, BY, &named).await.unwrap_err();
        assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
    }
    known(&world.directory, theirs.id, "laptop").await;
    let taken = world.directory.nodes().create(ours.id, BY, new("laptop")).await.unwrap_err();
    assert!(matches!(taken, Error::Taken { .. }), "{taken}");
    let foreign = AuthenticatedNode { tenant: theirs.id, ..laptop.clone() };
    assert_eq!(
        world.directory.nodes().connection_state(&foreign, Uuid::now_v7()).await.unwrap(),
        NodeConnectionState::Revoked
    );
}
