//! The service `Policies`: tool policies as stored, and their effect.

mod explain;
mod mcp;
mod tool_lists;

use std::sync::Arc;

use holdfast_agent::policy::{Catalog, CompiledPolicy, Defaults, Settings, Tool};
use holdfast_directory::StoredPolicy;
use holdfast_proto::gateway::v1::{
    self as pb, CheckPolicyRequest, CheckPolicyResponse, ExplainToolsRequest, ExplainToolsResponse,
    GetPolicyRequest, GetPolicyResponse, PutPolicyRequest, PutPolicyResponse,
    policies_server::Policies as Service,
};
use holdfast_types::{AgentId, TenantId};
use serde::Deserialize as _;
use serde_json::Value;
use tonic::{Request, Response, Status};

pub(super) use explain::explain_tools;
pub use tool_lists::list_warnings;

use super::{State, actor, invalid, non_empty, timestamp};
use crate::{
    Error, audit,
    permissions::{Permission, require},
};

/// Implements `holdfast.gateway.v1.Policies`.
#[derive(Debug)]
pub struct Policies(pub State);

impl Policies {
    /// Id of the named agent; `None` for an empty name, which means the tenant itself.
    async fn agent_id(&self, tenant: TenantId, agent: &str) -> Result<Option<AgentId>, Error> {
        match agent {
            "" => Ok(None),
            agent => Ok(Some(self.0.directory.agents().get(tenant, agent).await?.id)),
        }
    }

    /// Catalog of the runners' tools and the given MCP tools.
    async fn catalog(&self, brought: Vec<Tool>) -> Result<Arc<Catalog>, Error> {
        let tools = self.0.directory.policies().known_tools().await?;
        let tools = tools.iter().map(|tool| Tool::native(&tool.name)).chain(brought);
        let (catalog, _) = Catalog::new(tools);
        Ok(Arc::new(catalog))
    }

    /// Warnings about valid parts of a policy that were probably meant otherwise.
    async fn check(&self, of: Option<AgentId>, settings: &Settings) -> Result<Vec<String>, Error> {
        let nothing = Settings::default();
        let (tenant, agent) = match of {
            None => (settings, &nothing),
            Some(_) => (&nothing, settings),
        };
        let compiled = CompiledPolicy::new(
            self.catalog(Vec::new()).await?,
            &Defaults::default(),
            tenant,
            agent,
        );
        let compiled = compiled.map_err(|error| invalid(error.to_string()))?;
        Ok(compiled.warnings().iter().map(ToString::to_string).collect())
    }
}

#[tonic::async_trait]
impl Service for Policies {
    async fn get_policy(
        &self,
        request: Request<GetPolicyRequest>,
    ) -> Result<Response<GetPolicyResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent_id(caller.tenant, &request.agent).await?;

        let stored =
            self.0.directory.policies().get(caller.tenant, agent).await.map_err(Error::from)?;

        Ok(Response::new(GetPolicyResponse { policy: Some(policy_of(&stored)) }))
    }

    async fn put_policy(
        &self,
        request: Request<PutPolicyRequest>,
    ) -> Result<Response<PutPolicyResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.agent);
        let (document, settings) = read(&request.document)?;
        let agent = self.agent_id(caller.tenant, &request.agent).await?;
        let warnings = self.check(agent, &settings).await?;

        let (directory, by, based_on) = (&self.0.directory, actor(&caller), request.base_version);
        let stored = directory.policies().put(caller.tenant, by, agent, based_on, &document).await;

        let policy = Some(policy_of(&stored.map_err(Error::from)?));
        Ok(Response::new(PutPolicyResponse { policy, warnings }))
    }

    async fn check_policy(
        &self,
        request: Request<CheckPolicyRequest>,
    ) -> Result<Response<CheckPolicyResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let (_, settings) = read(&request.document)?;
        let agent = self.agent_id(caller.tenant, &request.agent).await?;

        let warnings = self.check(agent, &settings).await?;

        Ok(Response::new(CheckPolicyResponse { warnings }))
    }

    async fn explain_tools(
        &self,
        request: Request<ExplainToolsRequest>,
    ) -> Result<Response<ExplainToolsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        if request.mcp {
            // Probing a server starts it.
            require(&caller, Permission::Manage)?;
        }

        Ok(Response::new(explain::explain_tools(self, &caller, request).await?))
    }
}

/// Parses a document, to JSON and to settings.
fn read(document: &str) -> Result<(Value, Settings), Error> {
    let document = non_empty(document.to_owned()).ok_or(Error::MissingField("document"))?;
    let settings = Settings::parse(&document).map_err(|error| invalid(error.to_string()))?;
    let value = serde_json::from_str(&document).map_err(|error| invalid(error.to_string()))?;
    Ok((value, settings))
}

/// Parses a stored policy.
pub(super) fn settings(stored: &StoredPolicy) -> Result<Settings, Error> {
    Settings::deserialize(&stored.document).map_err(|error| {
        holdfast_directory::Error::Corrupt { what: "tool policy", source: error.into() }.into()
    })
}

fn policy_of(stored: &StoredPolicy) -> pb::Policy {
    pb::Policy {
        document: stored.document.to_string(),
        version: stored.version,
        updated_at: stored.updated_at.map(timestamp),
    }
}
