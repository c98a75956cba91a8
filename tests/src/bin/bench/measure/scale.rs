//! A turn, claims and the upkeep in a database with many tenants, beside the same in the empty one.
//!
//! The mesh's own database is filled, in batches, until the journals have taken their time.

use std::time::Duration;

use anyhow::ensure;
use holdfast_session::{Retention, SendCapacity, Sessions};
use holdfast_types::{DeliveryClass, RunnerId};
use sqlx::{AssertSqlSafe, PgConnection};
use tokio::time::Instant;

use crate::{
    Pace,
    client::{Client, Load, unique_session},
    mesh::Mesh,
    models::Model,
    report::{Line, Unit, float},
    spent::Spent,
    stats::Samples,
};

const TENANTS: usize = 10_000;
/// Sessions of which one in a hundred had a turn, a message and a reply each day for 30 days.
const SESSIONS: usize = 1_000_000;
const SESSIONS_PER_BATCH: usize = 20_000;
/// Entries of each session whose journal is filled.
const ENTRIES_PER_SESSION: usize = 20;
/// How often each part of the upkeep is measured; the fastest counts.
const REPETITIONS: usize = 5;

pub async fn measure(mesh: &Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let client = mesh.client(&mesh.tenant)?;
    let sessions = mesh.sessions()?;
    let empty = Figures::of(mesh, &client, &sessions, pace).await?;
    let mut admin = mesh.admin().await?;
    let filled = fill(&mut admin, pace).await?;
    let full = Figures::of(mesh, &client, &sessions, pace).await?;

    let mut lines = vec![
        Line::count("tenants", filled.tenants),
        Line::count("sessions", filled.sessions).note("1 % active in the last 30 days"),
        Line::count("entries of journals", filled.entries)
            .note(format!("loaded in {:.0} s", filled.took.as_secs_f64())),
        Line::new("database", filled.megabytes, Unit::Megabytes),
    ];
    lines.extend(empty.beside(&full));
    Ok(lines)
}

