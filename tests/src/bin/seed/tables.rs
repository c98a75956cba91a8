//! Rows of conversations, written in batches: a statement for each table.

use holdfast_types::{Body, Entry, Usage};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::{Connection as _, PgConnection, types::Json};
use uuid::Uuid;

/// Entries of a batch, after which it is written.
const ENTRIES_PER_BATCH: usize = 5_000;

/// A session at rest.
#[derive(Debug)]
pub struct Session {
    pub id: Uuid,
    pub key: String,
    pub kind: &'static str,
    pub agent: Uuid,
    pub label: String,
    pub is_pinned: bool,
    pub summary: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub turns: i64,
    pub entries: i64,
    pub usage: Usage,
}

#[derive(Debug)]
pub struct EntryRow {
    pub session: Uuid,
    pub seq: i64,
    pub run: Uuid,
    pub entry: Entry,
    pub at: Timestamp,
}

#[derive(Debug)]
pub struct Run {
    pub id: Uuid,
    pub session: Uuid,
    pub agent: Uuid,
    pub outcome: &'static str,
    pub reason: Option<String>,
    pub reply_seq: i64,
    pub steps: i32,
    pub model: &'static str,
    pub usage: Usage,
    pub cost_micros: i64,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
}

#[derive(Debug)]
pub struct Delivery {
    pub id: Uuid,
    pub session: Uuid,
    pub seq: i64,
    pub run: Uuid,
    pub channel: String,
    pub account: Uuid,
    pub chat: String,
    pub text: String,
    pub state: &'static str,
    pub reason: Option<String>,
    pub at: Timestamp,
}

/// A message that was given up.
#[derive(Debug)]
pub struct DeadLetter {
    pub id: Uuid,
    pub session: Uuid,
    pub seq: i64,
    pub text: String,
    pub reason: String,
    pub at: Timestamp,
}

/// Rows that are to be written.
#[derive(Debug)]
pub struct Tables<'a> {
    database: &'a mut PgConnection,
    tenant: Uuid,
    pub sessions: Vec<Session>,
    pub entries: Vec<EntryRow>,
    pub runs: Vec<Run>,
    pub deliveries: Vec<Delivery>,
    pub dead_letters: Vec<DeadLetter>,
}

/// A column of rows.
fn column<R, T>(rows: &[R], of: impl Fn(&R) -> T) -> Vec<T> {
    rows.iter().map(of).collect()
}

fn tokens(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl<'a> Tables<'a> {
    pub const fn new(database: &'a mut PgConnection, tenant: Uuid) -> Self {
        Self {
            database,
            tenant,
            sessions: Vec::new(),
            entries: Vec::new(),
            runs: Vec::new(),
            deliveries: Vec::new(),
            dead_letters: Vec::new(),
        }
    }

    /// Writes the rows, if there are enough of them.
    pub async fn write_batch(&mut self) -> anyhow::Result<()> {
        if self.entries.len() < ENTRIES_PER_BATCH {
            return Ok(());
        }
        self.write().await
    }

    pub async fn write(&mut self) -> anyhow::Result<()> {
        let tenant = self.tenant;
        let mut tx = self.database.begin().await?;
        write_sessions(&mut tx, tenant, &std::mem::take(&mut self.sessions)).await?;
        write_entries(&mut tx, tenant, &std::mem::take(&mut self.entries)).await?;
        write_runs(&mut tx, tenant, &std::mem::take(&mut self.runs)).await?;
        write_deliveries(&mut tx, tenant, &std::mem::take(&mut self.deliveries)).await?;
        write_dead_letters(&mut tx, tenant, &std::mem::take(&mut self.dead_letters)).await?;
        tx.commit().await?;
        Ok(())
    }
}

async fn write_sessions(
    database: &mut PgConnection,
    tenant: Uuid,
    rows: &[Session],
) -> anyhow::Result<()> {
    const SQL: &str = "
        with rows as (
            select * from unnest($2::uuid[], $3::text[], $4::text[], $5::uuid[], $6::text[],
                                 $7::boolean[], $8::text[], $9::timestamptz[], $10::timestamptz[],
                                 $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[],
                                 $15::bigint[])
                as r (id, key, kind, agent, label, pinned, summary, created_at, updated_at, turns,
                      entries, input, cached, output)),
        made as (
            insert into session.sessions
                (tenant_id, session_id, key, kind, agent_id, given_label, pinned_at, summary,
                 input_tokens, cached_tokens, output_tokens, turns, created_at, updated_at,
                 used_hour)
            select $1, id, key, kind, agent, nullif(label, ''), case when pinned then updated_at end,
                   summary, input, cached, output, turns, created_at, updated_at,
                   date_bin('1 hour', updated_at, '2000-01-01 00:00:00+00')
            from rows)
        insert into session.session_lease (tenant_id, session_id, next_in, done_in, next_entry)
        select $1, id, turns + 1, turns, entries + 1 from rows";
    sqlx::query(SQL)
        .bind(tenant)
        .bind(column(rows, |row| row.id))
        .bind(column(rows, |row| row.key.clone()))
        .bind(column(rows, |row| row.kind))
        .bind(column(rows, |row| row.agent))
        .bind(column(rows, |row| row.label.clone()))
        .bind(column(rows, |row| row.is_pinned))
        .bind(column(rows, |row| row.summary.clone()))
        .bind(column(rows, |row| row.created_at.to_sqlx()))
        .bind(column(rows, |row| row.updated_at.to_sqlx()))
        .bind(column(rows, |row| row.turns))
        .bind(column(rows, |row| row.entries))
        .bind(column(rows, |row| tokens(row.usage.input)))
        .bind(column(rows, |row| tokens(row.usage.cached)))
        .bind(column(rows, |row| tokens(row.usage.output)))
        .execute(database)
        .await?;
    Ok(())
}

async fn write_entries(
    database: &mut PgConnection,
    tenant: Uuid,
    rows: &[EntryRow],
) -> anyhow::Result<()> {
    const SQL: &str = "
        insert into session.entries (tenant_id, session_id, seq, epoch, run_id, kind, body, created_at)
        select $1, r.session, r.seq, 1, r.run, r.kind, r.body, r.at
        from unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::text[], $6::jsonb[], $7::timestamptz[])
            as r (session, seq, run, kind, body, at)";
    sqlx::query(SQL)
        .bind(tenant)
        .bind(column(rows, |row| row.session))
        .bind(column(rows, |row| row.seq))
        .bind(column(rows, |row| row.run))
        .bind(column(rows, |row| row.entry.kind()))
        .bind(column(rows, |row| Json(row.entry.clone())))
        .bind(column(rows, |row| row.at.to_sqlx()))
        .execute(database)
        .await?;
    Ok(())
}

