//! gRPC client of the gateway.

mod target;

use std::{env, time::Duration};

use holdfast_kit::{config, tls::Tls};
use holdfast_proto::gateway::v1::{
    agents_client::AgentsClient, approvals_client::ApprovalsClient, audit_client::AuditClient,
    behaviors_client::BehaviorsClient, budgets_client::BudgetsClient, chains_client::ChainsClient,
    channels_client::ChannelsClient, connections_client::ConnectionsClient,
    console_client::ConsoleClient, credentials_client::CredentialsClient,
    devices_client::DevicesClient, economy_client::EconomyClient,
    event_webhooks_client::EventWebhooksClient, events_client::EventsClient,
    files_client::FilesClient, heartbeats_client::HeartbeatsClient, keys_client::KeysClient,
    knowledge_client::KnowledgeClient, mcp_servers_client::McpServersClient,
    memories_client::MemoriesClient, messages_client::MessagesClient, models_client::ModelsClient,
    nodes_client::NodesClient, operations_client::OperationsClient,
    packages_client::PackagesClient, people_client::PeopleClient, plans_client::PlansClient,
    platform_keys_client::PlatformKeysClient, policies_client::PoliciesClient,
    proposals_client::ProposalsClient, providers_client::ProvidersClient,
    routing_client::RoutingClient, schedules_client::SchedulesClient,
    security_client::SecurityClient, sessions_client::SessionsClient,
    settings_client::SettingsClient, skills_client::SkillsClient,
    subagents_client::SubagentsClient, tenants_client::TenantsClient,
    usage_reports_client::UsageReportsClient, work_client::WorkClient,
    workspaces_client::WorkspacesClient,
};
use tonic::{
    Request, Response, Status,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};

use crate::{
    error::Error,
    global::Global,
    tokens::{Session, bearer},
};

pub use target::Target;

/// Maximum time until a call's answer begins.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time until the answer of a call begins for which a model is asked.
const MODEL_TIMEOUT: Duration = Duration::from_mins(3);
/// Maximum size of an answer, in bytes. A long history exceeds tonic's default of 4 MiB.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Maximum size of a message with an article and its metadata, in bytes.
pub const MAX_ARTICLE_BYTES: usize = 8 * 1024 * 1024;

/// Maximum size of an archive with all files of an agent, in bytes.
const MAX_ARCHIVE_BYTES: usize = 80 * 1024 * 1024;

/// Gateway client with a credential. Connects at the first call.
#[derive(Debug, Clone)]
pub struct Client {
    url: String,
    credential: Credential,
    channel: Channel,
    /// For calls that wait for a model.
    model_channel: Channel,
    /// Whether the gateway is that of `holdfast up` on this machine.
    is_local_mesh: bool,
}

/// Value of `authorization`.
#[derive(Debug, Clone)]
enum Credential {
    Fixed(MetadataValue<Ascii>),
    /// A person's sign-in, whose token is renewed.
    Session(Session),
}

impl Client {
    /// Creates a client from the global options, or else from a sign-in (`holdfast login`) or the
    /// files of `up`.
    pub async fn new(global: &Global) -> Result<Self, Error> {
        let target = Target::new(global)?;
        // Only what `setup` offers depends on it.
        let is_local_mesh = target.is_local_mesh().unwrap_or(false);
        let credential = match &global.key {
            Some(given) => Credential::Fixed(key(given)?),
            None => match Session::open(global, &target.url).await? {
                Some(session) => Credential::Session(session),
                None => Credential::Fixed(target.folder_key()?),
            },
        };
        Ok(Self { is_local_mesh, ..Self::connect(global, target.url, credential)? })
    }

    /// Creates a client with a token.
    pub fn with_token(global: &Global, url: &str, token: &str) -> Result<Self, Error> {
        Self::connect(global, url.to_owned(), Credential::Fixed(bearer(token)?))
    }

