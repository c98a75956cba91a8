//! The gRPC services for a tenant's settings and state: agents, providers, keys, tenants, channels,
//! routing, MCP servers, sessions, operations.
//!
//! To serve them, make one [`State`] and call [`add_services`]. Handlers parse, call and
//! convert; `permissions.rs` decides who may call them.

pub mod accounts;
pub mod agents;
pub mod approvals;
pub mod budgets;
pub mod chains;
mod connections;
pub mod credentials;
pub mod files;
pub mod heartbeats;
pub mod keys;
mod mcp_servers;
mod memories;
pub mod models;
pub mod operations;
mod packages;
mod people;
pub mod policies;
pub mod providers;
mod routing;
pub mod schedules;
pub mod sessions;
pub mod skills;
pub mod subagents;
pub mod tenants;
pub mod work;

use std::{collections::HashMap, sync::Arc};

use holdfast_bus::Bus;
use holdfast_directory::{Actor, Directory};
use holdfast_egress::Guard;
use holdfast_grpc::{Caller, Principal};
use holdfast_proposals::Proposals;
use holdfast_proto::gateway::v1::{
    agents_server::AgentsServer, approvals_server::ApprovalsServer, audit_server::AuditServer,
    behaviors_server::BehaviorsServer, budgets_server::BudgetsServer, chains_server::ChainsServer,
    channels_server::ChannelsServer, connections_server::ConnectionsServer,
    credentials_server::CredentialsServer, devices_server::DevicesServer,
    economy_server::EconomyServer, files_server::FilesServer, heartbeats_server::HeartbeatsServer,
    keys_server::KeysServer, knowledge_server::KnowledgeServer,
    mcp_servers_server::McpServersServer, memories_server::MemoriesServer,
    models_server::ModelsServer, operations_server::OperationsServer,
    packages_server::PackagesServer, people_server::PeopleServer, plans_server::PlansServer,
    platform_keys_server::PlatformKeysServer, policies_server::PoliciesServer,
    proposals_server::ProposalsServer, providers_server::ProvidersServer,
    routing_server::RoutingServer, runs_server::RunsServer, sessions_server::SessionsServer,
    settings_server::SettingsServer, skills_server::SkillsServer,
    subagents_server::SubagentsServer, tenants_server::TenantsServer,
    usage_reports_server::UsageReportsServer, work_server::WorkServer,
    workspaces_server::WorkspacesServer,
};
use holdfast_rollback::StepRollback;
use holdfast_schedule::store::Jobs;
use holdfast_session::Sessions;
use holdfast_skills::SkillLibrary;
use holdfast_types::{AgentId, TenantId};
use holdfast_work::Work;
use holdfast_workspace::Workspaces;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tonic::service::Routes;

use crate::Error;

/// Maximum size of a message with an archive of files, in bytes.
const MAX_ARCHIVE_BYTES: usize = 80 * 1024 * 1024;

/// Maximum size of a message with an article and its metadata, in bytes.
const MAX_ARTICLE_BYTES: usize = 8 * 1024 * 1024;
/// Maximum size of a message with a skill, in bytes: its files, or a ZIP of them.
const MAX_SKILL_BYTES: usize = 24 * 1024 * 1024;

/// Dependencies of the handlers. Clones share them.
#[derive(Debug, Clone)]
pub struct State {
    pub directory: Directory,
    pub sessions: Sessions,
    pub bus: Bus,
    pub workspaces: Workspaces,
    pub jobs: Jobs,
    pub work: Work,
    pub proposals: Proposals,
    pub rollback: StepRollback,
    /// `None` if the mesh has no secret.
    pub memory: Option<holdfast_grpc::MemoryClient>,
    pub library: SkillLibrary,
    /// Checks the addresses of providers.
    pub egress: Guard,
    /// For addresses of providers of models.
    pub provider_egress: Guard,
    /// Public key with which nodes verify commands; empty if the mesh has no secret.
    pub node_command_key: Arc<[u8]>,
}

/// Adds the services to `routes`, each with its limit on a request's size.
#[must_use]
pub fn add_services(routes: Routes, state: &State, body_limit: usize) -> Routes {
    macro_rules! service {
        ($server:ident, $handler:expr) => {
            $server::new($handler(state.clone())).max_decoding_message_size(body_limit)
        };
    }
    routes
        .add_service(service!(AgentsServer, agents::Agents))
        .add_service(service!(BehaviorsServer, agents::behaviors::Behaviors))
        .add_service(
            service!(FilesServer, files::Files)
                .max_decoding_message_size(body_limit.max(MAX_ARCHIVE_BYTES))
                .max_encoding_message_size(MAX_ARCHIVE_BYTES),
        )
        .add_service(service!(PoliciesServer, policies::Policies))
        .add_service(service!(SettingsServer, agents::settings::Settings))
        .add_service(service!(ProvidersServer, providers::Providers))
        .add_service(service!(CredentialsServer, credentials::Credentials))
        .add_service(service!(ModelsServer, models::Models))
        .add_service(service!(BudgetsServer, budgets::Budgets))
        .add_service(service!(HeartbeatsServer, heartbeats::Heartbeats))
        .add_service(service!(ConnectionsServer, connections::Connections))
        .add_service(service!(KeysServer, keys::Keys))
        .add_service(service!(DevicesServer, keys::devices::Devices))
        .add_service(service!(McpServersServer, mcp_servers::McpServers))
        .add_service(service!(MemoriesServer, memories::Memories))
        .add_service(
            service!(KnowledgeServer, memories::Knowledge)
                .max_decoding_message_size(body_limit.max(MAX_ARTICLE_BYTES))
                .max_encoding_message_size(MAX_ARTICLE_BYTES),
        )
        .add_service(service!(TenantsServer, tenants::Tenants))
        .add_service(service!(ChannelsServer, accounts::Channels))
        .add_service(service!(RoutingServer, routing::Routing))
        .add_service(service!(ApprovalsServer, approvals::Approvals))
        .add_service(service!(SessionsServer, sessions::Handler))
        .add_service(service!(RunsServer, sessions::runs::Runs))
        .add_service(service!(SubagentsServer, subagents::Subagents))
        .add_service(service!(ChainsServer, chains::Chains))
        .add_service(
            service!(SkillsServer, skills::Skills)
                .max_decoding_message_size(body_limit.max(MAX_SKILL_BYTES)),
        )
        .add_service(service!(PackagesServer, packages::Packages))
        .add_service(service!(OperationsServer, operations::Handler))
        .add_service(service!(PeopleServer, people::People))
        .add_service(service!(PlansServer, tenants::plans::Plans))
        .add_service(service!(PlatformKeysServer, tenants::platform_keys::PlatformKeys))
        .add_service(service!(UsageReportsServer, tenants::usage::UsageReports))
        .add_service(service!(AuditServer, people::audit_log::Audit))
        .add_service(service!(WorkServer, work::Work))
        .add_service(service!(WorkspacesServer, files::workspaces::Workspaces))
        .add_service(service!(EconomyServer, work::economy::Economy))
        .add_service(service!(ProposalsServer, agents::proposals::Proposals))
}

