//! Span and metrics for each request. They contain names, sizes and outcomes, never a text.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, field::Empty};

use crate::{Model, OnDelta, ReplyFuture, Request};

/// Model with traces and metrics.
#[derive(Debug)]
pub(crate) struct InstrumentedModel<M> {
    inner: M,
    provider: String,
}

impl<M: Model> InstrumentedModel<M> {
    pub(crate) const fn new(inner: M, provider: String) -> Self {
        Self { inner, provider }
    }
}

impl<M: Model> Model for InstrumentedModel<M> {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> ReplyFuture<'a> {
        let span = tracing::info_span!(
            "chat",
            gen_ai.operation.name = "chat",
            gen_ai.system = %self.provider,
            gen_ai.request.model = request.model.id(),
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.cached_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            gen_ai.response.calls = Empty,
            error.type = Empty,
        );
        let record = span.clone();
        let asked = async move {
            let start = Instant::now();
            let answer = self.inner.reply(request, on_delta, cancelled).await;
            let outcome = match &answer {
                Ok(reply) => {
                    record.record("gen_ai.usage.input_tokens", reply.usage.input);
                    record.record("gen_ai.usage.cached_tokens", reply.usage.cached);
                    record.record("gen_ai.usage.output_tokens", reply.usage.output);
                    record.record("gen_ai.response.calls", reply.calls.len());
                    "ok"
                }
                Err(error) => {
                    record.record("error.type", error.class());
                    error.class()
                }
            };
            metrics::histogram!(
                "holdfast_model_request_duration_seconds",
                "provider" => self.provider.clone(),
                "outcome" => outcome,
            )
            .record(start.elapsed().as_secs_f64());
            answer
        };
        Box::pin(asked.instrument(span))
    }
}
