//! Erasure of what a person said, in their own conversations and in those of others.

use holdfast_pg::TenantTx;
use holdfast_types::{SessionId, TenantId};
use uuid::Uuid;

use crate::{Error, Sessions};

/// Conversations whose messages one statement erases.
const SESSIONS_PER_STATEMENT: i64 = 100;

/// Keys that one query returns.
const KEYS_PER_QUERY: i64 = 1_000;

/// Text of a message whose author was erased.
const ERASED_TEXT: &str = "(erased)";

/// Erasure of what a person said in a tenant's sessions.
#[derive(Debug, Clone, Copy)]
pub struct Erasure<'a> {
    sessions: &'a Sessions,
}

impl<'a> Erasure<'a> {
    #[must_use]
    pub const fn new(sessions: &'a Sessions) -> Self {
        Self { sessions }
    }

    /// Returns the ids of the sessions whose key matches, of all sessions of a tenant.
    pub async fn find_by_key(
        self,
        tenant: TenantId,
        matches: impl Fn(&str) -> bool,
    ) -> Result<Vec<SessionId>, Error> {
        const SQL: &str = "
            select session_id, key from session.sessions
            where tenant_id = $1 and session_id > $2 order by session_id limit $3";
        let (mut found, mut last) = (Vec::new(), Uuid::nil());
        loop {
            let mut tx = self.sessions.pools.tenant(tenant).await?;
            let page: Vec<(Uuid, String)> = holdfast_pg::query_as(SQL)
                .bind(tenant.as_uuid())
                .bind(last)
                .bind(KEYS_PER_QUERY)
                .fetch_all(tx.conn())
                .await?;
            tx.finish_reading();
            let Some((id, _)) = page.last() else { return Ok(found) };
            last = *id;
            let matching = page.into_iter().filter(|(_, key)| matches(key));
            found.extend(matching.map(|(id, _)| SessionId::from(id)));
        }
    }

    /// Deletes a session as [`delete`](Sessions::delete) does, and the idempotency keys of its messages,
    /// which name the chat on some channels. Deleting it again is not an error.
    pub async fn erase(self, tenant: TenantId, session: SessionId) -> Result<(), Error> {
        const KEYS: &str =
            "delete from session.tombstones where tenant_id = $1 and session_id = any($2)";
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        let family = family(&mut tx, session).await?;
        tx.finish_reading();
        match self.sessions.delete(tenant, session).await {
            Ok(()) | Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        holdfast_pg::query(KEYS).bind(tenant.as_uuid()).bind(family).execute(tx.conn()).await?;
        Ok(tx.commit().await?)
    }

    /// Replaces the messages of these authors, in all sessions that are left, by a text that says
    /// so. Rules that the authors approved are deleted, and their names in approvals replaced.
    /// Returns the session of each message.
    pub async fn erase_messages_of(
        self,
        tenant: TenantId,
        authors: &[String],
    ) -> Result<Vec<SessionId>, Error> {
        const MESSAGES: &str = "
            with page as materialized (
                select session_id from session.sessions
                where tenant_id = $1 and session_id > $2 order by session_id limit $3),
            erased as materialized (
                select jsonb_build_object('text', $5::text) as body),
            heard as (
                update session.entries e set body = jsonb_set(e.body, '{body}', x.body
                    || jsonb_strip_nulls(jsonb_build_object('silent', e.body #> '{body,silent}')))
                from erased x
                where e.tenant_id = $1 and e.session_id in (select session_id from page)
                  and e.kind = 'heard' and e.body #>> '{body,author,id}' = any($4)
                returning e.session_id),
            accepted as (
                update session.inbox i set body = x.body
                    || jsonb_strip_nulls(jsonb_build_object('silent', i.body -> 'silent'))
                from erased x
                where i.tenant_id = $1 and i.session_id in (select session_id from page)
                  and i.body #>> '{author,id}' = any($4)
                returning i.session_id),
            versions as (
                update session.sessions s set journal_version = s.journal_version + 1
                where s.tenant_id = $1 and s.session_id in (select session_id from heard))
            select (select max(session_id::text)::uuid from page),
                   array(select session_id from heard union all select session_id from accepted)";
        const APPROVALS: &str = "
            with rules as (
                delete from session.approval_rules
                where tenant_id = $1 and created_by = any($2)),
            -- Texts that were sent to the person outside of a conversation.
            texts as (
                delete from session.deliveries d
                where d.tenant_id = $1 and d.channel || ':' || (d.target->>'chat') = any($2)
                  and not exists (
                      select from session.sessions s
                      where s.tenant_id = $1 and s.session_id = d.session_id))
            update session.approvals set decided_by = $3
            where tenant_id = $1 and decided_by = any($2)";
        let (mut erased, mut last) = (Vec::new(), Uuid::nil());
        loop {
            let mut tx = self.sessions.pools.tenant(tenant).await?;
            let (end, messages): (Option<Uuid>, Vec<Uuid>) = holdfast_pg::query_as(MESSAGES)
                .bind(tenant.as_uuid())
                .bind(last)
                .bind(SESSIONS_PER_STATEMENT)
                .bind(authors)
                .bind(ERASED_TEXT)
                .fetch_one(tx.conn())
                .await?;
            tx.commit().await?;
            erased.extend(messages.into_iter().map(SessionId::from));
            let Some(end) = end else { break };
            last = end;
        }
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        holdfast_pg::query(APPROVALS)
            .bind(tenant.as_uuid())
            .bind(authors)
            .bind(ERASED_TEXT)
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(erased)
    }
}

/// Returns a session and its subagents' sessions, the last started first.
pub(crate) async fn family(tx: &mut TenantTx, session: SessionId) -> sqlx::Result<Vec<Uuid>> {
    const SQL: &str = "
        with recursive family as (
            select $2::uuid as session_id
            union
            select s.session_id from session.sessions s
            join family f on s.tenant_id = $1 and s.parent_id = f.session_id)
        select session_id from family order by session_id = $2, session_id desc";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).bind(session.as_uuid()).fetch_all(tx.conn()).await
}
