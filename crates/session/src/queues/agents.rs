//! Sessions of an agent as a whole: which agents work, and waking those that rest.

use std::collections::HashSet;

use holdfast_types::{AgentId, TenantId};
use uuid::Uuid;

use crate::{Error, Sessions};

impl Sessions {
    /// Returns the agents of a tenant that run a turn at this time.
    pub async fn working_agents(&self, tenant: TenantId) -> Result<HashSet<AgentId>, Error> {
        const SQL: &str = "
            select distinct s.agent_id
            from session.session_lease l join session.sessions s using (tenant_id, session_id)
            where l.tenant_id = $1 and l.state = 'RUNNING'";
        let mut tx = self.pools.tenant(tenant).await?;
        let agents: Vec<Uuid> =
            holdfast_pg::query_scalar(SQL).bind(tenant.as_uuid()).fetch_all(tx.conn()).await?;
        tx.finish_reading();
        Ok(agents.into_iter().map(AgentId::from).collect())
    }

    /// Makes the sessions of an agent ready that rest. A session that is locked is being changed, and
    /// rests no longer than before.
    pub async fn wake_agent(&self, tenant: TenantId, agent: AgentId) -> Result<(), Error> {
        const SQL: &str = "
            update session.session_lease l set ready_at = clock_timestamp()
            from (
                select l.session_id
                from session.session_lease l join session.sessions s using (tenant_id, session_id)
                where l.tenant_id = $1 and s.agent_id = $2 and l.state = 'READY'
                  and l.ready_at > clock_timestamp()
                order by l.session_id
                for update of l skip locked) resting
            where l.tenant_id = $1 and l.session_id = resting.session_id";
        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(())
    }
}
