//! Retries of model requests.
//!
//! | class | retried |
//! |---|---|
//! | rate limited | when the provider says so, if that is before the deadline; else after a backoff; never where another key or model can be asked |
//! | unavailable, interrupted, malformed, empty | after a backoff |
//! | others | never: the request would fail again, or nobody waits for it |
//!
//! A request that the provider refuses for what it says (`bad_request`) is sent once more without pictures,
//! calls and results, if it has any: an earlier message may be the reason, and would be sent again for
//! ever ([`plain_history`](crate::plain_history)). The record of the reply says so.
//!
//! A request has at most three attempts. This is the only layer that repeats a model's request;
//! after that the runner decides.

use std::time::Duration;

use holdfast_kit::Backoff;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Delta, Error, Model, OnDelta, ReplyFuture, Request, plain_history};

/// Maximum number of attempts of one request.
const MAX_ATTEMPTS: u32 = 3;

/// Reason that the record of a reply names.
const REPAIR_REASON: &str = "bad_request; asked again without pictures, calls and results";

/// Repair that the failure's record names.
const REPAIR: &str = "sent again without pictures, calls and results";

#[derive(Debug, Clone)]
pub struct RetryingModel<M> {
    inner: M,
    backoff: Backoff,
    among: Alternatives,
}

/// Whether a provider has alternatives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Alternatives {
    /// No: a rate limit is waited for.
    #[default]
    Absent,
    /// Another key or model exists: a rate limit is returned at once.
    Available,
}

impl<M: Model> RetryingModel<M> {
    #[must_use]
    pub const fn new(inner: M) -> Self {
        let backoff = Backoff::new(Duration::from_millis(400), Duration::from_secs(8));
        Self { inner, backoff, among: Alternatives::Absent }
    }

    #[must_use]
    pub fn with_alternatives(self, among: Alternatives) -> Self {
        Self { among, ..self }
    }

