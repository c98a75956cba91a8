//! Span and metrics for each request. They contain names, sizes and outcomes, never a text.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, field::Empty};

use crate::{Model, OnDelta, ReplyFuture, Request, servers};

/// Model with traces and metrics.
#[derive(Debug)]
pub(crate) struct InstrumentedModel<M> {
    inner: M,
    provider: String,
    /// The provider in metrics.
    label: &'static str,
}

impl<M: Model> InstrumentedModel<M> {
    pub(crate) fn new(inner: M, provider: String) -> Self {
        let label = metric_label(&provider);
        Self { inner, provider, label }
    }
}

/// Name of a well-known provider, or `other`: tenants name their providers as they like.
fn metric_label(provider: &str) -> &'static str {
    const OWN_PROTOCOLS: [&str; 5] = ["anthropic", "demo", "gemini", "openai", "responses"];
    let own = OWN_PROTOCOLS.into_iter().find(|name| *name == provider);
    own.or_else(|| Some(servers::by_name(provider)?.name)).unwrap_or("other")
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
                    let usage = &reply.usage;
                    for (kind, tokens) in [
                        ("input", usage.input),
                        ("cached", usage.cached),
                        ("written", usage.written.saturating_add(usage.written_long)),
                        ("output", usage.output),
                        ("reasoning", usage.reasoning),
                    ] {
                        metrics::counter!(
                            "holdfast_model_tokens_total", "provider" => self.label, "kind" => kind
                        )
                        .increment(tokens);
                    }
                    "ok"
                }
                Err(error) => {
                    record.record("error.type", error.class());
                    error.class()
                }
            };
            metrics::histogram!(
                "holdfast_model_request_duration_seconds",
                "provider" => self.label,
                "outcome" => outcome,
            )
            .record(start.elapsed().as_secs_f64());
            answer
        };
        Box::pin(asked.instrument(span))
    }
}
