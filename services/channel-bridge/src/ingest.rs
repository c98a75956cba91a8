//! Handing messages to the gateway.
//!
//! A message is the gateway's once `Accept` has answered, and not before: until
//! then its platform must be able to send it again. A try may be repeated as
//! often as one likes, since its idempotency key makes the second change nothing.

use std::{error::Error as _, time::Duration};

use holdfast_grpc::{InvalidUrl, Mesh, channel};
use holdfast_kit::Backoff;
use holdfast_proto::gateway::v1::{AcceptRequest, AcceptResponse, ingest_client::IngestClient};
use holdfast_types::{Kind, TenantId};
use tokio::time::{Instant, sleep};
use tonic::{Status, transport::Channel};
use tracing::{error, warn};

/// How long one try may take.
const CALL: Duration = Duration::from_secs(10);

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// For how long a message is offered to a session that has no room.
const FULL: Duration = Duration::from_secs(15);

/// How often a message is offered to a gateway that it breaks.
const BROKEN_TRIES: u32 = 10;

/// Why the gateway has not got a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not there, or cannot work now.
    #[error("the gateway cannot take messages now: {0}")]
    Away(String),
    /// It does not believe that we are of the mesh, or the tenant may not.
    #[error("the gateway refuses this service: {0}")]
    Forbidden(String),
    /// Too much waits already.
    #[error("{reason}")]
    Full {
        /// Why, for the sender.
        reason: String,
        /// When to try again.
        after: Option<Duration>,
    },
    /// The same key came with another message.
    #[error("{0}")]
    Reused(String),
    /// It can never be taken as it is.
    #[error("{0}")]
    Invalid(String),
    /// It makes the gateway fail.
    #[error("the gateway failed: {0}")]
    Broken(String),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        let message = status.message().to_owned();
        // What has a source was made on this side: the connection broke.
        if status.source().is_some() {
            return Self::Away(message);
        }
        match holdfast_grpc::kind(&status) {
            Kind::Unavailable => Self::Away(message),
            Kind::Unauthenticated | Kind::Forbidden => Self::Forbidden(message),
            Kind::Exhausted => {
                Self::Full { reason: message, after: holdfast_grpc::retry_after(&status) }
            }
            Kind::Conflict => Self::Reused(message),
            Kind::Invalid | Kind::NotFound => Self::Invalid(message),
            Kind::Internal => Self::Broken(message),
        }
    }
}

/// The gateway's door for channels.
#[derive(Debug, Clone)]
pub struct Ingest {
    client: IngestClient<Channel>,
    mesh: Mesh,
}

impl Ingest {
    /// The gateway at `url`, which need not be there yet.
    ///
    /// # Errors
    ///
    /// If the URL is none.
    pub fn new(url: &str, mesh: Mesh) -> Result<Self, InvalidUrl> {
        Ok(Self { client: IngestClient::new(channel(url, CALL)?), mesh })
    }

    /// Offers a message once.
    ///
    /// # Errors
    ///
    /// If the gateway has not got it, as far as we know.
    pub async fn accept(
        &self,
        tenant: TenantId,
        request: AcceptRequest,
    ) -> Result<AcceptResponse, Refusal> {
        let request = self.mesh.request(tenant, request);
        let answer = self.client.clone().accept(request).await?;
        Ok(answer.into_inner())
    }

    /// Offers a message again while the gateway is away, for up to `patience`.
    ///
    /// # Errors
    ///
    /// As [`accept`](Self::accept).
    pub async fn accept_within(
        &self,
        tenant: TenantId,
        request: AcceptRequest,
        patience: Duration,
    ) -> Result<AcceptResponse, Refusal> {
        let until = Instant::now() + patience;
        let mut tries = 0;
        loop {
            match self.accept(tenant, request.clone()).await {
                Err(Refusal::Away(why)) => {
                    let pause = BACKOFF.delay(tries);
                    if Instant::now() + pause >= until {
                        return Err(Refusal::Away(why));
                    }
                    sleep(pause).await;
                }
                done => return done,
            }
            tries += 1;
        }
    }

    /// Offers a message until it is taken or refused for good: for platforms that wait with
    /// everything that comes after it.
    ///
    /// # Errors
    ///
    /// If it can never be taken, or not while others wait behind it.
    pub async fn accept_patiently(
        &self,
        tenant: TenantId,
        request: AcceptRequest,
    ) -> Result<AcceptResponse, Refusal> {
        let began = Instant::now();
        let mut broken = 0;
        for tries in 0_u32.. {
            let refusal = match self.accept(tenant, request.clone()).await {
                Ok(accepted) => return Ok(accepted),
                Err(refusal) => refusal,
            };
            let pause = match &refusal {
                Refusal::Away(_) => BACKOFF.delay(tries),
                Refusal::Forbidden(_) => BACKOFF.max,
                Refusal::Full { after, .. } if began.elapsed() < FULL => {
                    after.unwrap_or(BACKOFF.max).clamp(BACKOFF.base, BACKOFF.max)
                }
                Refusal::Broken(_) if broken + 1 < BROKEN_TRIES => {
                    broken += 1;
                    BACKOFF.cap(broken)
                }
                Refusal::Full { .. }
                | Refusal::Broken(_)
                | Refusal::Reused(_)
                | Refusal::Invalid(_) => return Err(refusal),
            };
            tell(&refusal, tries);
            sleep(pause).await;
        }
        Err(Refusal::Away("never".to_owned()))
    }
}

/// Once when it begins, and again as it lasts.
fn tell(refusal: &Refusal, tries: u32) {
    if !tries.is_multiple_of(50) {
        return;
    }
    match refusal {
        Refusal::Forbidden(_) => {
            error!(%refusal, "messages wait; is `mesh.secret` the gateway's own, and the tenant active?");
        }
        Refusal::Away(_)
        | Refusal::Full { .. }
        | Refusal::Reused(_)
        | Refusal::Invalid(_)
        | Refusal::Broken(_) => warn!(%refusal, "messages wait at their platforms"),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_grpc::with_retry_after;

    use super::*;

    #[test]
    fn a_status_says_what_to_do_next() {
        let after = Duration::from_secs(2);
        let full = with_retry_after(Status::resource_exhausted("200 wait"), after);

        assert_eq!(Refusal::from(Status::unavailable("x")), Refusal::Away("x".into()));
        assert_eq!(Refusal::from(Status::unauthenticated("x")), Refusal::Forbidden("x".into()));
        assert_eq!(
            Refusal::from(full),
            Refusal::Full { reason: "200 wait".into(), after: Some(after) }
        );
        assert_eq!(Refusal::from(Status::aborted("x")), Refusal::Reused("x".into()));
        assert_eq!(Refusal::from(Status::invalid_argument("x")), Refusal::Invalid("x".into()));
        assert_eq!(Refusal::from(Status::internal("x")), Refusal::Broken("x".into()));
    }

    #[tokio::test]
    async fn a_gateway_that_is_not_there_is_away() {
        let signer = holdfast_grpc::Signer::new(&"0123456789abcdef".into()).unwrap();
        let ingest = Ingest::new("http://127.0.0.1:1", Mesh::new(signer, "test")).unwrap();

        let patience = Duration::from_millis(300);
        let refused =
            ingest.accept_within(TenantId::generate(), AcceptRequest::default(), patience).await;

        assert!(matches!(refused, Err(Refusal::Away(_))), "{refused:?}");
    }
}
