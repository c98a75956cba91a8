//! Models that a tenant uses, and the access to their providers.

use std::collections::BTreeMap;

use holdfast_types::{AgentId, ModelId, TenantId};
use uuid::Uuid;

use super::{Models, catalogue::build_catalogue, model_choice::default_model};
use crate::{Error, ModelChoice, SecretUse, TenantCatalogue, store};

/// A model that is a tenant's default, or that agents name.
#[derive(Debug, Clone)]
pub struct ModelUse {
    /// Name as `provider:id`, or as it was written if it is none.
    pub name: String,
    /// `None` if there is no provider of it.
    pub choice: Option<ModelChoice>,
    pub is_default: bool,
    /// Names of the agents that have it as their model or as a fallback.
    pub agents: Vec<String>,
}

impl Models<'_> {
    /// Returns the models that the tenant uses, by name, and its catalogue.
    ///
    /// # Errors
    ///
    /// [`Error::Unsealable`] if a provider's key cannot be opened.
    pub async fn uses(self, tenant: TenantId) -> Result<(TenantCatalogue, Vec<ModelUse>), Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let nobody = AgentId::from(Uuid::nil());
        let extras = store::catalogue::additions(&mut tx, nobody).await?;
        let catalogue = build_catalogue(extras.supplement);
        let mut uses: BTreeMap<String, ModelUse> = BTreeMap::new();
        let default = default_model(&mut tx).await?;
        let mut names: Vec<(String, Option<String>)> =
            default.into_iter().map(|name| (name, None)).collect();
        for agent in store::agents::all(&mut tx).await? {
            let models = agent.model.into_iter().chain(agent.settings.fallbacks);
            names.extend(models.map(|name| (name, Some(agent.name.to_string()))));
        }
        for (name, agent) in names {
            let choice =
                match self.choose(&mut tx, &catalogue, &name, SecretUse::Models(None)).await {
                    Ok(choice) => Some(choice),
                    Err(Error::NoProvider { .. } | Error::NoModel | Error::Invalid(_)) => None,
                    Err(error) => return Err(error),
                };
            // An alias and its model are one.
            let name = choice.as_ref().map_or(name, |choice| choice.model.to_string());
            let entry = uses.entry(name.clone()).or_insert_with(|| ModelUse {
                name,
                choice,
                is_default: false,
                agents: Vec::new(),
            });
            match agent {
                None => entry.is_default = true,
                Some(agent) if entry.agents.contains(&agent) => {}
                Some(agent) => entry.agents.push(agent),
            }
        }
        tx.commit().await?;
        Ok((catalogue, uses.into_values().collect()))
    }
}

impl ModelUse {
    /// Id of the model; `None` if the name is none.
    #[must_use]
    pub fn model(&self) -> Option<ModelId> {
        self.choice.as_ref().map(|choice| choice.model.clone()).or_else(|| self.name.parse().ok())
    }
}
