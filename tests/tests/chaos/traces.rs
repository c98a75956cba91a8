//! Traces, as a collector receives them, and the variables of OpenTelemetry.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use holdfast_testkit::{Backends, Collector, Reply};
use holdfast_tests::load::sign;
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::person::{GrpcClient, until};
use holdfast_tests::turnstile;
use serde_json::json;

use crate::RUNNER;

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The caller's trace, and its span.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

const SERVICES: [&str; 5] =
    ["gateway", "agent-runner", "memory-service", "scheduler", "channel-bridge"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_one_trace_through_all_services_to_the_delivered_replies() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let plan = MeshConfig { memories: 1, schedulers: 1, ..MeshConfig::small(RUNNER) };
    let mesh = Mesh::prepare(&plan, Backends::get().await?).await?;
    mesh.fakes.model.answer(|request| match request.tool_results().as_slice() {
        [] if request.last_user_text().contains("remind me") => {
            let when = json!({"time": "in 2 seconds", "content": "tea", "auto_continue": true});
            Reply::call("a", "scheduler_add", when.to_string())
        }
        _ => Reply::text("very well"),
    });
    let collector = Collector::start().await?;
    for node in mesh.nodes() {
        let variables =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()), ("OTEL_BSP_SCHEDULE_DELAY", "200")];
        node.start_with(&variables).await?;
    }
    for node in mesh.nodes() {
        node.ready(START_TIMEOUT).await?;
    }

    // A guest would need an approval for a reminder that wakes the agent.
    GrpcClient::of(&mesh, 0)?.put_owner("webhook:ann").await?;
    let tenant = &mesh.tenants[0];
    let body = json!({"sender": "ann", "text": "remind me of tea"}).to_string();
    let url = format!("http://{}/webhook/{}", mesh.bridges[0].spec().http, tenant.webhook);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().to_string();
    let posted = reqwest::Client::builder().no_proxy().build()?.post(url);
    let posted = posted
        .header("x-holdfast-timestamp", &now)
        .header("x-holdfast-signature", sign(&tenant.secret, &now, "one", &body)?)
        .header("idempotency-key", "one")
        .header("traceparent", format!("00-{TRACE}-{CALLER}-01"))
        .body(body);
    posted.send().await?.error_for_status()?;

    let receiver = &mesh.fakes.receiver;
    let arrived = until("both arrive", async || Ok(receiver.unique().len() >= 2)).await;
    let told = || -> Vec<_> { receiver.unique().iter().map(|post| post.json()).collect() };
    ensure!(arrived.is_ok(), "{:?}, asked {:?}", told(), mesh.fakes.model.requests().last());
    for post in receiver.unique() {
        let traceparent = post.header("traceparent").unwrap_or_default();
        ensure!(traceparent.contains(TRACE), "the receiver is told `{traceparent}`");
    }
    let spans = || {
        let spans = collector.spans().into_iter();
        spans.filter(|span| span.trace == TRACE).collect::<Vec<_>>()
    };
    let is_whole = async || {
        let spans = spans();
        let services: HashSet<_> = spans.iter().map(|span| span.service()).collect();
        let ids: HashSet<_> = spans.iter().map(|span| span.id.as_str()).chain([CALLER]).collect();
        let is_connected = spans.iter().all(|span| ids.contains(span.parent.as_str()));
        // The reminder's turn ends after its answer arrives, and its span is sent then.
        let has_both_runs = spans.iter().filter(|span| span.name == "run").count() >= 2;
        let has_all_services = SERVICES.iter().all(|service| services.contains(service));
        Ok(has_all_services && has_both_runs && is_connected)
    };
    let whole = until("all services are in the trace", is_whole).await;
    let shown: Vec<_> =
        spans().iter().map(|span| format!("{} {}", span.service(), span.name)).collect();
    ensure!(whole.is_ok(), "{shown:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_variables_of_opentelemetry_fill_what_the_settings_leave_open() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let mesh = Mesh::prepare(&MeshConfig::small(RUNNER), Backends::get().await?).await?;
    mesh.fakes.model.answer(|_| Reply::text("hello"));
    let (own, other) = (Collector::start().await?, Collector::start().await?);
    let (gateway, runner) = (&mesh.gateways[0], &mesh.runners[0]);
    runner.start().await?;
    let ask = async |variables: &[(&str, &str)]| {
        gateway.start_with(variables).await?;
        gateway.ready(START_TIMEOUT).await?;
        let answer = GrpcClient::of(&mesh, 0)?.ask("", "hello").await?;
        ensure!(answer == "hello", "{answer}");
        // Spans that wait are sent at the end.
        gateway.stop(START_TIMEOUT).await?;
        anyhow::Ok(())
    };
    let of_all = ("OTEL_EXPORTER_OTLP_ENDPOINT", other.url());
    let of_traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", own.url());

    ask(&[of_all, of_traces, ("OTEL_TRACES_SAMPLER", "always_off")]).await?;
    ask(&[of_traces, ("OTEL_SDK_DISABLED", "true")]).await?;
    ensure!(own.spans().is_empty() && other.spans().is_empty(), "{:?}", own.spans());

    ask(&[
        of_all,
        ("HOLDFAST_TELEMETRY__OTLP_ENDPOINT", own.url()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue"),
        ("OTEL_SERVICE_NAME", "front"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
    ])
    .await?;
    ensure!(other.spans().is_empty(), "a variable precedes a setting");
    let spans = own.spans();
    let span = spans.iter().find(|span| span.name == "request");
    let span = span.ok_or_else(|| anyhow::anyhow!("nothing is received: {spans:?}"))?;
    ensure!(span.service() == "front", "{span:?}");
    ensure!(span.resource["deployment.environment.name"] == "test", "{span:?}");
    ensure!(span.headers["x-team"] == "blue", "{span:?}");

    gateway.start_with(&[of_all, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]).await?;
    until("the gateway refuses to start", async || {
        Ok(gateway.output().await.contains("`OTEL_EXPORTER_OTLP_PROTOCOL` is `http/protobuf`"))
    })
    .await
}
