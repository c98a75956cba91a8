//! Deletion of sessions with their content.

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{SessionId, TenantId};
use uuid::Uuid;

use crate::{
    Error, Sessions,
    erase::family,
    sessions::{lock, session_not_found},
};

/// Sessions that one query of [`Sessions::delete_all`] returns.
const SESSIONS_PER_QUERY: i64 = 500;

/// Records of a deleted session that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeptRecords {
    Nothing,
    /// Its runs, which have no texts and are the tenant's usage.
    Runs,
}

impl Sessions {
    /// Deletes a session that was made for one answer, and keeps its runs: what they used stays
    /// counted until their retention ends.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such session.
    pub async fn delete_answered(&self, tenant: TenantId, session: SessionId) -> Result<(), Error> {
        self.delete_family(tenant, session, KeptRecords::Runs).await
    }

    /// Deletes a session and its content, with the sessions of its subagents, and schedules the
    /// erasure of its memories.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such session.
    pub async fn delete(&self, tenant: TenantId, session: SessionId) -> Result<(), Error> {
        self.delete_family(tenant, session, KeptRecords::Nothing).await
    }

    async fn delete_family(
        &self,
        tenant: TenantId,
        session: SessionId,
        kept: KeptRecords,
    ) -> Result<(), Error> {
        const FORGET: &str = "select memory.forget_later('session', $1)";
        let mut tx = self.pools.tenant(tenant).await?;
        let family = family(&mut tx, session).await?;
        tx.finish_reading();
        for subagent in family.into_iter().map(SessionId::from).filter(|id| *id != session) {
            match delete_without_memories(&self.pools, tenant, subagent).await {
                // `NotFound`: it was deleted after its end.
                Ok(()) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let mut tx = self.pools.tenant(tenant).await?;
        delete_rows(&mut tx, session, kept).await?;
        holdfast_pg::query(FORGET).bind(session.to_string()).execute(tx.conn()).await?;
        Ok(tx.commit().await?)
    }

    /// Deletes all sessions of a tenant with their content, each in a transaction of its own. A
    /// turn that runs is fenced. Returns the number of deleted sessions.
    ///
    /// # Errors
    ///
    /// After an error some sessions may have been deleted.
    pub async fn delete_all(&self, tenant: TenantId) -> Result<u64, Error> {
        const SQL: &str = "
            select session_id from session.sessions where tenant_id = $1 and kind <> ''
            order by session_id limit $2";
        let mut deleted = 0;
        loop {
            let mut tx = self.pools.tenant(tenant).await?;
            let page: Vec<Uuid> = holdfast_pg::query_scalar(SQL)
                .bind(tenant.as_uuid())
                .bind(SESSIONS_PER_QUERY)
                .fetch_all(tx.conn())
                .await?;
            tx.finish_reading();
            if page.is_empty() {
                return Ok(deleted);
            }
            for session in page {
                match delete_without_memories(&self.pools, tenant, session.into()).await {
                    // `NotFound`: another process has deleted the session.
                    Ok(()) | Err(Error::NotFound { .. }) => deleted += 1,
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

/// Deletes a session that has no memories, such as a subagent's.
pub(crate) async fn delete_without_memories(
    pools: &Pools,
    tenant: TenantId,
    session: SessionId,
) -> Result<(), Error> {
    let mut tx = pools.tenant(tenant).await?;
    delete_rows(&mut tx, session, KeptRecords::Nothing).await?;
    Ok(tx.commit().await?)
}

/// Deletes a session and its content.
pub(crate) async fn delete_rows(
    tx: &mut TenantTx,
    session: SessionId,
    kept: KeptRecords,
) -> Result<(), Error> {
    const SQL: &str = "
        with place as (
            update session.tenant_flight set in_flight = in_flight - 1
            where tenant_id = $1 and shard = session.shard($2) and exists (
                select from session.session_lease
                where tenant_id = $1 and session_id = $2
                  and (state = 'RUNNING' or (state = 'READY' and fair_key is not null)))),
        marks as (
            insert into session.tombstones
                (tenant_id, source, idem_key, hash, session_id, seq, message_id, until)
            select tenant_id, source, idem_key, hash, session_id, seq, message_id,
                   clock_timestamp() + interval '7 days'
            from session.inbox where tenant_id = $1 and session_id = $2
            on conflict do nothing),
        inbox as (delete from session.inbox where tenant_id = $1 and session_id = $2),
        entries as (delete from session.entries where tenant_id = $1 and session_id = $2),
        runs as (delete from session.runs where tenant_id = $1 and session_id = $2 and not $3),
        deliveries as (delete from session.deliveries where tenant_id = $1 and session_id = $2),
        readers as (delete from session.journal_readers where tenant_id = $1 and session_id = $2),
        approvals as (delete from session.approvals where tenant_id = $1 and session_id = $2),
        told as (
            delete from session.system_events e using session.sessions s
            where s.tenant_id = $1 and s.session_id = $2 and e.tenant_id = $1 and e.key = s.key),
        chains as (delete from session.chain_runs where tenant_id = $1 and session_id = $2),
        surfaces as (delete from session.surfaces where tenant_id = $1 and session_id = $2),
        behaviors as (delete from session.behaviors where tenant_id = $1 and session_id = $2),
        steps as (delete from session.behavior_steps where tenant_id = $1 and session_id = $2),
        -- Who asked for it is told that nobody knows how it ended.
        asked as (
            update session.subagents
            set outcome = 'unknown', finished_at = clock_timestamp()
            where tenant_id = $1 and session_id = $2 and outcome is null),
        children as (delete from session.subagents where tenant_id = $1 and parent_id = $2)
        delete from session.sessions where tenant_id = $1 and session_id = $2";
    let tenant = tx.tenant().as_uuid();
    // Under the lock: a running turn has either written before this, or is fenced after it.
    lock(tx, session).await?.ok_or_else(|| session_not_found(session))?;
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(session.as_uuid())
        .bind(kept == KeptRecords::Runs)
        .execute(tx.conn())
        .await?;
    Ok(())
}
