//! Where people said that they are.

use holdfast_types::{AgentId, SessionKey, SessionSettings, TenantId};

use crate::{Claim, Error, Sessions, sessions::lock_claimed, settings::store};

impl Sessions {
    /// The time zone of whoever a conversation is with: what was set for that, or else what the
    /// person said in another that they have with the agent. `None` if nothing was.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn zone_of(
        &self,
        tenant: TenantId,
        key: &SessionKey,
        agent: AgentId,
        person: Option<&str>,
    ) -> Result<Option<String>, Error> {
        const SQL: &str = "
            select coalesce(
                (select settings->>'time_zone' from session.sessions
                 where tenant_id = $1 and key = $2),
                (select zone from session.zones
                 where tenant_id = $1 and agent_id = $3 and person = $4))";

        let mut tx = self.pools.tenant(tenant).await?;
        let found: Option<String> = sqlx::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(key.as_str())
            .bind(agent.as_uuid())
            .bind(person)
            .fetch_one(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(found)
    }

    /// The time zone that a person set with an agent.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn persons_zone(
        &self,
        tenant: TenantId,
        agent: AgentId,
        person: &str,
    ) -> Result<Option<String>, Error> {
        const SQL: &str = "
            select zone from session.zones
            where tenant_id = $1 and agent_id = $2 and person = $3";

        let mut tx = self.pools.tenant(tenant).await?;
        let found: Option<String> = sqlx::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(person)
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(found)
    }

    /// Forgets where a person said that they are, with all agents; of how many.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn forget_zones(&self, tenant: TenantId, person: &str) -> Result<u64, Error> {
        const SQL: &str = "delete from session.zones where tenant_id = $1 and person = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        let gone = sqlx::query(SQL)
            .bind(tenant.as_uuid())
            .bind(person)
            .execute(tx.conn())
            .await?
            .rows_affected();
        tx.commit().await?;
        Ok(gone)
    }

    /// Sets where a person is, with an agent; `None` is where the agent is. The claimed session's
    /// settings, in which it may be set too, are replaced in the same transaction.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the session was lost already.
    pub async fn set_persons_zone(
        &self,
        claim: &Claim,
        settings: &SessionSettings,
        (agent, person): (AgentId, &str),
        zone: Option<&str>,
    ) -> Result<(), Error> {
        const SET: &str = "
            insert into session.zones (tenant_id, agent_id, person, zone) values ($1, $2, $3, $4)
            on conflict (agent_id, person, tenant_id)
                do update set zone = excluded.zone, changed_at = clock_timestamp()";
        const FORGET: &str = "
            delete from session.zones where tenant_id = $1 and agent_id = $2 and person = $3";

        let mut tx = self.pools.tenant(claim.tenant).await?;
        lock_claimed(&mut tx, claim).await?;
        store(&mut tx, claim, settings).await?;
        let said = sqlx::query(if zone.is_some() { SET } else { FORGET })
            .bind(claim.tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(person);
        match zone {
            Some(zone) => said.bind(zone).execute(tx.conn()).await?,
            None => said.execute(tx.conn()).await?,
        };
        Ok(tx.commit().await?)
    }
}
