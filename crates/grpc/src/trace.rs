//! Trace context in the metadata of calls.

use std::task::{Context, Poll};

use holdfast_kit::trace::{TRACEPARENT, continue_from, current};
use http::Request;
use tonic::metadata::MetadataMap;
use tower::{Layer, Service};
use tracing::{Instrument as _, field, info_span, instrument::Instrumented};

/// Adds the current span to a call's metadata, so that the callee continues the trace.
pub fn inject(metadata: &mut MetadataMap) {
    if let Some(value) = current().and_then(|traceparent| traceparent.parse().ok()) {
        metadata.insert(TRACEPARENT, value);
    }
}

/// Layer that gives each request a span, continuing its caller's trace. It must be the outermost
/// layer.
#[derive(Debug, Clone, Copy, Default)]
pub struct TraceLayer;

impl<S> Layer<S> for TraceLayer {
    type Service = TraceService<S>;

    fn layer(&self, inner: S) -> TraceService<S> {
        TraceService { inner }
    }
}

#[derive(Debug, Clone)]
pub struct TraceService<S> {
    inner: S,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for TraceService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = Instrumented<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let span =
            info_span!("request", rpc.method = request.uri().path(), tenant.id = field::Empty);
        if let Some(Ok(traceparent)) =
            request.headers().get(TRACEPARENT).map(|value| value.to_str())
        {
            continue_from(&span, traceparent);
        }
        let called = span.in_scope(|| self.inner.call(request));
        called.instrument(span)
    }
}
