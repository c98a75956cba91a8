//! Read-only views of sessions, journals and runs.

pub(crate) mod activity;
pub(crate) mod responses;
pub(crate) mod runs;
pub(crate) mod search;

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{
    AgentId, Entry, Handover, MessageId, PersonId, RunId, SessionId, SessionKey, SessionKind,
    SessionState, Target, TenantId, Usage,
};
use jiff::{SignedDuration, Timestamp};
use jiff_sqlx::ToSqlx as _;
use sqlx::{FromRow, types::Json};
use uuid::Uuid;

use crate::{
    EntryView, Error, MessageStatus, PendingApproval, SessionView, Sessions, TurnOutcome,
    sessions::session_not_found,
};

#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    pub agent: Option<AgentId>,
    pub kind: Option<SessionKind>,
    /// Only sessions of one of these kinds; empty is all.
    pub kinds: Vec<SessionKind>,
    /// Only sessions whose key, label or summary contains this, in any case.
    pub search: Option<String>,
    /// Only sessions with this label.
    pub label: Option<String>,
    /// Only sessions with this tag.
    pub tag: Option<String>,
    pub pinned: Option<bool>,
    /// Only sessions in one of these states; empty is all.
    pub states: Vec<ShownState>,
    /// Only conversations that belong to this person.
    pub person: Option<PersonId>,
    pub limit: i64,
    /// Only sessions after this place in the order, for paging.
    pub after: Option<SessionCursor>,
}

/// State of a session as lists show it (spec STM-001, STM-021): `PAUSE` stands for any state below
/// it, `SLEEP` for a session that has been idle for `SLEEP_AFTER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownState {
    Plain(SessionState),
    Paused,
    Sleeping,
}

/// Idle time after which a session is shown as sleeping.
const SLEEP_AFTER: SignedDuration = SignedDuration::from_hours(24);

impl ShownState {
    /// Name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain(state) => state.as_str(),
            Self::Paused => "PAUSE",
            Self::Sleeping => "SLEEP",
        }
    }

    /// Parses a name in the API.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "PAUSE" => Some(Self::Paused),
            "SLEEP" => Some(Self::Sleeping),
            word => SessionState::parse(word).map(Self::Plain),
        }
    }
}

impl SessionView {
    /// State that is shown at this time.
    #[must_use]
    pub fn shown_state(&self, now: Timestamp) -> ShownState {
        if self.paused.is_some() {
            return ShownState::Paused;
        }
        let is_idle = now.duration_since(self.updated_at) >= SLEEP_AFTER;
        match self.state {
            SessionState::Wait if is_idle && self.waiting == 0 => ShownState::Sleeping,
            state => ShownState::Plain(state),
        }
    }
}

/// Place in a list that is ordered by time, the newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListCursor {
    pub at: Timestamp,
    pub id: Uuid,
}

/// Place in the order of sessions by last use, the newest first. A session that is used while pages
/// are read moves to the first page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionCursor {
    /// Hour of the last use, as in [`SessionView`].
    pub used_hour: Option<Timestamp>,
    pub updated_at: Timestamp,
    pub id: SessionId,
}

/// Query for sessions; the parameter is its condition.
macro_rules! session {
    ($which:literal) => {
        concat!(
            "select s.session_id, s.key, s.kind, s.agent_id, s.parent_id, s.label, s.given_label, t.tags, s.pinned_at is not null as pinned, s.summary,
                    l.state, l.paused, l.workspace, s.branch_of, s.branch_seq,
                    l.next_in - 1 - l.done_in as waiting,
                    (select count(*) from session.approvals a
                     where a.tenant_id = s.tenant_id and a.session_id = s.session_id
                       and a.state = 'pending' and a.expires_at > clock_timestamp()) as approvals,
                    s.turns, s.input_tokens, s.cached_tokens,
                    s.output_tokens, s.last_target, s.created_at, s.updated_at, s.used_hour
             from session.sessions s join session.session_lease l using (tenant_id, session_id)
             cross join lateral (
                 select coalesce(s.given_tags, array(
                     select jsonb_array_elements_text(b.state->'tags') from session.behaviors b
                     where b.tenant_id = s.tenant_id and b.session_id = s.session_id)) as tags) t
             where s.tenant_id = $1 and ",
            $which
        )
    };
}

/// Views of sessions, messages and runs, from [`Sessions::views`].
#[derive(Debug, Clone, Copy)]
pub struct Views<'a> {
    pub(crate) pools: &'a Pools,
}

