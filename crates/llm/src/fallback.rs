//! Models that are asked in turn until one answers.
//!
//! | what a candidate does | what follows |
//! |---|---|
//! | it is cooling down | it is passed over, unless there are pictures to be seen: few can |
//! | it answers | its failures are forgotten |
//! | its key, its money, its limits, its server fail it, or time does | the next is asked |
//! | it has no such model | the next is asked |
//! | it refuses what was asked, or fails in a way that we do not know | the error is returned: the next would fail too, or do it twice |
//! | the answer is no longer wanted, or the deadline is past | the error is returned |
//!
//! If none answers, the error says of each why. Retries of one candidate are its own affair.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use holdfast_types::{ChatMessage, ModelId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Card, Delta, Error, Model, OnDelta, Reason, Replying, Request, Tried};

/// Who remembers which models had better not be asked for now. Every runner asks the same one.
pub trait Cooldowns: fmt::Debug + Send + Sync {
    /// Whether a model is cooling down. Who cannot say says no.
    fn is_cooling<'a>(&'a self, model: &'a ModelId) -> BoxFuture<'a, bool>;

    /// A model failed.
    fn failed<'a>(&'a self, model: &'a ModelId, reason: Reason) -> BoxFuture<'a, ()>;

    /// A model answered: it is not cooling down any more.
    fn succeeded<'a>(&'a self, model: &'a ModelId) -> BoxFuture<'a, ()>;
}

/// A model that may be asked.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Which.
    pub id: ModelId,
    /// How it is reached.
    pub model: Arc<dyn Model>,
    /// What is known of it; `None` looks it up in the built-in catalogue.
    pub card: Option<Arc<Card>>,
}

/// Models that are asked in turn until one answers.
#[derive(Debug)]
pub struct Fallback<C> {
    candidates: Vec<Candidate>,
    cooldowns: C,
}

impl<C: Cooldowns> Fallback<C> {
    /// Asks these in this order, each once. The first is the one that was chosen.
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
        let mut tried: Vec<Tried> = Vec::new();
        let mut said = false;
        for Candidate { id, model, card } in &self.candidates {
            if !shows_pictures && self.cooldowns.is_cooling(id).await {
                let class = "cooling";
                tried.push(Tried { model: id.clone(), class, reason: Reason::RateLimit });
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
                Ok(reply) => {
                    self.cooldowns.succeeded(id).await;
                    return Ok(reply);
                }
                Err(error) => error,
            };
            if cancelled.is_cancelled() || is_final(&error) {
                return Err(error);
            }
            let reason = error.reason();
            if is_its_own(reason) {
                self.cooldowns.failed(id, reason).await;
            }
            if Instant::now() >= request.deadline {
                return Err(error);
            }
            metrics::counter!("holdfast_model_fallbacks_total", "class" => error.class())
                .increment(1);
            tracing::debug!(class = error.class(), "asking another model");
            tried.push(Tried { model: id.clone(), class: error.class(), reason });
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
    ) -> Replying<'a> {
        Box::pin(self.ask(request, on_delta, cancelled))
    }
}

/// Whether no other model would do better.
fn is_final(error: &Error) -> bool {
    match error.reason() {
        // The model or its provider is not there; another's may be.
        Reason::Format => {
            !matches!(error, Error::NoModel(_) | Error::NoProvider { .. } | Error::Setup(_))
        }
        Reason::Unknown => true,
        Reason::Auth
        | Reason::RateLimit
        | Reason::Billing
        | Reason::Timeout
        | Reason::Overloaded => false,
    }
}

/// Whether it is the candidate that had better be left alone for a while.
const fn is_its_own(reason: Reason) -> bool {
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
