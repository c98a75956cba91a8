//! Operations on budgets.

use holdfast_types::{AgentId, TenantId};

use crate::{Actor, Budget, Directory, Error, store};

/// Daily budgets of tenants and agents.
#[derive(Debug, Clone, Copy)]
pub struct Budgets<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn budgets(&self) -> Budgets<'_> {
        Budgets(self)
    }
}

impl Budgets<'_> {
    /// Returns the tenant's budgets; the one of the whole tenant comes first.
    pub async fn list(self, tenant: TenantId) -> Result<Vec<Budget>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let budgets = store::budgets::all(&mut tx).await?;
        tx.commit().await?;
        Ok(budgets)
    }

    /// Stores a daily budget; runners apply it within a second or two.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the budget has no limit or one out of range, [`Error::NotFound`] if
    /// there is no such agent.
    pub async fn put(self, tenant: TenantId, actor: Actor, budget: &Budget) -> Result<(), Error> {
        budget.check()?;
        let mut tx = self.0.begin_change(tenant).await?;
        store::budgets::put(&mut tx, budget).await.map_err(|error| {
            match (budget.agent, holdfast_pg::on_constraint("budgets_agent", &error)) {
                (Some(agent), true) => Error::not_found("agent", agent),
                _ => error.into(),
            }
        })?;
        store::audit::record(&mut tx, actor, "budget.put", budget_subject(budget.agent)).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Deletes a budget.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such budget.
    pub async fn delete(
        self,
        tenant: TenantId,
        actor: Actor,
        agent: Option<AgentId>,
    ) -> Result<(), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        if !store::budgets::delete(&mut tx, agent).await? {
            return Err(Error::not_found("budget of", budget_subject(agent)));
        }
        store::audit::record(&mut tx, actor, "budget.delete", budget_subject(agent)).await?;
        tx.commit().await?;
        Ok(())
    }
}

fn budget_subject(agent: Option<AgentId>) -> String {
    agent.map_or_else(|| "the tenant".to_owned(), |agent| agent.to_string())
}
