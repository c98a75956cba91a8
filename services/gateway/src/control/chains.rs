//! The service `Chains`.

use holdfast_directory::NamedChain;
use holdfast_proto::gateway::v1::{
    self as pb, DeleteChainRequest, DeleteChainResponse, GetChainRequest, GetChainResponse,
    ListChainsRequest, ListChainsResponse, PutChainRequest, PutChainResponse,
    chains_server::Chains as Service,
};
use holdfast_types::Chain;
use tonic::{Request, Response, Status};

use super::{State, actor, invalid, required, timestamp};
use crate::{Error, audit};

/// Implements `holdfast.gateway.v1.Chains`.
#[derive(Debug)]
pub struct Chains(pub State);

#[tonic::async_trait]
impl Service for Chains {
    async fn list_chains(
        &self,
        request: Request<ListChainsRequest>,
    ) -> Result<Response<ListChainsResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let chains = self.0.directory.chains().list(caller.tenant).await.map_err(Error::from)?;

        let chains = chains.into_iter().map(chain_of).collect();
        Ok(Response::new(ListChainsResponse { chains }))
    }

    async fn get_chain(
        &self,
        request: Request<GetChainRequest>,
    ) -> Result<Response<GetChainResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;

        let chain = self.0.directory.chains().get(caller.tenant, &request.name).await;

        let chain = Some(chain_of(chain.map_err(Error::from)?));
        Ok(Response::new(GetChainResponse { chain }))
    }

    async fn put_chain(
        &self,
        request: Request<PutChainRequest>,
    ) -> Result<Response<PutChainResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let pb::Chain { name, spec, .. } = required("chain", request.chain)?;
        let chain = spec_of(&spec)?;

        let (tenant, by) = (caller.tenant, actor(&caller));
        let stored = self.0.directory.chains().put(tenant, by, &name, &chain).await;

        let chain = Some(chain_of(stored.map_err(Error::from)?));
        Ok(Response::new(PutChainResponse { chain }))
    }

    async fn delete_chain(
        &self,
        request: Request<DeleteChainRequest>,
    ) -> Result<Response<DeleteChainResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);

        let (tenant, by) = (caller.tenant, actor(&caller));
        let deleted = self.0.directory.chains().delete(tenant, by, &request.name).await;

        deleted.map_err(Error::from)?;
        Ok(Response::new(DeleteChainResponse {}))
    }
}

fn spec_of(spec: &str) -> Result<Chain, Error> {
    serde_json::from_str(spec)
        .map_err(|error| invalid(format!("`spec` is not a chain: {error}; see docs/subagents.md")))
}

fn chain_of(named: NamedChain) -> pb::Chain {
    pb::Chain {
        name: named.name,
        // A chain can always be serialized as JSON.
        spec: serde_json::to_string(&named.chain).unwrap_or_default(),
        shipped: named.shipped,
        version: named.version,
        updated_at: named.updated_at.map(timestamp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_goes_out_as_it_came_in_and_what_is_none_is_refused() {
        let spec = serde_json::to_string(&Chain::shipped()).unwrap();

        assert_eq!(spec_of(&spec).unwrap(), Chain::shipped());
        let told = spec_of(r#"{"stages":[{"stps":[]}]}"#).unwrap_err().to_string();
        assert!(told.contains("`spec` is not a chain: unknown field `stps`"), "{told}");
    }
}
