//! The service `Providers`.

use holdfast_directory::{NewProvider, Provider, ProviderKind};
use holdfast_proto::gateway::v1::{
    self as pb, DeleteProviderRequest, DeleteProviderResponse, ListProvidersRequest,
    ListProvidersResponse, PutProviderRequest, PutProviderResponse,
    providers_server::Providers as Service,
};
use serde_json::{Map, Value};
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
        check_address(&self.0.provider_egress, &provider.base_url)?;
        let headers = match (request.remove_headers, request.headers.is_empty()) {
            (false, true) => None,
            (true, false) => {
                let why = "`headers` and `remove_headers` exclude each other: give one of them";
                return Err(Status::invalid_argument(why));
            }
            _ => Some(request.headers.into_iter().map(|(name, value)| (name, value.into()))),
        };
        let headers = headers.map(Iterator::collect);
        let extra_body = provider.extra_body.as_deref().map(object_of).transpose()?;
        let new = NewProvider {
            kind: ProviderKind::parse(&provider.kind).map_err(Error::from)?,
            name: provider.name,
            base_url: provider.base_url,
            api_key: non_empty(request.api_key).map(Into::into),
            default_model: non_empty(provider.default_model),
            headers,
            extra_body,
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

/// Parses the fields for a body. An empty text is no fields.
fn object_of(text: &str) -> Result<Map<String, Value>, Status> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(text).map_err(|_| {
        Status::invalid_argument(
            "`extra_body` is not a JSON object: write one, as `{\"top_k\": 40}`",
        )
    })
}

fn provider_of(provider: Provider) -> pb::Provider {
    pb::Provider {
        name: provider.name,
        kind: provider.kind.as_str().to_owned(),
        base_url: provider.base_url,
        has_key: provider.has_key,
        default_model: provider.default_model.unwrap_or_default(),
        header_names: provider.header_names,
        extra_body: Some(Value::Object(provider.extra_body).to_string()),
    }
}
