//! State that the process of a runner holds for a session: background commands, browser windows,
//! MCP servers that run as processes.
//!
//! ```text
//!  state begins ─▶ record_held: row, holder of the session ─▶ claim: the holder only, while it lives
//!                                                                │ it died, stopped, or was busy
//!  the next turn is told ◀─ settle_lost: rows are lost, no holder ◀─ load by another runner
//! ```
//!
//! ## What can go wrong
//!
//! This decides where a turn runs, and never whether its writes are valid: that is the fence. A
//! runner that was suspended may still hold state that another runner has told its session to be
//! lost. [`renew_runner`](Sessions::renew_runner) returns such state, which the runner then ends.

use std::fmt;

use holdfast_types::{AgentId, RunnerId, SessionId, SessionKey, TenantId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::{
    Claim, Error, NewSystemEvent, Sessions, sessions::lock_claimed, system_events::insert_event,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HeldKind {
    /// A command in the background.
    Command,
    /// The browser window of a conversation.
    Browser,
    /// An MCP server that runs as a process.
    McpServer,
}

impl HeldKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Browser => "browser",
            Self::McpServer => "mcp",
        }
    }

    fn parse(kind: &str) -> Option<Self> {
        [Self::Command, Self::Browser, Self::McpServer]
            .into_iter()
            .find(|known| known.as_str() == kind)
    }
}

/// Something that a runner holds for a session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldItem {
    pub kind: HeldKind,
    /// Id of a command, name of a server.
    pub name: String,
    /// Text of a command.
    pub title: String,
}

/// Why a session lost its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossReason {
    /// The holder is gone or does not answer.
    Died,
    /// The holder was told to stop.
    Stopped,
    /// The holder lives, but did not take the session in time.
    Busy,
}

impl LossReason {
    fn parse(reason: &str) -> Self {
        match reason {
            "stopped" => Self::Stopped,
            "busy" => Self::Busy,
            _ => Self::Died,
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Died => "the process that held it ended, or answers no more",
            Self::Stopped => "the process that held it was stopped, as for an upgrade",
            Self::Busy => "the process that holds it was busy for too long",
        })
    }
}

/// State of a session that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostItem {
    pub item: HeldItem,
    pub started_at: Timestamp,
    pub reason: LossReason,
}

impl fmt::Display for LostItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HeldItem { kind, name, title } = &self.item;
        match kind {
            HeldKind::Command => {
                write!(f, "the background command `{}` ({name})", title.replace('`', "'"))
            }
            HeldKind::Browser => f.write_str("the browser window with its pages"),
            HeldKind::McpServer => write!(f, "the process of the MCP server `{name}`"),
        }
    }
}

/// Kind, name, title, start and reason.
type LostRow = (String, String, String, i64, String);

fn lost_item((kind, name, title, started, reason): LostRow) -> Option<LostItem> {
    let item = HeldItem { kind: HeldKind::parse(&kind)?, name, title };
    // Postgres timestamps are within jiff's range.
    let started_at = Timestamp::from_second(started).unwrap_or_default();
    Some(LostItem { item, started_at, reason: LossReason::parse(&reason) })
}