    /// Returns the delay before the next attempt; `None` to give up.
    fn retry_delay(&self, error: &Error, tried: u32, deadline: Instant) -> Option<Duration> {
        if tried >= MAX_ATTEMPTS {
            return None;
        }
        let wait = match error {
            Error::RateLimited { .. } if self.among == Alternatives::Available => return None,
            Error::RateLimited { retry_after: Some(wait) } => *wait,
            Error::RateLimited { retry_after: None }
            | Error::Unavailable { .. }
            | Error::Interrupted
            | Error::Malformed(_)
            | Error::Empty => self.backoff.delay(tried - 1),
            Error::Auth
            | Error::NotPermitted
            | Error::Quota
            | Error::ContextOverflow
            | Error::NoModel(_)
            | Error::BadRequest { .. }
            | Error::UnsupportedOption(_)
            | Error::Filtered
            | Error::NoProvider { .. }
            | Error::Setup(_)
            | Error::Address(_)
            | Error::Timeout
            | Error::TooLong { .. }
            | Error::AllFailed { .. }
            | Error::Cancelled => return None,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        (wait < left).then_some(wait)
    }
}

impl<M: Model> Model for RetryingModel<M> {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> ReplyFuture<'a> {
        Box::pin(async move {
            let mut tried = 0;
            let mut plain: Option<Box<Request>> = None;
            loop {
                let request = plain.as_deref().unwrap_or(request);
                let mut said = false;
                let mut note = |delta| {
                    said = true;
                    on_delta(delta);
                };
                let error = match self.inner.reply(request, &mut note, cancelled).await {
                    Ok(mut reply) => {
                        let record = reply.record.get_or_insert_default();
                        record.attempts += tried + 1;
                        if plain.is_some() {
                            record.failed.push(format!("{}: {REPAIR_REASON}", request.model));
                        }
                        return Ok(reply);
                    }
                    Err(error) => error,
                };
                tried += 1;
                if let Error::BadRequest { status, code } = &error
                    && plain.is_none()
                    && plain_history::has_details(request)
                {
                    metrics::counter!("holdfast_model_retries_total", "class" => error.class())
                        .increment(1);
                    tracing::warn!(
                        model = %request.model, status, code,
                        "the provider refused a request; asking once more without pictures and calls"
                    );
                    request.failures.set_repair(REPAIR);
                    plain = Some(Box::new(plain_history::without_details(request)));
                    if said {
                        on_delta(Delta::Restarted);
                    }
                    continue;
                }
                let Some(wait) = self.retry_delay(&error, tried, request.deadline) else {
                    return Err(error);
                };
                metrics::counter!("holdfast_model_retries_total", "class" => error.class())
                    .increment(1);
                tracing::debug!(class = error.class(), attempt = tried, "asking the model again");
                tokio::select! {
                    biased;
                    () = cancelled.cancelled() => return Err(Error::Cancelled),
                    () = tokio::time::sleep(wait) => {}
                }
                if said {
                    on_delta(Delta::Restarted);
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use holdfast_types::Reply;

    use super::*;
    use crate::scripted_model::tests::request;

    /// Emits a piece, then fails with each of these errors in turn.
    #[derive(Debug)]
    struct Failing {
        says: Option<&'static str>,
        with: fn() -> Error,
        times: u32,
        tried: AtomicU32,
    }

    impl Failing {
        fn new(times: u32, with: fn() -> Error) -> Self {
            Self { says: None, with, times, tried: AtomicU32::new(0) }
        }
    }

    impl Model for Failing {
        fn reply<'a>(
            &'a self,
            _: &'a Request,
            on_delta: OnDelta<'a>,
            _: &'a CancellationToken,
        ) -> ReplyFuture<'a> {
            Box::pin(async move {
                if let Some(text) = self.says {
                    on_delta(Delta::Text(text.to_owned()));
                }
                match self.tried.fetch_add(1, Ordering::Relaxed) {
                    n if n < self.times => Err((self.with)()),
                    _ => Ok(Reply { text: "ok".into(), ..Reply::default() }),
                }
            })
        }
    }

    async fn ask(model: &RetryingModel<Failing>) -> (Result<Reply, Error>, Vec<Delta>) {
        let mut deltas = vec![];
        let mut note = |delta| deltas.push(delta);
        let request = request();
        let answer = model.reply(&request, &mut note, &CancellationToken::new()).await;
        (answer, deltas)
    }

    const fn unavailable() -> Error {
        Error::Unavailable { status: Some(503), source: None }
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_pass_is_tried_three_times() {
        let model = RetryingModel::new(Failing::new(2, unavailable));
        assert_eq!(ask(&model).await.0.unwrap().text, "ok");

        let model = RetryingModel::new(Failing::new(3, unavailable));
        assert!(matches!(ask(&model).await.0, Err(Error::Unavailable { .. })));
        assert_eq!(model.inner.tried.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_would_fail_again_is_tried_once() {
        for with in [
            || Error::Auth,
            || Error::NotPermitted,
            || Error::Quota,
            || Error::ContextOverflow,
            || Error::Timeout,
            || Error::Cancelled,
            || Error::BadRequest { status: 400, code: "none".into() },
        ] {
            let model = RetryingModel::new(Failing::new(1, with));

            assert!(ask(&model).await.0.is_err());
            assert_eq!(model.inner.tried.load(Ordering::Relaxed), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_limited_rate_is_waited_for_as_long_as_the_provider_says() {
        let model = RetryingModel::new(Failing::new(1, || Error::RateLimited {
            retry_after: Some(Duration::from_secs(7)),
        }));
        let start = Instant::now();

        assert!(ask(&model).await.0.is_ok());

        assert_eq!(start.elapsed().as_secs(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_past_the_deadline_is_not_begun() {
        let model = RetryingModel::new(Failing::new(1, || Error::RateLimited {
            retry_after: Some(Duration::from_secs(3_600)),
        }));
        let start = Instant::now();

        assert!(matches!(ask(&model).await.0, Err(Error::RateLimited { .. })));

        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_watch_are_told_when_it_begins_anew() {
        let failing = Failing { says: Some("half"), ..Failing::new(1, || Error::Interrupted) };
        let half = || Delta::Text("half".into());

        let (answer, deltas) = ask(&RetryingModel::new(failing)).await;

        assert!(answer.is_ok());
        assert_eq!(deltas, [half(), Delta::Restarted, half()]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_when_the_answer_is_no_longer_wanted() {
        let model = RetryingModel::new(Failing::new(9, || Error::RateLimited {
            retry_after: Some(Duration::from_secs(30)),
        }));
        let (cancelled, request) = (CancellationToken::new(), request());
        let mut ignore = |_| {};

        cancelled.cancel();
        let answer = model.reply(&request, &mut ignore, &cancelled).await;

        assert!(matches!(answer, Err(Error::Cancelled)));
    }
}
