//! Fallback: asks models in turn until one answers.
//!
//! | outcome of a candidate | consequence |
//! |---|---|
//! | in a cooldown | it is skipped, unless the request has images: few models accept them |
//! | success | its failures are forgotten |
//! | key, credit, rate limit, server or timeout failure | the next is asked |
//! | unknown model | the next is asked |
//! | refused request, or unknown failure | the error is returned: the next would fail too, or repeat the request |
//! | cancelled, or deadline passed | the error is returned |
//!
//! If all fail, the error lists the reasons. Candidates retry by themselves.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use holdfast_types::{ChatMessage, ModelId, ProviderFailure};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    Delta, Error, FailedCandidate, Model, ModelCard, OnDelta, Reason, ReplyFuture, Request,
};

/// Store of model cooldowns, shared by all runners.
pub trait Cooldowns: fmt::Debug + Send + Sync {
    /// Whether a model is in a cooldown; `false` if that is unknown.
    fn is_cooling<'a>(&'a self, model: &'a ModelId) -> BoxFuture<'a, bool>;

    fn failed<'a>(&'a self, model: &'a ModelId, reason: Reason) -> BoxFuture<'a, ()>;

    /// Records a success, which ends the cooldown.
    fn succeeded<'a>(&'a self, model: &'a ModelId) -> BoxFuture<'a, ()>;
}

#[derive(Debug, Clone)]
pub struct Candidate {
    pub id: ModelId,
    pub model: Arc<dyn Model>,
    /// `None` uses the built-in catalogue.
    pub card: Option<Arc<ModelCard>>,
}

/// Model that asks several models in turn until one answers.
#[derive(Debug)]
pub struct Fallback<C> {
    candidates: Vec<Candidate>,
    cooldowns: C,
}

impl<C: Cooldowns> Fallback<C> {
    /// Creates a fallback that asks each candidate once, in this order.
    #[must_use]
    pub fn new(candidates: impl IntoIterator<Item = Candidate>, cooldowns: C) -> Self {
        let mut once: Vec<Candidate> = Vec::new();
        for candidate in candidates {
            if once.iter().all(|known| known.id != candidate.id) {
                once.push(candidate);
            }
        }
        Self { candidates: once, cooldowns }
    }

    async fn ask(
        &self,
        request: &Request,
        on_delta: OnDelta<'_>,
        cancelled: &CancellationToken,
    ) -> Result<holdfast_types::Reply, Error> {
        let shows_pictures = request.chat.messages.iter().any(shows_pictures);
        let mut tried: Vec<FailedCandidate> = Vec::new();
        let mut said = false;
        for Candidate { id, model, card } in &self.candidates {
            if !shows_pictures && self.cooldowns.is_cooling(id).await {
                let class = "cooling";
                let (model, word) = (id.to_string(), class.to_owned());
                let skipped = ProviderFailure { model, class: word, ..ProviderFailure::default() };
                request.failures.push(skipped);
                tried.push(FailedCandidate { model: id.clone(), class, reason: Reason::RateLimit });
                continue;
            }
            if said {
                on_delta(Delta::Restarted);
                said = false;
            }
            let mut note = |delta| {
                said = true;
                on_delta(delta);
            };
            let asked = Request { model: id.clone(), card: card.clone(), ..request.clone() };
            let error = match model.reply(&asked, &mut note, cancelled).await {
                Ok(mut reply) => {
                    self.cooldowns.succeeded(id).await;
                    if !tried.is_empty() {
                        let named = |one: &FailedCandidate| format!("{}: {}", one.model, one.class);
                        let record = reply.record.get_or_insert_default();
                        record.failed = tried.iter().map(named).collect();
                    }
                    return Ok(reply);
                }
                Err(error) => error,
            };
            if cancelled.is_cancelled() || is_final(&error) {
                return Err(error);
            }
            let reason = error.reason();
            if causes_cooldown(reason) {
                self.cooldowns.failed(id, reason).await;
            }
            if Instant::now() >= request.deadline {
                return Err(error);
            }
            metrics::counter!("holdfast_model_fallbacks_total", "class" => error.class())
                .increment(1);
            tracing::debug!(class = error.class(), "asking another model");
            tried.push(FailedCandidate { model: id.clone(), class: error.class(), reason });
        }
        Err(Error::AllFailed { tried })
    }
}

impl<C: Cooldowns> Model for Fallback<C> {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> ReplyFuture<'a> {
        Box::pin(self.ask(request, on_delta, cancelled))
    }
}

/// Whether no other model would do better.
fn is_final(error: &Error) -> bool {
    match error.reason() {
        // This model or provider is missing; another one may exist.
        Reason::Format => !matches!(
            error,
            Error::NoModel(_) | Error::NoProvider { .. } | Error::Setup(_) | Error::Address(_)
        ),
        Reason::Unknown => true,
        Reason::Auth
        | Reason::RateLimit
        | Reason::Billing
        | Reason::Timeout
        | Reason::Overloaded => false,
    }
}

/// Whether the failure puts the candidate into a cooldown.
const fn causes_cooldown(reason: Reason) -> bool {
    match reason {
        Reason::Auth
        | Reason::RateLimit
        | Reason::Billing
        | Reason::Timeout
        | Reason::Overloaded => true,
        Reason::Format | Reason::Unknown => false,
    }
}

const fn shows_pictures(message: &ChatMessage) -> bool {
    match message {
        ChatMessage::User { images, .. } => !images.is_empty(),
        ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => false,
    }
}

#[cfg(test)]
mod tests;
