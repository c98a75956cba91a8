//! Session queries for heartbeats and jobs, which contact people at their own times.

use holdfast_pg::TenantTx;
use holdfast_types::{
    AgentId, Author, Heartbeat, MessageId, PersonId, RunId, SessionId, SessionKey, Target, TenantId,
};
use jiff::Timestamp;
use sqlx::types::{Json, Uuid};

use crate::{Error, Views};

/// Number of newest messages whose senders are read.
const SPEAKERS_READ: i64 = 50;

/// Returns the senders of a conversation's newest messages.
async fn speakers(tx: &mut TenantTx, session: Uuid) -> sqlx::Result<Vec<Author>> {
    const SQL: &str = "
        select body->'body'->'author' from session.entries
        where tenant_id = $1 and session_id = $2 and kind = 'heard'
          and body->'body'->'author' is not null
          and body->'body'->>'silent' is distinct from 'true'
        order by seq desc limit $3";

    let tenant = tx.tenant().as_uuid();
    let found: Vec<Json<Author>> = holdfast_pg::query_scalar(SQL)
        .bind(tenant)
        .bind(session)
        .bind(SPEAKERS_READ)
        .fetch_all(tx.conn())
        .await?;
    Ok(found.into_iter().map(|author| author.0).collect())
}

/// A conversation on a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelConversation {
    pub key: SessionKey,
    /// Target of the latest message.
    pub target: Target,
    /// Senders of the newest messages of a direct conversation; empty for a main session.
    pub speakers: Vec<Author>,
}

impl Views<'_> {
    /// Whether any of these sessions is ready or running, and not paused.
    pub async fn is_busy(self, tenant: TenantId, keys: &[&SessionKey]) -> Result<bool, Error> {
        const SQL: &str = "
            select exists (
                select from session.sessions s join session.session_lease l using (tenant_id, session_id)
                where s.tenant_id = $1 and s.key = any($2) and l.state in ('READY', 'RUNNING')
                  and l.paused is null)";

        let keys: Vec<&str> = keys.iter().map(|key| key.as_str()).collect();
        let mut tx = self.pools.tenant(tenant).await?;
        let busy: bool = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(keys)
            .fetch_one(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(busy)
    }

    /// Returns when a turn of the agent last ended that was neither a heartbeat nor a job; `None` if
    /// there was none.
    pub async fn last_activity(
        self,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Option<Timestamp>, Error> {
        const SQL: &str = "
            select max(updated_at) from session.sessions
            where agent_id = $2 and tenant_id = $1 and kind not in ('heartbeat', 'cron')";

        let mut tx = self.pools.tenant(tenant).await?;
        let at: Option<jiff_sqlx::Timestamp> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .fetch_one(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(at.map(jiff_sqlx::Timestamp::to_jiff))
    }

    /// Returns the place where an agent can contact its user (C-48): the main session's latest
    /// target on a channel, or else that of the agent's only direct conversation.
    ///
    /// With several direct conversations it is unclear who is meant, so the result is `None`;
    /// groups never count. The caller must check by the authors that the only
    /// direct conversation is with the right person: a stranger may have opened it.
    pub async fn last_conversation(
        self,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Option<ChannelConversation>, Error> {
        const SQL: &str = "
            (select session_id, kind, key, last_target from session.sessions
             where agent_id = $2 and tenant_id = $1 and kind = 'main' and last_target is not null
             order by updated_at desc limit 1)
            union all
            (select session_id, kind, key, last_target from session.sessions
             where agent_id = $2 and tenant_id = $1 and kind = 'dm' and last_target is not null
             limit 2)";

        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<(Uuid, String, String, Json<Target>)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .fetch_all(tx.conn())
            .await?;
        let is_alone = rows.len() == 1;
        let first = rows.into_iter().next().filter(|(_, kind, ..)| kind == "main" || is_alone);
        let Some((session, kind, key, target)) = first else {
            tx.finish_reading();
            return Ok(None);
        };
        let speakers = match kind.as_str() {
            "main" => Vec::new(),
            _ => speakers(&mut tx, session).await?,
        };
        tx.finish_reading();
        let Ok(key) = key.parse() else { return Ok(None) };
        Ok(Some(ChannelConversation {
            key,
            target: Target { reply_to: None, ..target.0 },
            speakers,
        }))
    }

    /// Returns the direct conversation in which a person last wrote to an agent on a channel, and the
    /// place there; `None` if the person has linked no account, or has not written from it yet.
    pub async fn conversation_with_person(
        self,
        tenant: TenantId,
        agent: AgentId,
        person: PersonId,
    ) -> Result<Option<(SessionId, Target)>, Error> {
        const SQL: &str = "
            select session_id, last_target from session.sessions
            where tenant_id = $1 and person_id = $3 and agent_id = $2 and kind = 'dm'
              and last_target is not null
            order by updated_at desc limit 1";

        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<(Uuid, Json<Target>)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(person.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(row.map(|(session, target)| (session.into(), Target { reply_to: None, ..target.0 })))
    }

    /// Returns the senders of the newest messages of a conversation; empty if there is no such
    /// session.
    pub async fn speakers(self, tenant: TenantId, key: &SessionKey) -> Result<Vec<Author>, Error> {
        const SESSION: &str = "
            select session_id from session.sessions where tenant_id = $1 and key = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        let session: Option<Uuid> = holdfast_pg::query_scalar(SESSION)
            .bind(tenant.as_uuid())
            .bind(key.as_str())
            .fetch_optional(tx.conn())
            .await?;
        let speakers = match session {
            Some(session) => speakers(&mut tx, session).await?,
            None => Vec::new(),
        };
        tx.finish_reading();
        Ok(speakers)
    }

    /// Returns the heartbeat settings of a message; `None` if the message is not a heartbeat or is
    /// deleted.
    pub async fn heartbeat_of(
        self,
        tenant: TenantId,
        message: MessageId,
    ) -> Result<Option<Heartbeat>, Error> {
        const SQL: &str = "
            select body->'heartbeat' from session.inbox where tenant_id = $1 and message_id = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        let found: Option<Option<Json<Heartbeat>>> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(message.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(found.flatten().map(|heartbeat| heartbeat.0))
    }

    /// Returns the answers of a session that contain a text, each with its run, of the runs that ended in
    /// the day before `until`; newest first, at most 20.
    pub async fn answers_with(
        self,
        tenant: TenantId,
        session: SessionId,
        text: &str,
        until: Timestamp,
    ) -> Result<Vec<(RunId, String)>, Error> {
        const SQL: &str = "
            select r.run_id, e.body->>'text'
            from session.runs r
            join session.entries e on e.tenant_id = r.tenant_id and e.session_id = r.session_id
                                  and e.seq = r.reply_seq
            where r.tenant_id = $1 and r.session_id = $2 and r.finished_at <= $4
              and r.finished_at > $4 - interval '1 day' and strpos(e.body->>'text', $3) > 0
            order by r.finished_at desc limit 20";

        let mut tx = self.pools.tenant(tenant).await?;
        let found: Vec<(Uuid, String)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(text)
            .bind(jiff_sqlx::Timestamp::from(until))
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(found.into_iter().map(|(run, answer)| (run.into(), answer)).collect())
    }
}
