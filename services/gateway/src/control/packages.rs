//! The service `Packages`: export and import of agents as files (spec SKL-014).

use holdfast_directory::{
    Agent, AgentSettings, BehaviorLayer, BehaviorSettings, ImportedAgent, NewAgent, NewRule,
};
use holdfast_proto::gateway::v1::{
    ApproveAgentRequest, ApproveAgentResponse, ExportAgentRequest, ExportAgentResponse,
    ImportAgentRequest, ImportAgentResponse, packages_server::Packages as Service,
};
use holdfast_skills::{AgentPackage, PackagedAgent, PackagedBehaviors, PackagedRoute, SkillName};
use holdfast_types::TenantId;
use tonic::{Request, Response, Status};

use super::{State, actor, non_empty};
use crate::{Error, audit};

/// File name in error messages: a package arrives as text, without a name.
const PACKAGE_NAME_IN_ERRORS: &str = "the package";

/// Implements `holdfast.gateway.v1.Packages`.
#[derive(Debug)]
pub struct Packages(pub State);

#[tonic::async_trait]
impl Service for Packages {
    async fn export_agent(
        &self,
        request: Request<ExportAgentRequest>,
    ) -> Result<Response<ExportAgentResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let (directory, tenant) = (&self.0.directory, caller.tenant);
        let agent = directory.agents().get(tenant, &request.agent).await.map_err(Error::from)?;
        let rules = directory.routing().rules(tenant).await.map_err(Error::from)?;

        let pattern = rules.into_iter().find_map(|rule| {
            let is_its = rule.agent == agent.id && rule.by_model.is_none();
            rule.pattern.filter(|_| is_its)
        });
        let behaviors = self.packaged_behaviors(tenant, &agent).await?;
        let package = AgentPackage {
            name: package_name(agent.name.as_str()).map_err(Error::from)?,
            version: non_empty(request.version).unwrap_or_else(|| "1.0".to_owned()),
            author: non_empty(request.author),
            agent: PackagedAgent { id: agent.name, prompt: agent.instructions.trim().to_owned() },
            tools: agent.settings.tools,
            routing: pattern.map(|pattern| PackagedRoute { pattern: pattern.as_str().to_owned() }),
            behaviors,
            hit_points: agent.settings.hit_points,
        };

        let text = package.write().map_err(Error::from)?;
        Ok(Response::new(ExportAgentResponse { file: package.file_name(), text }))
    }

    async fn import_agent(
        &self,
        request: Request<ImportAgentRequest>,
    ) -> Result<Response<ImportAgentResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let package = AgentPackage::read(PACKAGE_NAME_IN_ERRORS, request.text.as_bytes())
            .map_err(Error::from)?;
        let from = package.author.map(|author| format!(" by {author}")).unwrap_or_default();
        let name = package.agent.id;
        let rule = package.routing.map(|routing| NewRule {
            pattern: Some(routing.pattern),
            agent: name.to_string(),
            ..NewRule::default()
        });
        let rule_waits = rule.is_some();
        let settings = AgentSettings {
            tools: package.tools,
            behaviors: package.behaviors.as_ref().map(behavior_settings),
            hit_points: package.hit_points,
            ..AgentSettings::default()
        };
        let agent = NewAgent {
            name,
            description: format!("From the package {} {}{from}.", package.name, package.version),
            instructions: package.agent.prompt,
            model: None,
            is_default: false,
            settings,
        };
        let documents = package.behaviors.unwrap_or_default().documents;
        let imported = ImportedAgent { agent, rule, behaviors: documents.into_iter().collect() };

        let (tenant, by) = (caller.tenant, actor(&caller));
        let made = self.0.directory.agents().import(tenant, by, imported).await;

        let made = made.map_err(Error::from)?;
        Ok(Response::new(ImportAgentResponse {
            agent_id: made.id.to_string(),
            agent: made.name.to_string(),
            rule_waits,
        }))
    }

    async fn approve_agent(
        &self,
        request: Request<ApproveAgentRequest>,
    ) -> Result<Response<ApproveAgentResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.agent);

        let (tenant, by) = (caller.tenant, actor(&caller));
        let enabled = self.0.directory.agents().approve(tenant, by, &request.agent).await;

        let rules = u32::try_from(enabled.map_err(Error::from)?).unwrap_or(u32::MAX);
        Ok(Response::new(ApproveAgentResponse { rules }))
    }
}

impl Packages {
    /// Settings and own documents of an agent that works by behaviours.
    async fn packaged_behaviors(
        &self,
        tenant: TenantId,
        agent: &Agent,
    ) -> Result<Option<PackagedBehaviors>, Error> {
        let Some(settings) = &agent.settings.behaviors else { return Ok(None) };
        let stored = self.0.directory.behaviors().list(tenant, Some(agent.id)).await?;
        let own = stored.into_iter().filter(|one| one.layer == BehaviorLayer::Agent);
        Ok(Some(PackagedBehaviors {
            default: Some(settings.default.clone()),
            max_steps: Some(settings.max_steps),
            max_hops: Some(settings.max_hops),
            max_seconds: Some(settings.max_seconds),
            documents: own.map(|one| (one.name, one.source)).collect(),
        }))
    }
}

fn behavior_settings(packaged: &PackagedBehaviors) -> BehaviorSettings {
    let usual = BehaviorSettings::default();
    BehaviorSettings {
        default: packaged.default.clone().unwrap_or(usual.default),
        max_steps: packaged.max_steps.unwrap_or(usual.max_steps),
        max_hops: packaged.max_hops.unwrap_or(usual.max_hops),
        max_seconds: packaged.max_seconds.unwrap_or(usual.max_seconds),
    }
}

/// Converts an agent's name to a package's: other characters become single hyphens.
fn package_name(name: &str) -> Result<SkillName, holdfast_skills::Error> {
    let parts = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    Ok(parts.join("-").parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_agents_name_makes_a_packages() {
        for (name, made) in [("travel", "travel"), ("my_agent-2", "my-agent-2"), ("a--b_", "a-b")] {
            assert_eq!(package_name(name).unwrap().as_str(), made);
        }
    }
}
