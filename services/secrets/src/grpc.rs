//! gRPC service: parses requests, checks access, seals and opens, logs each opening.

use std::time::Duration;

use axum::Router;
use holdfast_directory::{Error, KeyPurpose, LocalSeal, Purpose};
use holdfast_grpc::{
    Caller, MeshAuthLayer, SECRETS_SERVICE, Scope, Signer, caller, deadline::DeadlineLayer,
    trace::TraceLayer,
};
use holdfast_kit::{Readiness, telemetry};
use holdfast_proto::secrets::v1::{
    self as pb, CreateDataKeyRequest, CreateDataKeyResponse, DeriveSigningKeysRequest,
    DeriveSigningKeysResponse, OpenRequest, OpenResponse, SealRequest, SealResponse,
    secrets_server::{Secrets, SecretsServer},
};
use secrecy::ExposeSecret as _;
use tonic::{Request, Response, Status, service::Routes};
use tower_http::catch_panic::CatchPanicLayer;
use tracing::{info, warn};

use crate::access::{CALLERS, CREATORS, SIGNERS, openers, sealers};

/// Maximum duration of a call. Callers send a shorter one.
const MAX_CALL_TIME: Duration = Duration::from_secs(10);

/// Maximum length of a named use in a log line, in characters.
const MAX_USE_CHARS: usize = 100;

/// Returns the routes: gRPC for services of the mesh, health and metrics.
pub fn router(
    seal: LocalSeal,
    signer: Signer,
    readiness: &Readiness,
    telemetry: &telemetry::Config,
) -> Router {
    let calls = Routes::new(SecretsServer::new(SecretsGrpc(seal)))
        .into_axum_router()
        .reset_fallback()
        .layer(CatchPanicLayer::custom(|_| {
            Status::internal("internal error").into_http::<axum::body::Body>()
        }))
        .layer(DeadlineLayer::new(MAX_CALL_TIME))
        .layer(MeshAuthLayer::new(signer, SECRETS_SERVICE, &CALLERS))
        .layer(TraceLayer);
    let health =
        Routes::new(holdfast_grpc::health_service(readiness)).into_axum_router().reset_fallback();
    holdfast_doors::health(readiness.clone(), telemetry).merge(health).merge(calls)
}

/// Implementation of `holdfast.secrets.v1.Secrets`.
struct SecretsGrpc(LocalSeal);

/// A call of a service, for log lines and metrics.
struct Call {
    caller: Caller,
    operation: &'static str,
    /// Kind of the secret.
    purpose: &'static str,
}

impl Call {
    fn new<T>(request: Request<T>, operation: &'static str) -> Result<(Self, T), Status> {
        let (caller, message) = caller(request)?;
        caller.require(Scope::Service)?;
        Ok((Self { caller, operation, purpose: "none" }, message))
    }

    /// Checks that the calling service is one of these.
    fn allow(&self, services: &[&str]) -> Result<(), Status> {
        if services.contains(&self.caller.name.as_str()) {
            return Ok(());
        }
        let Self { caller: Caller { name: service, tenant, .. }, operation, purpose } = self;
        warn!(service, tenant.id = %tenant, operation, purpose, "a service is refused");
        self.count("refused");
        Err(Status::permission_denied(format!(
            "`{service}` may not {operation} secrets of the kind `{purpose}`"
        )))
    }

    fn count(&self, outcome: &'static str) {
        // The name is one of the list, so that the label's values are a closed set.
        let known = CALLERS.into_iter().find(|name| *name == self.caller.name);
        metrics::counter!(
            "holdfast_secrets_operations_total",
            "service" => known.unwrap_or_default(),
            "operation" => self.operation,
            "purpose" => self.purpose,
            "outcome" => outcome
        )
        .increment(1);
    }

    /// Counts the outcome, and converts an error.
    fn end<T>(&self, outcome: Result<T, Error>) -> Result<T, Status> {
        self.count(if outcome.is_ok() { "ok" } else { "failed" });
        outcome.map_err(|error| holdfast_grpc::status(&error))
    }
}

fn purpose_of(message: Option<&pb::Purpose>) -> Result<Purpose<'_>, Status> {
    let purpose = message.and_then(Purpose::from_message);
    purpose.ok_or_else(|| Status::invalid_argument("`purpose` is missing or malformed"))
}

#[tonic::async_trait]
impl Secrets for SecretsGrpc {
    async fn create_data_key(
        &self,
        request: Request<CreateDataKeyRequest>,
    ) -> Result<Response<CreateDataKeyResponse>, Status> {
        let (call, _) = Call::new(request, "create")?;
        let call = Call { purpose: "data-key", ..call };
        call.allow(CREATORS)?;
        let data_key = call.end(self.0.new_data_key(call.caller.tenant).await)?;
        Ok(Response::new(CreateDataKeyResponse { data_key }))
    }

    async fn seal(&self, request: Request<SealRequest>) -> Result<Response<SealResponse>, Status> {
        let (call, message) = Call::new(request, "seal")?;
        let purpose = purpose_of(message.purpose.as_ref())?;
        let call = Call { purpose: purpose.kind(), ..call };
        call.allow(sealers(purpose))?;
        let data_key = (call.caller.tenant, message.data_key.as_slice());
        let sealed = call.end(self.0.seal(data_key, purpose, &message.value).await)?;
        Ok(Response::new(SealResponse { sealed }))
    }

    async fn open(&self, request: Request<OpenRequest>) -> Result<Response<OpenResponse>, Status> {
        let (call, message) = Call::new(request, "open")?;
        let purpose = purpose_of(message.purpose.as_ref())?;
        let call = Call { purpose: purpose.kind(), ..call };
        call.allow(openers(purpose))?;
        let data_key = (call.caller.tenant, message.data_key.as_slice());
        let opened = self.0.open(data_key, purpose, &message.sealed).await;
        let Call { caller: Caller { name: service, tenant, .. }, purpose, .. } = &call;
        let usage: String =
            message.r#use.chars().filter(|char| !char.is_control()).take(MAX_USE_CHARS).collect();
        let value = match opened {
            Ok(opened) => {
                info!(service, tenant.id = %tenant, purpose, usage, "a secret was opened");
                call.count("ok");
                Some(opened.expose_secret().to_vec())
            }
            Err(Error::Unsealable(_)) => {
                warn!(service, tenant.id = %tenant, purpose, usage, "a secret cannot be opened");
                call.count("unsealable");
                None
            }
            Err(error) => return call.end(Err(error)),
        };
        Ok(Response::new(OpenResponse { value }))
    }

    async fn derive_signing_keys(
        &self,
        request: Request<DeriveSigningKeysRequest>,
    ) -> Result<Response<DeriveSigningKeysResponse>, Status> {
        let (call, message) = Call::new(request, "derive")?;
        let call = Call { purpose: "signing-keys", ..call };
        call.allow(SIGNERS)?;
        let purpose = KeyPurpose::from_message(message.purpose())
            .ok_or_else(|| Status::invalid_argument("`purpose` is missing"))?;
        let keys = call.end(self.0.signing_keys(purpose, &message.secret).await)?;
        let keys = keys.iter().map(|key| key.to_vec()).collect();
        Ok(Response::new(DeriveSigningKeysResponse { keys }))
    }
}
