//! Client of the secrets service. Each call is signed for one tenant.
//!
//! Calls are not retried here; the caller that has a deadline retries. All of them may be repeated.

use std::{error::Error as _, time::Duration};

use holdfast_kit::{config, tls::Tls};
use holdfast_proto::secrets::v1 as pb;
use holdfast_types::{Fault, Kind, TenantId};
use secrecy::ExposeSecret as _;
use tonic::Status;

use crate::{InvalidMeshKey, InvalidUrl, Mesh, SignedChannel, Signer, kind};

/// Name of the secrets service in signed contexts.
pub const SECRETS_SERVICE: &str = "secrets-service";

/// Timeout of one call, which takes a millisecond. Postgres ends a transaction that waits for longer
/// than 5 s.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Settings with which the secrets service cannot be called.
#[derive(Debug, thiserror::Error)]
pub enum UnusableSecretsService {
    #[error("the calls cannot be signed, by `mesh.secrets_key` or the other keys of `[mesh]`")]
    Key(#[from] InvalidMeshKey),
    #[error(transparent)]
    Url(#[from] InvalidUrl),
    /// The service would have the key that only the secrets service should have.
    #[error(
        "`secrets.kek` or `secrets.previous_kek` is set beside it: give the key to the secrets \
         service only"
    )]
    HasKey,
}

/// Error of a call to the secrets service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SecretsCallError {
    /// [`Kind::Unavailable`] if the service cannot be reached, else [`Kind::Internal`]: the request
    /// of a person is not the reason.
    kind: Kind,
    message: String,
}

impl Fault for SecretsCallError {
    fn kind(&self) -> Kind {
        self.kind
    }
}

impl From<Status> for SecretsCallError {
    fn from(status: Status) -> Self {
        // A status with a source was made by the transport on this side: the connection failed.
        let (kind, message) = match kind(&status) {
            _ if status.source().is_some() => (Kind::Unavailable, "it cannot be reached now"),
            kind @ Kind::Unavailable => (kind, status.message()),
            _ => (Kind::Internal, status.message()),
        };
        Self { kind, message: format!("the secrets service did not answer: {message}") }
    }
}

/// Client of the secrets service. Clones share the connection.
#[derive(Debug, Clone)]
pub struct SecretsClient {
    client: pb::secrets_client::SecretsClient<SignedChannel>,
    mesh: Mesh,
}

impl SecretsClient {
    /// Connects lazily to `mesh.secrets_url`, as `service`; `None` if it is not set.
    ///
    /// # Errors
    ///
    /// If a setting cannot be used, or the service has the key-encryption key nevertheless.
    pub fn configured(
        secrets: &config::Secrets,
        mesh: &config::Mesh,
        tls: &Tls,
        service: &'static str,
    ) -> Result<Option<Self>, UnusableSecretsService> {
        let is_set = |key: &secrecy::SecretString| !key.expose_secret().is_empty();
        if mesh.secrets_url.is_empty() {
            return Ok(None);
        }
        if is_set(&secrets.kek) || is_set(&secrets.previous_kek) {
            return Err(UnusableSecretsService::HasKey);
        }
        let mut keys = mesh.clone();
        if is_set(&mesh.secrets_key) {
            keys.key = mesh.secrets_key.clone();
        }
        let url = &mesh.secrets_url;
        let mesh = Mesh::new(Signer::new(&keys)?, service).with_tls(tls.clone());
        let channel = mesh.connect(url, SECRETS_SERVICE, CALL_TIMEOUT)?;
        Ok(Some(Self { client: pb::secrets_client::SecretsClient::new(channel), mesh }))
    }
}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($request:ident) -> $response:ident;)*) => {
        impl SecretsClient {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                ///
                /// [`Kind::Unavailable`] if the service cannot be reached, [`Kind::Internal`] if it
                /// refuses the call.
                pub async fn $name(
                    &self,
                    tenant: TenantId,
                    request: pb::$request,
                ) -> Result<pb::$response, SecretsCallError> {
                    let request = self.mesh.request(tenant, request, CALL_TIMEOUT);
                    // Boxed, since the callers' futures are large already.
                    let mut client = self.client.clone();
                    Ok(Box::pin(client.$name(request)).await?.into_inner())
                }
            )*
        }
    };
}

calls! {
    /// Creates a data key of a tenant, and returns it sealed.
    create_data_key(CreateDataKeyRequest) -> CreateDataKeyResponse;
    /// Seals a value for one purpose.
    seal(SealRequest) -> SealResponse;
    /// Opens a value that was sealed for this purpose.
    open(OpenRequest) -> OpenResponse;
    /// Derives the keys of requests on NATS, or those of jobs. The tenant is of no importance.
    derive_signing_keys(DeriveSigningKeysRequest) -> DeriveSigningKeysResponse;
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://127.0.0.1:1";

    fn configured(
        mesh: config::Mesh,
        secrets: &config::Secrets,
    ) -> Result<Option<SecretsClient>, String> {
        let client = SecretsClient::configured(secrets, &mesh, &Tls::default(), "gateway");
        client.map_err(|error| error.to_string())
    }

    fn at(url: &str) -> config::Mesh {
        let key = "0123456789abcdef".into();
        config::Mesh { key, secrets_url: url.to_owned(), ..config::Mesh::default() }
    }

    #[tokio::test]
    async fn a_service_that_calls_it_has_no_key() {
        let none = config::Secrets::default();
        let kek = config::Secrets { kek: "k".into(), ..none.clone() };
        let previous = config::Secrets { previous_kek: "k".into(), ..none.clone() };

        assert!(configured(at(""), &kek).unwrap().is_none());
        assert!(configured(at(URL), &none).unwrap().is_some());
        for secrets in [kek, previous] {
            assert!(configured(at(URL), &secrets).unwrap_err().contains("secrets service only"));
        }
        assert!(configured(at("not a url"), &none).is_err());
        let weak = config::Mesh { secrets_key: "short".into(), ..at(URL) };
        assert!(configured(weak, &none).is_err());
    }

    #[tokio::test]
    async fn a_service_that_is_down_is_unavailable_and_one_that_refuses_is_a_defect() {
        let client = configured(at(URL), &config::Secrets::default()).unwrap().unwrap();
        let down = client.open(TenantId::generate(), pb::OpenRequest::default()).await;

        assert_eq!(down.unwrap_err().kind(), Kind::Unavailable);
        let refused = SecretsCallError::from(Status::permission_denied("not for you"));
        assert_eq!(refused.kind(), Kind::Internal);
        assert!(refused.to_string().ends_with("not for you"), "{refused}");
        let stopping = SecretsCallError::from(Status::unavailable("it stops"));
        assert_eq!(stopping.kind(), Kind::Unavailable);
    }
}
