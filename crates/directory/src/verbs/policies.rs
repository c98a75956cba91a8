//! Operations on tool policies, and the list of announced tools.

use holdfast_types::{AgentId, RunId, TenantId};
use serde_json::Value;

use crate::{
    Actor, Directory, Error,
    policy::{KnownTool, Policies, StoredPolicy},
    store,
};

/// Maximum length of a policy, in bytes of JSON.
const MAX_POLICY_BYTES: usize = 64 * 1024;
/// Maximum length of a stored tool summary and of a refusal's reason, in characters.
const MAX_TEXT_CHARS: usize = 300;

/// Tool policies, and the tools that runners announced.
#[derive(Debug, Clone, Copy)]
pub struct PolicyDocuments<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn policies(&self) -> PolicyDocuments<'_> {
        PolicyDocuments(self)
    }
}

impl PolicyDocuments<'_> {
    /// Returns the policy of an agent, or of the tenant itself.
    pub async fn get(
        self,
        tenant: TenantId,
        agent: Option<AgentId>,
    ) -> Result<StoredPolicy, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let found = store::policies::get(&mut tx, agent).await?;
        tx.commit().await?;
        Ok(found.unwrap_or_default())
    }

    /// Returns the policies that apply to an agent: its tenant's and its own.
    pub async fn for_agent(self, tenant: TenantId, agent: AgentId) -> Result<Policies, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let both = store::policies::both(&mut tx, agent).await?;
        tx.commit().await?;
        Ok(both)
    }

    /// Replaces a policy; with `based_on` only if this is still its version.
    ///
    /// The caller must have checked that the document is a valid policy.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the version differs, [`Error::Invalid`] if the document is too long,
    /// [`Error::NotFound`] if there is no such agent.
    pub async fn put(
        self,
        tenant: TenantId,
        actor: Actor,
        agent: Option<AgentId>,
        based_on: Option<i64>,
        document: &Value,
    ) -> Result<StoredPolicy, Error> {
        let length = document.to_string().len();
        if length > MAX_POLICY_BYTES {
            return Err(Error::Invalid(format!(
                "a policy has {MAX_POLICY_BYTES} bytes at most, and this one {length}"
            )));
        }
        let mut tx = self.0.begin_change(tenant).await?;
        let now = store::policies::get(&mut tx, agent).await?.unwrap_or_default().version;
        if let Some(based_on) = based_on.filter(|based_on| *based_on != now) {
            return Err(Error::Conflict(format!(
                "the policy is version {now} by now, and this change is based on {based_on}: \
                 read it again, and make the change in that"
            )));
        }
        let stored = store::policies::put(&mut tx, agent, document).await.map_err(|error| {
            match holdfast_pg::on_constraint("policies_agent_fkey", &error) {
                true => {
                    Error::not_found("agent", agent.map(|id| id.to_string()).unwrap_or_default())
                }
                false => error.into(),
            }
        })?;
        let of = agent.map_or_else(|| tenant.to_string(), |agent| agent.to_string());
        store::audit::record(&mut tx, actor, "policy.put", of).await?;
        tx.commit().await?;
        Ok(stored)
    }

    /// Records in the audit log that a tool call was refused: the tool and the rule.
    pub async fn record_refusal(
        self,
        tenant: TenantId,
        agent: AgentId,
        run: RunId,
        why: &str,
    ) -> Result<(), Error> {
        let why: String = why.chars().take(MAX_TEXT_CHARS).collect();
        let mut tx = self.0.pools.tenant(tenant).await?;
        let actor = Actor::Agent(agent);
        store::audit::record(&mut tx, actor, "tool.refuse", format!("{run} {why}")).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Stores the tools that a runner has. Known and recently stored tools are not written again.
    pub async fn announce_tools(self, tools: &[KnownTool]) -> Result<(), Error> {
        let short = |tool: &KnownTool| KnownTool {
            summary: tool.summary.chars().take(MAX_TEXT_CHARS).collect(),
            name: tool.name.clone(),
        };
        let tools: Vec<KnownTool> = tools.iter().map(short).collect();
        let mut tx = self.0.pools.system().await?;
        store::tools::announce(&mut tx, &tools).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Returns the tools that runners announced in the last three days, by name.
    pub async fn known_tools(self) -> Result<Vec<KnownTool>, Error> {
        let mut tx = self.0.pools.system().await?;
        let tools = store::tools::all(&mut tx).await?;
        tx.commit().await?;
        Ok(tools)
    }
}
