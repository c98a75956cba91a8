//! Endpoints for probes, operators and tools.

use std::time::Duration;

use holdfast_proto::gateway::v1::SendRequest;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::world::{PATIENCE, World, message};

#[tokio::test]
async fn probes_need_no_key() {
    let world = World::start().await.unwrap();

    let alive = world.client.get(world.url("/healthz")).send().await.unwrap();
    let ready = world.client.get(world.url("/readyz")).send().await.unwrap();
    let mut health = HealthClient::new(world.channel().await.unwrap());
    let by_grpc = health.check(HealthCheckRequest::default()).await.unwrap().into_inner();

    assert_eq!(
        (alive.status(), alive.text().await.unwrap().as_str()),
        (200.try_into().unwrap(), "ok\n")
    );
    assert_eq!(ready.text().await.unwrap(), "ready\n");
    assert_eq!(by_grpc.status, 1);
}

#[tokio::test]
async fn the_contracts_can_be_asked_for() {
    let world = World::start().await.unwrap();
    let mut client = ServerReflectionClient::new(world.channel().await.unwrap());

    let request = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..ServerReflectionRequest::default()
    };
    let answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap();
    let answer = answers.into_inner().message().await.unwrap().unwrap();

    let Some(MessageResponse::ListServicesResponse(services)) = answer.message_response else {
        panic!("{answer:?}")
    };
    let names: Vec<&str> = services.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&"holdfast.gateway.v1.Messages"), "{names:?}");
    assert!(names.contains(&"grpc.health.v1.Health"), "{names:?}");
}

#[tokio::test]
async fn calls_are_counted_by_door_and_outcome() {
    let world = World::start().await.unwrap();
    world.send(&world.anna, message("hi")).await.unwrap();
    world.send(&world.anna, SendRequest::default()).await.unwrap_err();
    world.say(&world.anna, "u", "hi").await.unwrap();

    let lines = [
        "holdfast_gateway_requests_total{door=\"grpc\",outcome=\"ok\"} ",
        "holdfast_gateway_requests_total{door=\"grpc\",outcome=\"invalid\"} ",
        "holdfast_gateway_requests_total{door=\"http\",outcome=\"ok\"} ",
        "holdfast_gateway_ingest_duration_seconds_bucket",
        "holdfast_gateway_open_calls ",
    ];
    // A call is counted after it ends, which its caller may notice a moment earlier.
    let counted = async {
        loop {
            let shown = world.client.get(world.url("/metrics")).send().await.unwrap();
            let shown = shown.text().await.unwrap();
            if lines.iter().all(|line| shown.contains(line)) {
                break shown;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let shown = tokio::time::timeout(PATIENCE, counted).await.unwrap();
    assert!(!shown.contains(&world.anna.id.as_uuid().simple().to_string()));
}