async fn write_runs(database: &mut PgConnection, tenant: Uuid, rows: &[Run]) -> anyhow::Result<()> {
    const SQL: &str = "
        insert into session.runs
            (tenant_id, run_id, session_id, agent_id, epoch, outcome, reason, reply_seq, steps, model,
             input_tokens, cached_tokens, output_tokens, cost_micros, messages, started_at,
             finished_at)
        select $1, r.id, r.session, r.agent, 1, r.outcome, r.reason, r.reply, r.steps, r.model,
               r.input, r.cached, r.output, r.cost, 1, r.started_at, r.finished_at
        from unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::bigint[],
                    $8::integer[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[],
                    $13::bigint[], $14::timestamptz[], $15::timestamptz[])
            as r (id, session, agent, outcome, reason, reply, steps, model, input, cached, output, cost,
                  started_at, finished_at)";
    sqlx::query(SQL)
        .bind(tenant)
        .bind(column(rows, |row| row.id))
        .bind(column(rows, |row| row.session))
        .bind(column(rows, |row| row.agent))
        .bind(column(rows, |row| row.outcome))
        .bind(column(rows, |row| row.reason.clone()))
        .bind(column(rows, |row| row.reply_seq))
        .bind(column(rows, |row| row.steps))
        .bind(column(rows, |row| row.model))
        .bind(column(rows, |row| tokens(row.usage.input)))
        .bind(column(rows, |row| tokens(row.usage.cached)))
        .bind(column(rows, |row| tokens(row.usage.output)))
        .bind(column(rows, |row| row.cost_micros))
        .bind(column(rows, |row| row.started_at.to_sqlx()))
        .bind(column(rows, |row| row.finished_at.to_sqlx()))
        .execute(database)
        .await?;
    Ok(())
}

async fn write_deliveries(
    database: &mut PgConnection,
    tenant: Uuid,
    rows: &[Delivery],
) -> anyhow::Result<()> {
    const SQL: &str = "
        with rows as (
            select * from unnest($2::uuid[], $3::uuid[], $4::bigint[], $5::uuid[], $6::text[],
                                 $7::uuid[], $8::text[], $9::text[], $10::text[], $11::text[],
                                 $12::timestamptz[])
                as r (id, session, seq, run, channel, account, chat, body, state, reason, at)),
        next as (
            update session.session_lease l set next_out = n.seq + 1
            from (select session, max(seq) as seq from rows group by session) n
            where l.tenant_id = $1 and l.session_id = n.session)
        insert into session.deliveries
            (tenant_id, session_id, out_seq, delivery_id, run_id, channel, account_id, target, body,
             state, attempt, reason, created_at, finished_at)
        select $1, session, seq, id, run, channel, account,
               jsonb_build_object('channel', channel, 'account', account, 'chat', chat), body, state,
               case when state = 'sent' then 1 else 8 end, reason, at, at
        from rows";
    sqlx::query(SQL)
        .bind(tenant)
        .bind(column(rows, |row| row.id))
        .bind(column(rows, |row| row.session))
        .bind(column(rows, |row| row.seq))
        .bind(column(rows, |row| row.run))
        .bind(column(rows, |row| row.channel.clone()))
        .bind(column(rows, |row| row.account))
        .bind(column(rows, |row| row.chat.clone()))
        .bind(column(rows, |row| row.text.clone()))
        .bind(column(rows, |row| row.state))
        .bind(column(rows, |row| row.reason.clone()))
        .bind(column(rows, |row| row.at.to_sqlx()))
        .execute(database)
        .await?;
    Ok(())
}

async fn write_dead_letters(
    database: &mut PgConnection,
    tenant: Uuid,
    rows: &[DeadLetter],
) -> anyhow::Result<()> {
    const SQL: &str = "
        insert into session.inbox
            (tenant_id, session_id, seq, message_id, source, idem_key, hash, body, state, outcome,
             reason, run_id, accepted_at, finished_at)
        select $1, r.session, r.seq, r.id, 'api', r.id::text, '', r.body, 'dead', 'dead', r.reason,
               r.id, r.at, r.at
        from unnest($2::uuid[], $3::uuid[], $4::bigint[], $5::jsonb[], $6::text[], $7::timestamptz[])
            as r (id, session, seq, body, reason, at)";
    sqlx::query(SQL)
        .bind(tenant)
        .bind(column(rows, |row| row.id))
        .bind(column(rows, |row| row.session))
        .bind(column(rows, |row| row.seq))
        .bind(column(rows, |row| Json(Body::text(&row.text))))
        .bind(column(rows, |row| row.reason.clone()))
        .bind(column(rows, |row| row.at.to_sqlx()))
        .execute(database)
        .await?;
    Ok(())
}
