//! A server of the tests' own, over HTTP: it counts, stops and comes back.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::Request,
    middleware::{self, Next},
    response::Response,
    routing::any_service,
};
use holdfast_mcp::{
    CallContext, Content, HttpSettings, OfferedTool, ServerDescription, ToolProvider, ToolResult,
    http_service,
};
use holdfast_types::ToolSpec;
use serde_json::{Map, Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::world::LONG;

/// Value of the header `x-key`.
type Key = String;

#[derive(Default)]
struct Shared {
    requests: AtomicUsize,
    hung_up: AtomicUsize,
    offered: Mutex<Vec<(String, Value)>>,
}

/// A server on a loopback port.
pub struct Server {
    at: SocketAddr,
    shared: Arc<Shared>,
    serving: Mutex<Option<JoinHandle<()>>>,
}

struct Tools(Arc<Shared>);

struct HungUp(Arc<Shared>);

impl Drop for HungUp {
    fn drop(&mut self) {
        self.0.hung_up.fetch_add(1, Ordering::AcqRel);
    }
}

impl ToolProvider for Tools {
    type Who = Key;

    fn about(&self) -> ServerDescription {
        ServerDescription { name: "x", version: "1", instructions: "" }
    }

    fn tools(&self, _: &Key) -> Vec<OfferedTool> {
        let text = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
        let tool = |name: &str, description: &str, reads| OfferedTool {
            spec: ToolSpec {
                name: name.to_owned(),
                description: description.to_owned(),
                input: text.clone(),
            },
            is_read_only: reads,
        };
        let mut tools = vec![
            tool("echo", "Repeat loudly.", true),
            tool("buy", "Buy the cheapest thing.", false),
            tool("hang", "Take very long.", false),
            tool("report", "Make a report.", true),
        ];
        let offered = lock(&self.0.offered);
        tools.extend(offered.iter().map(|(name, schema)| {
            let mut more = tool(name, "Something more.", true);
            more.spec.input = schema.clone();
            more
        }));
        tools
    }

    async fn call(
        &self,
        key: Key,
        tool: &str,
        input: Map<String, Value>,
        context: CallContext,
    ) -> ToolResult {
        match tool {
            "echo" => {
                let text = input.get("text").and_then(Value::as_str).unwrap_or_default();
                ToolResult::text(format!("{text}! (key {key})"))
            }
            "buy" => ToolResult::text("bought"),
            "report" => ToolResult {
                content: vec![
                    Content::UserText("The report is ready.".to_owned()),
                    Content::File {
                        name: "report.odt".to_owned(),
                        media_type: "application/vnd.oasis.opendocument.text".to_owned(),
                        data: b"all is well".to_vec(),
                    },
                ],
                failed: false,
            },
            _ => {
                let _seen = HungUp(Arc::clone(&self.0));
                context.cancelled.cancelled().await;
                ToolResult::failed("nobody waits")
            }
        }
    }
}

impl Server {
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let at = listener.local_addr()?;
        let shared = Arc::<Shared>::default();
        let serving = Mutex::new(Some(serve(listener, Arc::clone(&shared))));
        Ok(Self { at, shared, serving })
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.at)
    }

    pub const fn port(&self) -> u16 {
        self.at.port()
    }

    /// Number of requests.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::Acquire)
    }

    /// Number of calls of `hang` that were abandoned by the caller.
    pub fn hung_up(&self) -> usize {
        self.shared.hung_up.load(Ordering::Acquire)
    }

    /// Offers one more tool, whose arguments have this schema.
    pub fn offer_with_schema(&self, name: &str, schema: Value) {
        lock(&self.shared.offered).push((name.to_owned(), schema));
    }

    /// Offers one more tool.
    pub fn offer(&self, name: &str) {
        self.offer_with_schema(name, json!({ "type": "object" }));
    }

    pub async fn stop(&self) {
        let serving = lock(&self.serving).take();
        if let Some(serving) = serving {
            serving.abort();
            let _aborted = serving.await;
        }
    }

    pub async fn start_again(&self) -> anyhow::Result<()> {
        // A connection of another test may have the port for a while.
        let begun = Instant::now();
        let listener = loop {
            match TcpListener::bind(self.at).await {
                Ok(listener) => break listener,
                Err(error) if begun.elapsed() > LONG => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        *lock(&self.serving) = Some(serve(listener, Arc::clone(&self.shared)));
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(serving) = lock(&self.serving).take() {
            serving.abort();
        }
    }
}

fn serve(listener: TcpListener, shared: Arc<Shared>) -> JoinHandle<()> {
    let door = HttpSettings { body_limit: 64 * 1024, ..HttpSettings::default() };
    let service = http_service(Arc::new(Tools(Arc::clone(&shared))), door);
    let count = middleware::from_fn(move |mut request: Request, next: Next| {
        shared.requests.fetch_add(1, Ordering::AcqRel);
        let key = request.headers().get("x-key").and_then(|key| key.to_str().ok());
        let key: Key = key.unwrap_or_default().to_owned();
        request.extensions_mut().insert(key);
        async move { answered(next.run(request).await) }
    });
    let router = Router::new().route("/mcp", any_service(service)).layer(count);
    tokio::spawn(async move {
        // Runs until the end of the test.
        let _over = axum::serve(listener, router).await;
    })
}

/// A connection that is kept open would outlive the server.
fn answered(mut response: Response) -> Response {
    let close = axum::http::HeaderValue::from_static("close");
    response.headers_mut().insert(axum::http::header::CONNECTION, close);
    response
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
