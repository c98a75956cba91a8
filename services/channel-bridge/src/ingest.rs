//! Hand-over of inbound messages to the gateway.
//!
//! The gateway owns a message once `Accept` has returned, and not before: until then its platform
//! must be able to send it again. An attempt may be repeated any number of times, since the
//! idempotency key makes the second one change nothing.

use std::{error::Error as _, time::Duration};

use holdfast_grpc::{InvalidUrl, Mesh, SignedChannel};
use holdfast_kit::Backoff;
use holdfast_proto::gateway::v1::{AcceptRequest, AcceptResponse, ingest_client::IngestClient};
use holdfast_types::{Kind, TenantId};
use tokio::time::{Instant, sleep};
use tonic::Status;
use tracing::{error, warn};

/// Timeout of one attempt.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// Time for which a message is retried while its session has no room.
const FULL_SESSION_TIMEOUT: Duration = Duration::from_secs(15);

/// Number of attempts for a message that makes the gateway fail.
const MAX_FAILED_TRIES: u32 = 10;

/// Reason why the gateway has not accepted a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// The gateway is unreachable, or cannot work now.
    #[error("the gateway cannot take messages now: {0}")]
    Unavailable(String),
    /// The gateway does not trust this service, or the tenant is not permitted.
    #[error("the gateway refuses this service: {0}")]
    Forbidden(String),
    /// Too many messages wait already, or calls are open; there will be room.
    #[error("{reason}")]
    Full {
        reason: String,
        /// Time after which to retry.
        after: Duration,
    },
    /// A quota of the tenant is used up: waiting does not help.
    #[error("{0}")]
    QuotaSpent(String),
    /// The same key came with another message.
    #[error("{0}")]
    KeyReused(String),
    /// The gateway will never accept this message.
    #[error("{0}")]
    Invalid(String),
    /// The message makes the gateway fail.
    #[error("the gateway failed: {0}")]
    GatewayFailed(String),
}

impl From<Status> for AcceptError {
    fn from(status: Status) -> Self {
        let message = status.message().to_owned();
        // A status with a source was made on this side: the connection broke.
        if status.source().is_some() {
            return Self::Unavailable(message);
        }
        match holdfast_grpc::kind(&status) {
            Kind::Unavailable => Self::Unavailable(message),
            Kind::Unauthenticated | Kind::Forbidden => Self::Forbidden(message),
            Kind::Exhausted => match holdfast_grpc::retry_after(&status) {
                Some(after) => Self::Full { reason: message, after },
                None => Self::QuotaSpent(message),
            },
            Kind::Conflict => Self::KeyReused(message),
            Kind::Invalid | Kind::NotFound => Self::Invalid(message),
            Kind::Internal => Self::GatewayFailed(message),
        }
    }
}

/// Client of the gateway for inbound messages.
#[derive(Debug, Clone)]
pub struct Ingest {
    client: IngestClient<SignedChannel>,
    mesh: Mesh,
}

impl Ingest {
    /// Connects lazily to the gateway at `url`, which may be unreachable now.
    ///
    /// # Errors
    ///
    /// If the URL is invalid.
    pub fn new(url: &str, mesh: Mesh) -> Result<Self, InvalidUrl> {
        let channel = mesh.connect(url, "gateway", CALL_TIMEOUT)?;
        Ok(Self { client: IngestClient::new(channel), mesh })
    }

    /// Offers a message once.
    ///
    /// # Errors
    ///
    /// If the gateway has not accepted it, as far as we know.
    pub async fn accept(
        &self,
        tenant: TenantId,
        request: AcceptRequest,
    ) -> Result<AcceptResponse, AcceptError> {
        let request = self.mesh.request(tenant, request, CALL_TIMEOUT);
        let answer = self.client.clone().accept(request).await?;
        Ok(answer.into_inner())
    }

    /// Offers a message, and retries for up to `patience` while the gateway is unavailable.
    ///
    /// # Errors
    ///
    /// See [`accept`](Self::accept).
    pub async fn accept_within(
        &self,
        tenant: TenantId,
        request: AcceptRequest,
        patience: Duration,
    ) -> Result<AcceptResponse, AcceptError> {
        let until = Instant::now() + patience;
        let mut tries = 0;
        loop {
            match self.accept(tenant, request.clone()).await {
                Err(AcceptError::Unavailable(why)) => {
                    let pause = BACKOFF.delay(tries);
                    if Instant::now() + pause >= until {
                        return Err(AcceptError::Unavailable(why));
                    }
                    sleep(pause).await;
                }
                done => return done,
            }
            tries += 1;
        }
    }

