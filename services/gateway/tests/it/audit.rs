//! The audit log of administrative calls.

use holdfast_proto::gateway::v1::{
    self as pb, AuditEvent, ListAuditEventsRequest, agents_client::AgentsClient,
    audit_client::AuditClient, files_client::FilesClient, keys_client::KeysClient,
    mcp_servers_client::McpServersClient, providers_client::ProvidersClient,
    schedules_client::SchedulesClient, sessions_client::SessionsClient,
};
use holdfast_testkit::FakeIssuer;
use serde_json::{Value, json};
use tonic::{Code, Response};

use crate::{
    people::trust,
    world::{Tenant, World},
};

async fn events(world: &World, of: &Tenant, filter: ListAuditEventsRequest) -> Vec<AuditEvent> {
    let mut audit = AuditClient::new(world.channel().await.unwrap());
    audit.list_audit_events(of.request(filter)).await.unwrap().into_inner().events
}

/// The newest events of a method.
async fn by_method(world: &World, of: &Tenant, method: &str) -> Vec<AuditEvent> {
    events(world, of, ListAuditEventsRequest { action: method.to_owned(), ..Default::default() })
        .await
}

fn changes(event: &AuditEvent) -> Value {
    serde_json::from_str(&event.changes).unwrap()
}

fn request_id<T>(response: &Response<T>) -> String {
    response.metadata().get("x-request-id").unwrap().to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_change_is_recorded_with_its_author_and_the_rows_before_and_after() {
    let issuer = FakeIssuer::start().await.unwrap();
    let url = issuer.url();
    let world = World::start_with(|config| trust(config, &url)).await.unwrap();
    let token = issuer.token(json!({
        "sub": "7", "name": "Anna A", "org": "anna", "groups": ["operator"],
    }));
    let operator = world.anna.by(&token);
    let mut agents = AgentsClient::new(world.channel().await.unwrap());
    let agent = pb::Agent { name: "coach".into(), description: "old".into(), ..Default::default() };
    let create = pb::CreateAgentRequest { agent: Some(agent.clone()) };
    let made = agents.create_agent(operator.request(create)).await.unwrap().into_inner();
    let agent = pb::Agent { description: "new".into(), ..made.agent.unwrap() };
    let update = pb::UpdateAgentRequest { agent: Some(agent.clone()), base_version: None };
    let updated = agents.update_agent(operator.request(update)).await.unwrap();

    let event = &by_method(&world, &world.anna, "Agents/UpdateAgent").await[0];
    assert!(event.actor.starts_with("per_"), "{event:?}");
    assert_eq!(
        (event.actor_name.as_str(), event.action.as_str(), event.subject.as_str()),
        ("Anna A", "agent.update", agent.id.as_str())
    );
    assert_eq!((event.outcome.as_str(), &event.request_id), ("ok", &request_id(&updated)));
    let changed = &changes(event)[0];
    assert_eq!(changed["table"], "control.agents");
    assert_eq!(
        (&changed["before"]["description"], &changed["after"]["description"]),
        (&json!("old"), &json!("new"))
    );
    assert_eq!(
        by_method(&world, &world.ben, "").await.iter().filter(|e| e.actor == event.actor).count(),
        0
    );
}

#[tokio::test]
async fn neither_secrets_nor_messages_are_recorded() {
    let world = World::start().await.unwrap();
    let mut providers = ProvidersClient::new(world.channel().await.unwrap());
    let provider =
        pb::Provider { name: "openai".into(), kind: "openai".into(), ..Default::default() };
    let put = pb::PutProviderRequest {
        provider: Some(provider),
        api_key: "sk-hush-hush".into(),
        ..Default::default()
    };
    providers.put_provider(world.anna.request(put)).await.unwrap();
    let mut servers = McpServersClient::new(world.channel().await.unwrap());
    let server = pb::McpServer {
        name: "shed".into(),
        transport: "http".into(),
        url: "https://mcp.example.com/?token=hush-url".into(),
        ..Default::default()
    };
    let put = pb::PutMcpServerRequest { server: Some(server), ..Default::default() };
    drop(servers.put_mcp_server(world.anna.request(put)).await);
    let mut keys = KeysClient::new(world.channel().await.unwrap());
    let create = pb::CreateKeyRequest {
        name: "ci".into(),
        scopes: vec!["chat".into()],
        ..Default::default()
    };
    let secret = keys.create_key(world.anna.request(create)).await.unwrap().into_inner().secret;
    let revoke = pb::RevokeKeyRequest { id: secret.clone() };
    keys.revoke_key(world.anna.request(revoke)).await.unwrap_err();

    let all = events(&world, &world.anna, ListAuditEventsRequest::default()).await;
    let put = all.iter().find(|event| event.method == "Providers/PutProvider").unwrap();
    assert_eq!(changes(put)[0]["hidden"], json!(["api_key"]));
    let shown = format!("{all:?}");
    assert!(!shown.contains("hush") && !shown.contains(&secret), "{shown}");
}

#[tokio::test]
async fn a_refused_call_is_recorded_with_its_outcome() {
    let world = World::start().await.unwrap();
    let reader = world.anna.by(&world.key(&world.anna, &["read"], None).await.unwrap());
    let mut agents = AgentsClient::new(world.channel().await.unwrap());
    let delete = pb::DeleteAgentRequest { agent: "main".into() };
    let refused = agents.delete_agent(reader.request(delete)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let delete = pb::DeleteAgentRequest { agent: "nobody".into() };
    agents.delete_agent(world.anna.request(delete)).await.unwrap_err();

    let events = by_method(&world, &world.anna, "Agents/DeleteAgent").await;
    let told: Vec<_> = events
        .iter()
        .map(|e| (e.outcome.as_str(), e.subject.as_str(), e.changes.as_str()))
        .collect();
    assert_eq!(told, [("not_found", "nobody", ""), ("permission_denied", "", "")]);
    assert_eq!(events[1].actor_name, "test");

    // Reading needs the role of an owner, or the scope `admin`.
    let mut audit = AuditClient::new(world.channel().await.unwrap());
    let list = ListAuditEventsRequest::default();
    let refused = audit.list_audit_events(reader.request(list)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn changes_of_every_part_of_the_platform_are_recorded_once() {
    let world = World::start().await.unwrap();
    let mut schedules = SchedulesClient::new(world.channel().await.unwrap());
    let job = json!({
        "name": "water", "schedule": {"kind": "every", "everyMs": 3_600_000},
        "payload": {"kind": "systemEvent", "text": "words to an agent"},
    });
    let job = pb::AddJobRequest { job: job.to_string(), ..Default::default() };
    schedules.add_job(world.anna.request(job)).await.unwrap();
    let mut files = FilesClient::new(world.channel().await.unwrap());
    let write = pb::WriteFileRequest {
        path: "notes.md".into(),
        content: b"words that nobody else reads".to_vec(),
        ..Default::default()
    };
    files.write_file(world.anna.request(write)).await.unwrap();
    world.say(&world.anna, "trip", "hello").await.unwrap();
    let mut sessions = SessionsClient::new(world.channel().await.unwrap());
    let session = "agent:main:api:trip".to_owned();
    let delete = pb::DeleteSessionRequest { session: session.clone() };
    sessions.delete_session(world.anna.request(delete)).await.unwrap();

    let added = by_method(&world, &world.anna, "Schedules/AddJob").await;
    assert_eq!(added.len(), 1, "{added:?}");
    assert_eq!(added[0].action, "job.insert");
    assert!(added[0].changes.contains(r#""kind":"every""#), "{added:?}");
    for said in ["water", "words"] {
        assert!(!added[0].changes.contains(said), "{added:?}");
    }
    let written = by_method(&world, &world.anna, "Files/WriteFile").await;
    // The first write also makes the agent's first files.
    let by_whom: Vec<bool> =
        written.iter().map(|event| event.changes.contains(r#""author":"holdfast""#)).collect();
    assert_eq!(by_whom, [false, true], "{written:?}");
    assert_eq!(written[0].action, "files.insert");
    assert!(!written[0].changes.contains("nobody else"), "{written:?}");
    let deleted = by_method(&world, &world.anna, "Sessions/DeleteSession").await;
    assert_eq!(deleted.len(), 1, "{deleted:?}");
    assert_eq!(
        (deleted[0].subject.as_str(), deleted[0].outcome.as_str()),
        (session.as_str(), "ok")
    );
}

#[tokio::test]
async fn a_cursor_walks_through_all_events_once() {
    let world = World::start().await.unwrap();
    for _ in 0..7 {
        world.key(&world.anna, &["chat"], None).await.unwrap();
    }
    let mut audit = AuditClient::new(world.channel().await.unwrap());
    let (mut seen, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListAuditEventsRequest { limit: 3, page_token, ..Default::default() };
        let page = audit.list_audit_events(world.anna.request(request)).await.unwrap().into_inner();
        seen.extend(page.events.into_iter().map(|event| event.id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }

    let mut sorted = seen.clone();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.reverse();
    assert_eq!((seen.len(), &seen), (8, &sorted), "a tenant's creation and seven keys");
}
