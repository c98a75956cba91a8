//! Keys that talk to one agent, and keys for web pages of certain origins.

use holdfast_proto::gateway::v1::{
    self as pb, agents_client::AgentsClient, keys_client::KeysClient,
    schedules_client::SchedulesClient, sessions_client::SessionsClient,
};
use http::StatusCode;
use serde_json::{Value, json};
use tonic::Code;

use crate::world::{Tenant, World, message};

/// A key that is made through the API.
async fn key(world: &World, request: pb::CreateKeyRequest) -> Tenant {
    let mut keys = KeysClient::new(world.channel().await.unwrap());
    let made = keys.create_key(world.anna.request(request)).await.unwrap().into_inner();
    world.anna.by(&made.secret)
}

/// Code with which a key is not made.
async fn refusal(world: &World, request: pb::CreateKeyRequest) -> Code {
    let mut keys = KeysClient::new(world.channel().await.unwrap());
    keys.create_key(world.anna.request(request)).await.unwrap_err().code()
}

fn for_page(scope: &str) -> pb::CreateKeyRequest {
    pb::CreateKeyRequest {
        name: "page".to_owned(),
        scopes: vec![scope.to_owned()],
        ..pb::CreateKeyRequest::default()
    }
}

async fn make_agent(world: &World, name: &str) {
    let mut agents = AgentsClient::new(world.channel().await.unwrap());
    let agent = Some(pb::Agent { name: name.to_owned(), ..pb::Agent::default() });
    let create = pb::CreateAgentRequest { agent };
    agents.create_agent(world.anna.request(create)).await.unwrap();
}

