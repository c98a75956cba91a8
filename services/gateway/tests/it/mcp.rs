//! The platform as an MCP server, used by the official SDK's client; and probes of MCP servers.

use std::{sync::Arc, time::Duration};

use holdfast_proto::gateway::v1::{self as pb, mcp_servers_client::McpServersClient};
use rmcp::{
    ClientHandler, RoleClient, ServiceExt as _,
    model::{CallToolRequestParams, CallToolResult, ProgressNotificationParam},
    service::{ClientLifecycleMode, ClientServiceExt as _, NotificationContext, RunningService},
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tonic::Code;

use crate::world::{PATIENCE, Tenant, World};

/// Client of the official SDK that records progress notifications.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<String>>>);

impl ClientHandler for Listener {
    async fn on_progress(
        &self,
        told: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.0.lock().await.push(told.message.unwrap_or_default());
    }
}

type Connected = RunningService<RoleClient, Listener>;

fn transport(world: &World, key: &str) -> StreamableHttpClientTransport<reqwest::Client> {
    let config = StreamableHttpClientTransportConfig::with_uri(world.url("/mcp")).auth_header(key);
    StreamableHttpClientTransport::with_client(world.client.clone(), config)
}

async fn connect(world: &World, who: &Tenant) -> anyhow::Result<Connected> {
    Ok(Listener::default().serve(transport(world, &who.key)).await?)
}

async fn tool(client: &Connected, name: &str, input: Value) -> anyhow::Result<CallToolResult> {
    let input = input.as_object().cloned().unwrap_or_default();
    let params = CallToolRequestParams::new(name.to_owned()).with_arguments(input);
    Ok(tokio::time::timeout(PATIENCE, client.call_tool(params)).await??)
}

fn text(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|part| part.as_text());
    texts.map(|text| text.text.clone()).collect()
}

/// Text of a successful call.
async fn told(client: &Connected, name: &str, input: Value) -> anyhow::Result<String> {
    let result = tool(client, name, input).await?;
    anyhow::ensure!(result.is_error != Some(true), "{}", text(&result));
    Ok(text(&result))
}

