//! Time zones of people, as they stated them in conversations, and the preferences of their records.

use holdfast_types::{AgentId, SessionKey, SessionSettings, TenantId};

use crate::{Claim, Error, Settings, sessions::lock_claimed, settings::store};

/// Preferences of a person for their conversations.
#[derive(Debug, Clone, Default, PartialEq, Eq, sqlx::FromRow)]
pub struct Preferences {
    /// Name of a time zone.
    pub zone: Option<String>,
    /// Language tag (BCP 47) of their record.
    pub language: Option<String>,
}

impl Settings<'_> {
    /// Returns the time zone for a conversation: the one set in its session, else the one the
    /// person set in another conversation with the agent. `None` if neither is set.
    pub async fn zone_of(
        self,
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
        let found: Option<String> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(key.as_str())
            .bind(agent.as_uuid())
            .bind(person)
            .fetch_one(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(found)
    }

    /// Returns the preferences of a person: their time zone with an agent, else that of their record, and their
    /// language.
    pub async fn preferences(
        self,
        tenant: TenantId,
        agent: AgentId,
        person: &str,
    ) -> Result<Preferences, Error> {
        const SQL: &str = "
            select coalesce(z.zone, p.zone) as zone, p.language
            from (select) as one
            left join session.zones z
                on z.tenant_id = $1 and z.agent_id = $2 and z.person = $3
            left join control.people p on p.tenant_id = $1
                and p.person_id = control.id_of('per', substr($3, length('person:') + 1))";

        let mut tx = self.pools.tenant(tenant).await?;
        let found: Preferences = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(person)
            .fetch_one(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(found)
    }

    /// Deletes the time zones that a person set, with all agents. Returns how many were deleted.
    pub async fn forget_zones(self, tenant: TenantId, person: &str) -> Result<u64, Error> {
        const SQL: &str = "delete from session.zones where tenant_id = $1 and person = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        let gone = holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(person)
            .execute(tx.conn())
            .await?
            .rows_affected();
        tx.commit().await?;
        Ok(gone)
    }

    /// Sets a person's time zone with an agent; `None` removes it, so that the agent's zone
    /// applies. The claimed session's settings are replaced in the same transaction, because they
    /// may contain the zone too.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the claim is not current.
    pub async fn set_persons_zone(
        self,
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
        let said = holdfast_pg::query(if zone.is_some() { SET } else { FORGET })
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
