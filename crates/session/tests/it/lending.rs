//! A pool lends connections up to its limit, and gives up those without an answer.

use std::{collections::BTreeSet, time::Duration};

use holdfast_pg::{Config, Pools};
use holdfast_session::Error;
use holdfast_testkit::{Database, Proxy};
use holdfast_types::{Fault as _, Kind, TenantId};
use tokio::time::timeout;

use crate::world::World;

#[tokio::test]
async fn no_more_connections_are_open_than_a_pool_may_have() -> anyhow::Result<()> {
    let database = Database::create().await?;
    let config = Config { url: database.url().into(), pool_size: 2, ..Config::default() };
    let pools = Pools::lazy(&config, "test")?;
    let mut seen = BTreeSet::new();

    // A second request at once, before the first connection is returned.
    for _ in 0..50 {
        let mut both = Vec::new();
        for _ in 0..2 {
            let mut tx = pools.tenant(TenantId::generate()).await?;
            let pid: i32 =
                holdfast_pg::query_scalar("select pg_backend_pid()").fetch_one(tx.conn()).await?;
            seen.insert(pid);
            both.push(tx);
        }
        both.into_iter().for_each(holdfast_pg::TenantTx::finish_reading);
    }

    assert_eq!(seen.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_statement_without_an_answer_ends_and_the_next_one_has_a_new_connection()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let proxy = Proxy::in_front_of(&world.url()).await?;
    let config = Config {
        url: proxy.through(&world.url()).into(),
        pool_size: 1,
        statement_timeout: Duration::from_secs(5),
        ..Config::default()
    };
    let pools = Pools::lazy(&config, "test")?;
    let tenant = TenantId::generate();
    let mut running = pools.tenant(tenant).await?;
    holdfast_pg::query("select 1").execute(running.conn()).await?;

    // From here on packets are lost in both directions, and nobody closes a connection.
    proxy.stall();
    let statement = holdfast_pg::query("select 2").execute(running.conn());
    let cut_off = timeout(Duration::from_secs(60), statement).await?.unwrap_err();
    let lost_commit = timeout(Duration::from_secs(60), running.commit()).await?.unwrap_err();
    let new = timeout(Duration::from_secs(60), pools.tenant(tenant)).await?.unwrap_err();
    proxy.resume();

    for error in [cut_off, lost_commit, new] {
        assert_eq!(holdfast_pg::kind(&error), Kind::Unavailable, "{error}");
    }
    let mut tx = pools.tenant(tenant).await?;
    holdfast_pg::query("select 3").execute(tx.conn()).await?;
    tx.commit().await?;
    assert_eq!(proxy.accepted(), 3, "one of them while nothing was carried");
    Ok(())
}

#[tokio::test]
async fn a_client_that_stops_in_a_transaction_loses_its_locks() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    let pools = world.pools()?;
    let mut frozen = pools.tenant(ada.id).await?;
    holdfast_pg::query("select from session.session_lease for update")
        .execute(frozen.conn())
        .await?;

    // It would fail after 10 s, its lock timeout, if the lock stayed.
    ada.say("s", "k2", "are you there?").await?;

    let ended = frozen.commit().await.unwrap_err();
    assert_eq!(holdfast_pg::kind(&ended), Kind::Unavailable);
    Ok(())
}

#[tokio::test]
async fn a_deadlock_is_reported_as_unavailable() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    for session in ["a", "b"] {
        ada.say(session, session, "hello").await?;
    }
    let pools = world.pools()?;
    let lock = async |tx: &mut holdfast_pg::TenantTx, agent: &str| {
        holdfast_pg::query(
            "select from session.session_lease where session_id = (
                 select session_id from session.sessions where key like $1) for update",
        )
        .bind(format!("agent:{agent}:%"))
        .execute(tx.conn())
        .await
    };
    let (mut first, mut second) = (pools.tenant(ada.id).await?, pools.tenant(ada.id).await?);
    lock(&mut first, "a").await?;
    lock(&mut second, "b").await?;

    let (one, two) = tokio::join!(lock(&mut first, "b"), lock(&mut second, "a"));

    let lost: Vec<Error> =
        [one, two].into_iter().filter_map(Result::err).map(Error::from).collect();
    assert_eq!(lost.iter().map(Error::kind).collect::<Vec<_>>(), [Kind::Unavailable]);
    Ok(())
}

#[tokio::test]
async fn a_message_whose_transaction_ends_in_a_deadlock_is_accepted_at_the_next_attempt()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    let claim = world.claim_one().await?;
    world.answer(&claim, "hi").await?;
    let mut other = world.begin().await?;
    // The other transaction looks for deadlocks so late that the message's is undone.
    for sql in
        ["set local deadlock_timeout = '60s'", "select from session.tenant_flight for update"]
    {
        sqlx::query(sql).execute(&mut other).await?;
    }

    let (accepted, locked) = tokio::join!(ada.say("s", "k2", "again"), async {
        world.after_waiting(1, async { Ok(()) }).await?;
        sqlx::query("select from session.session_lease for update").execute(&mut other).await?;
        sqlx::query("commit").execute(&mut other).await?;
        anyhow::Ok(())
    });

    locked?;
    assert_eq!(accepted?.seq, 2);
    Ok(())
}
