//! Connections of people, keys and sessions whose rights are taken away.

use std::time::Duration;

use futures::future::BoxFuture;
use gateway::Config;
use holdfast_bus::Bus;
use holdfast_directory::{Actor, TenantEvent};
use holdfast_proto::gateway::v1::{
    ListPeopleRequest, SetPersonStateRequest, people_client::PeopleClient,
};
use holdfast_testkit::FakeIssuer;
use serde_json::{Value, json};

use super::client::Client;
use crate::{people::trust, world::World};

/// Leaves it to hints to end connections: no tick comes.
pub fn without_ticks(config: &mut Config) {
    config.gateway.websocket.tick_interval = Duration::from_secs(3_600);
}

/// Tells gateways of the events of tenants, as the runner with the duty of upkeep does.
pub async fn relay(world: &World) {
    fn tell(bus: &Bus, events: &[TenantEvent]) -> usize {
        for event in events.iter().filter(|event| event.may_revoke_access()) {
            bus.wake_access(&[event.tenant]);
        }
        events.len()
    }
    let bus = world.bus().await.unwrap();
    let publish = |events: &[TenantEvent]| -> BoxFuture<'static, usize> {
        let told = tell(&bus, events);
        Box::pin(async move { told })
    };
    world.directory.tenant_events().relay(100, publish).await.unwrap();
    bus.flush().await;
}

pub async fn is_closed(client: &mut Client) {
    let closed = client.closed().await.unwrap().expect("a reason");
    assert_eq!(closed.reason.as_str(), "the credential is no longer valid");
}

async fn is_open(client: &mut Client) {
    assert!(client.call("health", json!({})).await.unwrap().is_ok());
}

async fn newest_key(world: &World) -> holdfast_types::KeyId {
    world.directory.keys().list(world.anna.id).await.unwrap().last().unwrap().id
}

fn token(issuer: &FakeIssuer, subject: &str, role: &str) -> String {
    let claims: Value = json!({"sub": subject, "org": "anna", "groups": [role], "name": subject});
    issuer.token(claims)
}

#[tokio::test]
async fn a_disabled_person_is_disconnected_at_once_and_nobody_else() {
    let issuer = FakeIssuer::start().await.unwrap();
    let url = issuer.url();
    let world = World::start_with(|config| {
        trust(config, &url);
        without_ticks(config);
    });
    let world = world.await.unwrap();
    let open = async |token: &str| Client::openclaw(world.http, token).await.unwrap();
    let mut cleo = open(&token(&issuer, "cleo", "member")).await;
    let mut dora = open(&token(&issuer, "dora", "member")).await;
    // The sign-ins are events, too.
    relay(&world).await;
    let mut key = open(&world.anna.key).await;
    let mut ben = open(&world.ben.key).await;
    let mut people = PeopleClient::new(world.channel().await.unwrap());
    let listed = people.list_people(world.anna.request(ListPeopleRequest::default())).await;
    let listed = listed.unwrap().into_inner().people;
    let id = listed.into_iter().find(|person| person.name == "cleo").unwrap().id;
    is_open(&mut cleo).await;

    let request = SetPersonStateRequest { id, disabled: true };
    people.set_person_state(world.anna.request(request)).await.unwrap();
    relay(&world).await;

    is_closed(&mut cleo).await;
    for client in [&mut dora, &mut key, &mut ben] {
        is_open(client).await;
    }
}

#[tokio::test]
async fn a_key_that_is_revoked_by_another_process_disconnects_its_holder_at_once() {
    let world = World::start_with(without_ticks).await.unwrap();
    let secret = world.key(&world.anna, &["chat", "read"], None).await.unwrap();
    let mut revoked = Client::openclaw(world.http, &secret).await.unwrap();
    let mut other = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    // The gateway has the key in its cache.
    is_open(&mut revoked).await;
    let key = newest_key(&world).await;

    world.directory.keys().revoke(world.anna.id, Actor::Operator, key).await.unwrap();
    relay(&world).await;

    is_closed(&mut revoked).await;
    is_open(&mut other).await;
}

#[tokio::test]
async fn tokens_of_a_person_with_different_roles_do_not_change_the_stored_role_by_turns() {
    let issuer = FakeIssuer::start().await.unwrap();
    let url = issuer.url();
    let world = World::start_with(|config| trust(config, &url)).await.unwrap();
    let (owner, viewer) = (token(&issuer, "cleo", "owner"), token(&issuer, "cleo", "viewer"));
    let mut first = Client::openclaw(world.http, &owner).await.unwrap();
    let mut second = Client::openclaw(world.http, &viewer).await.unwrap();
    let changes = "select count(*) from control.audit where action = 'person.role'";
    assert_eq!(world.number(changes).await.unwrap(), 1);

    relay(&world).await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    assert_eq!(world.number(changes).await.unwrap(), 1);
    is_open(&mut second).await;
    is_open(&mut first).await;
}
