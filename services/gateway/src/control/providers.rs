//! The service `Providers`.

use holdfast_directory::{NewProvider, Provider, ProviderKind};
use holdfast_proto::gateway::v1::{
    self as pb, DeleteProviderRequest, DeleteProviderResponse, ListProvidersRequest,
    ListProvidersResponse, PutProviderRequest, PutProviderResponse,
    providers_server::Providers as Service,
};
use tonic::{Request, Response, Status};

use super::{State, actor, check_address, non_empty, required};
use crate::{Error, audit};

/// Implements `holdfast.gateway.v1.Providers`.
#[derive(Debug)]
pub struct Providers(pub State);

#[tonic::async_trait]
impl Service for Providers {
    async fn list_providers(
        &self,
        request: Request<ListProvidersRequest>,
    ) -> Result<Response<ListProvidersResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let providers =
            self.0.directory.providers().list(caller.tenant).await.map_err(Error::from)?;

        let providers = providers.into_iter().map(provider_of).collect();
        Ok(Response::new(ListProvidersResponse { providers }))
    }

    async fn put_provider(
        &self,
        request: Request<PutProviderRequest>,
    ) -> Result<Response<PutProviderResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let provider = required("provider", request.provider)?;
        check_address(&self.0.egress, &provider.base_url)?;
        let new = NewProvider {
            kind: ProviderKind::parse(&provider.kind).map_err(Error::from)?,
            name: provider.name,
            base_url: provider.base_url,
            api_key: non_empty(request.api_key).map(Into::into),
            default_model: non_empty(provider.default_model),
        };

        let provider = self.0.directory.providers().put(caller.tenant, actor(&caller), new).await;

        let provider = Some(provider_of(provider.map_err(Error::from)?));
        Ok(Response::new(PutProviderResponse { provider }))
    }

    async fn delete_provider(
        &self,
        request: Request<DeleteProviderRequest>,
    ) -> Result<Response<DeleteProviderResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);

        let by = actor(&caller);
        let deleted = self.0.directory.providers().delete(caller.tenant, by, &request.name).await;

        deleted.map_err(Error::from)?;
        Ok(Response::new(DeleteProviderResponse {}))
    }
}

fn provider_of(provider: Provider) -> pb::Provider {
    pb::Provider {
        name: provider.name,
        kind: provider.kind.as_str().to_owned(),
        base_url: provider.base_url,
        has_key: provider.has_key,
        default_model: provider.default_model.unwrap_or_default(),
    }
}
