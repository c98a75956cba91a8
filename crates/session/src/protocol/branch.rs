//! Branches: a session with the journal of another one up to an entry.
//!
//! The entries are copied, so that both sessions are read, summarised and deleted as any other. What the
//! session has beside the journal is not copied: messages that wait, todos, the state of behaviours,
//! the target of unasked messages.

use holdfast_types::{SessionId, SessionKey, TenantId};
use uuid::Uuid;

use super::import::key_is_taken;
use crate::{
    Error, SessionView, Sessions, Views,
    sessions::{check_session_limit, priority},
};

/// Sessions that [`Views::branches`] returns.
const MAX_BRANCHES: i64 = 200;

/// A branch to make.
#[derive(Debug, Clone, Copy)]
pub struct NewBranch<'a> {
    /// Session whose journal is shared.
    pub of: SessionId,
    /// The last entry that is shared, which must end a turn; 0 shares nothing.
    pub upto: i64,
    pub key: &'a SessionKey,
    /// Label that people give it; `None` is the label of the other session.
    pub label: Option<&'a str>,
}

/// A branch that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BranchResult {
    pub session: SessionId,
    /// The branch was made before, by the same key.
    pub duplicate: bool,
}

impl Sessions {
    /// Makes a branch. A runner would continue a turn that the shared entries leave open.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such session, [`Error::Conflict`] if the key is that of a
    /// session which is no such branch, [`Error::TooManySessions`] at the tenant's limit.
    pub async fn branch(
        &self,
        tenant: TenantId,
        new: NewBranch<'_>,
    ) -> Result<BranchResult, Error> {
        const CREATE: &str = "
            with made as (
                insert into session.sessions
                    (tenant_id, session_id, key, kind, agent_id, label, given_label, given_tags,
                     settings, summary, outside_since, branch_of, branch_seq)
                select tenant_id, $3, $4, $5, agent_id, label, coalesce($6, given_label), given_tags,
                       settings,
                       coalesce((select e.body->>'text' from session.entries e
                                 where e.tenant_id = $1 and e.session_id = $2 and e.seq <= $7
                                   and e.kind = 'noted' and e.body->>'note' = 'summary'
                                 order by e.seq desc limit 1), ''),
                       outside_since, session_id, $7
                from session.sessions where tenant_id = $1 and session_id = $2
                on conflict on constraint sessions_key do nothing
                returning session_id)
            insert into session.session_lease (tenant_id, session_id, priority, next_entry)
            select $1, session_id, $8, $7 + 1 from made";
        const COPY: &str = "
            insert into session.entries
                (tenant_id, session_id, seq, epoch, run_id, kind, body, created_at)
            select tenant_id, $3, seq, 0, run_id, kind, body, created_at
            from session.entries where tenant_id = $1 and session_id = $2 and seq <= $4";
        const EXISTING: &str = "
            select session_id from session.sessions
            where tenant_id = $1 and key = $2 and branch_of = $3 and branch_seq = $4";

        let NewBranch { of, upto, key, label } = new;
        self.views().session(tenant, of).await?;
        let session = SessionId::generate();
        let mut tx = self.pools.tenant(tenant).await?;
        check_session_limit(&mut tx, 1).await?;
        let made = holdfast_pg::query(CREATE)
            .bind(tenant.as_uuid())
            .bind(of.as_uuid())
            .bind(session.as_uuid())
            .bind(key.as_str())
            .bind(key.kind().as_str())
            .bind(label)
            .bind(upto)
            .bind(priority(key.kind()))
            .execute(tx.conn())
            .await?
            .rows_affected();
        if made == 0 {
            let existing: Option<Uuid> = holdfast_pg::query_scalar(EXISTING)
                .bind(tenant.as_uuid())
                .bind(key.as_str())
                .bind(of.as_uuid())
                .bind(upto)
                .fetch_optional(tx.conn())
                .await?;
            tx.rollback().await?;
            let session = existing.ok_or_else(|| key_is_taken(key))?.into();
            return Ok(BranchResult { session, duplicate: true });
        }
        holdfast_pg::query(COPY)
            .bind(tenant.as_uuid())
            .bind(of.as_uuid())
            .bind(session.as_uuid())
            .bind(upto)
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(BranchResult { session, duplicate: false })
    }
}

impl Views<'_> {
    /// Returns the session from which a session and its relatives were branched, and all of these,
    /// oldest first.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such session.
    pub async fn branches(
        self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<Vec<SessionView>, Error> {
        const SQL: &str = "
            with recursive up as (
                select session_id, branch_of from session.sessions
                where tenant_id = $1 and session_id = $2
                union
                select s.session_id, s.branch_of
                from session.sessions s join up on s.session_id = up.branch_of
                where s.tenant_id = $1),
            down as (
                -- The topmost one that was not deleted.
                select u.session_id from up u
                where not exists (select from up p where p.session_id = u.branch_of)
                union
                select s.session_id
                from session.sessions s join down on s.branch_of = down.session_id
                where s.tenant_id = $1)
            select session_id from down order by session_id limit $3";
        self.session(tenant, session).await?;
        let mut tx = self.pools.tenant(tenant).await?;
        let ids: Vec<Uuid> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(MAX_BRANCHES)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        self.sessions_by_id(tenant, ids).await
    }
}
