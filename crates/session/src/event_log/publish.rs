//! Ends of the logs of all tenants, and their events that are not yet published to JetStream.

use std::time::Duration;

use holdfast_types::TenantId;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Event, EventLog, LoggedEvent, read::positioned};
use crate::Error;

/// How far logging and webhooks are behind, for all tenants.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EventGauges {
    /// Age of the oldest committed event that is not logged.
    pub lag: Duration,
    /// Events that wait for another attempt of a webhook.
    pub held: i64,
    /// Events that webhooks have not accepted and that were given up.
    pub dead: i64,
}

/// Events of one tenant that follow each other and are to be published.
#[derive(Debug, Clone, PartialEq)]
pub struct UnpublishedEvents {
    pub tenant: TenantId,
    pub events: Vec<LoggedEvent>,
}

impl EventLog<'_> {
    /// Returns the positions of the newest events of tenants; those without events are left out.
    pub async fn newest(self, tenants: &[TenantId]) -> Result<Vec<(TenantId, i64)>, Error> {
        const SQL: &str = "
            select tenant_id, newest from session.event_positions where tenant_id = any($1)";
        let ids: Vec<Uuid> = tenants.iter().map(|tenant| tenant.as_uuid()).collect();
        let mut once = self.pools.system_connection().await?;
        let rows: Vec<(Uuid, i64)> =
            holdfast_pg::query_as(SQL).bind(ids).fetch_all(once.conn()).await?;
        once.done();
        Ok(rows.into_iter().map(|(tenant, newest)| (tenant.into(), newest)).collect())
    }

    pub async fn gauges(self) -> Result<EventGauges, Error> {
        const SQL: &str = "
            select coalesce((select extract(epoch from clock_timestamp() - created_at)::float8
                             from session.events order by event_id limit 1), 0),
                   (select count(dead_at is null) from session.webhook_events where dead_at is null),
                   (select count(dead_at) from session.webhook_events where dead_at is not null)";
        let mut once = self.pools.system_connection().await?;
        let (lag, held, dead): (f64, i64, i64) =
            holdfast_pg::query_as(SQL).fetch_one(once.conn()).await?;
        once.done();
        Ok(EventGauges { lag: Duration::try_from_secs_f64(lag).unwrap_or_default(), held, dead })
    }

    /// Returns up to `limit` rows of the log that are not marked as published, oldest first for each
    /// tenant.
    pub async fn unpublished(self, limit: i64) -> Result<Vec<UnpublishedEvents>, Error> {
        const SQL: &str = "
            select p.tenant_id, l.first, l.events
            from session.event_positions p cross join lateral (
                select first, last, events from session.event_log l
                where l.tenant_id = p.tenant_id and l.last > p.published
                order by l.last limit $1) l
            where p.published < p.newest
            order by p.tenant_id, l.last limit $1";
        let mut once = self.pools.system_connection().await?;
        let rows: Vec<(Uuid, i64, Json<Vec<Event>>)> =
            holdfast_pg::query_as(SQL).bind(limit).fetch_all(once.conn()).await?;
        once.done();
        let rows = rows.into_iter().map(|(tenant, first, events)| UnpublishedEvents {
            tenant: tenant.into(),
            events: positioned((first, events)).collect(),
        });
        Ok(rows.collect())
    }

    /// Marks the events of tenants as published, each up to a position.
    pub async fn mark_published(self, published: &[(TenantId, i64)]) -> Result<(), Error> {
        const SQL: &str = "
            update session.event_positions p set published = greatest(p.published, d.last)
            from (select tenant_id, max(last) as last
                  from unnest($1::uuid[], $2::bigint[]) d (tenant_id, last) group by 1) d
            where p.tenant_id = d.tenant_id";
        let (tenants, last): (Vec<Uuid>, Vec<i64>) =
            published.iter().map(|(tenant, last)| (tenant.as_uuid(), *last)).unzip();
        let mut once = self.pools.system_connection().await?;
        holdfast_pg::query(SQL).bind(tenants).bind(last).execute(once.conn()).await?;
        once.done();
        Ok(())
    }
}
