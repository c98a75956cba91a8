//! Search in the texts of journals: messages, answers and results of tools.
//!
//! There is no index of words: it would cost each turn, and most texts are never searched for.
//! A search reads entries instead, a limited number in each call, and says where the next call goes on:
//! sessions in the order of their last use, and in each session its entries from the newest on.

use holdfast_types::{AgentId, PersonId, RunId, SessionId, TenantId};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::FromRow;
use uuid::Uuid;

use super::{SessionCursor, Views};
use crate::Error;

/// Entries that one call reads at most, and of one session in one query.
const MAX_ENTRIES: i64 = 20_000;
const ENTRIES_PER_QUERY: i64 = 5_000;

/// Sessions that one call reads at most.
const MAX_SESSIONS: usize = 200;

/// Query, and the texts that are searched.
#[derive(Debug, Clone)]
pub struct TextSearch {
    /// Texts that an entry must all contain, in any case.
    pub words: Vec<String>,
    pub agent: Option<AgentId>,
    pub session: Option<SessionId>,
    /// Only conversations that belong to this person.
    pub person: Option<PersonId>,
    /// Kinds of entries.
    pub kinds: Vec<&'static str>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub limit: usize,
    pub after: Option<SearchCursor>,
}

/// Where a search goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchCursor {
    /// Session that is read next.
    pub session: SessionCursor,
    /// Only its entries before this one.
    pub before: i64,
}

/// An entry that has all the words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextHit {
    pub session: SessionId,
    pub key: String,
    pub label: String,
    pub agent: AgentId,
    pub seq: i64,
    pub run: RunId,
    pub kind: String,
    /// The whole text.
    pub text: String,
    pub at: Timestamp,
}

/// Page of a search.
#[derive(Debug, Clone, Default)]
pub struct TextHits {
    pub hits: Vec<TextHit>,
    /// `None` if everything was read.
    pub next: Option<SearchCursor>,
}

