//! Why messages of a tenant wait.

use std::time::Duration;

use holdfast_types::{AgentId, TenantId};
use uuid::Uuid;

use super::Queues;
use crate::Error;

/// Maximum number of groups; those with the most messages come first.
const MAX_GROUPS: i64 = 20;

/// Messages that wait for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitGroup {
    /// `running`, `paused`, `approval`, `event`, `agent_disabled`, `agent_rests`, `tenant_suspended`,
    /// `workspace_held`, `tenant_cap`, `retry` or `runner`.
    pub reason: String,
    /// Agent that the reason is about.
    pub agent: Option<AgentId>,
    /// Name of what the reason is about, other than an agent: a session's key, a workspace, the cap.
    pub object: Option<String>,
    /// Key of the session that keeps the workspace.
    pub holder: Option<String>,
    pub sessions: i64,
    pub messages: i64,
    pub oldest_wait: Duration,
}

/// Reasons with the sessions and messages that wait for them. Starts from the sessions with unfinished
/// messages, as the counts do.
const WAIT_GROUPS: &str = "
    with waiting as (
        select l.session_id, s.key, s.agent_id, l.state, l.paused, l.fair_key, l.ready_at,
               l.retries, l.attempts, l.workspace, w.session_id as holder,
               count(i.seq) as messages, min(i.accepted_at) as oldest
        from session.sessions s
        join session.session_lease l using (tenant_id, session_id)
        join session.inbox i on i.tenant_id = l.tenant_id and i.session_id = l.session_id
             and i.state in ('new', 'seen')
        left join session.workspace_lease w
             on w.tenant_id = l.tenant_id and w.workspace = l.workspace
             and w.session_id <> l.session_id and w.lease_until > clock_timestamp()
        where s.tenant_id = $1 and s.kind <> '' and l.next_in - 1 > l.done_in
        group by l.tenant_id, l.session_id, s.key, s.agent_id, l.state, l.paused, l.fair_key,
                 l.ready_at, l.retries, l.attempts, l.workspace, w.session_id),
    named as (
        select *, case
                when paused is not null then 'paused'
                when state = 'RUNNING' then 'running'
                when state <> 'READY' and exists (
                    select from session.approvals a
                    where a.tenant_id = $1 and a.session_id = waiting.session_id
                      and a.state = 'pending' and a.expires_at > clock_timestamp())
                    then 'approval'
                when state <> 'READY' then 'event'
                when exists (
                    select from session.tenant_queue q
                    where q.tenant_id = $1 and q.suspended) then 'tenant_suspended'
                when exists (
                    select from control.agents a
                    where a.tenant_id = $1 and a.agent_id = waiting.agent_id
                      and a.state <> 'enabled')
                  or exists (
                    select from work.hit_points h
                    where h.tenant_id = $1 and h.agent_id = waiting.agent_id
                      and h.disabled_at is not null) then 'agent_disabled'
                when holder is not null then 'workspace_held'
                when fair_key is null then 'tenant_cap'
                when ready_at > clock_timestamp() and (retries > 0 or attempts > 0)
                    then 'retry'
                when ready_at > clock_timestamp() then 'agent_rests'
                else 'runner' end as reason
        from waiting),
    described as (
        select reason, messages, oldest,
               case when reason in ('agent_disabled', 'agent_rests') then agent_id end as agent,
               case reason
                    when 'workspace_held' then coalesce(
                        (select n.name from workspace.named n
                         where n.tenant_id = $1
                           and n.workspace_id::text = named.workspace),
                        workspace)
                    when 'tenant_cap' then coalesce(
                        (select q.cap from session.tenant_queue q where q.tenant_id = $1),
                        64)::text
                    when 'paused' then key
                    when 'approval' then key
                    when 'event' then key
                    when 'retry' then key end as object,
               case when reason = 'workspace_held' then
                    (select h.key from session.sessions h
                     where h.tenant_id = $1 and h.session_id = named.holder) end as holder
        from named)
    select reason, agent, object, holder, count(*), sum(messages)::bigint,
           (extract(epoch from clock_timestamp() - min(oldest)) * 1000)::bigint
    from described group by 1, 2, 3, 4 order by 6 desc, 7 desc limit $2";

impl Queues<'_> {
    /// Returns the reasons for which a tenant's messages wait, as claims would decide at this time.
    ///
    /// Sessions of one agent, workspace or queue are one group; a session that somebody has to act on
    /// is a group of its own.
    pub async fn wait_groups(self, tenant: TenantId) -> Result<Vec<WaitGroup>, Error> {
        type Row = (String, Option<Uuid>, Option<String>, Option<String>, i64, i64, i64);
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<Row> = holdfast_pg::query_as(WAIT_GROUPS)
            .bind(tenant.as_uuid())
            .bind(MAX_GROUPS)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        let group = |(reason, agent, object, holder, sessions, messages, millis): Row| WaitGroup {
            reason,
            agent: agent.map(AgentId::from),
            object,
            holder,
            sessions,
            messages,
            oldest_wait: Duration::from_millis(u64::try_from(millis).unwrap_or(0)),
        };
        Ok(rows.into_iter().map(group).collect())
    }
}
