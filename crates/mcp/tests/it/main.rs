//! Both sides, spoken with each other: over HTTP, and over pipes.
#![expect(clippy::unwrap_used, reason = "what tests share may fail as tests do")]

use std::{sync::Arc, time::Duration};

use axum::{Extension, Router, routing::any_service};
use holdfast_mcp::{
    CallContext, Client, Error, HttpSettings, OfferedTool, ServerDescription, ToolProvider,
    ToolResult, http_service,
};
use holdfast_types::ToolSpec;
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig,
    },
    service::RequestContext,
};
use serde_json::{Map, Value, json};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};

const PATIENCE: Duration = Duration::from_secs(60);

/// Offers what each caller may use: `echo` to all, `hush` to nobody but `anna`.
struct Mesh;

impl ToolProvider for Mesh {
    type Who = &'static str;

    fn about(&self) -> ServerDescription {
        ServerDescription { name: "test", version: "1", instructions: "Try it." }
    }

    fn tools(&self, who: &Self::Who) -> Vec<OfferedTool> {
        let tool = |name: &str, reads| {
            let (name, description) = (name.to_owned(), "Says it again.".to_owned());
            let spec = ToolSpec { name, description, input: json!({ "type": "object" }) };
            OfferedTool { spec, is_read_only: reads }
        };
        let mut tools = vec![tool("echo", true)];
        if *who == "anna" {
            tools.push(tool("hush", false));
        }
        tools
    }

    async fn call(
        &self,
        who: Self::Who,
        tool: &str,
        input: Map<String, Value>,
        _: CallContext,
    ) -> ToolResult {
        match tool {
            "echo" => ToolResult::text(format!("{who}: {}", Value::Object(input))),
            _ => ToolResult::failed("hush"),
        }
    }
}

