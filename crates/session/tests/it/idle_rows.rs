//! Periodic work reads what it changes, and not the rows that have nothing to do.

use holdfast_pg::{Config, Pools};
use holdfast_session::{Retention, RetentionDays, SendCapacity, Sessions};
use holdfast_types::{DeliveryClass, RunnerId};

use crate::world::World;

/// Rows that are older than a day, and younger than their retention period.
const ROWS: &str = "
    with t as (
        insert into control.tenants (tenant_id, name, data_key)
        select md5('t' || n)::uuid, 't' || n, '' from generate_series(1, 10) n returning tenant_id),
    s as (
        insert into session.sessions (tenant_id, session_id, key, kind, agent_id)
        select tenant_id, gen_random_uuid(), tenant_id::text || n, 'main', gen_random_uuid()
        from t, generate_series(1, 300) n returning tenant_id, session_id),
    l as (insert into session.session_lease (tenant_id, session_id) select tenant_id, session_id from s),
    i as (
        insert into session.inbox (tenant_id, session_id, seq, message_id, source, idem_key, hash,
                                   body, state, outcome, finished_at)
        select tenant_id, session_id, 1, gen_random_uuid(), 'test', session_id::text, '', '{}',
               'done', 'completed', now() - interval '2 days' from s),
    k as (
        insert into session.tombstones
            (tenant_id, source, idem_key, hash, session_id, seq, message_id, until)
        select tenant_id, 'test', 'k' || session_id, '', session_id, 1, gen_random_uuid(),
               now() + interval '2 days' from s),
    r as (
        insert into session.runs (tenant_id, run_id, session_id, agent_id, epoch, outcome,
                                  started_at, finished_at)
        select tenant_id, gen_random_uuid(), session_id, gen_random_uuid(), 1, 'completed',
               now(), now() - interval '2 days' from s)
    insert into session.deliveries
        (tenant_id, session_id, out_seq, delivery_id, run_id, channel, account_id, target, body,
         state, finished_at)
    select tenant_id, session_id, 1, gen_random_uuid(), gen_random_uuid(), 'webhook',
           gen_random_uuid(), '{}', '', 'sent', now() - interval '2 days' from s";

/// Rows that scans of tables and of indexes have read in the schema of sessions.
const READ: &str = "
    select ((select sum(seq_tup_read) from pg_stat_user_tables where schemaname = 'session')
          + (select sum(idx_tup_read) from pg_stat_user_indexes where schemaname = 'session'))::bigint";

/// Counts the reads of one connection for each role.
struct Counted {
    pools: Pools,
    sessions: Sessions,
}

impl Counted {
    async fn reads(&self, world: &World) -> anyhow::Result<i64> {
        const FLUSH: &str = "select pg_stat_force_next_flush()";
        let mut once = self.pools.system_connection().await?;
        holdfast_pg::query(FLUSH).execute(once.conn()).await?;
        once.done();
        let mut tx = self.pools.tenant(world.tenant().id).await?;
        holdfast_pg::query(FLUSH).execute(tx.conn()).await?;
        tx.commit().await?;
        world.number(READ).await
    }
}

#[tokio::test]
async fn upkeep_and_claims_do_not_read_rows_that_have_nothing_to_do() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.admin(ROWS).await?;
    let config =
        Config { url: world.url().into(), pool_size: 1, system_pool_size: 1, ..Config::default() };
    let pools = Pools::lazy(&config, "test")?;
    let counted = Counted { sessions: Sessions::new(pools.clone()), pools };
    let runner = RunnerId::generate();
    let before = counted.reads(&world).await?;

    counted.sessions.claim(runner, 10).await?;
    assert_eq!(counted.sessions.sweep().await.done.promoted, 0);
    counted.sessions.queues().gauges().await?;
    assert_eq!(counted.sessions.upkeep().prune(&Retention::default()).await.done.rows, 0);
    let slots = SendCapacity::slots(10);
    counted.sessions.deliveries().claim("webhook", DeliveryClass::Plain, runner, &slots).await?;

    let read = counted.reads(&world).await? - before;
    assert!((1..200).contains(&read), "{read} rows were read, of 3,000 in each table");
    Ok(())
}

#[tokio::test]
async fn a_sweep_reads_one_row_for_each_tenant_with_queued_sessions() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.admin(ROWS).await?;
    // All are at their cap.
    world.admin("update session.session_lease set state = 'READY', ready_at = now()").await?;
    world
        .admin(
            "insert into session.tenant_flight (tenant_id, shard, in_flight)
             select tenant_id, 0, 64 from control.tenants
             on conflict (tenant_id, shard) do update set in_flight = 64",
        )
        .await?;
    let config =
        Config { url: world.url().into(), pool_size: 1, system_pool_size: 1, ..Config::default() };
    let pools = Pools::lazy(&config, "test")?;
    let counted = Counted { sessions: Sessions::new(pools.clone()), pools };
    let before = counted.reads(&world).await?;

    assert_eq!(counted.sessions.sweep().await.done.promoted, 0);

    let read = counted.reads(&world).await? - before;
    assert!((10..500).contains(&read), "{read} rows were read, of 3,000 queued ones");
    Ok(())
}

#[tokio::test]
async fn pruning_journals_reads_one_entry_of_a_session_without_old_ones() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    world.enroll(ada).await?;
    for session in ["one", "two"] {
        ada.say(session, session, "hello").await?;
        world.answer(&world.claim_one().await?, "hi").await?;
    }
    world
        .admin(
            "insert into session.entries (tenant_id, session_id, seq, epoch, run_id, kind, body)
             select tenant_id, session_id, 100 + n, epoch, run_id, kind, body
             from session.entries, generate_series(1, 900) n where seq = 1",
        )
        .await?;
    let days = RetentionDays { journals: Some(1), ..RetentionDays::default() };
    world.sessions.queues().set_retention(ada.id, days).await?;
    let config =
        Config { url: world.url().into(), pool_size: 1, system_pool_size: 1, ..Config::default() };
    let pools = Pools::lazy(&config, "test")?;
    let counted = Counted { sessions: Sessions::new(pools.clone()), pools };
    let before = counted.reads(&world).await?;

    let pruned = counted.sessions.upkeep().prune(&Retention::default()).await;

    let read = counted.reads(&world).await? - before;
    assert_eq!(pruned.done.rows, 0);
    assert!((2..60).contains(&read), "{read} rows were read, of 1,800 entries that are not old");
    Ok(())
}
