//! Budget of request bodies and of large WebSocket messages in memory, per tenant and in total, and the time in which they arrive.
//!
//! A body is charged as its bytes come, and until its call has a response: the message is in memory
//! until then. The limits on the number of calls do not bound memory, since a message may have 24
//! MiB.
//!
//! The rest of a body that nobody reads, because it is too large, is thrown away as it comes. If
//! the stream were reset instead, HTTP/2 clients would report a broken connection rather than the
//! response.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use bytes::{Buf as _, Bytes};
use holdfast_kit::{Budget, BudgetShare, BudgetSpent, config::reload::Current};
use holdfast_types::{Fault, Kind, TenantId};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::{Config, config};

/// Rest of a body that is received although nobody reads it, in bytes.
const MAX_DRAINED_BYTES: usize = 128 * 1024 * 1024;

/// Speed at which a large body must arrive, in bytes a millisecond.
const MIN_BYTES_PER_MS: u64 = 64;

/// Reason why a body is not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyRefusal {
    #[error(
        "the tenant's requests that are being read have {limit} bytes, which is the most: \
         try again in a second"
    )]
    TenantBytes {
        /// Bytes of one tenant's bodies.
        limit: u64,
    },
    #[error("the gateway has as many requests in memory as it may: try again in a second")]
    TotalBytes,
    #[error("the request did not arrive in time: send it again")]
    TooSlow,
}

impl BodyRefusal {
    /// Returns the refusal that caused an error of a body.
    pub fn find(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let causes = std::iter::successors(Some(error), |error| error.source());
        causes.into_iter().find_map(|cause| cause.downcast_ref::<Self>()).copied()
    }
}

impl Fault for BodyRefusal {
    fn kind(&self) -> Kind {
        match self {
            Self::TenantBytes { .. } | Self::TotalBytes => Kind::Exhausted,
            Self::TooSlow => Kind::Unavailable,
        }
    }
}

/// Bodies of all tenants. Clones share the budget.
#[derive(Debug, Clone)]
pub struct BodyBudget {
    budget: Arc<Budget<TenantId>>,
    settings: Current<Config>,
}

/// Behaviour of a body that depends on the protocol.
#[derive(Debug, Clone, Copy)]
pub struct BodyForm {
    /// Makes the error that the body ends with if it is refused.
    pub to_error: fn(BodyRefusal) -> axum::Error,
    /// Whether the rest of a body that nobody reads is still received.
    pub is_drained: bool,
}

/// Bytes of one body. They are free again when this and the body are dropped.
#[derive(Debug)]
pub struct BodyCharge(
    #[expect(dead_code, reason = "kept for its drop")] Arc<BudgetShare<TenantId>>,
);

impl BodyBudget {
    pub fn new(settings: Current<Config>) -> Self {
        Self { budget: Budget::new(0, 0), settings }
    }

    /// Returns an empty share of a tenant, for what is read in another way than as a body.
    pub fn share(&self, tenant: TenantId) -> BudgetShare<TenantId> {
        let config::Gateway { body_bytes, body_bytes_per_tenant, .. } = self.settings.get().gateway;
        self.budget.set_limits(body_bytes, body_bytes_per_tenant);
        self.budget.share(tenant)
    }

    /// Returns a body that is charged to its tenant.
    pub fn charge(&self, tenant: TenantId, body: Body, form: BodyForm) -> (Body, BodyCharge) {
        let body_timeout = self.settings.get().gateway.body_timeout;
        let share = Arc::new(self.share(tenant));
        let charge = BodyCharge(Arc::clone(&share));
        let earliest = Instant::now() + body_timeout;
        let deadline = Box::pin(sleep_until(earliest));
        let (budget, received) = (self.clone(), 0);
        let body = ChargedBody { body, share, received, earliest, deadline, budget, form };
        (Body::new(body), charge)
    }
}

