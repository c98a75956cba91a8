//! Memory extraction: which conversations have new entries to read for memories, and how far each
//! was read.
//!
//! A conversation is due once it has been idle for a while and its journal has grown since the last
//! extraction. An extractor claims a range of the journal. After a crash the same range is claimed
//! again, so its results can be identified by the range. A conversation that was read to its end is
//! not due, so an idle tenant costs nothing.

use std::time::Duration;

use holdfast_pg::Pools;
use holdfast_types::{AgentId, Entry, RunId, SessionId, TenantId};
use jiff::Timestamp;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Error, Sessions};

/// Number of tries after which a range is skipped.
pub const MAX_EXTRACTION_TRIES: i32 = 5;

/// Maximum number of entries in one range.
const MAX_ENTRIES_PER_RANGE: i64 = 400;

/// A range of a journal to extract from.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalRange {
    /// `seq` of the last entry before the range.
    pub after: i64,
    /// `seq` of the last entry in the range.
    pub upto: i64,
    pub tries: i32,
    pub key: String,
    pub agent: AgentId,
    /// Run of the last entry; the extraction's usage is charged to it.
    pub run: RunId,
    /// Time at which the last entry was written.
    pub at: Timestamp,
    /// Entries of the range, oldest first.
    pub entries: Vec<Entry>,
    /// One mark for each entry.
    pub marks: Vec<EntryMark>,
}

/// `seq`, run and time of an entry.
pub type EntryMark = (i64, RunId, Timestamp);

impl JournalRange {
    /// Removes the entries that were written up to `until`, because the user erased them.
    pub fn forget(&mut self, until: Option<Timestamp>) {
        let Some(until) = until else { return };
        let gone = self.marks.iter().take_while(|(.., at)| *at <= until).count();
        self.entries.drain(..gone);
        self.marks.drain(..gone);
    }

    /// Updates the run and the time to those of the last remaining entry.
    fn update_end(&mut self) {
        if let Some((_, run, at)) = self.marks.last() {
            (self.run, self.at) = (*run, *at);
        }
    }
}

/// Memory extraction, from [`Sessions::extraction`].
#[derive(Debug, Clone, Copy)]
pub struct Extraction<'a> {
    pub(crate) pools: &'a Pools,
}

impl Sessions {
    #[must_use]
    pub const fn extraction(&self) -> Extraction<'_> {
        Extraction { pools: &self.pools }
    }
}

