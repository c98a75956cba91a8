//! Import of a session: its journal is written as a whole, and nothing runs.

use holdfast_types::{AgentId, Entry, RunId, SessionId, SessionKey, TenantId};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::types::Json;
use uuid::Uuid;

use super::outside_text::mark_outside_text;
use crate::{
    Error, Sessions,
    sessions::{check_session_limit, priority},
    summary::copy_summary_to_session,
};

/// Rows that one statement writes.
const ROWS_PER_STATEMENT: usize = 500;

/// An entry of a journal that is imported.
#[derive(Debug, Clone)]
pub struct ImportedEntry {
    pub run: RunId,
    pub entry: Entry,
    pub created_at: Timestamp,
}

pub(super) fn key_is_taken(key: &SessionKey) -> Error {
    let shown: String = key.as_str().chars().take(80).collect();
    Error::Conflict(format!(
        "there is a session `{shown}` already: import under another name, or delete it first"
    ))
}

impl Sessions {
    /// # Errors
    ///
    /// [`Error::Conflict`] if there is a session with this key.
    pub async fn check_key_is_free(&self, tenant: TenantId, key: &SessionKey) -> Result<(), Error> {
        match self.views().find(tenant, key).await? {
            Some(_) => Err(key_is_taken(key)),
            None => Ok(()),
        }
    }

    /// Creates a session with a journal. Its last turn must have ended: a runner would continue it.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if there is a session with this key, [`Error::TooManySessions`] at the
    /// tenant's limit.
    pub async fn import(
        &self,
        tenant: TenantId,
        (agent, key): (AgentId, &SessionKey),
        entries: &[ImportedEntry],
    ) -> Result<SessionId, Error> {
        const CREATE: &str = "
            with made as (
                insert into session.sessions (tenant_id, session_id, key, kind, agent_id)
                values ($1, $3, $2, $4, $5)
                on conflict on constraint sessions_key do nothing
                returning session_id)
            insert into session.session_lease (tenant_id, session_id, priority, next_entry)
            select $1, session_id, $6, $7 from made";
        const ENTRIES: &str = "
            insert into session.entries
                (tenant_id, session_id, seq, epoch, run_id, kind, body, created_at)
            select $1, $2, e.seq, 0, e.run, e.kind, e.body, e.at
            from unnest($3::bigint[], $4::uuid[], $5::text[], $6::jsonb[], $7::timestamptz[])
                 as e (seq, run, kind, body, at)";

        let mut tx = self.pools.tenant(tenant).await?;
        check_session_limit(&mut tx, 1).await?;
        let session = SessionId::generate();
        let next_entry = i64::try_from(entries.len()).unwrap_or(i64::MAX - 1) + 1;
        let made = holdfast_pg::query(CREATE)
            .bind(tenant.as_uuid())
            .bind(key.as_str())
            .bind(session.as_uuid())
            .bind(key.kind().as_str())
            .bind(agent.as_uuid())
            .bind(priority(key.kind()))
            .bind(next_entry)
            .execute(tx.conn())
            .await?
            .rows_affected();
        if made == 0 {
            tx.rollback().await?;
            return Err(key_is_taken(key));
        }
        let mut seq = 1;
        for rows in entries.chunks(ROWS_PER_STATEMENT) {
            let next = seq + i64::try_from(rows.len()).unwrap_or(0);
            holdfast_pg::query(ENTRIES)
                .bind(tenant.as_uuid())
                .bind(session.as_uuid())
                .bind((seq..next).collect::<Vec<i64>>())
                .bind(rows.iter().map(|row| row.run.as_uuid()).collect::<Vec<Uuid>>())
                .bind(rows.iter().map(|row| row.entry.kind()).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| Json(&row.entry)).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.created_at.to_sqlx()).collect::<Vec<_>>())
                .execute(tx.conn())
                .await?;
            seq = next;
        }
        let journal: Vec<Entry> = entries.iter().map(|row| row.entry.clone()).collect();
        copy_summary_to_session(&mut tx, session, &journal).await?;
        mark_outside_text(&mut tx, session, &journal).await?;
        tx.commit().await?;
        Ok(session)
    }
}
