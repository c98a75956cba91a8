//! A call is part of its caller's trace and ends at its caller's deadline.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use holdfast_kit::telemetry;
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};
use tracing::{Instrument as _, info_span};

use crate::world::World;

#[derive(Debug, Clone, Default)]
struct Spans(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Spans {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(batch);
        Ok(())
    }
}

#[tokio::test]
async fn a_search_is_part_of_its_callers_trace() -> anyhow::Result<()> {
    let spans = Spans::default();
    let config = telemetry::Config::default();
    let _guard = telemetry::init_with_exporter("memory", &config, spans.clone())?;
    let (_world, served) = World::start().await?;
    let ann = served.somebody();

    ann.search("oboe").instrument(info_span!("caller")).await?;

    let spans = || spans.0.lock().unwrap().clone();
    let of = |name: &str| spans().into_iter().find(|span| span.name == name);
    let request = async {
        loop {
            match (of("caller"), of("request")) {
                (Some(caller), Some(request)) => return (caller, request),
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let (caller, request) = tokio::time::timeout(Duration::from_secs(60), request).await?;
    assert_eq!(request.span_context.trace_id(), caller.span_context.trace_id());
    assert_eq!(request.parent_span_id, caller.span_context.span_id());
    let tenant = request.attributes.iter().find(|field| field.key.as_str() == "tenant.id");
    assert_eq!(tenant.map(|field| field.value.to_string()), Some(ann.tenant.to_string()));
    Ok(())
}
