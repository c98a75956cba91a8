//! Authentication, scopes and rate limits of keys.

use std::time::Duration;

use holdfast_directory::{Actor, TenantChanges, TenantState};
use holdfast_grpc::retry_after;
use holdfast_proto::gateway::v1::{AcceptRequest, ingest_client::IngestClient};
use serde_json::Value;
use tonic::Code;

use crate::world::{Tenant, World, message};

/// Responses of gRPC and HTTP to a key: the code, the status, and whether both messages are equal.
async fn knock(world: &World, key: &str) -> (Code, u16, String) {
    let who = world.anna.by(key);
    let by_grpc = world.send(&who, message("hi")).await.unwrap_err();
    let by_http = world.get(&who, "/v1/models").send().await.unwrap();
    let status = by_http.status().as_u16();
    let told: Value = by_http.json().await.unwrap();
    assert_eq!(told["error"]["message"], by_grpc.message());
    (by_grpc.code(), status, by_grpc.message().to_owned())
}

/// `hf_<id>` and the secret, which may have a `_` of its own.
fn parts(key: &str) -> (&str, &str) {
    let (at, _) = key.match_indices('_').nth(1).unwrap();
    (&key[..at], &key[at + 1..])
}

#[tokio::test]
async fn a_key_that_is_none_gets_nobody_in() {
    let world = World::start().await.unwrap();
    let good = &world.anna.key;
    let (id, secret) = parts(good);
    let mut wrong: Vec<char> = secret.chars().collect();
    wrong[5] = if wrong[5] == 'A' { 'B' } else { 'A' };
    let wrong = format!("{id}_{}", wrong.into_iter().collect::<String>());
    // Anna's secret under Ben's id.
    let mixed = format!("{}_{secret}", parts(&world.ben.key).0);

    for key in ["x", "hf_", "hf_x_y", "sk-12345678", wrong.as_str(), mixed.as_str()] {
        let (code, status, told) = knock(&world, key).await;

        assert_eq!((code, status), (Code::Unauthenticated, 401), "{key}: {told}");
        assert!(!told.contains(secret));
    }
    let none = world.client.get(world.url("/v1/models")).send().await.unwrap();
    assert_eq!(none.status(), 401);
    assert!(none.text().await.unwrap().contains("Bearer hf_"));
}

#[tokio::test]
async fn a_key_that_ended_gets_nobody_in() {
    let world = World::start().await.unwrap();
    let expiring = world.key(&world.anna, &["chat"], Some(Duration::from_secs(1))).await.unwrap();
    let revoked = world.key(&world.anna, &["chat"], None).await.unwrap();
    let keys = world.directory.keys().list(world.anna.id).await.unwrap();
    let revoke = keys.iter().filter(|key| key.name == "test" && key.expires_at.is_none());
    for key in revoke {
        world.directory.keys().revoke(world.anna.id, Actor::Operator, key.id).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(1200)).await;

    for key in [expiring, revoked] {
        let (code, status, told) = knock(&world, &key).await;

        assert_eq!((code, status), (Code::Unauthenticated, 401), "{told}");
        assert!(told.contains("revoked or has expired"), "{told}");
    }
}

#[tokio::test]
async fn a_suspended_tenant_is_refused() {
    let world = World::start().await.unwrap();
    let changes = TenantChanges { state: Some(TenantState::Suspended), ..Default::default() };
    world.directory.tenants().update(world.anna.id, Actor::Operator, changes).await.unwrap();

    let (code, status, told) = knock(&world, &world.anna.key).await;

    assert_eq!((code, status), (Code::PermissionDenied, 403), "{told}");
    world.send(&world.ben, message("hi")).await.unwrap();
}

#[tokio::test]
async fn a_key_reaches_as_far_as_its_scopes() {
    let world = World::start().await.unwrap();
    let reader = world.anna.by(&world.key(&world.anna, &["read"], None).await.unwrap());

    let by_grpc = world.send(&reader, message("hi")).await.unwrap_err();
    let by_http = world.post(&reader, "/v1/responses").body("{}").send().await.unwrap();

    assert_eq!(by_grpc.code(), Code::PermissionDenied);
    assert!(by_grpc.message().contains("`chat`") && by_grpc.message().contains("`read`"));
    assert_eq!(by_http.status(), 403);
    assert_eq!(world.get(&reader, "/v1/models").send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_tenant_that_calls_too_often_is_told_when_to_come_back_and_others_are_not() {
    let world = World::start().await.unwrap();
    // One call per half minute: the bucket does not refill during the test.
    let changes = TenantChanges { rate: Some(2), ..Default::default() };
    world.directory.tenants().update(world.anna.id, Actor::Operator, changes).await.unwrap();
    let other = world.anna.by(&world.key(&world.anna, &["chat"], None).await.unwrap());

    world.send(&world.anna, message("1")).await.unwrap();
    // While Redis is slow the gateway counts by itself: each change permits one call more.
    let mut by_grpc = world.send(&other, message("2")).await;
    for _ in 0..3 {
        if by_grpc.is_ok() {
            by_grpc = world.send(&other, message("2")).await;
        }
    }
    let by_grpc = by_grpc.unwrap_err();
    let get = async || world.get(&world.anna, "/v1/models").send().await.unwrap();
    let mut by_http = get().await;
    for _ in 0..3 {
        if by_http.status() == 200 {
            by_http = get().await;
        }
    }

    assert_eq!(by_grpc.code(), Code::ResourceExhausted, "{}", by_grpc.message());
    let after = retry_after(&by_grpc).unwrap();
    // Shorter by the duration of the calls.
    assert!(after <= Duration::from_secs(30) && after > Duration::ZERO, "{after:?}");
    assert_eq!(by_http.status(), 429);
    let seconds: u64 = by_http.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=30).contains(&seconds), "{seconds}");
    world.send(&world.ben, message("hi")).await.unwrap();
}

#[tokio::test]
async fn handing_over_is_for_the_mesh_and_a_key_is_refused_there() {
    let world = World::start().await.unwrap();
    let accept = async |who: &Tenant| {
        let mut client = IngestClient::new(world.channel().await.unwrap());
        client.accept(who.request(AcceptRequest::default())).await.unwrap_err()
    };

    let refused = accept(&world.anna).await;

    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("`service`"), "{}", refused.message());
}
