//! The gRPC edge as services use it: layers around tonic's routes, under axum, on a socket.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{Router, extract::Request, routing::post, serve::ListenerExt as _};
use holdfast_grpc::{
    CONTEXT_HEADER, CallTarget, Caller, Mesh, MeshAuthLayer, Signer, channel, health_service, kind,
    status, trace::TraceLayer,
};
use holdfast_kit::{Readiness, config, net, telemetry};
use holdfast_types::{Fault, Kind, TenantId};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};
use tonic::{Code, service::Routes};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tracing::{Instrument as _, info_span};

const TARGET: CallTarget<'_> = CallTarget { audience: "test", method: "/test.Who/Am" };

fn signer() -> Signer {
    let secret = "0123456789abcdef".into();
    Signer::new(&config::Mesh { secret, ..config::Mesh::default() }).unwrap()
}

async fn whoami(request: Request) -> String {
    request.extensions().get::<Caller>().map(|caller| caller.tenant.to_string()).unwrap_or_default()
}

async fn serve(readiness: &Readiness) -> SocketAddr {
    let calls = Router::new()
        .route("/test.Who/Am", post(whoami))
        .layer(MeshAuthLayer::new(signer(), TARGET.audience, &["scheduler"]))
        .layer(TraceLayer);
    let health = Routes::new(health_service(readiness)).into_axum_router().reset_fallback();
    let router = health.merge(calls);
    let listener = net::listen(SocketAddr::from(([127, 0, 0, 1], 0)), "test.listen").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener.tap_io(net::nodelay), router).await.unwrap() });
    address
}

#[derive(Debug, Clone, Default)]
struct Spans(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Spans {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no")]
struct No;

impl Fault for No {
    fn kind(&self) -> Kind {
        Kind::Conflict
    }
}

/// One test, since telemetry starts once per process.
#[tokio::test]
async fn a_call_carries_its_tenant_and_its_trace_and_health_is_open() {
    let spans = Spans::default();
    let config = telemetry::Config::default();
    let guard = telemetry::init_with_exporter("test", &config, spans.clone()).unwrap();
    assert!(telemetry::init("test", &config).is_err(), "telemetry started twice");
    let readiness = Readiness::new();
    let url = format!("http://{}", serve(&readiness).await);
    let channel = channel(&url, Duration::from_secs(5)).unwrap();

    let mut health = HealthClient::new(channel.clone());
    let asked = HealthCheckRequest { service: String::new() };
    assert_eq!(health.check(asked.clone()).await.unwrap().into_inner().status, 1);
    readiness.drain();
    let drains = async {
        while health.check(asked.clone()).await.unwrap().into_inner().status != 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), drains).await.unwrap();

    let tenant = TenantId::generate();
    let call = async {
        let request = Mesh::new(signer(), "scheduler").request(tenant, (), Duration::from_secs(5));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let context = signer().sign(tenant, "scheduler", TARGET, now);
        let trace = request.metadata().get("traceparent").unwrap().to_str().unwrap().to_owned();
        (context, trace)
    };
    let (context, traceparent) = call.instrument(info_span!("caller")).await;
    let mut channel = channel;
    let post = |context: &str| {
        http::Request::post(format!("{url}/test.Who/Am"))
            .header(CONTEXT_HEADER, context)
            .header("traceparent", &traceparent)
            .body(tonic::body::Body::empty())
            .unwrap()
    };
    let answer = send(&mut channel, post(&context)).await;
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    assert_eq!(body, tenant.to_string());

    let refused = send(&mut channel, post("v1.nonsense")).await;
    let refused = tonic::Status::from_header_map(refused.headers()).unwrap();
    assert_eq!((refused.code(), kind(&refused)), (Code::Unauthenticated, Kind::Unauthenticated));
    assert_eq!(kind(&status(&No)), Kind::Conflict);

    drop(guard);
    let spans = spans.0.lock().unwrap();
    let of = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let caller = of("caller")[0].span_context.clone();
    let children = of("request").into_iter().filter(|span| span.parent_span_id == caller.span_id());
    let traces: Vec<_> = children.map(|span| span.span_context.trace_id()).collect();
    assert_eq!(traces, [caller.trace_id(); 2]);
}

async fn send(
    channel: &mut tonic::transport::Channel,
    request: http::Request<tonic::body::Body>,
) -> http::Response<tonic::body::Body> {
    use tower::{Service as _, ServiceExt as _};
    channel.ready().await.unwrap().call(request).await.unwrap()
}
