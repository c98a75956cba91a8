//! Reading a tenant's log, as the tenant.

use holdfast_pg::TenantTx;
use holdfast_types::{MessageId, RunId, TenantId};
use sqlx::types::Json;
use uuid::Uuid;

use super::{Event, EventLog, LoggedEvent};
use crate::Error;

/// Rows of the log that one page reads.
const ROWS_PER_PAGE: i64 = 8;

/// Where a tenant's log begins and ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogBounds {
    /// Position of the newest event; 0 if there was none yet.
    pub newest: i64,
    /// Position of the newest event that is past its retention and deleted; 0 if none is.
    pub deleted: i64,
}

/// Events that follow each other in a tenant's log.
#[derive(Debug, Clone, PartialEq)]
pub struct EventPage {
    pub bounds: LogBounds,
    pub events: Vec<LoggedEvent>,
}

/// A text that an event tells of: it is not in the log, and read when it is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventText {
    Message(MessageId),
    Answer(RunId),
}

impl EventText {
    /// Returns the text of an event; `None` if it has none.
    #[must_use]
    pub fn of(logged: &LoggedEvent) -> Option<Self> {
        let field = |name: &str| logged.event.data.get(name)?.as_str();
        match logged.event.kind.as_str() {
            "message.accepted" => field("message")?.parse().ok().map(Self::Message),
            "message.answered" => field("run")?.parse().ok().map(Self::Answer),
            _ => None,
        }
    }
}

impl EventLog<'_> {
    /// Returns the events after a position, oldest first: at most as many as a few rows of the log
    /// have. No events: there are none yet, or `after` is not within the bounds.
    pub async fn page(self, tenant: TenantId, after: i64) -> Result<EventPage, Error> {
        const SQL: &str = "
            select first, events from session.event_log
            where tenant_id = $1 and last > $2 order by last limit $3";

        let mut tx = self.pools.tenant(tenant).await?;
        let bounds = bounds(&mut tx).await?;
        let mut events = Vec::new();
        if after < bounds.newest && after >= bounds.deleted {
            let rows: Vec<(i64, Json<Vec<Event>>)> = holdfast_pg::query_as(SQL)
                .bind(tenant.as_uuid())
                .bind(after)
                .bind(ROWS_PER_PAGE)
                .fetch_all(tx.conn())
                .await?;
            events.extend(rows.into_iter().flat_map(positioned).filter(|one| one.position > after));
        }
        tx.finish_reading();
        Ok(EventPage { bounds, events })
    }

    /// Returns where the tenant's log begins and ends.
    pub async fn bounds(self, tenant: TenantId) -> Result<LogBounds, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let bounds = bounds(&mut tx).await?;
        tx.finish_reading();
        Ok(bounds)
    }

    /// Returns the texts of messages and answers, in the same order; `None` for those that are
    /// deleted or have no text.
    pub async fn texts(
        self,
        tenant: TenantId,
        wanted: &[EventText],
    ) -> Result<Vec<Option<String>>, Error> {
        const SQL: &str = "
            select coalesce(
                (select i.body->>'text' from session.inbox i
                 where i.tenant_id = $1 and i.message_id = w.message),
                (select e.body->>'text' from session.runs r
                 join session.entries e on e.tenant_id = r.tenant_id
                      and e.session_id = r.session_id and e.seq = r.reply_seq
                 where r.tenant_id = $1 and r.run_id = w.run))
            from unnest($2::uuid[], $3::uuid[]) with ordinality w (message, run, place)
            order by w.place";

        let (messages, runs): (Vec<Option<Uuid>>, Vec<Option<Uuid>>) = wanted
            .iter()
            .map(|wanted| match wanted {
                EventText::Message(id) => (Some(id.as_uuid()), None),
                EventText::Answer(run) => (None, Some(run.as_uuid())),
            })
            .unzip();
        let mut tx = self.pools.tenant(tenant).await?;
        let texts = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(messages)
            .bind(runs)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(texts)
    }
}

async fn bounds(tx: &mut TenantTx) -> Result<LogBounds, Error> {
    const SQL: &str = "select newest, deleted from session.event_positions where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    let found: Option<(i64, i64)> =
        holdfast_pg::query_as(SQL).bind(tenant).fetch_optional(tx.conn()).await?;
    let (newest, deleted) = found.unwrap_or_default();
    Ok(LogBounds { newest, deleted })
}

/// Gives the events of a row of the log their positions.
pub(super) fn positioned(
    (first, events): (i64, Json<Vec<Event>>),
) -> impl Iterator<Item = LoggedEvent> {
    (first..).zip(events.0).map(|(position, event)| LoggedEvent { position, event })
}
