//! Index of conversation turns: which conversations have entries that the memory service does not
//! have yet, and up to where each was indexed.
//!
//! A conversation is due when a turn of it has ended and its journal has grown since. A claim is
//! released by [`TurnIndex::complete`], or expires. Indexing an entry twice changes nothing, so
//! an expired claim is simply taken again. A conversation that is indexed to its end is not due, so
//! an idle tenant costs nothing.

use std::time::Duration;

use holdfast_pg::Pools;
use holdfast_types::{AgentId, Entry, SessionId, TenantId};
use jiff::Timestamp;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Error, Sessions};

/// Maximum number of entries in one claim.
const MAX_ENTRIES: i64 = 400;

/// Entries of a conversation that are claimed for indexing.
#[derive(Debug, Clone, PartialEq)]
pub struct UnindexedEntries {
    pub key: String,
    pub agent: AgentId,
    /// Oldest first.
    pub entries: Vec<UnindexedEntry>,
    /// `seq` of the last claimed entry. Entries past their retention are missing in `entries`.
    pub upto: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct UnindexedEntry {
    pub seq: i64,
    /// Of a message, when it was accepted; of another entry, when it was written.
    pub at: Timestamp,
    pub entry: Entry,
}

/// Index of conversation turns, from [`Sessions::turn_index`].
#[derive(Debug, Clone, Copy)]
pub struct TurnIndex<'a> {
    pub(crate) pools: &'a Pools,
}

impl Sessions {
    #[must_use]
    pub const fn turn_index(&self) -> TurnIndex<'_> {
        TurnIndex { pools: &self.pools }
    }
}

impl TurnIndex<'_> {
    /// Returns conversations that are due, of which a message was finished after `since`, and those
    /// whose claim has expired.
    pub async fn due(
        self,
        since: Timestamp,
        limit: i64,
    ) -> Result<Vec<(TenantId, SessionId)>, Error> {
        const SQL: &str = "
            select d.tenant_id, d.session_id
            from (select distinct i.tenant_id, i.session_id from session.inbox i
                  where i.state in ('done', 'dead') and i.finished_at > $1) d
            join session.sessions s
              on s.tenant_id = d.tenant_id and s.session_id = d.session_id
            join session.session_lease l
              on l.tenant_id = d.tenant_id and l.session_id = d.session_id
            left join session.turn_index x
              on x.tenant_id = d.tenant_id and x.session_id = d.session_id
            where s.kind in ('main', 'dm', 'api', 'group', 'topic') and s.label <> 'ephemeral'
              and l.state in ('WAIT', 'WAIT_FOR_MSG', 'WAIT_FOR_EVENT')
              and l.next_entry - 1 > coalesce(x.upto, 0)
              and (x.lease_until is null or x.lease_until < clock_timestamp())
            union
            select tenant_id, session_id from session.turn_index
            where lease_until < clock_timestamp()
            limit $2";
        let mut once = self.pools.system_connection().await?;
        let rows: Vec<(Uuid, Uuid)> = sqlx::query_as(SQL)
            .bind(jiff_sqlx::Timestamp::from(since))
            .bind(limit)
            .fetch_all(once.conn())
            .await?;
        once.done();
        Ok(rows.into_iter().map(|(tenant, session)| (tenant.into(), session.into())).collect())
    }

    /// Claims the entries that follow the indexed ones, for the duration of `lease`. Returns `None`
    /// if there are none, a turn runs, or another process has claimed them.
    pub async fn claim(
        self,
        tenant: TenantId,
        session: SessionId,
        lease: Duration,
    ) -> Result<Option<UnindexedEntries>, Error> {
        const CLAIM: &str = "
            insert into session.turn_index as x (tenant_id, session_id, lease_until)
            select tenant_id, session_id, clock_timestamp() + $3 * interval '1 millisecond'
            from session.session_lease l
            where tenant_id = $1 and session_id = $2 and next_entry > 1
              and state in ('WAIT', 'WAIT_FOR_MSG', 'WAIT_FOR_EVENT')
            on conflict (tenant_id, session_id) do update
                set lease_until = excluded.lease_until, updated_at = clock_timestamp()
                where (x.lease_until is null or x.lease_until < clock_timestamp())
                  and x.upto < (
                      select next_entry - 1 from session.session_lease
                      where tenant_id = $1 and session_id = $2)
            returning upto";
        const SESSION: &str = "
            select s.key, s.agent_id, least(l.next_entry - 1, $3)
            from session.sessions s join session.session_lease l using (tenant_id, session_id)
            where s.tenant_id = $1 and s.session_id = $2";
        const ENTRIES: &str = "
            select e.seq, e.body, coalesce(i.accepted_at, e.created_at)
            from session.entries e
            left join session.inbox i
              on i.tenant_id = e.tenant_id and i.session_id = e.session_id
                 and e.kind = 'heard' and i.seq = (e.body->>'seq')::bigint
            where e.tenant_id = $1 and e.session_id = $2 and e.seq > $3 and e.seq <= $4
            order by e.seq";

        let mut tx = self.pools.tenant(tenant).await?;
        let after: Option<i64> = sqlx::query_scalar(CLAIM)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(i64::try_from(lease.as_millis()).unwrap_or(i64::MAX))
            .fetch_optional(tx.conn())
            .await?;
        let Some(after) = after else {
            tx.finish_reading();
            return Ok(None);
        };
        let (key, agent, upto): (String, Uuid, i64) = sqlx::query_as(SESSION)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(after + MAX_ENTRIES)
            .fetch_one(tx.conn())
            .await?;
        let rows: Vec<(i64, Json<Entry>, jiff_sqlx::Timestamp)> = sqlx::query_as(ENTRIES)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(after)
            .bind(upto)
            .fetch_all(tx.conn())
            .await?;
        tx.commit().await?;
        let entry = |(seq, entry, at): (i64, Json<Entry>, jiff_sqlx::Timestamp)| UnindexedEntry {
            seq,
            at: at.to_jiff(),
            entry: entry.0,
        };
        let entries = rows.into_iter().map(entry).collect();
        Ok(Some(UnindexedEntries { key, agent: agent.into(), entries, upto }))
    }

    /// Releases a claim without progress; it can be claimed again after `pause`.
    pub async fn postpone(
        self,
        tenant: TenantId,
        session: SessionId,
        pause: Duration,
    ) -> Result<(), Error> {
        const SQL: &str = "
            update session.turn_index
            set lease_until = clock_timestamp() + $3 * interval '1 millisecond',
                updated_at = clock_timestamp()
            where tenant_id = $1 and session_id = $2 and lease_until is not null";
        let mut tx = self.pools.tenant(tenant).await?;
        sqlx::query(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX))
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Records that the entries up to `upto` are indexed, and releases the claim. Returns whether
    /// the journal has more entries.
    pub async fn complete(
        self,
        tenant: TenantId,
        session: SessionId,
        upto: i64,
    ) -> Result<bool, Error> {
        const SQL: &str = "
            update session.turn_index x
            set upto = greatest(x.upto, $3), lease_until = null, updated_at = clock_timestamp()
            from session.session_lease l
            where x.tenant_id = $1 and x.session_id = $2
              and l.tenant_id = $1 and l.session_id = $2
            returning l.next_entry - 1 > x.upto";
        let mut tx = self.pools.tenant(tenant).await?;
        let more: Option<bool> = sqlx::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(upto)
            .fetch_optional(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(more.unwrap_or(false))
    }
}
