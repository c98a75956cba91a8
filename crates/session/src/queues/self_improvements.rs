//! Agents that may look after themselves: which of them have rested long enough, and which runs were
//! begun.

use std::time::Duration;

use holdfast_types::{AgentId, AgentName, SessionId, SessionKey, TenantId};
use uuid::Uuid;

use crate::{Error, Sessions};

/// Agents that one pass looks at.
const MAX_CHECKED: i64 = 100;

/// Longest time until an agent is looked at again.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// An agent that has runs left today and may have rested long enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelfImprovementCandidate {
    pub tenant: TenantId,
    pub agent: AgentId,
}

/// Run of an agent that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueSelfImprovement {
    pub agent: AgentId,
    /// Session in which it looks after itself.
    pub key: SessionKey,
    /// The same until the run is noted as begun.
    pub idem_key: String,
}

impl Sessions {
    /// Returns agents that are to be looked at, each every minute at most. An agent with a shorter
    /// time of rest is looked at as often.
    pub async fn self_improvement_candidates(
        &self,
    ) -> Result<Vec<SelfImprovementCandidate>, Error> {
        const SQL: &str = "
            update session.self_improvements i
            set next_check_at = clock_timestamp() + least(i.idle_s, $2) * interval '1 second'
            from (
                select tenant_id, agent_id from session.self_improvements
                where next_check_at <= clock_timestamp()
                order by next_check_at limit $1 for update skip locked) due
            where i.tenant_id = due.tenant_id and i.agent_id = due.agent_id
            returning i.tenant_id, i.agent_id,
                      i.day is distinct from (clock_timestamp() at time zone 'utc')::date
                      or i.runs < i.max_per_day";
        let mut once = self.pools.system_connection().await?;
        let rows: Vec<(Uuid, Uuid, bool)> = holdfast_pg::query_as(SQL)
            .bind(MAX_CHECKED)
            .bind(MAX_CHECK_INTERVAL.as_secs_f64())
            .fetch_all(once.conn())
            .await?;
        once.done();
        let with_runs = rows.into_iter().filter(|(_, _, has_runs)| *has_runs);
        let candidates = with_runs.map(|(tenant, agent, _)| SelfImprovementCandidate {
            tenant: tenant.into(),
            agent: agent.into(),
        });
        Ok(candidates.collect())
    }

    /// Returns the run of an agent that is due: no conversation of the agent waits or runs, the last
    /// one has rested long enough, and there was one since the last run. Jobs and heartbeats are no
    /// conversations.
    pub async fn due_self_improvement(
        &self,
        candidate: SelfImprovementCandidate,
    ) -> Result<Option<DueSelfImprovement>, Error> {
        const SQL: &str = "
            with own as (
                select i.*, a.name, 'agent:' || a.name || ':work:self-improve' as own_key,
                       (clock_timestamp() at time zone 'utc')::date as today
                from session.self_improvements i join control.agents a using (tenant_id, agent_id)
                where i.tenant_id = $1 and i.agent_id = $2 and a.state = 'enabled')
            select name, to_char(today, 'YYYYMMDD') || '-' || case when day = today then runs else 0 end
            from own
            where (day is distinct from today or runs < max_per_day)
              and exists (
                  select from session.sessions s
                  where s.tenant_id = $1 and s.agent_id = $2 and s.kind not in ('cron', 'heartbeat')
                    and s.key <> own_key
                    and s.updated_at > coalesce(started_at, '-infinity'::timestamptz))
              and not exists (
                  select from session.sessions s
                  where s.tenant_id = $1 and s.agent_id = $2 and s.kind not in ('cron', 'heartbeat')
                    and s.key <> own_key
                    and s.updated_at > clock_timestamp() - idle_s * interval '1 second')
              and not exists (
                  select from session.session_lease l
                  join session.sessions s using (tenant_id, session_id)
                  where l.tenant_id = $1 and s.agent_id = $2 and l.state in ('READY', 'RUNNING'))";
        let SelfImprovementCandidate { tenant, agent } = candidate;
        let mut tx = self.pools.tenant(tenant).await?;
        let found: Option<(String, String)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        let Some((name, run)) = found else { return Ok(None) };
        let key = SessionKey::self_improvement(&AgentName::new(&name));
        Ok(Some(DueSelfImprovement { agent, key, idem_key: format!("{agent}-{run}") }))
    }

    /// Notes that a run was begun. Its session runs after those that people wait for.
    pub async fn note_self_improvement(
        &self,
        candidate: SelfImprovementCandidate,
        session: SessionId,
    ) -> Result<(), Error> {
        const NOTE: &str = "
            update session.self_improvements
            set runs = case when day = (clock_timestamp() at time zone 'utc')::date then runs else 0 end + 1,
                day = (clock_timestamp() at time zone 'utc')::date, started_at = clock_timestamp()
            where tenant_id = $1 and agent_id = $2";
        const YIELD: &str = "
            update session.session_lease set priority = 2
            where tenant_id = $1 and session_id = $2 and priority = 0";
        let SelfImprovementCandidate { tenant, agent } = candidate;
        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(YIELD)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .execute(tx.conn())
            .await?;
        holdfast_pg::query(NOTE)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(())
    }
}
