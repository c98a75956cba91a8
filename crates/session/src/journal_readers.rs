//! Background readers of journals: memory extraction and the index of conversation turns.
//!
//! A reader reads each conversation range by range. A conversation is due when a message of it was
//! finished and its journal has grown since the last range. A reader claims a range for a time.
//! After a crash the same range is claimed again, so its results can be identified by the range. A
//! conversation that was read to its end is not due, so an idle tenant costs nothing.

use std::time::Duration;

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{AgentId, Entry, RunId, SessionId, TenantId};
use jiff::Timestamp;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Error, RunnerPool, Sessions, queues::runner_pools::is_of_pool};

/// Number of tries after which a range is skipped.
pub const MAX_EXTRACTION_TRIES: i32 = 5;

/// Maximum number of entries in one range.
const MAX_ENTRIES_PER_RANGE: i64 = 400;

/// A claimed range of a journal.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalRange {
    /// `seq` of the last entry before the range.
    pub after: i64,
    /// `seq` of the last entry in the range.
    pub upto: i64,
    /// Number of earlier claims of the range that failed.
    pub tries: i32,
    pub key: String,
    pub agent: AgentId,
    /// The session has read text from outside since its last reset.
    pub outside: bool,
    /// Entries of the range, oldest first. Those past their retention are missing.
    pub entries: Vec<Entry>,
    /// One mark for each entry.
    pub marks: Vec<EntryMark>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryMark {
    pub seq: i64,
    pub run: RunId,
    /// Of a message, when it was accepted; of another entry, when it was written.
    pub at: Timestamp,
}

impl JournalRange {
    /// Returns the mark of the last entry, `None` if the range has no entries.
    #[must_use]
    pub fn last(&self) -> Option<EntryMark> {
        self.marks.last().copied()
    }

    /// Whether what was said in the range may repeat text from outside.
    #[must_use]
    pub fn has_outside_text(&self) -> bool {
        self.outside || self.entries.iter().any(Entry::is_outside_text)
    }

    /// Removes the first entries, up to the last one that is not later than `until`, because the
    /// user erased them.
    pub fn forget(&mut self, until: Option<Timestamp>) {
        let Some(until) = until else { return };
        let gone = self.marks.iter().take_while(|mark| mark.at <= until).count();
        self.entries.drain(..gone);
        self.marks.drain(..gone);
    }
}

/// A reader, with the conversations that it reads.
#[derive(Debug, Clone, Copy)]
struct Reader {
    name: &'static str,
    kinds: &'static [&'static str],
}

const EXTRACTION: Reader = Reader { name: "extraction", kinds: &["main", "dm", "api"] };

const TURN_INDEX: Reader =
    Reader { name: "turn_index", kinds: &["main", "dm", "api", "group", "topic"] };

/// A reader of journals, from [`Sessions::extraction`] or [`Sessions::turn_index`].
#[derive(Debug, Clone, Copy)]
pub struct JournalReader<'a> {
    pools: &'a Pools,
    /// Pool of the runner that reads.
    pool: Option<&'a RunnerPool>,
    reader: Reader,
}

impl Sessions {
    /// Memory extraction: reads conversations with one person.
    #[must_use]
    pub const fn extraction(&self) -> JournalReader<'_> {
        JournalReader { pools: &self.pools, pool: self.pool.as_ref(), reader: EXTRACTION }
    }

    /// Index of conversation turns: reads conversations with persons and groups.
    #[must_use]
    pub const fn turn_index(&self) -> JournalReader<'_> {
        JournalReader { pools: &self.pools, pool: self.pool.as_ref(), reader: TURN_INDEX }
    }
}