/// Body of a request whose bytes are charged.
struct ChargedBody {
    body: Body,
    share: Arc<BudgetShare<TenantId>>,
    received: u64,
    /// Deadline of a small body.
    earliest: Instant,
    deadline: Pin<Box<Sleep>>,
    budget: BodyBudget,
    form: BodyForm,
}

impl Drop for ChargedBody {
    fn drop(&mut self) {
        if !self.form.is_drained || self.body.is_end_stream() {
            return;
        }
        let body = std::mem::take(&mut self.body);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(timeout(self.budget.settings.get().gateway.body_timeout, drain(body)));
        }
    }
}

/// Receives the rest of a body, up to a limit, without keeping it.
async fn drain(mut body: Body) {
    let mut room = MAX_DRAINED_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        match room.checked_sub(bytes) {
            Some(left) => room = left,
            None => return,
        }
    }
}

impl hyper::body::Body for ChargedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            let at = self.earliest + Duration::from_millis(self.received / MIN_BYTES_PER_MS);
            if at > self.deadline.deadline() {
                self.deadline.as_mut().reset(at);
            }
            return match self.deadline.as_mut().poll(cx) {
                Poll::Ready(()) => {
                    Poll::Ready(Some(Err((self.form.to_error)(BodyRefusal::TooSlow))))
                }
                Poll::Pending => Poll::Pending,
            };
        };
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let bytes = u64::try_from(data.remaining()).unwrap_or(u64::MAX);
            self.received = self.received.saturating_add(bytes);
            if let Err(spent) = self.share.grow(bytes) {
                let refusal = match spent {
                    BudgetSpent::Total => BodyRefusal::TotalBytes,
                    BudgetSpent::Owner => BodyRefusal::TenantBytes {
                        limit: self.budget.settings.get().gateway.body_bytes_per_tenant,
                    },
                };
                return Poll::Ready(Some(Err((self.form.to_error)(refusal))));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use futures::stream;
    use http_body_util::StreamBody;

    use super::*;

    const FORM: BodyForm =
        BodyForm { to_error: |refusal| axum::Error::new(refusal), is_drained: false };

    fn budget() -> BodyBudget {
        let gateway = config::Gateway {
            body_bytes: 30,
            body_bytes_per_tenant: 20,
            body_timeout: Duration::from_millis(100),
            ..config::Gateway::default()
        };
        BodyBudget::new(Config { gateway, ..Config::default() }.into())
    }

    fn refusal(read: Result<Bytes, axum::Error>) -> Option<BodyRefusal> {
        BodyRefusal::find(&read.unwrap_err())
    }

    #[tokio::test]
    async fn one_tenants_bodies_do_not_fill_the_memory_of_all() {
        let (budget, noisy, quiet) = (budget(), TenantId::generate(), TenantId::generate());
        let begin = |tenant, bytes: usize| budget.charge(tenant, Body::from(vec![0; bytes]), FORM);

        let (first, held) = begin(noisy, 15);
        assert_eq!(to_bytes(first, 100).await.unwrap().len(), 15);
        let (second, _) = begin(noisy, 6);
        let refused = refusal(to_bytes(second, 100).await);
        assert_eq!(refused, Some(BodyRefusal::TenantBytes { limit: 20 }));
        let (other, other_held) = begin(quiet, 15);
        assert!(to_bytes(other, 100).await.is_ok());
        let (third, _) = begin(quiet, 1);
        assert_eq!(refusal(to_bytes(third, 100).await), Some(BodyRefusal::TotalBytes));

        drop((held, other_held));
        assert_eq!(budget.budget.used(), 0);
    }

    #[tokio::test]
    async fn a_body_that_does_not_arrive_is_given_up() {
        let endless = StreamBody::new(stream::pending::<Result<Frame<Bytes>, axum::Error>>());

        let (body, _) = budget().charge(TenantId::generate(), Body::new(endless), FORM);

        let refused = refusal(to_bytes(body, 100).await);
        assert!(matches!(refused, Some(BodyRefusal::TooSlow)), "{refused:?}");
    }
}