/// Serves the mesh on a loopback port, to whoever this is.
async fn serve(who: &'static str) -> String {
    let door = HttpSettings { body_limit: 1024, ..HttpSettings::default() };
    let service = http_service(Arc::new(Mesh), door);
    let router = Router::new().route("/mcp", any_service(service)).layer(Extension(who));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

fn http() -> reqwest::Client {
    holdfast_kit::tls::install_crypto();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

async fn connect(url: &str) -> Client {
    Client::over_http(http(), url, &[], PATIENCE).await.unwrap()
}

fn input(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

#[tokio::test]
async fn a_client_sees_and_calls_what_its_caller_may() {
    let (anna, ben) = (connect(&serve("anna").await).await, connect(&serve("ben").await).await);

    let annas = anna.tools(PATIENCE).await.unwrap().tools;
    let bens = ben.tools(PATIENCE).await.unwrap().tools;
    let echo = ben.call("echo", input(json!({ "a": 1 })), PATIENCE).await.unwrap();
    let hush = anna.call("hush", Map::new(), PATIENCE).await.unwrap();
    let refused = ben.call("hush", Map::new(), PATIENCE).await.unwrap_err();

    let names: Vec<(&str, bool)> =
        annas.iter().map(|tool| (tool.name.as_str(), tool.reads)).collect();
    assert_eq!(names, [("echo", true), ("hush", false)]);
    assert_eq!(bens.len(), 1);
    assert_eq!(bens[0].input, json!({ "type": "object", "properties": {} }));
    assert_eq!(echo, ToolResult::text(r#"ben: {"a":1}"#));
    assert_eq!(hush, ToolResult::failed("hush"));
    assert!(matches!(&refused, Error::Refused { code: -32602, .. }), "{refused}");
    assert!(!refused.is_lost());
}

#[tokio::test]
async fn why_a_server_cannot_be_reached_is_told_without_its_address() {
    let url = "http://127.0.0.1:1/mcp?key=s3cret";

    let error = Client::over_http(http(), url, &[], PATIENCE).await.unwrap_err();

    assert!(matches!(error, Error::Unreachable(_)) && error.is_lost(), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

#[tokio::test]
async fn a_server_that_wants_other_credentials_and_one_that_is_none_are_told_apart() {
    let router = Router::new()
        .route("/401", axum::routing::post(async || axum::http::StatusCode::UNAUTHORIZED))
        .route("/page", axum::routing::post(async || "<html>"))
        .route("/500", axum::routing::post(async || axum::http::StatusCode::BAD_GATEWAY));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let error = async |path: &str| {
        let url = format!("http://{at}{path}");
        Client::over_http(http(), &url, &[], PATIENCE).await.unwrap_err()
    };

    assert_eq!(error("/401").await, Error::Unauthorized);
    assert!(matches!(error("/page").await, Error::Garbled(_)));
    assert_eq!(error("/500").await, Error::Unreachable("HTTP 502".to_owned()));
}

#[tokio::test]
async fn a_header_that_no_server_could_take_is_refused() {
    let headers = [("a b".to_owned(), "x".into())];

    let error = Client::over_http(http(), "http://127.0.0.1:1/", &headers, PATIENCE).await;

    assert_eq!(error.unwrap_err(), Error::Header("a b".to_owned()));
}

/// A server of the official SDK's, for pipes: pages of tools, one that changes them, one that hangs.
#[derive(Clone)]
struct Pages {
    cancelled: mpsc::UnboundedSender<()>,
}

impl ServerHandler for Pages {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed();
        ServerConfig::new(capabilities.build())
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let page: usize = page.and_then(|page| page.cursor?.parse().ok()).unwrap_or_default();
        let schema = Arc::new(Map::new());
        let tools = (0..100).map(|n| {
            rmcp::model::Tool::new(
                format!("tool{}", page * 100 + n),
                "A tool.",
                Arc::clone(&schema),
            )
        });
        let mut listed = ListToolsResult::with_all_items(tools.collect());
        // It never ends.
        listed.next_cursor = Some((page + 1).to_string());
        Ok(listed)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name == "hang" {
            context.ct.cancelled().await;
            let _gone = self.cancelled.send(());
        } else {
            let _gone = context.peer.notify_tool_list_changed().await;
        }
        Ok(CallToolResult::success(vec![ContentBlock::text("done")]).into())
    }
}

async fn over_pipes() -> (Client, mpsc::UnboundedReceiver<()>) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (cancelled, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        if let Ok(serving) = (Pages { cancelled }).serve(theirs).await {
            let _ended = serving.waiting().await;
        }
    });
    let (read, write) = tokio::io::split(ours);
    (Client::over_pipes(read, write, PATIENCE).await.unwrap(), told)
}

#[tokio::test]
async fn a_list_without_end_is_taken_as_far_as_it_may_go() {
    let (client, _told) = over_pipes().await;

    let list = client.tools(PATIENCE).await.unwrap();

    assert_eq!((list.tools.len(), list.omitted.len()), (256, 44));
    assert!(list.has_more);
}

#[tokio::test]
async fn that_a_server_s_tools_have_changed_is_known_until_they_are_listed_again() {
    let (client, _told) = over_pipes().await;
    client.tools(PATIENCE).await.unwrap();
    assert!(!client.has_changed());

    client.call("change", Map::new(), PATIENCE).await.unwrap();
    let changed = async {
        while !client.has_changed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };

    timeout(PATIENCE, changed).await.unwrap();
    client.tools(PATIENCE).await.unwrap();
    assert!(!client.has_changed());
}

#[tokio::test]
async fn a_call_whose_time_is_up_is_cancelled_at_the_server_and_others_go_on() {
    let (client, mut told) = over_pipes().await;

    let hung = client.call("hang", Map::new(), Duration::from_millis(50)).await;

    assert!(matches!(hung, Err(Error::Silent { .. })), "{hung:?}");
    timeout(PATIENCE, told.recv()).await.unwrap().unwrap();
    assert_eq!(client.call("x", Map::new(), PATIENCE).await.unwrap(), ToolResult::text("done"));
}

#[tokio::test]
async fn what_speaks_no_protocol_is_given_up_in_time() {
    let (ours, mut theirs) = tokio::io::duplex(1024);
    let (read, write) = tokio::io::split(ours);
    tokio::spawn(async move {
        tokio::io::AsyncWriteExt::write_all(&mut theirs, b"usage: server [--help]\n").await?;
        tokio::time::sleep(PATIENCE).await;
        std::io::Result::Ok(())
    });

    let silent = Client::over_pipes(read, write, Duration::from_millis(300)).await;
    let (ours, theirs) = tokio::io::duplex(1024);
    drop(theirs);
    let (read, write) = tokio::io::split(ours);
    let closed = Client::over_pipes(read, write, PATIENCE).await;

    assert!(matches!(silent, Err(Error::Silent { .. } | Error::Garbled(_))), "{silent:?}");
    assert_eq!(closed.unwrap_err(), Error::Closed);
}

#[tokio::test]
async fn what_is_ended_is_closed() {
    let (ours, theirs) = tokio::io::duplex(1024);
    let (cancelled, _told) = mpsc::unbounded_channel();
    let serving = tokio::spawn(async move {
        Pages { cancelled }.serve(theirs).await?.waiting().await.map_err(anyhow::Error::from)
    });
    let (read, write) = tokio::io::split(ours);
    let client = Client::over_pipes(read, write, PATIENCE).await.unwrap();
    assert!(!client.is_closed());

    client.close().await;

    timeout(PATIENCE, serving).await.unwrap().unwrap().unwrap();
}
