//! What a session already has.

use holdfast_session::{EPHEMERAL_LABEL, EntryView, MessageStatus, RemovedResponse};
use holdfast_types::{
    Body, MessageId, RunId, SessionId, SessionKey, SessionState, Source, TenantId,
};
use tracing::debug;

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

    pub async fn message_status(
        &self,
        tenant: TenantId,
        message: MessageId,
    ) -> Result<MessageStatus, Error> {
        Ok(self.sessions.views().answer(tenant, message).await?)
    }

    /// What the request of a message stored, oldest first.
    pub async fn request_messages(
        &self,
        tenant: TenantId,
        status: &MessageStatus,
    ) -> Result<Vec<(MessageId, Body)>, Error> {
        let responses = self.sessions.responses();
        Ok(responses.request_messages(tenant, status.session, status.seq).await?)
    }

    /// Removes a response, and its session if it has no other.
    pub async fn remove_response(
        &self,
        tenant: TenantId,
        session: SessionId,
        message: MessageId,
    ) -> Result<(), Error> {
        let removed = self.sessions.responses().remove(tenant, session, message).await?;
        if removed == RemovedResponse::Last {
            self.sessions.delete(tenant, session).await?;
        }
        Ok(())
    }

    /// Deletes the session of an answer that is not to be stored, if it was made for it and waits for
    /// nothing. What cannot be deleted now is deleted when its retention ends.
    pub async fn forget_unstored(&self, tenant: TenantId, session: SessionId) {
        let forgotten = async {
            let view = self.sessions.views().session(tenant, session).await?;
            let is_over = view.state == SessionState::Wait && view.waiting == 0;
            if view.label == EPHEMERAL_LABEL && view.turns == 1 && is_over {
                self.sessions.delete_answered(tenant, session).await?;
            }
            Ok::<(), Error>(())
        };
        if let Err(error) = forgotten.await {
            debug!(%error, "an answer that is not to be stored is kept until its retention ends");
        }
    }

    pub async fn delete_session(&self, tenant: TenantId, session: SessionId) -> Result<(), Error> {
        Ok(self.sessions.delete(tenant, session).await?)
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