impl Views<'_> {
    /// Searches the texts of journals. A page may have no hits and a `next` one.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such session.
    pub async fn search_texts(
        self,
        tenant: TenantId,
        search: &TextSearch,
    ) -> Result<TextHits, Error> {
        if let Some(session) = search.session {
            self.session(tenant, session).await?;
        }
        let sessions = self.searched_sessions(tenant, search).await?;
        let is_full = sessions.len() == MAX_SESSIONS;
        let mut page = TextHits::default();
        let mut left = MAX_ENTRIES;
        for (at, session) in sessions.iter().enumerate() {
            let first = (at == 0).then_some(search.after).flatten();
            let mut before = first
                .filter(|first| first.session.id == session.id())
                .map_or(i64::MAX, |first| first.before);
            loop {
                if left <= 0 || page.hits.len() >= search.limit {
                    page.next = Some(SearchCursor { session: session.cursor(), before });
                    return Ok(page);
                }
                let most = ENTRIES_PER_QUERY.min(left);
                let part = self.search_entries(tenant, search, session, (before, most)).await?;
                left -= part.read.max(1);
                let room = search.limit - page.hits.len();
                let is_cut = part.hits.len() > room;
                page.hits.extend(part.hits.into_iter().take(room));
                if is_cut {
                    before = page.hits.last().map_or(before, |hit| hit.seq);
                } else if part.read < most {
                    break;
                } else {
                    before = part.oldest;
                }
            }
        }
        page.next = match sessions.last() {
            // The last one is read again from its end, which is nothing.
            Some(last) if is_full => Some(SearchCursor { session: last.cursor(), before: 0 }),
            Some(_) | None => None,
        };
        Ok(page)
    }

    /// Returns the sessions from the cursor on.
    async fn searched_sessions(
        self,
        tenant: TenantId,
        search: &TextSearch,
    ) -> Result<Vec<SearchedSession>, Error> {
        const SQL: &str = "
            select session_id, key, coalesce(given_label, label) as label, agent_id, updated_at, used_hour
            from session.sessions s
            where tenant_id = $1 and kind <> '' and ($2::uuid is null or agent_id = $2)
              and ($3::uuid is null or session_id = $3)
              and ($9::uuid is null or person_id = $9)
              -- The turn of a session that is not idle may be newer than its last use.
              and ($4::timestamptz is null or updated_at >= $4
                   or exists (select from session.session_lease l
                              where l.tenant_id = $1 and l.session_id = s.session_id
                                and l.state <> 'WAIT'))
              and ($5::timestamptz is null
                   or (coalesce(used_hour, '-infinity'), updated_at, session_id)
                      <= (coalesce($6::timestamptz, '-infinity'), $5, $7::uuid))
            order by used_hour desc nulls last, updated_at desc, session_id desc limit $8";
        let after = search.after.map(|after| after.session);
        let mut tx = self.pools.tenant(tenant).await?;
        let sessions = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(search.agent.map(AgentId::as_uuid))
            .bind(search.session.map(SessionId::as_uuid))
            .bind(search.since.map(|at| at.to_sqlx()))
            .bind(after.map(|after| after.updated_at.to_sqlx()))
            .bind(after.and_then(|after| after.used_hour).map(|hour| hour.to_sqlx()))
            .bind(after.map(|after| after.id.as_uuid()))
            .bind(i64::try_from(MAX_SESSIONS).unwrap_or(i64::MAX))
            .bind(search.person.map(PersonId::as_uuid))
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(sessions)
    }

    /// Reads the newest `most` entries of a session before a place.
    async fn search_entries(
        self,
        tenant: TenantId,
        search: &TextSearch,
        session: &SearchedSession,
        (before, most): (i64, i64),
    ) -> Result<SearchedEntries, Error> {
        // `part` is read as a whole, so that its size is known; texts leave the database for hits only.
        const SQL: &str = "
            with part as materialized (
                select seq, run_id, kind, created_at,
                       case kind when 'heard' then body->'body'->>'text'
                                 when 'returned' then body->>'output'
                                 else body->>'text' end as text
                from session.entries
                where tenant_id = $1 and session_id = $2 and seq < $3
                order by seq desc limit $4)
            select (select count(*) from part), (select coalesce(min(seq), 0) from part),
                   seq, run_id, kind, created_at, text
            from (select 1) one left join part
                 on kind = any($5) and ($6::timestamptz is null or created_at >= $6)
                    and ($7::timestamptz is null or created_at < $7)
                    and lower(text) like all ($8)
            order by seq desc";
        let like = search.words.iter().map(|word| format!("%{}%", escaped(&word.to_lowercase())));
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<EntryHitRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(session.session_id)
            .bind(before)
            .bind(most)
            .bind(&search.kinds)
            .bind(search.since.map(|at| at.to_sqlx()))
            .bind(search.until.map(|at| at.to_sqlx()))
            .bind(like.collect::<Vec<_>>())
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        let (read, oldest) = rows.first().map_or((0, 0), |row| (row.0, row.1));
        let hits = rows.into_iter().filter_map(|row| session.hit(row)).collect();
        Ok(SearchedEntries { hits, read, oldest })
    }
}

/// A word in a pattern of `like`.
fn escaped(word: &str) -> String {
    word.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_")
}

struct SearchedEntries {
    hits: Vec<TextHit>,
    /// Number of entries that were read, and the oldest one.
    read: i64,
    oldest: i64,
}

/// Number of entries that were read, the oldest of them, and an entry that has the words.
type EntryHitRow = (
    i64,
    i64,
    Option<i64>,
    Option<Uuid>,
    Option<String>,
    Option<jiff_sqlx::Timestamp>,
    Option<String>,
);

#[derive(FromRow)]
struct SearchedSession {
    session_id: Uuid,
    key: String,
    label: String,
    agent_id: Uuid,
    updated_at: jiff_sqlx::Timestamp,
    used_hour: Option<jiff_sqlx::Timestamp>,
}

impl SearchedSession {
    fn id(&self) -> SessionId {
        self.session_id.into()
    }

    fn cursor(&self) -> SessionCursor {
        SessionCursor {
            used_hour: self.used_hour.map(jiff_sqlx::Timestamp::to_jiff),
            updated_at: self.updated_at.to_jiff(),
            id: self.id(),
        }
    }

    fn hit(&self, (_, _, seq, run, kind, at, text): EntryHitRow) -> Option<TextHit> {
        Some(TextHit {
            session: self.id(),
            key: self.key.clone(),
            label: self.label.clone(),
            agent: self.agent_id.into(),
            seq: seq?,
            run: run?.into(),
            kind: kind?,
            text: text?,
            at: at?.to_jiff(),
        })
    }
}
