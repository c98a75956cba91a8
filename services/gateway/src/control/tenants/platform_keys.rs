//! The service `PlatformKeys`, for operators.

use holdfast_directory::{NewPlatformKey, PlatformKeySummary, PlatformProvider, ProviderKind};
use holdfast_proto::gateway::v1::{
    self as pb, DeletePlatformKeyRequest, DeletePlatformKeyResponse, ListPlatformKeysRequest,
    ListPlatformKeysResponse, PutPlatformKeyRequest, PutPlatformKeyResponse,
    platform_keys_server::PlatformKeys as Service,
};
use jiff::Timestamp;
use tonic::{Request, Response, Status};

use super::super::{State, check_address, timestamp};
use crate::{Error, audit};

/// Implements `holdfast.gateway.v1.PlatformKeys`.
#[derive(Debug)]
pub struct PlatformKeys(pub State);

#[tonic::async_trait]
impl Service for PlatformKeys {
    async fn list_platform_keys(
        &self,
        request: Request<ListPlatformKeysRequest>,
    ) -> Result<Response<ListPlatformKeysResponse>, Status> {
        holdfast_grpc::caller(request)?;

        let providers = self.0.directory.platform_keys().list().await.map_err(Error::from)?;

        let providers = providers.into_iter().map(provider_of).collect();
        Ok(Response::new(ListPlatformKeysResponse { providers }))
    }

    async fn put_platform_key(
        &self,
        request: Request<PutPlatformKeyRequest>,
    ) -> Result<Response<PutPlatformKeyResponse>, Status> {
        let (_, request) = holdfast_grpc::caller(request)?;
        audit::set_target(format!("{}/{}", request.provider, request.name));
        check_address(&self.0.provider_egress, request.base_url.as_deref().unwrap_or_default())?;
        let kind = request.kind.as_deref().map(ProviderKind::parse).transpose();
        let new = NewPlatformKey {
            provider: request.provider,
            name: request.name,
            key: request.api_key.into(),
            kind: kind.map_err(Error::from)?,
            base_url: request.base_url,
            default_model: request.default_model,
        };

        let provider = self.0.directory.platform_keys().put(&new).await.map_err(Error::from)?;

        Ok(Response::new(PutPlatformKeyResponse { provider: Some(provider_of(provider)) }))
    }

    async fn delete_platform_key(
        &self,
        request: Request<DeletePlatformKeyRequest>,
    ) -> Result<Response<DeletePlatformKeyResponse>, Status> {
        let (_, request) = holdfast_grpc::caller(request)?;
        let DeletePlatformKeyRequest { provider, name } = request;
        audit::set_target(format!("{provider}/{name}"));

        self.0.directory.platform_keys().delete(&provider, &name).await.map_err(Error::from)?;

        Ok(Response::new(DeletePlatformKeyResponse {}))
    }
}

fn provider_of(provider: PlatformProvider) -> pb::PlatformProvider {
    pb::PlatformProvider {
        name: provider.name,
        kind: provider.kind.as_str().to_owned(),
        base_url: provider.base_url,
        default_model: provider.default_model.unwrap_or_default(),
        keys: provider.keys.into_iter().map(key_of).collect(),
    }
}

fn key_of(key: PlatformKeySummary) -> pb::PlatformKey {
    let until = key.stats.unusable_until(Timestamp::now().as_millisecond());
    let until = until.and_then(|until| Timestamp::from_millisecond(until).ok());
    let failures = key.stats.failure_counts.iter();
    pb::PlatformKey {
        name: key.name,
        updated_at: Some(timestamp(key.updated_at)),
        unusable_until: until.map(timestamp),
        failures: failures.map(|(reason, count)| (reason.as_str().to_owned(), *count)).collect(),
    }
}
