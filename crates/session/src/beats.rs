//! What is asked of sessions by whoever speaks to them at its own time: heartbeats, and jobs.

use holdfast_pg::TenantTx;
use holdfast_types::{
    AgentId, Author, Heartbeat, MessageId, RunId, SessionId, SessionKey, Target, TenantId,
};
use sqlx::types::{Json, Uuid};

use crate::{Error, Sessions};

/// The senders of how many messages tell whose a direct conversation is.
const SPEAKERS_READ: i64 = 50;

/// Whoever sent a conversation's last messages.
async fn speakers(tx: &mut TenantTx, session: Uuid) -> sqlx::Result<Vec<Author>> {
    const SQL: &str = "
        select body->'body'->'author' from session.entries
        where tenant_id = $1 and session_id = $2 and kind = 'heard'
          and body->'body'->'author' is not null
          and body->'body'->>'silent' is distinct from 'true'
        order by seq desc limit $3";

    let tenant = tx.tenant().as_uuid();
    let found: Vec<Json<Author>> = sqlx::query_scalar(SQL)
        .bind(tenant)
        .bind(session)
        .bind(SPEAKERS_READ)
        .fetch_all(tx.conn())
        .await?;
    Ok(found.into_iter().map(|author| author.0).collect())
}

/// A conversation that was held on a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its session.
    pub key: SessionKey,
    /// Where it was last spoken to.
    pub target: Target,
    /// Whoever sent its last messages, if it is a direct one.
    pub speakers: Vec<Author>,
}

/// How far something is that a turn sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sending {
    /// Its state's word.
    pub state: String,
    /// The kind of channel.
    pub channel: String,
    /// The conversation on the platform.
    pub chat: String,
    /// Whether it is more than a text.
    pub is_act: bool,
    /// Why it stands so.
    pub reason: Option<String>,
}

type SendingRow = (String, String, Option<String>, bool, Option<String>);

impl Sessions {
    /// Whether any of these sessions has something to do at this moment.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn is_busy(&self, tenant: TenantId, keys: &[&SessionKey]) -> Result<bool, Error> {
        const SQL: &str = "
            select exists (
                select from session.sessions s join session.session_lease l using (tenant_id, session_id)
                where s.tenant_id = $1 and s.key = any($2) and l.state in ('READY', 'RUNNING')
                  and l.paused is null)";

        let keys: Vec<&str> = keys.iter().map(|key| key.as_str()).collect();
        let mut tx = self.pools.tenant(tenant).await?;
        let busy: bool =
            sqlx::query_scalar(SQL).bind(tenant.as_uuid()).bind(keys).fetch_one(tx.conn()).await?;
        tx.finish_reading();
        Ok(busy)
    }

    /// Where an agent was last spoken to on a channel (C-48): in its main session; if never there, in
    /// the one direct conversation that it has.
    ///
    /// With several people's, nobody can say whose words are meant for whom: it is `None` then, as
    /// it is for groups. Whether the only one is with whom the agent works for is for the caller to
    /// say, by who [speaks](Place::speakers) there: the first stranger has it, too.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn last_place(
        &self,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Option<Place>, Error> {
        const SQL: &str = "
            (select session_id, kind, key, last_target from session.sessions
             where agent_id = $2 and tenant_id = $1 and kind = 'main' and last_target is not null
             order by updated_at desc limit 1)
            union all
            (select session_id, kind, key, last_target from session.sessions
             where agent_id = $2 and tenant_id = $1 and kind = 'dm' and last_target is not null
             limit 2)";

        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<(Uuid, String, String, Json<Target>)> = sqlx::query_as(SQL)
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
        Ok(Some(Place { key, target: Target { reply_to: None, ..target.0 }, speakers }))
    }

    /// Whoever sent the last messages of the conversation with this key; nobody, if there is none.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn speakers(&self, tenant: TenantId, key: &SessionKey) -> Result<Vec<Author>, Error> {
        const SESSION: &str = "
            select session_id from session.sessions where tenant_id = $1 and key = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        let session: Option<Uuid> = sqlx::query_scalar(SESSION)
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

    /// What is to become of the answer to a heartbeat, as it was asked; `None` if the message is none
    /// or is gone.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn heartbeat_of(
        &self,
        tenant: TenantId,
        message: MessageId,
    ) -> Result<Option<Heartbeat>, Error> {
        const SQL: &str = "
            select body->'heartbeat' from session.inbox where tenant_id = $1 and message_id = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        let found: Option<Option<Json<Heartbeat>>> = sqlx::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(message.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(found.flatten().map(|heartbeat| heartbeat.0))
    }

    /// What a turn sends, and how far that is, in its order.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn sendings(
        &self,
        tenant: TenantId,
        session: SessionId,
        run: RunId,
    ) -> Result<Vec<Sending>, Error> {
        const SQL: &str = "
            select state, channel, target->>'chat', act is not null, reason from session.deliveries
            where tenant_id = $1 and session_id = $2 and run_id = $3
            order by out_seq, part limit 1000";

        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<SendingRow> = sqlx::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(run.as_uuid())
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows
            .into_iter()
            .map(|(state, channel, chat, is_act, reason)| Sending {
                state,
                channel,
                chat: chat.unwrap_or_default(),
                is_act,
                reason,
            })
            .collect())
    }
}
