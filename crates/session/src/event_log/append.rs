//! The writer of the log.

use std::collections::BTreeMap;

use holdfast_pg::SystemTx;
use holdfast_types::TenantId;
use sqlx::types::Json;

use super::{Event, EventLog, NewEvent, outbox};
use crate::Error;

/// Maximum number of events in one row of the log.
const MAX_EVENTS_PER_ROW: usize = 200;

/// A transaction that writes the log. Only one exists in a database.
#[derive(Debug)]
pub struct EventLogWriter {
    tx: SystemTx,
}

impl EventLog<'_> {
    /// Whether an outbox has committed rows.
    pub async fn has_unlogged(self) -> Result<bool, Error> {
        const SQL: &str = "
            select exists (select from session.events)
                   or exists (select from session.relayed_events)
                   or exists (select from control.tenant_events where logged_at is null)";
        let mut once = self.pools.system_connection().await?;
        let found = holdfast_pg::query_scalar(SQL).fetch_one(once.conn()).await?;
        once.done();
        Ok(found)
    }

    /// Begins to write; `None` if another process does.
    pub async fn writer(self) -> Result<Option<EventLogWriter>, Error> {
        // The setting tells the trigger on session.events that its rows are not lost.
        const LOCK: &str = "
            select pg_try_advisory_xact_lock(hashtextextended('session.event_log', 0))
                   and set_config('holdfast.event_log', 'on', true) = 'on'";
        let mut tx = self.pools.system().await?;
        let is_ours: bool = holdfast_pg::query_scalar(LOCK).fetch_one(tx.conn()).await?;
        Ok(is_ours.then_some(EventLogWriter { tx }))
    }
}

impl EventLogWriter {
    /// Takes up to `limit` rows from the outbox, and returns their number and the events that they
    /// tell of, in the order of the log.
    pub async fn take(&mut self, limit: i64) -> Result<(u64, Vec<NewEvent>), Error> {
        outbox::take(self.tx.conn(), limit).await
    }

    /// The transaction, for events of other outboxes.
    pub const fn tx(&mut self) -> &mut SystemTx {
        &mut self.tx
    }

    /// Appends events to the logs of their tenants and commits. Returns the tenants.
    pub async fn commit(mut self, events: Vec<NewEvent>) -> Result<Vec<TenantId>, Error> {
        const SQL: &str = "
            with given as materialized (
                select * from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::jsonb[])
                    as g (tenant_id, before, count, events)),
            moved as (
                insert into session.event_positions as p (tenant_id, newest)
                select tenant_id, sum(count) from given group by tenant_id order by tenant_id
                on conflict (tenant_id) do update set newest = p.newest + excluded.newest
                returning tenant_id, newest)
            insert into session.event_log (tenant_id, first, last, events)
            select g.tenant_id, m.newest - t.count + g.before + 1,
                   m.newest - t.count + g.before + g.count, g.events
            from given g join moved m using (tenant_id)
            join (select tenant_id, sum(count)::bigint as count from given group by 1) t
                using (tenant_id)";

        let mut by_tenant: BTreeMap<TenantId, Vec<Event>> = BTreeMap::new();
        for new in events {
            by_tenant.entry(new.tenant).or_default().push(new.event);
        }
        let (mut tenants, mut firsts, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        let mut chunks: Vec<Json<&[Event]>> = Vec::new();
        for (tenant, events) in &by_tenant {
            let mut before = 0;
            for chunk in events.chunks(MAX_EVENTS_PER_ROW) {
                let count = i64::try_from(chunk.len()).unwrap_or(i64::MAX);
                tenants.push(tenant.as_uuid());
                firsts.push(before);
                counts.push(count);
                chunks.push(Json(chunk));
                before += count;
            }
        }
        if !by_tenant.is_empty() {
            holdfast_pg::query(SQL)
                .bind(&tenants)
                .bind(&firsts)
                .bind(&counts)
                .bind(&chunks)
                .execute(self.tx.conn())
                .await?;
        }
        self.tx.commit().await?;
        Ok(by_tenant.into_keys().collect())
    }
}