#[tokio::test]
async fn an_agent_is_asked_and_its_conversation_read() {
    let world = World::start().await.unwrap();
    let client = connect(&world, &world.anna).await.unwrap();

    let about = client.peer_info().unwrap();
    let answer = told(&client, "ask", json!({"message": "hi", "session": "s"})).await.unwrap();
    let again = json!({"message": "history", "session": "s", "request_id": "1"});
    let history = told(&client, "ask", again.clone()).await.unwrap();
    let same = told(&client, "ask", again).await.unwrap();
    let read = told(&client, "read_history", json!({"session": "s"})).await.unwrap();
    let sessions = told(&client, "list_sessions", json!({})).await.unwrap();
    let agents = told(&client, "list_agents", json!({})).await.unwrap();

    assert!(about.instructions.as_deref().unwrap_or_default().contains("`ask`"));
    assert_eq!(answer, "echo: hi");
    assert_eq!(history, "user=hi; assistant=echo: hi; user=history");
    assert_eq!(same, history);
    let read: Value = serde_json::from_str(&read).unwrap();
    assert_eq!((&read[0]["kind"], &read[0]["text"]), (&json!("heard"), &json!("hi")));
    assert_eq!(serde_json::from_str::<Value>(&sessions).unwrap().as_array().unwrap().len(), 1);
    assert!(agents.contains(r#""name":"main""#), "{agents}");
}

#[tokio::test]
async fn who_waits_for_an_answer_is_told_how_it_goes() {
    let world = World::start().await.unwrap();
    let listener = Listener::default();
    let client = listener.clone().serve(transport(&world, &world.anna.key)).await.unwrap();

    let answer = told(&client, "ask", json!({"message": "tool please"})).await.unwrap();

    assert_eq!(answer, "echo: tool please");
    let heard = async {
        while !listener.0.lock().await.iter().any(|told| told == "using look") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, heard).await.unwrap();
}

#[tokio::test]
async fn a_client_cannot_decide_an_approval() {
    let world = World::start().await.unwrap();
    let client = connect(&world, &world.anna).await.unwrap();

    for message in [
        "/approve",
        " /APPROVE 1a2b3c4d always",
        "/deny",
        "\u{0}/approve",
        "/elevated full",
        "/elevated on go",
    ] {
        let refused = tool(&client, "ask", json!({"message": message})).await.unwrap();
        assert_eq!(refused.is_error, Some(true), "{message:?}: {}", text(&refused));
        let is_told = text(&refused).contains("a person decides") || message.contains('\u{0}');
        assert!(is_told, "{message:?}: {}", text(&refused));
    }
}

#[tokio::test]
async fn files_are_listed_read_and_written() {
    let world = World::start().await.unwrap();
    let client = connect(&world, &world.anna).await.unwrap();
    let write = json!({"path": "notes/a.md", "content": "first"});

    let written = told(&client, "write_file", write).await.unwrap();
    let read = told(&client, "read_file", json!({"path": "notes/a.md"})).await.unwrap();
    let hash = serde_json::from_str::<Value>(&read).unwrap()["hash"].clone();
    let change = json!({"path": "notes/a.md", "content": "second", "base_hash": hash});
    told(&client, "write_file", change.clone()).await.unwrap();
    let late = tool(&client, "write_file", change).await.unwrap();
    let listed = told(&client, "list_files", json!({"path": "notes"})).await.unwrap();

    assert!(written.contains("revision"), "{written}");
    assert_eq!(serde_json::from_str::<Value>(&read).unwrap()["content"], "first");
    assert_eq!(late.is_error, Some(true), "{}", text(&late));
    assert!(listed.contains("notes/a.md"), "{listed}");
}

#[tokio::test]
async fn a_key_is_shown_what_its_scopes_reach_and_may_do_no_more() {
    let world = World::start().await.unwrap();
    let names = async |scopes: &[&str]| {
        let key = world.key(&world.anna, scopes, None).await.unwrap();
        let client = connect(&world, &world.anna.by(&key)).await.unwrap();
        let tools = client.list_all_tools().await.unwrap();
        let names: Vec<String> = tools.into_iter().map(|tool| tool.name.into_owned()).collect();
        (client, names)
    };

    let (chat, chats) = names(&["chat"]).await;
    let (_, reads) = names(&["read"]).await;
    let (_, all) = names(&["chat", "read", "admin"]).await;

    assert_eq!(chats, ["ask"]);
    assert_eq!(reads.len(), 5, "{reads:?}");
    assert!(all.contains(&"write_file".to_owned()) && all.len() == 7, "{all:?}");
    let refused = tool(&chat, "write_file", json!({"path": "a", "content": "b"})).await;
    assert!(refused.unwrap_err().to_string().contains("no tool `write_file` for this key"));
}

#[tokio::test]
async fn a_foreign_key_sees_nothing_and_no_key_gets_in() {
    let world = World::start().await.unwrap();
    let anna = connect(&world, &world.anna).await.unwrap();
    told(&anna, "ask", json!({"message": "secret", "session": "s"})).await.unwrap();
    told(&anna, "write_file", json!({"path": "a.md", "content": "secret"})).await.unwrap();
    let ben = connect(&world, &world.ben).await.unwrap();

    let sessions = told(&ben, "list_sessions", json!({})).await.unwrap();
    let history = tool(&ben, "read_history", json!({"session": "s"})).await.unwrap();
    let file = tool(&ben, "read_file", json!({"path": "a.md"})).await.unwrap();
    let unknown = Listener::default().serve(transport(&world, "hf_no_key")).await;

    assert_eq!(sessions, "[]");
    assert_eq!((history.is_error, file.is_error), (Some(true), Some(true)));
    assert!(unknown.is_err());
    let none = world.client.post(world.url("/mcp")).body("{}").send().await.unwrap();
    assert_eq!(none.status(), 401);
    assert_eq!(none.headers()["www-authenticate"], "Bearer");
}

#[tokio::test]
async fn a_page_of_another_origin_is_refused_unless_the_operator_lists_it() {
    let allowed = |config: &mut gateway::Config| {
        config.gateway.mcp_origins = vec!["https://app.example:443".to_owned()];
    };
    let world = World::start_with(allowed).await.unwrap();
    let ask = async |origin: &str| {
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
        let post = world.post(&world.anna, "/mcp").header("origin", origin);
        let post = post.header("accept", "application/json, text/event-stream");
        post.json(&list).send().await.unwrap().status().as_u16()
    };

    assert_eq!(ask("https://app.example").await, 200);
    assert_eq!(ask("https://evil.example").await, 403);
    assert_eq!(ask("null").await, 403);
}

#[tokio::test]
async fn what_is_wrong_is_told_and_a_request_has_its_bounds() {
    let world =
        World::start_with(|config| config.gateway.answer_timeout = Duration::from_millis(300));
    let world = world.await.unwrap();
    let client = connect(&world, &world.anna).await.unwrap();

    let no_field = tool(&client, "ask", json!({})).await.unwrap();
    let no_agent = tool(&client, "ask", json!({"message": "x", "agent": "nobody"})).await.unwrap();
    let slow = tool(&client, "ask", json!({"message": "hold on"})).await.unwrap();
    let huge = world.post(&world.anna, "/mcp").body("x".repeat(2 << 20)).send().await.unwrap();

    assert_eq!(text(&no_field), "the input is not right: missing field `message`");
    assert!(text(&no_agent).contains("no agent `nobody`"), "{}", text(&no_agent));
    assert!(text(&slow).contains("the turn goes on"), "{}", text(&slow));
    assert_eq!(huge.status(), 413);
}

#[tokio::test]
async fn the_newest_protocol_is_spoken_too() {
    let world = World::start().await.unwrap();
    let versions = vec![rmcp::model::ProtocolVersion::V_2026_07_28];
    let mode = ClientLifecycleMode::Discover { preferred_versions: versions };
    let transport = transport(&world, &world.anna.key);

    let client = Listener::default().serve_with_lifecycle(transport, mode).await.unwrap();

    assert_eq!(told(&client, "ask", json!({"message": "hi"})).await.unwrap(), "echo: hi");
}

#[tokio::test]
async fn a_server_is_set_up_listed_and_looked_at_and_its_headers_stay_inside() {
    let world = World::start().await.unwrap();
    let mut servers = McpServersClient::new(world.channel().await.unwrap());
    let server = |url: &str| pb::McpServer {
        name: "tools".into(),
        transport: "http".into(),
        url: url.into(),
        agents: vec!["main".into()],
        enabled: true,
        ..Default::default()
    };
    let put = |url: &str, secret: Option<&str>| {
        let secrets = secret.map(|secret| ("Authorization".to_owned(), secret.to_owned()));
        world.anna.request(pb::PutMcpServerRequest {
            server: Some(server(url)),
            secrets: secrets.into_iter().collect(),
            keep_secrets: secret.is_none(),
        })
    };

    let made = servers.put_mcp_server(put("https://a.example/mcp", Some("s3cret"))).await.unwrap();
    let kept = servers.put_mcp_server(put("https://a.example/mcp", None)).await.unwrap();
    let elsewhere = servers.put_mcp_server(put("https://b.example/mcp", None)).await;
    let listed = servers.list_mcp_servers(world.anna.request(Default::default())).await.unwrap();
    let probe = pb::ProbeMcpServerRequest { name: "tools".into() };
    let probed = servers.probe_mcp_server(world.anna.request(probe)).await.unwrap();

    let made = made.into_inner().server.unwrap();
    assert_eq!(made.secret_names, ["Authorization"]);
    assert!(made.agents[0].starts_with("agt_"), "{made:?}");
    assert_eq!(kept.into_inner().server.unwrap(), made);
    assert_eq!(elsewhere.unwrap_err().code(), Code::InvalidArgument);
    let listed = listed.into_inner();
    assert!(!format!("{listed:?}").contains("s3cret"), "{listed:?}");
    let probed = probed.into_inner();
    assert_eq!(probed.tools[0].name, "tools");
    assert_eq!(
        probed.omitted,
        [pb::OmittedMcpTool { name: "large".into(), reason: "its schema is too large".into() }]
    );
    let open = world.directory.mcp_servers().open(world.anna.id).await.unwrap();
    assert_eq!(open[0].secrets.len(), 1);
}