impl JournalReader<'_> {
    /// Returns conversations that are due: a message was finished after `since`, no turn runs, the
    /// last message was finished at least `rest` ago, and the journal was not read to its end. Also
    /// returns conversations with a claim that has expired.
    pub async fn due(
        self,
        since: Timestamp,
        rest: Duration,
        limit: i64,
    ) -> Result<Vec<(TenantId, SessionId)>, Error> {
        const SQL: &str = concat!(
            "select l.tenant_id, l.session_id from (
            select d.tenant_id, d.session_id
            from (select distinct i.tenant_id, i.session_id from session.inbox i
                  where i.state in ('done', 'dead') and i.finished_at > $1
                    and i.finished_at <= clock_timestamp() - $2 * interval '1 millisecond') d
            join session.sessions s
              on s.tenant_id = d.tenant_id and s.session_id = d.session_id
            join session.session_lease l
              on l.tenant_id = d.tenant_id and l.session_id = d.session_id
            left join session.journal_readers x
              on x.tenant_id = d.tenant_id and x.session_id = d.session_id and x.reader = $4
            where s.kind = any($5) and s.label <> 'ephemeral'
              and l.state in ('WAIT', 'WAIT_FOR_MSG', 'WAIT_FOR_EVENT')
              and l.next_entry - 1 > coalesce(x.upto, 0)
              and (x.lease_until is null or x.lease_until < clock_timestamp())
              and ($2 = 0 or not exists (
                  select from session.inbox n
                  where n.tenant_id = d.tenant_id and n.session_id = d.session_id
                    and n.seq = l.next_in - 1
                    and n.finished_at > clock_timestamp() - $2 * interval '1 millisecond'))
            union
            select tenant_id, session_id from session.journal_readers
            where reader = $4 and pending is not null and lease_until < clock_timestamp()) l
            where ",
            is_of_pool!(6),
            " limit $3"
        );
        let mut once = self.pools.system_connection().await?;
        let rows: Vec<(Uuid, Uuid)> = holdfast_pg::query_as(SQL)
            .bind(jiff_sqlx::Timestamp::from(since))
            .bind(millis(rest))
            .bind(limit)
            .bind(self.reader.name)
            .bind(self.reader.kinds)
            .bind(self.pool.map(RunnerPool::as_str))
            .fetch_all(once.conn())
            .await?;
        once.done();
        Ok(rows.into_iter().map(|(tenant, session)| (tenant.into(), session.into())).collect())
    }

    /// Claims the next range of a journal, for the duration of `lease`. Returns `None` if there is
    /// none, a turn runs, or another process has claimed it.
    pub async fn claim(
        self,
        tenant: TenantId,
        session: SessionId,
        lease: Duration,
    ) -> Result<Option<JournalRange>, Error> {
        const CLAIM: &str = "
            insert into session.journal_readers as x
                (tenant_id, session_id, reader, pending, lease_until, tries)
            select $1, $2, $3, least(next_entry - 1, $5),
                   clock_timestamp() + $4 * interval '1 millisecond', 1
            from session.session_lease
            where tenant_id = $1 and session_id = $2 and next_entry > 1
              and state in ('WAIT', 'WAIT_FOR_MSG', 'WAIT_FOR_EVENT')
            on conflict (session_id, reader, tenant_id) do update
                set pending = coalesce(x.pending, least(
                        (select next_entry - 1 from session.session_lease
                         where tenant_id = $1 and session_id = $2), x.upto + $5)),
                    tries = case when x.pending is null then 1 else x.tries + 1 end,
                    lease_until = excluded.lease_until, updated_at = clock_timestamp()
                where (x.lease_until is null or x.lease_until < clock_timestamp())
                  and (x.pending is not null or x.upto < (
                       select next_entry - 1 from session.session_lease
                       where tenant_id = $1 and session_id = $2))
            returning upto, pending, tries - 1";
        const SESSION: &str = "
            select key, agent_id, outside_since is not null from session.sessions
            where tenant_id = $1 and session_id = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        let claimed: Option<(i64, i64, i32)> = holdfast_pg::query_as(CLAIM)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(self.reader.name)
            .bind(millis(lease))
            .bind(MAX_ENTRIES_PER_RANGE)
            .fetch_optional(tx.conn())
            .await?;
        let Some((after, upto, tries)) = claimed else {
            tx.finish_reading();
            return Ok(None);
        };
        let (key, agent, outside): (String, Uuid, bool) = holdfast_pg::query_as(SESSION)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .fetch_one(tx.conn())
            .await?;
        let (entries, marks) = entries_between(&mut tx, session, after, upto).await?;
        tx.commit().await?;
        let agent = agent.into();
        Ok(Some(JournalRange { after, upto, tries, key, agent, outside, entries, marks }))
    }

    /// Shortens a claimed range to its first `entries` entries; the rest becomes the next range.
    /// Returns whether the claim was still current.
    pub async fn cut(
        self,
        tenant: TenantId,
        session: SessionId,
        range: &mut JournalRange,
        entries: usize,
    ) -> Result<bool, Error> {
        const SQL: &str = "
            update session.journal_readers set pending = $5, updated_at = clock_timestamp()
            where tenant_id = $1 and session_id = $2 and reader = $3 and pending = $4";
        let before = range.upto;
        range.entries.truncate(entries);
        range.marks.truncate(entries);
        if let Some(mark) = range.last() {
            range.upto = mark.seq;
        }
        let mut tx = self.pools.tenant(tenant).await?;
        let cut = holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(self.reader.name)
            .bind(before)
            .bind(range.upto)
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(cut.rows_affected() == 1)
    }

    /// Returns the claimed range that ends at `upto` unread; it can be claimed again after `pause`.
    /// Without `charged` the claim does not count as a try.
    ///
    /// # Errors
    ///
    /// After an error the range can be claimed again when the lease expires.
    pub async fn postpone(
        self,
        tenant: TenantId,
        session: SessionId,
        upto: i64,
        pause: Duration,
        charged: bool,
    ) -> Result<(), Error> {
        const SQL: &str = "
            update session.journal_readers
            set lease_until = clock_timestamp() + $5 * interval '1 millisecond',
                tries = greatest(tries - $6, 0), updated_at = clock_timestamp()
            where tenant_id = $1 and session_id = $2 and reader = $3 and pending = $4";
        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(self.reader.name)
            .bind(upto)
            .bind(millis(pause))
            .bind(i32::from(!charged))
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Records that the claimed range that ends at `upto` was read up to `read`, and releases it.
    /// If a `key` is given and the conversation has another one meanwhile, the range is released
    /// unread. Returns whether there is more to read.
    ///
    /// # Errors
    ///
    /// After an error the range is read again.
    pub async fn complete(
        self,
        tenant: TenantId,
        session: SessionId,
        (upto, read): (i64, i64),
        key: Option<&str>,
    ) -> Result<bool, Error> {
        const SQL: &str = "
            update session.journal_readers x
            set upto = case when s.is_same then $5 else x.upto end,
                pending = case when s.is_same then null else x.pending end,
                lease_until = case when s.is_same then null else clock_timestamp() end,
                tries = 0, updated_at = clock_timestamp()
            from session.session_lease l,
                 (select coalesce(key = $6, true) as is_same from session.sessions
                  where tenant_id = $1 and session_id = $2) s
            where x.tenant_id = $1 and x.session_id = $2 and x.reader = $3 and x.pending = $4
              and l.tenant_id = $1 and l.session_id = $2
            returning not s.is_same or l.next_entry - 1 > $5";
        let mut tx = self.pools.tenant(tenant).await?;
        let more: Option<bool> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(self.reader.name)
            .bind(upto)
            .bind(read)
            .bind(key)
            .fetch_optional(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(more.unwrap_or(false))
    }
}

/// Reads the entries after the one with `seq` `after`, up to the one with `upto`.
async fn entries_between(
    tx: &mut TenantTx,
    session: SessionId,
    after: i64,
    upto: i64,
) -> Result<(Vec<Entry>, Vec<EntryMark>), Error> {
    const SQL: &str = "
        select e.seq, e.run_id, e.body, coalesce(i.accepted_at, e.created_at)
        from session.entries e
        left join session.inbox i
          on i.tenant_id = e.tenant_id and i.session_id = e.session_id
             and e.kind = 'heard' and i.seq = (e.body->>'seq')::bigint
        where e.tenant_id = $1 and e.session_id = $2 and e.seq > $3 and e.seq <= $4
        order by e.seq";

    let tenant = tx.tenant();
    let rows: Vec<(i64, Uuid, Json<Entry>, jiff_sqlx::Timestamp)> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(after)
        .bind(upto)
        .fetch_all(tx.conn())
        .await?;
    Ok(rows
        .into_iter()
        .map(|(seq, run, entry, at)| {
            (entry.0, EntryMark { seq, run: run.into(), at: at.to_jiff() })
        })
        .unzip())
}

/// Returns the duration in whole milliseconds.
fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