impl Sessions {
    #[must_use]
    pub const fn views(&self) -> Views<'_> {
        Views { pools: &self.pools }
    }
}

impl Views<'_> {
    /// Returns the session with this key.
    pub async fn find(
        self,
        tenant: TenantId,
        key: &SessionKey,
    ) -> Result<Option<SessionId>, Error> {
        const SQL: &str = "
            select session_id from session.sessions where tenant_id = $1 and key = $2";
        let mut tx = self.pools.tenant(tenant).await?;
        let found: Option<Uuid> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(key.as_str())
            .fetch_optional(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(found.map(SessionId::from))
    }

    /// Returns the target of the newest message of a session that came by this channel; `None` if
    /// there is none on record.
    pub async fn target_on(
        self,
        tenant: TenantId,
        session: SessionId,
        channel: &str,
    ) -> Result<Option<Target>, Error> {
        const SQL: &str = "
            select target from session.inbox
            where tenant_id = $1 and session_id = $2 and target->>'channel' = $3
            order by seq desc limit 1";
        let mut tx = self.pools.tenant(tenant).await?;
        let found: Option<Json<Target>> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(channel)
            .fetch_optional(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(found.map(|target| target.0))
    }

    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such session.
    pub async fn session(self, tenant: TenantId, id: SessionId) -> Result<SessionView, Error> {
        const SQL: &str = session!("s.session_id = $2");
        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<SessionRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(id.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        row.map(SessionView::from).ok_or_else(|| session_not_found(id))
    }

    /// Returns the sessions with these ids that exist, oldest first.
    pub(crate) async fn sessions_by_id(
        self,
        tenant: TenantId,
        ids: Vec<Uuid>,
    ) -> Result<Vec<SessionView>, Error> {
        const SQL: &str = session!("s.session_id = any($2) order by s.session_id");
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<SessionRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(ids)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(SessionView::from).collect())
    }

    /// Returns sessions, the last used first.
    pub async fn sessions(
        self,
        tenant: TenantId,
        filter: SessionFilter,
    ) -> Result<Vec<SessionView>, Error> {
        const SQL: &str = session!(
            "s.kind <> ''
             and ($2::uuid is null or s.agent_id = $2) and ($3::text is null or s.kind = $3)
             and ($4::timestamptz is null
                  or (coalesce(s.used_hour, '-infinity'), s.updated_at, s.session_id)
                     < (coalesce($10::timestamptz, '-infinity'), $4, $5::uuid))
             and ($6::text is null or strpos(lower(concat_ws(chr(10), s.key, s.given_label, s.label,
                                                             s.summary)), lower($6)) > 0)
             and ($7::text is null or coalesce(s.given_label, s.label) = $7)
             and ($8::bool is null or (s.pinned_at is not null) = $8)
             and (cardinality($11::text[]) = 0
                  or case when l.paused is not null then 'PAUSE'
                          when l.state = 'WAIT' and l.next_in - 1 = l.done_in
                               and s.updated_at <= clock_timestamp() - $12 * interval '1 second'
                              then 'SLEEP'
                          else l.state end = any($11))
             and ($13::text is null or $13 = any(t.tags))
             and ($14::uuid is null or s.person_id = $14)
             and (cardinality($15::text[]) = 0 or s.kind = any($15))
             order by s.used_hour desc nulls last, s.updated_at desc, s.session_id desc limit $9"
        );
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<SessionRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(filter.agent.map(AgentId::as_uuid))
            .bind(filter.kind.map(SessionKind::as_str))
            .bind(filter.after.map(|after| after.updated_at.to_sqlx()))
            .bind(filter.after.map(|after| after.id.as_uuid()))
            .bind(filter.search)
            .bind(filter.label)
            .bind(filter.pinned)
            .bind(filter.limit)
            .bind(filter.after.and_then(|after| after.used_hour).map(|hour| hour.to_sqlx()))
            .bind(filter.states.iter().map(|state| state.as_str()).collect::<Vec<_>>())
            .bind(SLEEP_AFTER.as_secs_f64())
            .bind(filter.tag)
            .bind(filter.person.map(PersonId::as_uuid))
            .bind(filter.kinds.into_iter().map(SessionKind::as_str).collect::<Vec<_>>())
            .fetch_all(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(SessionView::from).collect())
    }

    /// Returns the newest `limit` entries of a journal, or the newest ones before the seq `before`,
    /// oldest first.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such session.
    pub async fn history(
        self,
        tenant: TenantId,
        session: SessionId,
        limit: i64,
        before: Option<i64>,
    ) -> Result<Vec<EntryView>, Error> {
        const SQL: &str = "
            select seq, run_id, body, created_at from (
                select seq, run_id, body, created_at from session.entries
                where tenant_id = $1 and session_id = $2 and ($3::bigint is null or seq < $3)
                order by seq desc limit $4) newest
            order by seq";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<EntryRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(before)
            .bind(limit)
            .fetch_all(tx.conn())
            .await?;
        tx.commit().await?;
        if rows.is_empty() {
            // No rows: either the journal is empty, or the tenant has no such session.
            self.session(tenant, session).await?;
        }
        Ok(rows.into_iter().map(EntryView::from).collect())
    }

    /// Returns the `seq` of the oldest and of the newest entry of a journal; 0 if it is empty.
    pub async fn journal_bounds(
        self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<(i64, i64), Error> {
        const SQL: &str = "
            select coalesce((select min(seq) from session.entries
                             where tenant_id = $1 and session_id = $2), 0),
                   coalesce((select max(seq) from session.entries
                             where tenant_id = $1 and session_id = $2), 0)";
        let mut tx = self.pools.tenant(tenant).await?;
        let bounds = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .fetch_one(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(bounds)
    }

    /// Returns the entries of a journal after a seq, oldest first.
    pub async fn entries_after(
        self,
        tenant: TenantId,
        session: SessionId,
        after: i64,
        limit: i64,
    ) -> Result<Vec<EntryView>, Error> {
        const SQL: &str = "
            select seq, run_id, body, created_at from session.entries
            where tenant_id = $1 and session_id = $2 and seq > $3 order by seq limit $4";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<EntryRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(after)
            .bind(limit)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(EntryView::from).collect())
    }

    /// Returns the texts of a run's replies so far, one for each step that ended; at most 1000.
    pub async fn step_texts(
        self,
        tenant: TenantId,
        session: SessionId,
        run: RunId,
    ) -> Result<Vec<String>, Error> {
        const SQL: &str = "
            select coalesce(body->>'text', '') from session.entries
            where tenant_id = $1 and session_id = $2 and run_id = $3 and kind = 'thought'
            order by seq limit 1000";
        let mut tx = self.pools.tenant(tenant).await?;
        let texts = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(run.as_uuid())
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(texts)
    }

    /// Returns the state of a message, and its answer if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such message.
    pub async fn answer(
        self,
        tenant: TenantId,
        message: MessageId,
    ) -> Result<MessageStatus, Error> {
        const SQL: &str = "
            select i.session_id, i.seq, i.run_id, i.outcome, i.reason, i.source,
                   i.body->'response_fields' as response_fields, i.state = 'new' as is_new,
                   e.body->>'text' as text, e.body->>'note' as note, coalesce(r.input_tokens, 0) as input_tokens,
                   coalesce(r.cached_tokens, 0) as cached_tokens,
                   coalesce(r.output_tokens, 0) as output_tokens, coalesce(r.model, '') as model, coalesce(r.steps, 0) as steps,
                   (select jsonb_agg(jsonb_build_object(
                        'approval', a.approval_id, 'tool', a.tool, 'summary', a.summary,
                        'subject', a.subject, 'pattern', coalesce(a.pattern, ''),
                        'left_ms', (extract(epoch from a.expires_at - clock_timestamp()) * 1000)::bigint)
                        order by a.approval_id)
                    from session.approvals a
                    where a.tenant_id = i.tenant_id and a.session_id = i.session_id
                      and a.state = 'pending' and a.run_id = i.run_id
                      and a.expires_at > clock_timestamp()) as awaited
            from session.inbox i
            left join session.runs r on r.tenant_id = i.tenant_id and r.run_id = i.run_id
            left join session.entries e on e.tenant_id = r.tenant_id
                  and e.session_id = r.session_id and e.seq = r.reply_seq
            where i.tenant_id = $1 and i.message_id = $2";
        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<AnswerRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(message.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.commit().await?;
        let row =
            row.ok_or_else(|| Error::NotFound { what: "message", name: message.to_string() })?;
        let (text, handover) = reply(row.text, row.note.as_deref());
        Ok(MessageStatus {
            message,
            session: row.session_id.into(),
            seq: row.seq,
            run: row.run_id.map(RunId::from),
            outcome: row.outcome.as_deref().map(TurnOutcome::parse),
            text,
            reason: row.reason,
            usage: usage(row.input_tokens, row.cached_tokens, row.output_tokens),
            model: row.model,
            awaited: row.awaited.map_or_else(Vec::new, |awaited| awaited.0),
            last_step: last_step(row.steps),
            handover,
            source: row.source,
            response_fields: row.response_fields.map(|fields| fields.0),
            is_new: row.is_new,
        })
    }
}

/// Returns the stored journal entries of a run, at most 1000.
pub(crate) async fn entries_of(
    tx: &mut TenantTx,
    session: SessionId,
    run: RunId,
) -> Result<Vec<EntryView>, Error> {
    const SQL: &str = "
        select seq, run_id, body, created_at from session.entries
        where tenant_id = $1 and session_id = $2 and run_id = $3
        order by seq limit 1000";
    let tenant = tx.tenant();
    let entries: Vec<EntryRow> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(run.as_uuid())
        .fetch_all(tx.conn())
        .await?;
    Ok(entries.into_iter().map(EntryView::from).collect())
}

#[derive(FromRow)]
struct SessionRow {
    session_id: Uuid,
    key: String,
    kind: String,
    agent_id: Uuid,
    parent_id: Option<Uuid>,
    label: String,
    given_label: Option<String>,
    tags: Vec<String>,
    pinned: bool,
    workspace: Option<String>,
    branch_of: Option<Uuid>,
    branch_seq: Option<i64>,
    summary: String,
    state: String,
    paused: Option<String>,
    waiting: i64,
    approvals: i64,
    turns: i64,
    input_tokens: i64,
    cached_tokens: i64,
    output_tokens: i64,
    last_target: Option<Json<Target>>,
    created_at: jiff_sqlx::Timestamp,
    updated_at: jiff_sqlx::Timestamp,
    used_hour: Option<jiff_sqlx::Timestamp>,
}

impl From<SessionRow> for SessionView {
    fn from(row: SessionRow) -> Self {
        Self {
            id: row.session_id.into(),
            key: row.key,
            kind: row.kind,
            agent: row.agent_id.into(),
            parent: row.parent_id.map(SessionId::from),
            label: row.label,
            given_label: row.given_label,
            tags: row.tags,
            pinned: row.pinned,
            workspace: row.workspace,
            branch: row.branch_of.zip(row.branch_seq).map(|(of, seq)| (of.into(), seq)),
            summary: row.summary,
            state: SessionState::parse(&row.state).unwrap_or(SessionState::Wait),
            paused: row.paused,
            waiting: row.waiting,
            approvals: row.approvals,
            turns: row.turns,
            usage: usage(row.input_tokens, row.cached_tokens, row.output_tokens),
            last_target: row.last_target.map(|target| target.0),
            created_at: row.created_at.to_jiff(),
            updated_at: row.updated_at.to_jiff(),
            used_hour: row.used_hour.map(jiff_sqlx::Timestamp::to_jiff),
        }
    }
}

#[derive(FromRow)]
struct EntryRow {
    seq: i64,
    run_id: Uuid,
    body: Json<Entry>,
    created_at: jiff_sqlx::Timestamp,
}

impl From<EntryRow> for EntryView {
    fn from(row: EntryRow) -> Self {
        Self {
            seq: row.seq,
            run: row.run_id.into(),
            entry: row.body.0,
            created_at: row.created_at.to_jiff(),
        }
    }
}

#[derive(FromRow)]
struct AnswerRow {
    session_id: Uuid,
    seq: i64,
    run_id: Option<Uuid>,
    outcome: Option<String>,
    reason: Option<String>,
    source: String,
    response_fields: Option<Json<serde_json::Value>>,
    is_new: bool,
    text: Option<String>,
    /// Kind of the reply's note, if it is one.
    note: Option<String>,
    input_tokens: i64,
    cached_tokens: i64,
    output_tokens: i64,
    model: String,
    steps: i32,
    awaited: Option<Json<Vec<PendingApproval>>>,
}

/// Number of the last step: `runs.steps` counts a reply with calls twice.
fn last_step(steps: i32) -> Option<u32> {
    Some(u32::try_from(steps).ok()?.checked_sub(1)? / 2)
}

/// Text of a run's reply, and the calls with which it ended.
fn reply(text: Option<String>, note: Option<&str>) -> (String, Option<Handover>) {
    let text = text.unwrap_or_default();
    match Handover::parse(&text).filter(|_| note == Some("handed_over")) {
        Some(handover) => (handover.text.clone(), Some(handover)),
        None => (text, None),
    }
}

fn usage(input: i64, cached: i64, output: i64) -> Usage {
    let count = |stored: i64| u64::try_from(stored).unwrap_or(0);
    Usage { input: count(input), cached: count(cached), output: count(output), ..Usage::default() }
}
