//! Logs, spans and metrics, set up once per process.
//!
//! Logs go to stderr. Spans are exported by OTLP if an endpoint is set. Neither may contain a
//! prompt, a message's text, a secret or a token: record sizes and ids instead.

mod otlp;

use std::{
    io::{self, IsTerminal as _},
    net::SocketAddr,
    path::PathBuf,
    sync::OnceLock,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::{
    SpanExporter as OtlpExporter, WithExportConfig as _, WithTonicConfig as _,
};
use opentelemetry_sdk::{
    Resource,
    trace::{SdkTracerProvider, SpanExporter},
};
use serde::{Deserialize, Serialize};
use tonic::transport::Endpoint;
use tracing_subscriber::{
    EnvFilter, Layer, Registry, layer::SubscriberExt as _, reload, util::SubscriberInitExt as _,
};

use self::otlp::Otlp;
use crate::{metrics, tls::Tls, trace};

/// Telemetry settings: the table `[telemetry]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Log filter: a level, and levels for modules: `info,holdfast_session=debug`.
    pub log: String,

    pub format: Format,

    /// gRPC endpoint of an OTLP collector, which receives the spans: `http://collector:4317`.
    ///
    /// Without an endpoint, tracing is off.
    pub otlp_endpoint: Option<String>,

    /// File with the certificates of the authorities that an `https://` endpoint is verified by, in
    /// PEM. Without it, those of the machine.
    pub otlp_authorities: Option<PathBuf>,

    /// Name of this replica in spans, such as the pod's name.
    pub service_instance: String,

    /// Address that serves `/metrics` and nothing else; the service's own port then has no
    /// `/metrics`.
    pub metrics_listen: Option<SocketAddr>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // The bus logs itself when NATS goes away, why, and when it comes back. Its client would
            // log each attempt to connect.
            log: "info,async_nats=off".to_owned(),
            format: Format::Text,
            otlp_endpoint: None,
            otlp_authorities: None,
            service_instance: String::new(),
            metrics_listen: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    Text,
    /// One JSON object per line.
    Json,
}

/// Keeps telemetry running; flushes it when dropped. Hold it in `main` until the end.
#[derive(Debug)]
#[must_use = "the last spans are lost unless this lives until the end of `main`"]
pub struct Guard {
    provider: Option<SdkTracerProvider>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(provider) = self.provider.take()
            && let Err(error) = provider.shutdown_with_timeout(Duration::from_secs(3))
        {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

/// Starts logs, metrics and, if an endpoint is set, spans. Call it once per process, inside a
/// runtime. What the settings leave open is taken from OpenTelemetry's variables.
///
/// # Errors
///
/// If a setting or variable is invalid, or telemetry is already started.
pub fn init(service: &'static str, config: &Config) -> anyhow::Result<Guard> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let Some(otlp) = Otlp::choose(config, variable)? else { return start(config, None) };
    let failed = || format!("cannot send spans to `{}` (`{}`)", otlp.endpoint, otlp.origin);
    let tls = Tls::load(&otlp.tls).with_context(failed)?;
    let connector = tls.connector().named("`telemetry.otlp_authorities`");
    let channel = Endpoint::from_shared(otlp.endpoint.clone())
        .with_context(failed)?
        .timeout(otlp.timeout)
        .connect_with_connector_lazy(connector);
    // It adds the headers of `OTEL_EXPORTER_OTLP_HEADERS`.
    let exporter =
        OtlpExporter::builder().with_tonic().with_channel(channel).with_timeout(otlp.timeout);
    let exporter = exporter.build().with_context(failed)?;
    let provider = provider(service, config).with_batch_exporter(exporter).build();
    start(config, Some((service, provider)))
}

/// Starts telemetry like [`init`], but sends every span to `exporter` when it ends: for tests that
/// inspect spans.
///
/// # Errors
///
/// As [`init`].
pub fn init_with_exporter(
    service: &'static str,
    config: &Config,
    exporter: impl SpanExporter + 'static,
) -> anyhow::Result<Guard> {
    let provider = provider(service, config).with_simple_exporter(exporter).build();
    start(config, Some((service, provider)))
}

fn provider(
    service: &'static str,
    config: &Config,
) -> opentelemetry_sdk::trace::TracerProviderBuilder {
    // It has what `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say.
    let mut resource = Resource::builder();
    if !otlp::names_service(|name| std::env::var(name).ok()) {
        resource = resource.with_service_name(service);
    }
    if !config.service_instance.is_empty() {
        let instance = config.service_instance.clone();
        resource = resource.with_attribute(KeyValue::new("service.instance.id", instance));
    }
    SdkTracerProvider::builder().with_resource(resource.build())
}

fn start(
    config: &Config,
    traced: Option<(&'static str, SdkTracerProvider)>,
) -> anyhow::Result<Guard> {
    let (filter, log_filter) = reload::Layer::new(filter(config)?);
    let spans = traced.as_ref().map(|(service, provider)| {
        // Exporters log too. A span about the export of spans would never end.
        let not_itself =
            EnvFilter::new("info,h2=off,hyper=off,tonic=off,tower=off,opentelemetry=off,rmcp=off");
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer(*service))
            .with_filter(not_itself)
    });
    tracing_subscriber::registry()
        .with(lines(config.format).with_filter(filter))
        .with(spans)
        .try_init()
        .map_err(|_| anyhow!("telemetry was started before in this process"))?;
    // Telemetry is started once.
    let _ = LOG_FILTER.set(log_filter);

    metrics::install()?;
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(fold_metrics());
    }
    if traced.is_some() {
        trace::enable();
    }
    Ok(Guard { provider: traced.map(|(_, provider)| provider) })
}

/// Filter of the log of this process.
static LOG_FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

impl Config {
    /// Checks the log filter.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub fn check(&self) -> anyhow::Result<()> {
        filter(self).map(drop)
    }

    /// Changes what is logged, from now on, to `telemetry.log` of these settings.
    pub fn apply_log_filter(&self) {
        if let (Some(handle), Ok(filter)) = (LOG_FILTER.get(), filter(self))
            && let Err(error) = handle.reload(filter)
        {
            tracing::error!(%error, "the log filter cannot be changed");
        }
    }
}

fn filter(config: &Config) -> anyhow::Result<EnvFilter> {
    let filter = EnvFilter::try_new(&config.log).with_context(|| {
        format!("`telemetry.log` is `{}`: write a level such as `info`", config.log)
    })?;
    // `rmcp` logs the protocol's contents, that is users' messages, at every level.
    Ok(filter.add_directive("rmcp=off".parse()?))
}

fn lines(format: Format) -> Box<dyn Layer<Registry> + Send + Sync> {
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    match format {
        Format::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        Format::Json => lines.json().flatten_event(true).with_ansi(false).boxed(),
    }
}

async fn fold_metrics() {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        metrics::aggregate();
    }
}
