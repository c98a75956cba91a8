//! Failures of a reconciliation, as conditions tell them.

use std::time::Duration;

use holdfast_types::Kind;
use tonic::Status;

/// Why a resource could not be applied, and what to do about it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{problem}: {remedy}")]
pub struct Failure {
    /// The condition's reason.
    pub reason: &'static str,
    pub problem: String,
    /// What a person does about it, or what the operator does by itself.
    pub remedy: String,
    /// Minimum delay before the next attempt, if the gateway gave one.
    pub retry_after: Option<Duration>,
    /// Whether the API server failed: no condition can be written.
    pub is_of_api_server: bool,
}

/// Credential of a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    Platform,
    Tenant,
}

impl Failure {
    pub fn new(
        reason: &'static str,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            reason,
            problem: problem.into(),
            remedy: remedy.into(),
            retry_after: None,
            is_of_api_server: false,
        }
    }

    /// Whether the key of a tenant was refused.
    pub fn is_refused_tenant_key(&self) -> bool {
        self.reason == TENANT_KEY_REFUSED
    }

    /// Converts the status of a call to the gateway.
    ///
    /// Texts of failures that pass are constant: a new text is a new condition, which is written.
    pub fn of_call(status: &Status, credential: Credential) -> Self {
        let told = status.message().trim_end_matches('.').to_owned();
        let failure = match (holdfast_grpc::kind(status), credential) {
            (Kind::Invalid, _) => Self::new(
                "Refused",
                format!("the gateway refuses the values ({told})"),
                "correct the resource; it is tried again",
            ),
            (Kind::Unauthenticated, Credential::Platform) => Self::new(
                "OperatorKeyRefused",
                "the gateway refuses the operator's key",
                "put a valid key with the scope `platform` into the operator's Secret \
                 (docs/operator.md), and restart the operator",
            ),
            (Kind::Unauthenticated, Credential::Tenant) => Self::new(
                TENANT_KEY_REFUSED,
                "the gateway refuses the key of the tenant",
                "the operator makes a new one; if this stays, look at the condition of the Tenant",
            ),
            (Kind::Forbidden, _) => Self::new(
                "Forbidden",
                format!("the gateway does not permit it ({told})"),
                "give the operator a key with the scope `platform`; if the tenant is suspended, \
                 set `suspended: false` in its Tenant",
            ),
            (Kind::NotFound, _) => Self::new(
                "NotFound",
                format!("something that the resource names is not there ({told})"),
                "create it, or correct the name; it is tried again",
            ),
            (Kind::Conflict, _) => Self::new(
                "Conflict",
                format!("the gateway has a conflicting state ({told})"),
                "resolve the conflict; it is tried again",
            ),
            (Kind::Exhausted, _) => Self::new(
                "LimitReached",
                "a limit of the tenant is reached, on requests or on the number of items",
                "raise `rate` of the Tenant or delete what is not needed; it is tried again",
            ),
            (Kind::Unavailable, _) => Self::new(
                "GatewayUnavailable",
                "the gateway does not answer",
                "check that it runs and that `operator.gateway_url` is its address; it is tried \
                 again",
            ),
            (Kind::Internal, _) => Self::new(
                "GatewayFailed",
                "the gateway failed",
                "look at its log; it is tried again",
            ),
        };
        Self { retry_after: holdfast_grpc::retry_after(status), ..failure }
    }
}

const TENANT_KEY_REFUSED: &str = "TenantKeyRefused";

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        let problem = match &error {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        };
        Self {
            is_of_api_server: true,
            ..Self::new(
                "ApiServerFailed",
                format!("the API server refuses or does not answer ({problem})"),
                "check the operator's RBAC and network policy; it is tried again",
            )
        }
    }
}