/// People whose names are read.
const MAX_PEOPLE: i64 = 1_000;

impl State {
    pub(crate) async fn agent_names(&self, tenant: TenantId) -> Result<AgentNames, Error> {
        let agents = self.directory.agents().list(tenant).await?;
        let names = agents.into_iter().map(|agent| (agent.id, agent.name.to_string()));
        Ok(AgentNames(names.collect()))
    }

    /// Names of the keys and people among authors, by author id.
    pub(crate) async fn author_names(
        &self,
        tenant: TenantId,
        authors: impl Iterator<Item = &str> + Clone + Send,
    ) -> Result<HashMap<String, String>, Error> {
        let has = |prefix| authors.clone().any(|author| author.starts_with(prefix));
        let mut names = HashMap::new();
        if has("api:") {
            let keys = self.directory.keys().list(tenant).await?;
            names.extend(keys.into_iter().map(|key| (format!("api:{}", key.id), key.name)));
        }
        if has("person:") {
            let people = self.directory.people().list(tenant, None, MAX_PEOPLE).await?;
            names.extend(people.into_iter().map(|one| (format!("person:{}", one.id), one.name)));
        }
        Ok(names)
    }
}

/// Names of agents by id.
pub(crate) struct AgentNames(HashMap<AgentId, String>);

impl AgentNames {
    /// Returns an agent's name, or its id if the agent was deleted.
    pub(crate) fn of(&self, id: AgentId) -> String {
        self.0.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

/// Actor for the audit log.
pub(crate) fn actor(caller: &Caller) -> Actor {
    match caller.principal {
        Principal::Key(key) => caller.person.map_or(Actor::Key(key), Actor::Person),
        Principal::Person { id, .. } => Actor::Person(id),
        Principal::Service | Principal::Node => Actor::Operator,
    }
}

pub(crate) fn timestamp(at: jiff::Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
}

/// Returns a required field, or an error if it is missing.
pub(crate) fn required<T>(field: &'static str, message: Option<T>) -> Result<T, Error> {
    message.ok_or(Error::MissingField(field))
}

/// Returns an error if a required text is blank.
pub(crate) fn require_text(field: &'static str, text: &str) -> Result<(), Error> {
    if text.trim().is_empty() { Err(Error::MissingField(field)) } else { Ok(()) }
}

/// `None` for an empty text, which in protos means a missing one.
pub(crate) fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// Page size: `usual` if `asked` is 0; an error if it is above `most`.
pub(crate) fn page_size(asked: u32, usual: u32, most: u32) -> Result<i64, Error> {
    match asked {
        0 => Ok(usual.into()),
        asked if asked <= most => Ok(asked.into()),
        asked => Err(invalid(format!("`limit` is {most} at most, and this one is {asked}"))),
    }
}

/// Parses the serialized name of an enum's value; empty is the default value.
pub(crate) fn parse_word_or_default<T: DeserializeOwned + Serialize + Default>(
    field: &'static str,
    word: &str,
    wanted: &'static str,
) -> Result<T, Error> {
    match word {
        "" => Ok(T::default()),
        word => parse_word(field, word, wanted),
    }
}

/// Parses the serialized name of an enum's value.
///
/// Some enums read a name of a newer version as one of their values: such a name is refused here.
pub(crate) fn parse_word<T: DeserializeOwned + Serialize>(
    field: &'static str,
    word: &str,
    wanted: &'static str,
) -> Result<T, Error> {
    let parsed = serde_json::from_value(Value::String(word.to_owned())).ok();
    parsed.filter(|parsed| word_of(parsed) == word).ok_or_else(|| Error::UnknownValue {
        field,
        given: word.chars().take(80).collect(),
        wanted,
    })
}

/// Serialized name of an enum's value.
pub(crate) fn word_of<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(_) | Err(_) => String::new(),
    }
}

/// Refuses an address that the runners would refuse. Empty is the provider's own.
pub(crate) fn check_address(guard: &Guard, url: &str) -> Result<(), Error> {
    if url.is_empty() {
        return Ok(());
    }
    let checked = Guard::parse(url).and_then(|url| guard.client_for_secret(&url).map(drop));
    checked.map_err(|refused| invalid(format!("{refused}; {}", holdfast_egress::how_to_allow(url))))
}

pub(crate) fn invalid(why: String) -> Error {
    holdfast_directory::Error::Invalid(why).into()
}

#[cfg(test)]
mod tests;
