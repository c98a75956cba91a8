//! Trace context of messages between processes.
//!
//! The format is W3C's `traceparent`. Without an OTLP endpoint there are no trace ids: [`current`]
//! returns `None`, and both functions cost one atomic load.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
};

use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::{Span, debug};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Header in gRPC metadata, HTTP and NATS.
pub const TRACEPARENT: &str = "traceparent";

static TRACING_ENABLED: AtomicBool = AtomicBool::new(false);

/// Enables trace context. Called when spans have ids.
pub(crate) fn enable() {
    TRACING_ENABLED.store(true, Ordering::Relaxed);
}

/// Returns the current span's `traceparent`, to send with a message; `None` if tracing is off.
#[must_use]
pub fn current() -> Option<String> {
    if !TRACING_ENABLED.load(Ordering::Relaxed) {
        return None;
    }
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut carrier);
    carrier.remove(TRACEPARENT)
}

/// Returns the id of the current trace, in hexadecimal; `None` if tracing is off.
#[must_use]
pub fn current_id() -> Option<String> {
    // `00-<trace>-<span>-<flags>`
    Some(current()?.split('-').nth(1)?.to_owned())
}

/// Makes `span` a child of the span that a `traceparent` names. Call it before the span is entered.
///
/// An invalid `traceparent` is ignored, since it may come from outside.
pub fn continue_from(span: &Span, traceparent: &str) {
    if !TRACING_ENABLED.load(Ordering::Relaxed) {
        return;
    }
    let carrier = HashMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
    let parent = TraceContextPropagator::new().extract(&carrier);
    if let Err(error) = span.set_parent(parent) {
        debug!(%error, "the span begins a trace of its own");
    }
}
