//! Search providers of a tenant: those of its providers that have the name of one.

use holdfast_directory::{Agent, Directory, SEARCH_PROVIDERS};
use holdfast_tools::{Call, SearchAccount, SearchAccounts};

#[derive(Debug)]
pub(crate) struct TenantSearchAccounts {
    directory: Directory,
}

impl TenantSearchAccounts {
    pub(crate) const fn new(directory: Directory) -> Self {
        Self { directory }
    }
}

impl SearchAccounts for TenantSearchAccounts {
    async fn accounts(&self, call: &Call) -> anyhow::Result<Vec<SearchAccount>> {
        let mut providers = self.directory.providers().list(call.tenant).await?;
        providers.retain(|one| one.has_key && SEARCH_PROVIDERS.contains(&one.name.as_str()));
        if providers.is_empty() {
            return Ok(Vec::new());
        }
        let agent = self.directory.agents().by_id(call.tenant, call.agent).await?;
        let mut accounts = Vec::with_capacity(providers.len());
        for provider in providers {
            // The directory opens a provider's key for a model of it.
            let model = Some(format!("{}:search", provider.name));
            let agent = Agent { model, ..agent.clone() };
            let choice = self.directory.models().of_agent(call.tenant, &agent).await?;
            let Some(api_key) = choice.api_key else { continue };
            let base_url = Some(choice.base_url).filter(|url| !url.is_empty());
            accounts.push(SearchAccount { provider: provider.name, api_key, base_url });
        }
        Ok(accounts)
    }
}
