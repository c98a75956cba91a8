//! Model providers in the gateway.

use std::collections::HashMap;

use holdfast_proto::gateway::v1::{
    self as pb, DeleteProviderRequest, ListProvidersRequest, PutProviderRequest,
};

use super::{Observed, Reconciled, WriteOutcome};
use crate::{
    context::{Context, HasStore, SecretValue, Watched},
    error::Failure,
    gateway::answer,
    resources::{ModelProvider, ModelProviderSpec, SecretReference},
};

impl HasStore for ModelProvider {
    fn watched(context: &Context) -> &Watched<Self> {
        &context.providers
    }
}

impl Reconciled for ModelProvider {
    async fn observe(&self, context: &Context) -> Result<Option<Observed>, Failure> {
        Ok(self.find(context).await?.map(|provider| self.observed(provider)))
    }

    async fn write(
        &self,
        context: &Context,
        observed: Option<&Observed>,
        secrets: &[SecretValue],
    ) -> Result<WriteOutcome, Failure> {
        let key = context.tenant_key(&self.spec.tenant).await?;
        let mut providers = context.gateway.providers();
        let name = self.gateway_name();
        let has_surplus_key = observed.is_some_and(|seen| !seen.state["apiKey"].is_null());
        if self.spec.api_key.is_none() && has_surplus_key {
            // An empty key would keep the stored one.
            let request = key.request(DeleteProviderRequest { name: name.clone() });
            answer(providers.delete_provider(request).await)?;
        }
        let provider = Some(self.spec.to_message(name));
        // In the order of `Managed::secrets`: the key, then the headers.
        let mut values = secrets.iter().map(|secret| secret.value.clone());
        let api_key = self.spec.api_key.as_ref().and_then(|_| values.next()).unwrap_or_default();
        let headers: HashMap<String, String> =
            self.spec.headers.keys().cloned().zip(values).collect();
        let remove_headers = headers.is_empty();
        let put = PutProviderRequest { provider, api_key, headers, remove_headers };
        let request = key.request(put);
        let provider = answer(providers.put_provider(request).await)?.provider;
        // Agents may wait for this provider's models.
        context.agents.trigger(|agent| {
            let is_ready = agent.status.as_ref().is_some_and(|status| status.is_ready());
            agent.spec.tenant == self.spec.tenant && !is_ready
        });
        let observed = self.observed(provider.unwrap_or_default());
        Ok(WriteOutcome { observed, warnings: Vec::new() })
    }

    async fn remove(&self, context: &Context) -> Result<(), Failure> {
        let Some(provider) = self.find(context).await? else { return Ok(()) };
        let key = context.tenant_key(&self.spec.tenant).await?;
        let request = key.request(DeleteProviderRequest { name: provider.name });
        answer(context.gateway.providers().delete_provider(request).await)?;
        Ok(())
    }
}

impl ModelProvider {
    fn observed(&self, provider: pb::Provider) -> Observed {
        let id = provider.name.clone();
        // Only whether there is a key is part of the state.
        let reference = SecretReference { name: "stored".to_owned(), key: "key".to_owned() };
        let state = ModelProviderSpec::from_message(provider, &self.spec.tenant, reference);
        Observed { id, state: serde_json::to_value(state).unwrap_or_default() }
    }

    async fn find(&self, context: &Context) -> Result<Option<pb::Provider>, Failure> {
        let key = context.tenant_key(&self.spec.tenant).await?;
        let request = key.request(ListProvidersRequest {});
        let listed = answer(context.gateway.providers().list_providers(request).await)?;
        let name = self.gateway_name();
        Ok(listed.providers.into_iter().find(|provider| provider.name == name))
    }
}
