//! The number of rows that a turn reads does not grow with its tenant.
//!
//! Postgres plans a statement when a connection first needs it. On a young database the tables are
//! nearly empty then, and the plan's index is still used a thousand sessions later.

use std::time::Duration;

use anyhow::ensure;
use holdfast_session::{RunFilter, work_sessions};

use crate::world::{Tenant, World};

/// Turns in one session, enough for each statement to get its generic plan.
const TURNS: i64 = 12;

#[tokio::test]
async fn a_turn_reads_as_little_in_a_tenant_of_many_sessions() -> anyhow::Result<()> {
    let world = World::start().await?;
    // New statistics in the middle of the test would hide the effect.
    for table in ["sessions", "session_lease", "inbox", "entries", "runs"] {
        world.admin(&format!("alter table session.{table} set (autovacuum_enabled = off)")).await?;
    }
    let ada = world.tenant();
    turns(&world, ada, "warm").await?;
    let alone = reads_of(&world, ada, "alone").await?;

    crowd(&world, ada).await?;
    let crowded = reads_of(&world, ada, "crowded").await?;

    // A statement that reads all of the tenant's sessions would read two thousand more rows per
    // turn. Dead versions of changed rows add far fewer.
    ensure!(
        crowded < alone + 200 * TURNS,
        "{TURNS} turns read {alone} rows in a small tenant, and {crowded} in a large one"
    );
    Ok(())
}

/// Creates two thousand more sessions of one tenant, with a message and a turn each.
async fn crowd(world: &World, tenant: Tenant<'_>) -> anyhow::Result<()> {
    for sql in [
        "insert into session.sessions (tenant_id, session_id, key, kind, agent_id)
         select '{t}', gen_random_uuid(), 'agent:a:other' || n, 'main', '{a}'
         from generate_series(1, 2000) n",
        "insert into session.session_lease (tenant_id, session_id, next_in, done_in, next_entry)
         select tenant_id, session_id, 2, 1, 2 from session.sessions where key like 'agent:a:other%'",
        "insert into session.inbox (tenant_id, session_id, seq, message_id, source, idem_key, hash,
                                    body, state, finished_at)
         select tenant_id, session_id, 1, gen_random_uuid(), 'internal:test', key, '', '{}', 'done',
                clock_timestamp()
         from session.sessions where key like 'agent:a:other%'",
        "insert into session.runs (tenant_id, run_id, session_id, agent_id, epoch, outcome, started_at)
         select tenant_id, gen_random_uuid(), session_id, agent_id, 1, 'completed', clock_timestamp()
         from session.sessions where key like 'agent:a:other%'",
        "insert into session.entries (tenant_id, session_id, seq, epoch, run_id, kind, body)
         select tenant_id, session_id, 1, 1, gen_random_uuid(), 'noted', '{}'
         from session.sessions where key like 'agent:a:other%'",
    ] {
        let sql = sql
            .replace("{t}", &tenant.id.as_uuid().to_string())
            .replace("{a}", &tenant.agent.as_uuid().to_string());
        ensure!(world.admin(&sql).await? == 2000, "the crowd is there");
    }
    Ok(())
}

/// Returns the rows read by a number of turns in one session.
async fn reads_of(world: &World, tenant: Tenant<'_>, session: &str) -> anyhow::Result<i64> {
    let before = reads(world, tenant).await?;
    turns(world, tenant, session).await?;
    Ok(reads(world, tenant).await? - before)
}

async fn turns(world: &World, tenant: Tenant<'_>, session: &str) -> anyhow::Result<()> {
    for n in 0..TURNS {
        let asked = tenant.say(session, &format!("{session}-{n}"), "hello").await?;
        world.answer(&world.claim_one().await?, "hi there").await?;
        world.sessions.views().answer(tenant.id, asked.message).await?;
        world.sessions.views().session(tenant.id, asked.session).await?;
        world
            .sessions
            .views()
            .runs(
                tenant.id,
                RunFilter { session: Some(asked.session), limit: 5, ..RunFilter::default() },
            )
            .await?;
    }
    Ok(())
}

/// Returns the rows and index entries read of the protocol's tables.
async fn reads(world: &World, tenant: Tenant<'_>) -> anyhow::Result<i64> {
    const SQL: &str = "
        select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint
               + (select sum(idx_tup_read)::bigint from pg_stat_user_indexes
                  where schemaname = 'session')
        from pg_stat_user_tables where schemaname = 'session'";
    // A Postgres backend reports its statistics at most once a second, after a statement.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    world.sessions.next_ready().await?;
    world.sessions.queues().share(tenant.id).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    world.number(SQL).await
}

#[tokio::test]
async fn titles_of_sessions_keep_the_mark_of_their_conversation() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    for name in ["clean", "marked"] {
        ada.say(name, name, "hello").await?;
    }
    world
        .admin(
            "update session.sessions
             set kind = 'work', key = 'agent:main:work:' || split_part(key, ':', 2),
                 outside_since = case when key ~ 'marked' then now() end",
        )
        .await?;

    let mut tx = world.sessions.behaviors().read(ada.id).await?;
    let listed = work_sessions(&mut tx, "agent:main:work:").await?;

    let marks = listed.into_iter().map(|session| (session.key, session.has_outside_text));
    let mut marks: Vec<_> = marks.collect();
    marks.sort();
    let expected = [("agent:main:work:clean", false), ("agent:main:work:marked", true)];
    assert_eq!(marks, expected.map(|(key, is_marked)| (key.to_owned(), is_marked)));
    Ok(())
}
