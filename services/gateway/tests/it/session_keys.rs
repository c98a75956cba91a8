//! Session keys of every documented form name one session, under its canonical key.

use holdfast_directory::{Actor, NewAgent};
use holdfast_proto::gateway::v1::{
    GetSessionRequest, SendRequest, sessions_client::SessionsClient,
};
use holdfast_types::AgentName;

use crate::world::{World, message};

async fn key_of(world: &World, session: &str) -> String {
    let mut client = SessionsClient::new(world.channel().await.unwrap());
    let get = GetSessionRequest { session: session.to_owned() };
    let found = client.get_session(world.anna.request(get)).await.unwrap().into_inner();
    found.session.unwrap().key
}

#[tokio::test]
async fn a_session_is_found_by_every_form_of_its_key() {
    let world = World::start().await.unwrap();
    for (forms, canonical) in [
        (["telegram:dm:Ab7", "agent:MAIN:Telegram:direct:Ab7"], "agent:main:dm:telegram:Ab7"),
        (
            ["slack:group:G1:user:U1", "agent:main:group:SLACK:G1:user:U1"],
            "agent:main:group:slack:G1:user:U1",
        ),
        (["slack:group:G2", "agent:main:slack:channel:G2"], "agent:main:group:slack:G2"),
        (["agent:main:direct:Ab7", "agent:Main:dm:any:Ab7"], "agent:main:dm:any:Ab7"),
        (
            ["agent:main:telegram:Bot:direct:Ab7", "agent:main:dm:telegram:bot:Ab7"],
            "agent:main:dm:telegram:bot:Ab7",
        ),
    ] {
        let request = SendRequest { session: canonical.to_owned(), ..message("hi") };
        let first = world.send(&world.anna, request).await.unwrap();
        for form in forms {
            let request = SendRequest { session: form.to_owned(), ..message("hi again") };
            let again = world.send(&world.anna, request).await.unwrap();
            assert_eq!(again.session_id, first.session_id, "{form}");
            assert_eq!(key_of(&world, form).await, canonical, "{form}");
        }
    }
}

#[tokio::test]
async fn a_key_without_an_agent_is_one_of_the_default_agent() {
    let world = World::start().await.unwrap();
    let coach = NewAgent { name: AgentName::new("coach"), is_default: true, ..NewAgent::default() };
    world.directory.agents().create(world.anna.id, Actor::Operator, coach).await.unwrap();
    // The gateway caches a tenant's agents for a second.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;

    let request = SendRequest { session: "telegram:dm:7".to_owned(), ..message("hi") };
    let sent = world.send(&world.anna, request).await.unwrap();

    assert_eq!(key_of(&world, &sent.session_id).await, "agent:coach:dm:telegram:7");
    assert_eq!(key_of(&world, "telegram:dm:7").await, "agent:coach:dm:telegram:7");
}