/// What is compared, in milliseconds unless a name says otherwise.
struct Figures(Vec<(&'static str, f64, Unit)>);

impl Figures {
    async fn of(
        mesh: &Mesh,
        client: &Client,
        sessions: &Sessions,
        pace: Pace,
    ) -> anyhow::Result<Self> {
        let session = unique_session("scale");
        let mut times = Vec::new();
        for _ in 0..pace.count(330, 60) {
            times.push(client.turn(0, Model::Instant, &session).await?.done);
        }
        let turns: Samples = times.into_iter().skip(30).collect();
        let load = Load {
            parallel: 8,
            model: Model::Instant,
            warm_up: pace.seconds(3, 1),
            time: pace.seconds(15, 3),
        };
        let loaded = load.run(client, async || Spent::so_far(mesh)).await?;
        let spent = loaded.seen.1.since(&loaded.seen.0);
        let mut figures = vec![
            ("turn, p50", millis(turns.median()), Unit::Millis),
            ("CPU of a turn", millis(spent.all()) / float(loaded.turns), Unit::Millis),
            ("turns a second, 8 parallel", loaded.rate(), Unit::PerSecond),
        ];
        for work in Work::ALL {
            figures.push((work.name(), millis(work.fastest(sessions).await?), Unit::Millis));
        }
        Ok(Self(figures))
    }

    /// Both figures, and how much the second differs.
    fn beside(self, full: &Self) -> Vec<Line> {
        let mut lines = Vec::new();
        for ((name, before, unit), (_, after, _)) in self.0.into_iter().zip(&full.0) {
            let percent = (after / before.max(0.000_001) - 1.0) * 100.0;
            lines.push(Line::new(format!("{name}, empty"), before, unit));
            let line =
                Line::new(format!("{name}, filled"), *after, unit).note(format!("{percent:+.0} %"));
            // A turn may cost 15 % more.
            lines.push(match name {
                "turn, p50" | "CPU of a turn" => line.at_most(before * 1.15),
                _ => line,
            });
        }
        lines
    }
}

/// Work that is done again and again, whether or not there is something to do.
#[derive(Clone, Copy)]
enum Work {
    Claim,
    ClaimDeliveries,
    Sweep,
    Gauges,
    Prune,
}

impl Work {
    const ALL: [Self; 5] =
        [Self::Claim, Self::ClaimDeliveries, Self::Sweep, Self::Gauges, Self::Prune];

    const fn name(self) -> &'static str {
        match self {
            Self::Claim => "claim, nothing ready",
            Self::ClaimDeliveries => "claim of deliveries, none due",
            Self::Sweep => "sweep",
            Self::Gauges => "gauges",
            Self::Prune => "pruning, nothing old",
        }
    }

    async fn fastest(self, sessions: &Sessions) -> anyhow::Result<Duration> {
        let mut fastest = Duration::MAX;
        for _ in 0..REPETITIONS {
            let begun = Instant::now();
            self.run(sessions).await?;
            fastest = fastest.min(begun.elapsed());
        }
        Ok(fastest)
    }

    async fn run(self, sessions: &Sessions) -> Result<(), holdfast_session::Error> {
        let runner = RunnerId::generate();
        match self {
            Self::Claim => sessions.claim(runner, 4).await.map(drop),
            Self::ClaimDeliveries => {
                let slots = SendCapacity::slots(10);
                let deliveries = sessions.deliveries();
                deliveries.claim("bench", DeliveryClass::Plain, runner, &slots).await.map(drop)
            }
            Self::Sweep => sessions.sweep().await.failure.map_or(Ok(()), Err),
            Self::Gauges => sessions.queues().gauges().await.map(drop),
            Self::Prune => {
                let pruned = sessions.upkeep().prune(&Retention::default()).await;
                pruned.failure.map_or(Ok(()), Err)
            }
        }
    }
}

/// What was loaded.
struct Filled {
    tenants: usize,
    sessions: usize,
    entries: usize,
    took: Duration,
    megabytes: f64,
}

async fn fill(admin: &mut PgConnection, pace: Pace) -> anyhow::Result<Filled> {
    let (tenants, sessions) = (pace.count(TENANTS, 100), pace.count(SESSIONS, 20_000));
    let limit = pace.seconds(600, 20);
    let begun = Instant::now();
    let tenant = |number: &str| format!("md5('tenant' || {number} % {tenants})::uuid");
    run(
        admin,
        format!(
            "insert into control.tenants (tenant_id, name, data_key)
             select {}, 'filled-' || n, '' from generate_series(0, {tenants} - 1) n",
            tenant("n")
        ),
    )
    .await?;
    for first in (0..sessions).step_by(SESSIONS_PER_BATCH) {
        run(admin, insert_sessions(&tenant("n"), first)).await?;
    }
    ensure!(begun.elapsed() < limit * 2, "filling took {:?}", begun.elapsed());
    let mut entries = 0;
    while begun.elapsed() < limit && entries / ENTRIES_PER_SESSION < sessions {
        entries += run(admin, insert_entries(entries)).await?;
    }
    run(admin, "vacuum analyze".to_owned()).await?;
    let bytes: i64 =
        sqlx::query_scalar("select pg_database_size(current_database())").fetch_one(admin).await?;
    let megabytes = float(usize::try_from(bytes >> 20)?);
    Ok(Filled { tenants, sessions, entries, took: begun.elapsed(), megabytes })
}

/// A batch of sessions at rest; each hundredth has 30 days of messages, turns and replies.
fn insert_sessions(tenant: &str, first: usize) -> String {
    let last = first + SESSIONS_PER_BATCH - 1;
    format!(
        "with s as materialized (
             select {tenant} as tenant_id, md5('session' || n)::uuid as session_id, n
             from generate_series({first}, {last}) n),
         made as (
             insert into session.sessions (tenant_id, session_id, key, kind, agent_id)
             select tenant_id, session_id, 'filled:' || n, 'main', tenant_id from s),
         leases as (
             insert into session.session_lease (tenant_id, session_id) select tenant_id, session_id from s),
         days as materialized (
             select s.*, d, now() - d * interval '1 day' + interval '1 hour' as at
             from s, generate_series(1, 29) d where n % 100 = 0),
         messages as (
             insert into session.inbox (tenant_id, session_id, seq, message_id, source, idem_key,
                                        hash, body, state, outcome, accepted_at, finished_at)
             select tenant_id, session_id, d, md5('message' || n || '-' || d)::uuid, 'bench',
                    n || '-' || d, '', '{{\"text\": \"hello\"}}', 'done', 'completed', at, at
             from days),
         runs as (
             insert into session.runs (tenant_id, run_id, session_id, agent_id, epoch, outcome,
                                       steps, started_at, finished_at)
             select tenant_id, md5('message' || n || '-' || d)::uuid, session_id, tenant_id, d,
                    'completed', 1, at, at from days)
         insert into session.deliveries
             (tenant_id, session_id, out_seq, delivery_id, run_id, channel, account_id, target,
              body, state, created_at, finished_at)
         select tenant_id, session_id, d, md5('delivery' || n || '-' || d)::uuid,
                md5('message' || n || '-' || d)::uuid, 'webhook', tenant_id, '{{}}', 'hi', 'sent',
                at, at from days"
    )
}

/// A batch of entries, for the next sessions.
fn insert_entries(done: usize) -> String {
    let first = done / ENTRIES_PER_SESSION;
    format!(
        "insert into session.entries (tenant_id, session_id, seq, epoch, run_id, kind, body)
         select s.tenant_id, s.session_id, q, 1, s.session_id, 'thought',
                jsonb_build_object('kind', 'thought', 'text', repeat('a word or two. ', 20))
         from generate_series({first}, {first} + 2499) n
         join session.sessions s on s.session_id = md5('session' || n)::uuid,
              generate_series(1, {ENTRIES_PER_SESSION}) q"
    )
}

async fn run(admin: &mut PgConnection, sql: String) -> anyhow::Result<usize> {
    let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(admin).await?;
    Ok(usize::try_from(done.rows_affected())?)
}

const fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