impl Extraction<'_> {
    /// Returns conversations that are due: a message was finished after `since`, the session has
    /// been idle for `rest`, and the journal was not read to its end. Also returns conversations
    /// whose extraction was claimed and not finished.
    pub async fn due(
        self,
        since: Timestamp,
        rest: Duration,
        limit: i64,
    ) -> Result<Vec<(TenantId, SessionId)>, Error> {
        const SQL: &str = "
            select d.tenant_id, d.session_id
            from (select distinct i.tenant_id, i.session_id from session.inbox i
                  where i.state in ('done', 'dead') and i.finished_at > $1
                    and i.finished_at <= clock_timestamp() - $2 * interval '1 millisecond') d
            join session.sessions s
              on s.tenant_id = d.tenant_id and s.session_id = d.session_id
            join session.session_lease l
              on l.tenant_id = d.tenant_id and l.session_id = d.session_id
            left join session.extractions x
              on x.tenant_id = d.tenant_id and x.session_id = d.session_id
            where s.kind in ('main', 'dm', 'api') and s.label <> 'ephemeral'
              and l.state in ('WAIT', 'WAIT_FOR_MSG', 'WAIT_FOR_EVENT')
              and l.next_entry - 1 > coalesce(x.upto, 0)
              and (x.lease_until is null or x.lease_until < clock_timestamp())
              and not exists (
                  select from session.inbox n
                  where n.tenant_id = d.tenant_id and n.session_id = d.session_id
                    and n.seq = l.next_in - 1
                    and n.finished_at > clock_timestamp() - $2 * interval '1 millisecond')
            union
            select tenant_id, session_id from session.extractions
            where pending is not null and lease_until < clock_timestamp()
            limit $3";
        let mut once = self.pools.system_connection().await?;
        let rows: Vec<(Uuid, Uuid)> = sqlx::query_as(SQL)
            .bind(jiff_sqlx::Timestamp::from(since))
            .bind(i64::try_from(rest.as_millis()).unwrap_or(i64::MAX))
            .bind(limit)
            .fetch_all(once.conn())
            .await?;
        once.done();
        Ok(rows.into_iter().map(|(tenant, session)| (tenant.into(), session.into())).collect())
    }

    /// Claims the next range of a journal, for the duration of `lease`. Returns `None` if there is
    /// none, or if another process has claimed it.
    pub async fn claim(
        self,
        tenant: TenantId,
        session: SessionId,
        lease: Duration,
    ) -> Result<Option<JournalRange>, Error> {
        const CLAIM: &str = "
            insert into session.extractions as x
                (tenant_id, session_id, pending, lease_until, tries)
            select $1, $2, least(next_entry - 1, $4),
                   clock_timestamp() + $3 * interval '1 millisecond', 1
            from session.session_lease
            where tenant_id = $1 and session_id = $2 and next_entry > 1
            on conflict (tenant_id, session_id) do update
                set pending = coalesce(x.pending, least(
                        (select next_entry - 1 from session.session_lease
                         where tenant_id = $1 and session_id = $2), x.upto + $4)),
                    tries = case when x.pending is null then 1 else x.tries + 1 end,
                    lease_until = excluded.lease_until, updated_at = clock_timestamp()
                where (x.lease_until is null or x.lease_until < clock_timestamp())
                  and (x.pending is not null or x.upto < (
                       select next_entry - 1 from session.session_lease
                       where tenant_id = $1 and session_id = $2))
            returning upto, pending, tries - 1";
        const SESSION: &str = "
            select key, agent_id from session.sessions where tenant_id = $1 and session_id = $2";
        const ENTRIES: &str = "
            select seq, run_id, body, created_at from session.entries
            where tenant_id = $1 and session_id = $2 and seq > $3 and seq <= $4
            order by seq";

        let mut tx = self.pools.tenant(tenant).await?;
        let claimed: Option<(i64, i64, i32)> = sqlx::query_as(CLAIM)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(i64::try_from(lease.as_millis()).unwrap_or(i64::MAX))
            .bind(MAX_ENTRIES_PER_RANGE)
            .fetch_optional(tx.conn())
            .await?;
        let Some((after, upto, tries)) = claimed else {
            tx.finish_reading();
            return Ok(None);
        };
        let (key, agent): (String, Uuid) = sqlx::query_as(SESSION)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .fetch_one(tx.conn())
            .await?;
        let rows: Vec<(i64, Uuid, Json<Entry>, jiff_sqlx::Timestamp)> = sqlx::query_as(ENTRIES)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(after)
            .bind(upto)
            .fetch_all(tx.conn())
            .await?;
        tx.commit().await?;
        // Entries past their retention are missing, so the range may contain fewer.
        let mut stretch = JournalRange {
            after,
            upto,
            tries,
            key,
            agent: agent.into(),
            run: RunId::from(Uuid::nil()),
            at: Timestamp::UNIX_EPOCH,
            entries: Vec::with_capacity(rows.len()),
            marks: Vec::with_capacity(rows.len()),
        };
        for (place, run, entry, at) in rows {
            stretch.entries.push(entry.0);
            stretch.marks.push((place, run.into(), at.to_jiff()));
        }
        stretch.update_end();
        Ok(Some(stretch))
    }

    /// Shortens a claimed range to its first `entries` entries; the rest becomes the next range.
    /// Returns whether the claim was still current.
    pub async fn cut(
        self,
        tenant: TenantId,
        session: SessionId,
        stretch: &mut JournalRange,
        entries: usize,
    ) -> Result<bool, Error> {
        const SQL: &str = "
            update session.extractions set pending = $4, updated_at = clock_timestamp()
            where tenant_id = $1 and session_id = $2 and pending = $3";
        let before = stretch.upto;
        stretch.entries.truncate(entries);
        stretch.marks.truncate(entries);
        stretch.update_end();
        if let Some((place, ..)) = stretch.marks.last() {
            stretch.upto = *place;
        }
        let mut tx = self.pools.tenant(tenant).await?;
        let cut = sqlx::query(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(before)
            .bind(stretch.upto)
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(cut.rows_affected() == 1)
    }

    /// Returns a claimed range unread; it can be claimed again after `pause`. Without `charged` the
    /// claim does not count as a try.
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
            update session.extractions
            set lease_until = clock_timestamp() + $4 * interval '1 millisecond',
                tries = greatest(tries - $5, 0), updated_at = clock_timestamp()
            where tenant_id = $1 and session_id = $2 and pending = $3";
        let mut tx = self.pools.tenant(tenant).await?;
        sqlx::query(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(upto)
            .bind(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX))
            .bind(i32::from(!charged))
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Records that a range was read. Returns whether the journal has more entries.
    ///
    /// # Errors
    ///
    /// After an error the range is read again.
    pub async fn complete(
        self,
        tenant: TenantId,
        session: SessionId,
        upto: i64,
    ) -> Result<bool, Error> {
        const SQL: &str = "
            update session.extractions x
            set upto = $3, pending = null, lease_until = null, tries = 0,
                updated_at = clock_timestamp()
            from session.session_lease l
            where x.tenant_id = $1 and x.session_id = $2 and x.pending = $3
              and l.tenant_id = $1 and l.session_id = $2
            returning l.next_entry - 1 > $3";
        let mut tx = self.pools.tenant(tenant).await?;
        let more: Option<bool> = sqlx::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(upto)
            .fetch_optional(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(more.unwrap_or(false))
    }
}
