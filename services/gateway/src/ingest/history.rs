//! What a session already has.

use holdfast_session::EntryView;
use holdfast_types::{MessageId, RunId, SessionId, SessionKey, Source, TenantId};

use super::Ingest;
use crate::Error;

/// Entries that one query reads.
const PAGE_ENTRIES: i64 = 1_000;

/// Entries that are searched for the end of a run.
const MAX_ENTRIES: usize = 5_000;

impl Ingest {
    pub async fn find_session(
        &self,
        tenant: TenantId,
        key: &SessionKey,
    ) -> Result<Option<SessionId>, Error> {
        Ok(self.sessions.views().find(tenant, key).await?)
    }

    /// Session of the message that was accepted with this source and idempotency key.
    pub async fn session_of_request(
        &self,
        tenant: TenantId,
        source: &Source,
        idem_key: &str,
    ) -> Result<Option<SessionId>, Error> {
        let found = self.sessions.views().find_accepted(tenant, source, idem_key).await?;
        Ok(found.map(|accepted| accepted.session))
    }

    /// Session and run of a message; no run if none has ended.
    pub async fn run_of(
        &self,
        tenant: TenantId,
        message: MessageId,
    ) -> Result<(SessionId, Option<RunId>), Error> {
        let status = self.sessions.views().answer(tenant, message).await?;
        Ok((status.session, status.run.filter(|_| status.outcome.is_some())))
    }

    /// The newest entries of a session, at most `limit`.
    pub async fn newest_entries(
        &self,
        tenant: TenantId,
        session: SessionId,
        limit: usize,
    ) -> Result<Vec<EntryView>, Error> {
        let limit = i64::try_from(limit).unwrap_or(PAGE_ENTRIES).min(PAGE_ENTRIES);
        Ok(self.sessions.views().history(tenant, session, limit, None).await?)
    }

    /// Entries of a session up to the end of a run; `None` if the run is not found or too old.
    pub async fn entries_until(
        &self,
        tenant: TenantId,
        session: SessionId,
        run: RunId,
    ) -> Result<Option<Vec<EntryView>>, Error> {
        let (mut found, mut before) = (Vec::new(), None);
        while found.len() < MAX_ENTRIES {
            let views = self.sessions.views();
            let mut page = views.history(tenant, session, PAGE_ENTRIES, before).await?;
            let Some(oldest) = page.first().map(|entry| entry.seq) else { break };
            before = Some(oldest);
            page.append(&mut found);
            found = page;
        }
        let end = found.iter().rposition(|entry| entry.run == run);
        Ok(end.map(|end| {
            found.truncate(end + 1);
            found
        }))
    }
}
