//! Reading what a runner needs to go on with a session.

use holdfast_types::{Body, Entry, QueueMode, Target, Wait};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Claim, Error, Loaded, Sessions, Waiting};

type SessionRow =
    (String, Uuid, Option<Json<Target>>, i64, bool, i64, i64, i64, Option<Json<Wait>>);
type InboxRow = (
    i64,
    Uuid,
    Json<Body>,
    bool,
    String,
    Option<Json<Target>>,
    Option<String>,
    jiff_sqlx::Timestamp,
);

impl Sessions {
    /// Reads a claimed session: its unfinished messages and the newest `history` entries.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the session was lost already.
    pub async fn load(&self, claim: &Claim, history: i64) -> Result<Loaded, Error> {
        const SESSION: &str = "
            select s.key, s.agent_id, s.last_target, l.epoch, l.paused is not null, l.cancel_upto,
                   l.next_in, l.next_entry, l.wait
            from session.sessions s join session.session_lease l using (tenant_id, session_id)
            where s.tenant_id = $1 and s.session_id = $2";
        const INBOX: &str = "
            select seq, message_id, body, state = 'seen', mode, target, trace, accepted_at
            from session.inbox
            where tenant_id = $1 and session_id = $2 and state in ('new', 'seen')
            order by seq";
        const ENTRIES: &str = "
            select seq, run_id, body from (
                select seq, run_id, body from session.entries
                where tenant_id = $1 and session_id = $2
                order by seq desc limit $3) newest
            order by seq";

        // Each statement has its own snapshot. The lease is read first, so that what comes in
        // meanwhile is seen as input beyond `next_in` and looked at again.
        let mut tx = self.pools.tenant(claim.tenant).await?;
        let row: Option<SessionRow> = sqlx::query_as(SESSION)
            .bind(claim.tenant.as_uuid())
            .bind(claim.session.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        let Some((key, agent, last_target, epoch, paused, cancel_upto, next_in, next_entry, wait)) =
            row.filter(|row| row.3 == claim.epoch)
        else {
            return Err(Error::Fenced { held: claim.epoch });
        };
        debug_assert_eq!(epoch, claim.epoch);

        let inbox: Vec<InboxRow> = sqlx::query_as(INBOX)
            .bind(claim.tenant.as_uuid())
            .bind(claim.session.as_uuid())
            .fetch_all(tx.conn())
            .await?;
        let entries: Vec<(i64, Uuid, Json<Entry>)> = sqlx::query_as(ENTRIES)
            .bind(claim.tenant.as_uuid())
            .bind(claim.session.as_uuid())
            .bind(history)
            .fetch_all(tx.conn())
            .await?;
        tx.commit().await?;

        Ok(Loaded {
            key,
            agent: agent.into(),
            waiting: inbox.into_iter().map(waiting).collect(),
            entries: entries
                .into_iter()
                .map(|(seq, run, entry)| (seq, run.into(), entry.0))
                .collect(),
            next_in,
            next_entry,
            paused,
            cancel_upto,
            last_target: last_target.map(|target| target.0),
            wait: wait.map_or(Wait::Anything, |wait| wait.0),
        })
    }
}

fn waiting(row: InboxRow) -> Waiting {
    let (seq, message, body, seen, mode, target, trace, accepted_at) = row;
    Waiting {
        seq,
        message: message.into(),
        body: body.0,
        seen,
        // A check constraint keeps other words out.
        mode: mode.parse().unwrap_or(QueueMode::Steer),
        target: target.map(|target| target.0),
        trace,
        accepted_at: accepted_at.to_jiff(),
    }
}
