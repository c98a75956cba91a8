//! `holdfast export`: a tenant as Kubernetes resources.

use clap::Args;
use holdfast_proto::gateway::v1::{
    GetTenantRequest, ListAccountsRequest, ListAgentsRequest, ListBehaviorsRequest,
    ListProvidersRequest,
};
use operator::{AgentState, TenantState};

use crate::{client::Client, error::Error, screen::Screen};

/// Options of the export
#[derive(Debug, Args)]
pub struct Export {
    /// Name of the tenant that the key belongs to
    tenant: String,
    /// A key with the scope `platform`, to export the tenant's settings too
    #[arg(long, env = "HOLDFAST_PLATFORM_KEY", hide_env_values = true)]
    platform_key: Option<String>,
}

impl Export {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let listed = client.agents().list_agents(client.request(ListAgentsRequest {})).await;
        let mut agents = Vec::new();
        for agent in client.answer(listed)?.agents {
            let request = client.request(ListBehaviorsRequest { agent: agent.id.clone() });
            let listed = client.answer(client.behaviors().list_behaviors(request).await)?;
            agents.push(AgentState { agent, behaviors: listed.behaviors });
        }
        let request = client.request(ListProvidersRequest {});
        let providers = client.answer(client.providers().list_providers(request).await)?.providers;
        let request = client.request(ListAccountsRequest { channel: String::new() });
        let accounts = client.answer(client.channels().list_accounts(request).await)?.accounts;
        let settings = match &self.platform_key {
            Some(key) => {
                let platform = client.with_key(key)?;
                let request = platform.request(GetTenantRequest { tenant: self.tenant.clone() });
                platform.answer(platform.tenants().get_tenant(request).await)?.tenant
            }
            None => None,
        };
        let state = TenantState { name: self.tenant, settings, providers, agents, accounts };
        screen.print(&state.to_manifests()?)
    }
}