    fn connect(global: &Global, url: String, credential: Credential) -> Result<Self, Error> {
        let channel = channel(global, &url, ANSWER_TIMEOUT)?;
        let model_channel = self::channel(global, &url, MODEL_TIMEOUT)?;
        Ok(Self { url, credential, channel, model_channel, is_local_mesh: false })
    }

    /// Returns a client of the same gateway with another key.
    pub fn with_key(&self, given: &str) -> Result<Self, Error> {
        Ok(Self { credential: Credential::Fixed(key(given)?), ..self.clone() })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether the gateway, and with it the runners, are those of `holdfast up` on this machine.
    pub const fn is_local_mesh(&self) -> bool {
        self.is_local_mesh
    }

    /// Returns a request with the API key or the person's token.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let credential = match &self.credential {
            Credential::Fixed(value) => value.clone(),
            Credential::Session(session) => session.token(),
        };
        request.metadata_mut().insert("authorization", credential);
        request
    }

    /// Returns the answer of a call, or its error.
    pub fn answer<T>(&self, outcome: Result<Response<T>, Status>) -> Result<T, Error> {
        outcome.map(Response::into_inner).map_err(|status| self.error(status))
    }

    /// Converts a failed call's status to an error.
    pub fn error(&self, status: Status) -> Error {
        Error::from_status(status, &self.url)
    }

    pub fn messages(&self) -> MessagesClient<Channel> {
        MessagesClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub fn sessions(&self) -> SessionsClient<Channel> {
        SessionsClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub fn operations(&self) -> OperationsClient<Channel> {
        OperationsClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub fn security(&self) -> SecurityClient<Channel> {
        SecurityClient::new(self.channel.clone())
    }

    pub fn console(&self) -> ConsoleClient<Channel> {
        ConsoleClient::new(self.channel.clone())
    }

    pub fn agents(&self) -> AgentsClient<Channel> {
        AgentsClient::new(self.channel.clone())
    }

    pub fn approvals(&self) -> ApprovalsClient<Channel> {
        ApprovalsClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub fn files(&self) -> FilesClient<Channel> {
        FilesClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_ARCHIVE_BYTES)
            .max_encoding_message_size(MAX_ARCHIVE_BYTES)
    }

    pub fn policies(&self) -> PoliciesClient<Channel> {
        PoliciesClient::new(self.channel.clone())
    }

    pub fn work(&self) -> WorkClient<Channel> {
        WorkClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub fn workspaces(&self) -> WorkspacesClient<Channel> {
        WorkspacesClient::new(self.channel.clone())
    }

    pub fn subagents(&self) -> SubagentsClient<Channel> {
        SubagentsClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub fn behaviors(&self) -> BehaviorsClient<Channel> {
        BehaviorsClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub fn behavior_trials(&self) -> BehaviorsClient<Channel> {
        BehaviorsClient::new(self.model_channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub fn proposals(&self) -> ProposalsClient<Channel> {
        ProposalsClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub fn economy(&self) -> EconomyClient<Channel> {
        EconomyClient::new(self.channel.clone())
    }

    pub fn chains(&self) -> ChainsClient<Channel> {
        ChainsClient::new(self.channel.clone())
    }

    pub fn skills(&self) -> SkillsClient<Channel> {
        SkillsClient::new(self.channel.clone())
    }

    pub fn packages(&self) -> PackagesClient<Channel> {
        PackagesClient::new(self.channel.clone())
    }

    pub fn providers(&self) -> ProvidersClient<Channel> {
        ProvidersClient::new(self.channel.clone())
    }

    pub fn credentials(&self) -> CredentialsClient<Channel> {
        CredentialsClient::new(self.channel.clone())
    }

    pub fn models(&self) -> ModelsClient<Channel> {
        ModelsClient::new(self.channel.clone())
    }

    pub fn heartbeats(&self) -> HeartbeatsClient<Channel> {
        HeartbeatsClient::new(self.channel.clone())
    }

    pub fn budgets(&self) -> BudgetsClient<Channel> {
        BudgetsClient::new(self.channel.clone())
    }

    pub fn mcp_servers(&self) -> McpServersClient<Channel> {
        McpServersClient::new(self.channel.clone())
    }

    pub fn keys(&self) -> KeysClient<Channel> {
        KeysClient::new(self.channel.clone())
    }

    pub fn tenants(&self) -> TenantsClient<Channel> {
        TenantsClient::new(self.channel.clone())
    }

    pub fn channels(&self) -> ChannelsClient<Channel> {
        ChannelsClient::new(self.channel.clone())
    }

    pub fn platform_keys(&self) -> PlatformKeysClient<Channel> {
        PlatformKeysClient::new(self.channel.clone())
    }

    pub fn plans(&self) -> PlansClient<Channel> {
        PlansClient::new(self.channel.clone())
    }

    pub fn usage(&self) -> UsageReportsClient<Channel> {
        UsageReportsClient::new(self.channel.clone())
    }

    pub fn connections(&self) -> ConnectionsClient<Channel> {
        ConnectionsClient::new(self.channel.clone())
    }

    pub fn memories(&self) -> MemoriesClient<Channel> {
        MemoriesClient::new(self.channel.clone())
    }

    pub fn knowledge(&self) -> KnowledgeClient<Channel> {
        KnowledgeClient::new(self.channel.clone())
            .max_encoding_message_size(MAX_ARTICLE_BYTES)
            .max_decoding_message_size(MAX_ARTICLE_BYTES)
    }

    pub fn nodes(&self) -> NodesClient<Channel> {
        NodesClient::new(self.channel.clone())
    }

    pub fn schedules(&self) -> SchedulesClient<Channel> {
        SchedulesClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub fn people(&self) -> PeopleClient<Channel> {
        PeopleClient::new(self.channel.clone())
    }

    pub fn audit(&self) -> AuditClient<Channel> {
        AuditClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub fn events(&self) -> EventsClient<Channel> {
        EventsClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub fn event_webhooks(&self) -> EventWebhooksClient<Channel> {
        EventWebhooksClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub fn routing(&self) -> RoutingClient<Channel> {
        RoutingClient::new(self.channel.clone())
    }
}

/// Client of the service `Settings`.
pub fn settings(client: &Client) -> SettingsClient<Channel> {
    SettingsClient::new(client.channel.clone())
}

/// Client of the service `Devices`.
pub fn devices(client: &Client) -> DevicesClient<Channel> {
    DevicesClient::new(client.channel.clone())
}

/// Creates a channel to the gateway at `url`, which is verified as the global options say.
pub fn channel(global: &Global, url: &str, timeout: Duration) -> Result<Channel, Error> {
    let config = config::Tls { authorities: global.ca_file.clone(), ..config::Tls::default() };
    let tls = Tls::load(&config)
        .map_err(|error| Error::Usage(format!("--ca-file or HOLDFAST_CA_FILE: {error:#}")))?;
    let connector = tls.connector().named("--ca-file or HOLDFAST_CA_FILE");
    holdfast_grpc::channel_by(connector, url, timeout)
        .map_err(|error| Error::Usage(error.to_string()))
}

/// Returns a given key as the value of `authorization`.
fn key(given: &str) -> Result<MetadataValue<Ascii>, Error> {
    match given.trim() {
        "" => Err(Error::NoKey),
        key => bearer(key),
    }
}

/// Returns the program's name as it was called, so that printed advice can be pasted.
pub fn program() -> String {
    let name = env::args().next().unwrap_or_default();
    let is_on_path = !name.contains('/') || name.is_empty();
    if is_on_path { "holdfast".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_key_and_a_broken_one_are_different_errors() {
        assert!(matches!(key(" \n"), Err(Error::NoKey)));
        assert!(matches!(key("a\nb"), Err(Error::Usage(_))));
        assert!(key("hf_1_2\n").is_ok());
    }

    #[test]
    fn a_key_is_not_shown() {
        assert!(!format!("{:?}", key("hf_1_geheim")).contains("geheim"));
    }
}