#[tokio::test]
async fn a_key_of_one_agent_reaches_no_other() {
    let world = World::start().await.unwrap();
    make_agent(&world, "coach").await;
    for scope in ["chat", "guest"] {
        let request = pb::CreateKeyRequest { agent: "coach".to_owned(), ..for_page(scope) };
        let of_coach = key(&world, request).await;

        // Without an agent, and by its name.
        let say = |agent: &str| pb::SendRequest { agent: agent.to_owned(), ..message("hello") };
        for agent in ["", "coach"] {
            let sent = world.send(&of_coach, say(agent)).await.unwrap();
            let session = sent.session_id.parse().unwrap();
            let view = world.sessions.views().session(world.anna.id, session).await.unwrap();
            assert!(view.key.starts_with("agent:coach:api:"), "{}", view.key);
        }
        let refused = world.send(&of_coach, say("main")).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(refused.message().contains("`coach`"), "{refused}");
        let by_key = pb::SendRequest { session: "agent:main:api:anna".into(), ..message("hello") };
        let refused = world.send(&of_coach, by_key).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");

        let listed = world.get(&of_coach, "/v1/models").send().await.unwrap();
        let listed: Value = listed.json().await.unwrap();
        let names = listed["data"].as_array().unwrap().iter().map(|model| &model["id"]);
        assert_eq!(names.collect::<Vec<_>>(), ["holdfast", "holdfast/coach"]);
        for (model, status) in [
            ("holdfast", StatusCode::OK),
            ("holdfast/coach", StatusCode::OK),
            ("holdfast/main", StatusCode::FORBIDDEN),
        ] {
            let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
            let answer = world.post(&of_coach, "/v1/chat/completions").json(&body).send().await;
            assert_eq!(answer.unwrap().status(), status, "{model}");
        }
    }

    let request = pb::CreateKeyRequest { agent: "coach".to_owned(), ..for_page("chat") };
    let of_coach = key(&world, request).await;
    let other = key(&world, for_page("chat")).await;
    let named = |name: &str| pb::SendRequest { session: name.to_owned(), ..message("hello") };
    let in_main = world.send(&other, named("trip")).await.unwrap().session_id;
    let refused = world.send(&of_coach, named(&in_main)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let mut sessions = SessionsClient::new(world.channel().await.unwrap());
    let delete = pb::DeleteSessionRequest { session: in_main };
    let refused = sessions.delete_session(of_coach.request(delete)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let mut schedules = SchedulesClient::new(world.channel().await.unwrap());
    let remind = |agent: &str| pb::AddReminderRequest {
        user: "api:anna".to_owned(),
        agent: agent.to_owned(),
        time: "in 2 hours".to_owned(),
        content: "tea".to_owned(),
        ..pb::AddReminderRequest::default()
    };
    schedules.add_reminder(of_coach.request(remind(""))).await.unwrap();
    let refused = schedules.add_reminder(of_coach.request(remind("main"))).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
}

#[tokio::test]
async fn a_key_of_one_agent_has_no_other_scopes_and_ends_with_its_agent() {
    let world = World::start().await.unwrap();
    make_agent(&world, "coach").await;
    let of_coach = || pb::CreateKeyRequest { agent: "coach".to_owned(), ..for_page("chat") };
    for scope in ["read", "admin", "owner"] {
        let scopes = vec!["chat".to_owned(), scope.to_owned()];
        let with_scope = pb::CreateKeyRequest { scopes, ..of_coach() };
        assert_eq!(refusal(&world, with_scope).await, Code::InvalidArgument, "{scope}");
    }
    let of_nobody = pb::CreateKeyRequest { agent: "nobody".to_owned(), ..for_page("chat") };
    assert_eq!(refusal(&world, of_nobody).await, Code::NotFound);
    let bens = world.directory.agents().list(world.ben.id).await.unwrap()[0].id.to_string();
    let of_ben = pb::CreateKeyRequest { agent: bens, ..for_page("chat") };
    assert_eq!(refusal(&world, of_ben).await, Code::NotFound);

    let of_coach = key(&world, of_coach()).await;
    let mut keys = KeysClient::new(world.channel().await.unwrap());
    let listed = keys.list_keys(world.anna.request(pb::ListKeysRequest {})).await.unwrap();
    let shown = listed.into_inner().keys.into_iter().find(|key| key.agent == "coach").unwrap();
    assert_eq!((shown.name.as_str(), shown.scopes.as_slice()), ("page", &["chat".to_owned()][..]));
    let mut agents = AgentsClient::new(world.channel().await.unwrap());
    let delete = pb::DeleteAgentRequest { agent: "coach".to_owned() };
    agents.delete_agent(world.anna.request(delete)).await.unwrap();
    let refused = world.send(&of_coach, message("hello")).await.unwrap_err();
    assert!(
        matches!(refused.code(), Code::Unauthenticated | Code::NotFound | Code::InvalidArgument),
        "{refused}"
    );
}

#[tokio::test]
async fn a_key_for_pages_of_an_origin_is_refused_elsewhere() {
    let world = World::start().await.unwrap();
    let origins = vec!["https://Shop.example/".to_owned(), "http://localhost:8080".to_owned()];
    let of_page = key(&world, pb::CreateKeyRequest { origins, ..for_page("guest") }).await;
    let ask = async |origin: Option<&str>| {
        let body = json!({"model": "holdfast", "messages": [{"role": "user", "content": "hi"}]});
        let mut request = world.post(&of_page, "/v1/chat/completions").json(&body);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        request.send().await.unwrap().status()
    };

    for origin in ["https://shop.example", "http://localhost:8080"] {
        assert_eq!(ask(Some(origin)).await, StatusCode::OK, "{origin}");
    }
    for origin in [
        None,
        Some("null"),
        Some("http://shop.example"),
        Some("https://shop.example:8443"),
        Some("https://shop.example.evil.example"),
        Some("https://evil.example"),
    ] {
        assert_eq!(ask(origin).await, StatusCode::FORBIDDEN, "{origin:?}");
    }
    let refused = world.send(&of_page, message("hello")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let wrong = vec!["shop.example".to_owned()];
    let no_origin = pb::CreateKeyRequest { origins: wrong, ..for_page("guest") };
    assert_eq!(refusal(&world, no_origin).await, Code::InvalidArgument);
}
