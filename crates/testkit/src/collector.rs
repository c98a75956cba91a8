//! A collector of traces, which keeps what it receives by OTLP over gRPC.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Response, Status};

use crate::scratch::lock;

/// A span that was received.
#[derive(Debug, Clone)]
pub struct Span {
    pub name: String,
    /// Ids in lower-case hexadecimal digits.
    pub trace: String,
    pub id: String,
    pub parent: String,
    /// Attributes of the process, such as `service.name`, as far as they are texts.
    pub resource: HashMap<String, String>,
    /// Headers of the request that brought it.
    pub headers: HashMap<String, String>,
}

impl Span {
    /// Name of the service that sent it.
    #[must_use]
    pub fn service(&self) -> &str {
        self.resource.get("service.name").map_or("", String::as_str)
    }
}

/// A collector on a loopback port; it is gone when dropped.
#[derive(Debug)]
pub struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Span>>>,
    task: JoinHandle<()>,
}

impl Collector {
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let spans = Arc::new(Mutex::new(Vec::new()));
        let service = TraceServiceServer::new(Receiver(Arc::clone(&spans)));
        let server = Server::builder().add_service(service);
        let task = tokio::spawn(async move {
            drop(server.serve_with_incoming(TcpIncoming::from(listener)).await);
        });
        Ok(Self { url, spans, task })
    }

    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// All spans that were received so far.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        lock(&self.spans).clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Receiver(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        let text = |value: &tonic::codegen::http::HeaderValue| {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        let headers: HashMap<_, _> =
            headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        for group in request.into_inner().resource_spans {
            let attributes = group.resource.unwrap_or_default().attributes.into_iter();
            let resource: HashMap<_, _> = attributes
                .filter_map(|pair| match pair.value?.value? {
                    Value::StringValue(text) => Some((pair.key, text)),
                    _ => None,
                })
                .collect();
            let spans = group.scope_spans.into_iter().flat_map(|scope| scope.spans);
            lock(&self.0).extend(spans.map(|span| Span {
                name: span.name,
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                resource: resource.clone(),
                headers: headers.clone(),
            }));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
