//! Loading a claimed session.

use std::sync::Arc;

use holdfast_pg::Pools;
use holdfast_types::{
    Body, Entry, QueueMode, RunnerId, SessionSettings, Target, Wait, known_or_default,
};
use jiff::Timestamp;
use serde::Deserialize;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{
    Claim, Error, InboxMessage, LoadedSession, PendingEvent, Sessions, journal_cache::CachedEntries,
};

type SessionRow = (
    String,
    Uuid,
    Option<Json<Target>>,
    Option<String>,
    bool,
    i64,
    i64,
    i64,
    Option<Json<Wait>>,
    Json<SessionSettings>,
    Json<Vec<InboxRow>>,
    Json<Vec<(i64, Uuid, Entry)>>,
    Json<Vec<PendingEvent>>,
    bool,
    i32,
    Option<Uuid>,
);

/// A message as the query encodes it.
#[derive(Deserialize)]
struct InboxRow {
    seq: i64,
    message: Uuid,
    body: Body,
    seen: bool,
    #[serde(deserialize_with = "known_or_default")]
    mode: QueueMode,
    source: String,
    target: Option<Target>,
    trace: Option<String>,
    /// Microseconds since 1970.
    accepted: i64,
}

impl Sessions {
    /// Loads a claimed session: its unfinished messages and the newest `history` entries.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the claim is not current.
    pub async fn load(&self, claim: &Claim, history: i64) -> Result<LoadedSession, Error> {
        let cached = self.journal_cache.get(claim.tenant, claim.session, history);
        let mut kept = cached.entries;
        // The last cached entry is read again. A database that lost its last commits in a failover
        // may have another entry in its place.
        let known = kept.last().map_or(0, |last| last.0);
        let (mut loaded, mut version) = read_session(&self.pools, claim, history, known).await?;
        let is_current = match (kept.last(), loaded.entries.first()) {
            (None, _) => true,
            (Some(_), _) if version != cached.version => false,
            (Some(last), Some(first)) => *first == **last || first.0 > known,
            (Some(_), None) => false,
        };
        if !is_current {
            (loaded, version) = read_session(&self.pools, claim, history, 0).await?;
        }
        // More new entries than are asked for, or another journal than the cached one.
        if !loaded.entries.first().zip(kept.last()).is_some_and(|(first, last)| *first == **last) {
            kept.clear();
        }
        let came = loaded.entries.drain(..).skip(usize::from(!kept.is_empty()));
        kept.extend(came.map(Arc::new));
        let most = usize::try_from(history).unwrap_or(0);
        kept.drain(..kept.len().saturating_sub(most));
        loaded.entries = kept.iter().map(|entry| (**entry).clone()).collect();
        if history > 0 {
            let cached = CachedEntries { version, entries: kept };
            self.journal_cache.put(claim.tenant, claim.session, history, cached);
        }
        Ok(loaded)
    }
}

/// Loads a claimed session, with the journal entries from `known` on, and the journal's version.
async fn read_session(
    pools: &Pools,
    claim: &Claim,
    history: i64,
    known: i64,
) -> Result<(LoadedSession, i32), Error> {
    // One statement, for one round trip and one snapshot. A message that arrives later is
    // detected, because it moves `next_in`.
    const SQL: &str = "
        select s.key, s.agent_id, s.last_target, l.workspace, l.paused is not null, l.cancel_upto,
               l.next_in, l.next_entry, l.wait, s.settings,
               (select coalesce(jsonb_agg(jsonb_build_object(
                    'seq', seq, 'message', message_id, 'body', body, 'seen', state = 'seen',
                    'mode', mode, 'source', source, 'target', target, 'trace', trace,
                    'accepted', (extract(epoch from accepted_at) * 1000000)::bigint)
                    order by seq), '[]')
                from session.inbox
                where tenant_id = $1 and session_id = $2 and state in ('new', 'seen')),
               (select coalesce(jsonb_agg(jsonb_build_array(seq, run_id, body) order by seq), '[]')
                from (select seq, run_id, body from session.entries
                      where tenant_id = $1 and session_id = $2 and seq >= $5
                      order by seq desc limit $3) newest),
               (select coalesce(jsonb_agg(jsonb_build_object(
                    'id', event_id, 'text', text, 'outside', outside, 'signed', signed,
                    'at', extract(epoch from created_at)::bigint) order by event_id), '[]')
                from session.system_events e
                where e.tenant_id = $1 and e.key = s.key and gone_at is null),
               s.outside_since is not null, s.journal_version, l.holder
        from session.sessions s join session.session_lease l using (tenant_id, session_id)
        where s.tenant_id = $1 and s.session_id = $2 and l.epoch = $4
          and l.owner = $6";

    let mut tx = pools.tenant(claim.tenant).await?;
    let row: Option<SessionRow> = holdfast_pg::query_as(SQL)
        .bind(claim.tenant.as_uuid())
        .bind(claim.session.as_uuid())
        .bind(history)
        .bind(claim.epoch)
        .bind(known)
        .bind(claim.runner.as_uuid())
        .fetch_optional(tx.conn())
        .await?;
    tx.finish_reading();
    let Some(row) = row else { return Err(Error::Fenced { held: claim.epoch }) };
    let (
        key,
        agent,
        last_target,
        workspace,
        paused,
        cancel_upto,
        next_in,
        next_entry,
        wait,
        settings,
        inbox,
        entries,
        events,
        outside,
        version,
        holder,
    ) = row;

    let loaded = LoadedSession {
        key,
        agent: agent.into(),
        waiting: inbox.0.into_iter().map(inbox_message).collect(),
        entries: entries.0.into_iter().map(|(seq, run, entry)| (seq, run.into(), entry)).collect(),
        next_in,
        next_entry,
        paused,
        cancel_upto,
        last_target: last_target.map(|target| target.0),
        settings: settings.0,
        wait: wait.map_or(Wait::Anything, |wait| wait.0),
        events: events.0,
        outside,
        holder: holder.map(RunnerId::from),
        workspace,
    };
    Ok((loaded, version))
}

fn inbox_message(row: InboxRow) -> InboxMessage {
    let InboxRow { seq, message, body, seen, mode, source, target, trace, accepted } = row;
    // Postgres timestamps are within jiff's range.
    let accepted_at = Timestamp::from_microsecond(accepted).unwrap_or_default();
    let message = message.into();
    InboxMessage { seq, message, body, seen, mode, source, target, trace, accepted_at }
}