    /// Offers a message until it is accepted or refused for good: for platforms that hold back all
    /// later messages meanwhile.
    ///
    /// # Errors
    ///
    /// If it can never be accepted, or not within a time that later messages can wait.
    pub async fn accept_until_decided(
        &self,
        tenant: TenantId,
        request: AcceptRequest,
    ) -> Result<AcceptResponse, AcceptError> {
        let began = Instant::now();
        let mut broken = 0;
        for tries in 0_u32.. {
            let refusal = match self.accept(tenant, request.clone()).await {
                Ok(accepted) => return Ok(accepted),
                Err(refusal) => refusal,
            };
            let pause = match &refusal {
                AcceptError::Unavailable(_) => BACKOFF.delay(tries),
                AcceptError::Forbidden(_) => BACKOFF.max,
                AcceptError::Full { after, .. } if began.elapsed() < FULL_SESSION_TIMEOUT => {
                    (*after).clamp(BACKOFF.base, BACKOFF.max)
                }
                AcceptError::GatewayFailed(_) if broken + 1 < MAX_FAILED_TRIES => {
                    broken += 1;
                    BACKOFF.cap(broken)
                }
                AcceptError::Full { .. }
                | AcceptError::QuotaSpent(_)
                | AcceptError::GatewayFailed(_)
                | AcceptError::KeyReused(_)
                | AcceptError::Invalid(_) => return Err(refusal),
            };
            log_waiting(&refusal, tries);
            sleep(pause).await;
        }
        Err(AcceptError::Unavailable("never".to_owned()))
    }
}

/// Logs the first refusal, and then every 50th.
fn log_waiting(refusal: &AcceptError, tries: u32) {
    if !tries.is_multiple_of(50) {
        return;
    }
    match refusal {
        AcceptError::Forbidden(_) => {
            error!(
                %refusal,
                "messages wait; is `mesh.key` among the gateway's `mesh.caller_keys`, its clock right, and the tenant active?"
            );
        }
        AcceptError::Unavailable(_)
        | AcceptError::Full { .. }
        | AcceptError::QuotaSpent(_)
        | AcceptError::KeyReused(_)
        | AcceptError::Invalid(_)
        | AcceptError::GatewayFailed(_) => warn!(%refusal, "messages wait at their platforms"),
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

        assert_eq!(
            AcceptError::from(Status::unavailable("x")),
            AcceptError::Unavailable("x".into())
        );
        assert_eq!(
            AcceptError::from(Status::unauthenticated("x")),
            AcceptError::Forbidden("x".into())
        );
        assert_eq!(AcceptError::from(full), AcceptError::Full { reason: "200 wait".into(), after });
        assert_eq!(
            AcceptError::from(Status::resource_exhausted("2 sessions is the most")),
            AcceptError::QuotaSpent("2 sessions is the most".into())
        );
        assert_eq!(AcceptError::from(Status::aborted("x")), AcceptError::KeyReused("x".into()));
        assert_eq!(
            AcceptError::from(Status::invalid_argument("x")),
            AcceptError::Invalid("x".into())
        );
        assert_eq!(
            AcceptError::from(Status::internal("x")),
            AcceptError::GatewayFailed("x".into())
        );
    }

    #[tokio::test]
    async fn a_gateway_that_is_not_there_is_away() {
        let secret = "0123456789abcdef".into();
        let mesh = holdfast_kit::config::Mesh { secret, ..holdfast_kit::config::Mesh::default() };
        let signer = holdfast_grpc::Signer::new(&mesh).unwrap();
        let ingest = Ingest::new("http://127.0.0.1:1", Mesh::new(signer, "test")).unwrap();

        let patience = Duration::from_millis(300);
        let refused =
            ingest.accept_within(TenantId::generate(), AcceptRequest::default(), patience).await;

        assert!(matches!(refused, Err(AcceptError::Unavailable(_))), "{refused:?}");
    }
}
