//! Dead letters: messages that were given up, and their repetition.

use std::time::Duration;

use holdfast_types::{
    AccountId, Body, MessageId, SessionId, SessionKey, Source, Target, TenantId,
    is_scheduler_source,
};
use jiff_sqlx::ToSqlx as _;
use sqlx::{FromRow, types::Json};
use uuid::Uuid;

use crate::{
    Acceptance, DeadLetter, Error, ListCursor, NewMessage, Sessions, sessions::session_not_found,
    view::activity::is_requeued,
};

/// A letter that was accepted again is in no list; it is found by its id.
const DEAD_LETTERS: &str = concat!(
    "
    select message_id, session_id, seq, source, coalesce(reason, '') as reason, body, accepted_at,
           finished_at as died_at
    from session.inbox i
    where tenant_id = $1 and state = 'dead' and ($2::uuid is null or message_id = $2)
      and ($2::uuid is not null or not ",
    is_requeued!("i"),
    ")
      and ($4::text is null or source = $4) and ($5::uuid is null or session_id = $5)
      and ($6::timestamptz is null or (finished_at, message_id) < ($6, $7::uuid))
    order by finished_at desc, message_id desc limit $3"
);

/// Which dead letters a list has; `None` excludes nothing.
#[derive(Debug, Clone, Default)]
pub struct DeadLetterFilter {
    /// Channel account by which the message came.
    pub account: Option<AccountId>,
    pub session: Option<SessionId>,
    pub limit: i64,
    /// Only dead letters after this place in the list.
    pub after: Option<ListCursor>,
}

/// Dead letters, from [`Sessions::dead_letters`].
#[derive(Debug, Clone, Copy)]
pub struct DeadLetters<'a> {
    pub(crate) sessions: &'a Sessions,
}

impl Sessions {
    #[must_use]
    pub const fn dead_letters(&self) -> DeadLetters<'_> {
        DeadLetters { sessions: self }
    }
}

impl DeadLetters<'_> {
    /// Returns dead letters of messages that were not accepted again, newest first.
    pub async fn list(
        self,
        tenant: TenantId,
        filter: DeadLetterFilter,
    ) -> Result<Vec<DeadLetter>, Error> {
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        let rows: Vec<DeadLetterRow> = holdfast_pg::query_as(DEAD_LETTERS)
            .bind(tenant.as_uuid())
            .bind(None::<Uuid>)
            .bind(filter.limit)
            .bind(filter.account.map(|account| account.to_string()))
            .bind(filter.session.map(SessionId::as_uuid))
            .bind(filter.after.map(|after| after.at.to_sqlx()))
            .bind(filter.after.map(|after| after.id))
            .fetch_all(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(DeadLetter::from).collect())
    }

    /// Returns one dead letter.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such dead letter.
    pub async fn get(self, tenant: TenantId, message: MessageId) -> Result<DeadLetter, Error> {
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        let row: Option<DeadLetterRow> = holdfast_pg::query_as(DEAD_LETTERS)
            .bind(tenant.as_uuid())
            .bind(message.as_uuid())
            .bind(1_i64)
            .bind(None::<String>)
            .bind(None::<Uuid>)
            .bind(None::<jiff_sqlx::Timestamp>)
            .bind(None::<Uuid>)
            .fetch_optional(tx.conn())
            .await?;
        tx.commit().await?;
        row.map(DeadLetter::from)
            .ok_or_else(|| Error::NotFound { what: "dead letter", name: message.to_string() })
    }

    /// Accepts a dead message again, at the end of its session's queue.
    ///
    /// The dead letter stays as a record, and is no longer listed. A repeated call returns the
    /// message that the first call created.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get) and [`ingest`](crate::Sessions::ingest).
    pub async fn requeue(self, tenant: TenantId, message: MessageId) -> Result<Acceptance, Error> {
        const TARGET: &str = "
            select target from session.inbox where tenant_id = $1 and message_id = $2";

        let letter = self.get(tenant, message).await?;
        // A scheduler's message still has to prove its author.
        let source = match is_scheduler_source(&letter.source) {
            true => letter.source,
            false => "requeue".to_owned(),
        };
        let session = self.sessions.views().session(tenant, letter.session).await?;
        let key: SessionKey = session.key.parse().map_err(|_| session_not_found(letter.session))?;
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        let target: Option<Json<Target>> = holdfast_pg::query_scalar(TARGET)
            .bind(tenant.as_uuid())
            .bind(message.as_uuid())
            .fetch_one(tx.conn())
            .await?;
        tx.commit().await?;
        self.sessions
            .ingest(
                tenant,
                NewMessage {
                    key,
                    agent: session.agent,
                    label: None,
                    source: Source::Internal(source),
                    idem_key: message.to_string(),
                    body: letter.body,
                    target: target.map(|target| target.0),
                    mode: holdfast_types::QueueMode::Followup,
                    debounce: Duration::ZERO,
                    trace: None,
                },
            )
            .await
    }
}

#[derive(FromRow)]
struct DeadLetterRow {
    message_id: Uuid,
    session_id: Uuid,
    seq: i64,
    source: String,
    reason: String,
    body: Json<Body>,
    accepted_at: jiff_sqlx::Timestamp,
    died_at: jiff_sqlx::Timestamp,
}

impl From<DeadLetterRow> for DeadLetter {
    fn from(row: DeadLetterRow) -> Self {
        Self {
            message: row.message_id.into(),
            session: row.session_id.into(),
            seq: row.seq,
            source: row.source,
            reason: row.reason,
            body: row.body.0,
            accepted_at: row.accepted_at.to_jiff(),
            died_at: row.died_at.to_jiff(),
        }
    }
}