impl Sessions {
    /// Records all that a runner holds for a session: `items` replace what was recorded before. The
    /// runner becomes the session's holder while it runs the session and holds anything.
    pub async fn record_held(
        &self,
        (tenant, session): (TenantId, SessionId),
        agent: AgentId,
        runner: RunnerId,
        items: &[HeldItem],
    ) -> Result<(), Error> {
        const SQL: &str = "
            with items as (
                select * from unnest($5::text[], $6::text[], $7::text[]) as i (kind, name, title)),
            ended as (
                delete from session.held_state h
                where h.tenant_id = $1 and h.session_id = $2
                  and case when h.runner_id = $3 then h.lost_at is null and not exists (
                                select from items i where i.kind = h.kind and i.name = h.name)
                           -- It was started again here: nothing of it is missing any more.
                           else h.lost_at is not null and exists (
                                select from items i where i.kind = h.kind and i.name = h.name) end),
            begun as (
                insert into session.held_state as h
                    (tenant_id, session_id, runner_id, agent_id, kind, name, title)
                select $1, $2, $3, $4, kind, name, title from items
                where exists (select from session.sessions
                              where tenant_id = $1 and session_id = $2)
                on conflict (session_id, runner_id, kind, name, tenant_id) do update
                    set lost_at = null, reason = null, title = excluded.title,
                        started_at = clock_timestamp()
                    where h.lost_at is not null)
            update session.session_lease set holder = case when exists (select from items) then $3 end
            where tenant_id = $1 and session_id = $2
              and case when exists (select from items)
                       then owner = $3 and holder is distinct from $3 else holder = $3 end";
        let column = |text: fn(&HeldItem) -> &str| -> Vec<String> {
            items.iter().map(|item| text(item).to_owned()).collect()
        };
        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(runner.as_uuid())
            .bind(agent.as_uuid())
            .bind(column(|item| item.kind.as_str()))
            .bind(column(|item| &item.name))
            .bind(column(|item| &item.title))
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Settles the state of a claimed session that another runner held: it is lost, the session
    /// has no holder any more, and its next turn is told. Background commands of a runner that
    /// lives are not lost, because other runners reach them.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the claim is not current.
    pub async fn settle_lost(&self, claim: &Claim, key: &str) -> Result<Vec<LostItem>, Error> {
        const SQL: &str = "
            with others as materialized (
                select h.runner_id, h.kind, h.name,
                       coalesce(r.live_until > clock_timestamp(), false) as lives,
                       r.stopped_at is not null as stopped
                from session.held_state h left join session.runners r using (runner_id)
                where h.tenant_id = $1 and h.session_id = $2 and h.lost_at is null
                  and h.runner_id <> $3),
            settled as (
                update session.session_lease set holder = null
                where tenant_id = $1 and session_id = $2 and holder <> $3)
            update session.held_state h
            set lost_at = clock_timestamp(),
                reason = case when o.lives then 'busy' when o.stopped then 'stopped' else 'died' end
            from others o
            where h.tenant_id = $1 and h.session_id = $2 and h.runner_id = o.runner_id
              and h.kind = o.kind and h.name = o.name and not (o.lives and h.kind = 'command')
            returning h.kind, h.name, h.title, extract(epoch from h.started_at)::bigint, h.reason";
        let mut tx = self.pools.tenant(claim.tenant).await?;
        lock_claimed(&mut tx, claim).await?;
        let rows: Vec<LostRow> = holdfast_pg::query_as(SQL)
            .bind(claim.tenant.as_uuid())
            .bind(claim.session.as_uuid())
            .bind(claim.runner.as_uuid())
            .fetch_all(tx.conn())
            .await?;
        let mut lost: Vec<LostItem> = rows.into_iter().filter_map(lost_item).collect();
        lost.sort_by(|one, other| one.item.cmp(&other.item));
        if let (Some(text), Ok(key)) = (loss_text(&lost), key.parse::<SessionKey>()) {
            let idem_key = format!("lost:{}:{}", claim.session, claim.epoch);
            let event = NewSystemEvent { key, idem_key, text, outside: false, signed: None };
            insert_event(&mut tx, &event).await?;
        }
        tx.commit().await?;
        Ok(lost)
    }

    /// State that a session has lost within the last day, newest first.
    pub async fn lost_state(
        &self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<Vec<LostItem>, Error> {
        const SQL: &str = "
            select kind, name, title, extract(epoch from started_at)::bigint, reason
            from session.held_state
            where tenant_id = $1 and session_id = $2 and lost_at is not null
            order by lost_at desc";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<LostRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().filter_map(lost_item).collect())
    }

    /// Another runner that lives and holds one of these MCP servers for conversations of the agent.
    pub async fn server_holder(
        &self,
        tenant: TenantId,
        agent: AgentId,
        servers: &[String],
        runner: RunnerId,
    ) -> Result<Option<RunnerId>, Error> {
        const SQL: &str = "
            select h.runner_id
            from session.held_state h join session.runners r using (runner_id)
            where h.tenant_id = $1 and h.agent_id = $2 and h.kind = 'mcp' and h.name = any($3)
              and h.lost_at is null and h.runner_id <> $4 and r.live_until > clock_timestamp()
            order by h.started_at, h.runner_id limit 1";
        let mut tx = self.pools.tenant(tenant).await?;
        let found: Option<Uuid> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(servers)
            .bind(runner.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(found.map(RunnerId::from))
    }

    /// Makes another runner the holder of a claimed session that has none, so that the next claim is
    /// that runner's. The caller then releases the session.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the claim is not current.
    pub async fn hand_over(&self, claim: &Claim, holder: RunnerId) -> Result<bool, Error> {
        const SQL: &str = "
            update session.session_lease set holder = $3
            where tenant_id = $1 and session_id = $2 and holder is null";
        let mut tx = self.pools.tenant(claim.tenant).await?;
        lock_claimed(&mut tx, claim).await?;
        let changed = holdfast_pg::query(SQL)
            .bind(claim.tenant.as_uuid())
            .bind(claim.session.as_uuid())
            .bind(holder.as_uuid())
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(changed.rows_affected() > 0)
    }

    /// Records that a runner lives, for the duration of a lease. Returns what it holds and other
    /// runners have told to be lost: it must end that.
    pub async fn renew_runner(
        &self,
        runner: RunnerId,
    ) -> Result<Vec<(TenantId, SessionId, HeldKind, String)>, Error> {
        const SQL: &str = "
            with renewed as (
                insert into session.runners as r (runner_id, live_until, pool)
                values ($1, clock_timestamp() + $2 * interval '1 second', $3)
                on conflict (runner_id) do update
                    set live_until = excluded.live_until, pool = excluded.pool
                    where r.stopped_at is null)
            select tenant_id, session_id, kind, name from session.held_state
            where runner_id = $1 and lost_at is not null";
        let mut once = self.pools.system_connection().await?;
        let rows: Vec<(Uuid, Uuid, String, String)> = holdfast_pg::query_as(SQL)
            .bind(runner.as_uuid())
            .bind(self.lease.as_secs_f64())
            .bind(self.pool_name())
            .fetch_all(once.conn())
            .await?;
        once.done();
        let item = |(tenant, session, kind, name): (Uuid, Uuid, String, String)| {
            Some((tenant.into(), session.into(), HeldKind::parse(&kind)?, name))
        };
        Ok(rows.into_iter().filter_map(item).collect())
    }

    /// Records that a runner stops: its sessions may be claimed by others from now on.
    pub async fn stop_runner(&self, runner: RunnerId) -> Result<(), Error> {
        const SQL: &str = "
            update session.runners
            set live_until = clock_timestamp(), stopped_at = clock_timestamp()
            where runner_id = $1";
        let mut once = self.pools.system_connection().await?;
        holdfast_pg::query(SQL).bind(runner.as_uuid()).execute(once.conn()).await?;
        once.done();
        Ok(())
    }
}

/// Text for the next turn about what its session has lost; `None` if that is nothing.
fn loss_text(lost: &[LostItem]) -> Option<String> {
    let reason = lost.first()?.reason;
    let items: Vec<String> = lost.iter().map(ToString::to_string).collect();
    Some(format!(
        "This conversation has lost {}: {reason}. Nothing of it can be reached any more. Start it \
         again if you need it, and tell the user if that matters to them.",
        items.join("; "),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_is_named_with_the_reason() {
        let lost = |kind, name: &str, title: &str| LostItem {
            item: HeldItem { kind, name: name.to_owned(), title: title.to_owned() },
            started_at: Timestamp::default(),
            reason: LossReason::Stopped,
        };

        let text = loss_text(&[
            lost(HeldKind::Command, "prc_1", "npm run `dev`"),
            lost(HeldKind::McpServer, "memory", ""),
        ])
        .unwrap();

        assert!(
            text.starts_with(
                "This conversation has lost the background command `npm run 'dev'` (prc_1); the \
                 process of the MCP server `memory`: the process that held it was stopped"
            ),
            "{text}"
        );
        assert_eq!(loss_text(&[]), None);
    }
}
