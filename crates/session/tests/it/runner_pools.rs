//! A runner works for the tenants of its pool, and a change of the pool loses no message.

use std::time::Duration;

use holdfast_session::{FreeSlots, HeldItem, HeldKind, RunnerPool, Sessions, TenantSlots};
use holdfast_types::{RunnerId, TenantId, Wait};

use crate::world::World;

fn pool(name: &str) -> Option<RunnerPool> {
    name.parse().ok()
}

fn of_pool(world: &World, name: &str) -> Sessions {
    world.sessions.clone().in_pool(pool(name))
}

/// Sessions of a runner with the login of its pool; an empty name is the default pool.
async fn with_login(world: &World, name: &str) -> anyhow::Result<Sessions> {
    Ok(Sessions::new(world.runner_pool_login(name).await?).in_pool(pool(name)))
}

async fn claimed(sessions: &Sessions) -> anyhow::Result<Vec<TenantId>> {
    let claims = sessions.claim(RunnerId::generate(), 10).await?;
    Ok(claims.into_iter().map(|claim| claim.tenant).collect())
}

#[tokio::test]
async fn no_runner_takes_a_session_of_another_pool() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, bob, eve) = (world.tenant(), world.tenant(), world.tenant());
    let pools = world.sessions.runner_pools();
    pools.assign(ada.id, pool("red").as_ref()).await?;
    pools.assign(bob.id, pool("blue").as_ref()).await?;
    for tenant in [&ada, &bob, &eve] {
        tenant.say("s", "k", "hello").await?;
    }
    let (red, blue) = (of_pool(&world, "red"), of_pool(&world, "blue"));
    assert!(claimed(&of_pool(&world, "green")).await?.is_empty());

    assert_eq!(claimed(&red).await?, [ada.id]);
    assert!(claimed(&red).await?.is_empty());
    assert_eq!(claimed(&world.sessions).await?, [eve.id]);
    assert!(claimed(&world.sessions).await?.is_empty());
    assert_eq!(claimed(&blue).await?, [bob.id]);
    Ok(())
}

#[tokio::test]
async fn a_tenant_that_gets_another_pool_loses_no_message() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let red = of_pool(&world, "red");
    // What the runner of the former pool holds does not delay the session.
    world.sessions.renew_runner(world.runner).await?;
    ada.say("s", "first", "hello").await?;
    let running = world.claim_one().await?;
    let item =
        HeldItem { kind: HeldKind::Command, name: "prc_1".to_owned(), title: "x".to_owned() };
    let whose = (running.tenant, running.session);
    world.sessions.record_held(whose, ada.agent, world.runner, &[item]).await?;

    world.sessions.runner_pools().assign(ada.id, pool("red").as_ref()).await?;
    ada.say("s", "second", "while it runs").await?;
    ada.say("t", "third", "in another session").await?;
    assert_eq!(red.claim(RunnerId::generate(), 10).await?.len(), 1, "the other session");
    // The turn that runs ends where it is.
    world.answer(&running, "hi").await?;
    ada.say("s", "fourth", "after it").await?;
    assert!(claimed(&world.sessions).await?.is_empty());
    let next = red.claim(RunnerId::generate(), 10).await?;
    assert_eq!(next.iter().map(|claim| claim.session).collect::<Vec<_>>(), [running.session]);
    red.release(&next[0]).await?;

    world.sessions.runner_pools().assign(ada.id, None).await?;
    assert!(claimed(&red).await?.is_empty());
    // The runner that holds its state gets it first.
    assert_eq!(world.claim_one().await?.session, running.session);
    Ok(())
}

#[tokio::test]
async fn a_tenant_alone_in_its_pool_may_take_all_slots() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, bob, eve) = (world.tenant(), world.tenant(), world.tenant());
    let pools = world.sessions.runner_pools();
    pools.assign(ada.id, pool("red").as_ref()).await?;
    for n in 0..4 {
        let key = format!("k{n}");
        for tenant in [&ada, &eve] {
            tenant.say(&format!("s{n}"), &key, "hello").await?;
        }
    }
    let of_red = [of_pool(&world, "red"), with_login(&world, "red").await?];
    // The reserved slots of a runner with eight, whose other slots have turns of the tenant.
    let claim = async |sessions: &Sessions, tenant: TenantId| {
        let tenants = TenantSlots { reserved: 2, share: 2, running: vec![(tenant, 6)] };
        let slots = FreeSlots { tenants, ..FreeSlots::from(2) };
        let claims = sessions.claim(RunnerId::generate(), slots).await?;
        anyhow::Ok(claims.into_iter().map(|claim| claim.tenant).collect::<Vec<_>>())
    };

    assert_eq!(claim(&world.sessions, eve.id).await?, [eve.id; 2]);
    for red in &of_red {
        assert_eq!(claim(red, ada.id).await?, [ada.id; 2]);
    }

    pools.assign(bob.id, pool("red").as_ref()).await?;
    ada.say("t", "k", "hello").await?;
    for (red, session) in of_red.iter().zip(["a", "b"]) {
        bob.say(session, session, "hello").await?;
        assert_eq!(claim(red, ada.id).await?, [bob.id], "ada leaves them to bob");
    }
    Ok(())
}

#[tokio::test]
async fn a_pool_without_a_live_runner_is_noticed() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let (pools, red) = (world.sessions.runner_pools(), of_pool(&world, "red"));
    world.sessions.renew_runner(world.runner).await?;
    pools.assign(ada.id, pool("red").as_ref()).await?;
    ada.say("s", "k", "hello").await?;

    let found = pools.of_tenant(ada.id).await?;
    assert_eq!((found.pool, found.live_runners), (pool("red"), 0));
    let gauges = pools.gauges().await?;
    let red_gauges = (&*gauges[0].pool, gauges[0].live_runners, gauges[0].waiting_sessions);
    assert_eq!((gauges.len(), red_gauges), (1, ("red", 0, 1)));
    assert_eq!(world.sessions.queues().gauges().await?.waiting_sessions, 0);

    let runner = RunnerId::generate();
    red.renew_runner(runner).await?;
    assert_eq!(pools.of_tenant(ada.id).await?.live_runners, 1);
    red.stop_runner(runner).await?;
    assert_eq!(pools.of_tenant(ada.id).await?.live_runners, 0);
    Ok(())
}

#[tokio::test]
async fn the_login_of_a_pool_claims_and_ends_turns_of_its_tenants_only() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, bob, eve) = (world.tenant(), world.tenant(), world.tenant());
    let pools = world.sessions.runner_pools();
    pools.assign(ada.id, pool("red").as_ref()).await?;
    pools.assign(bob.id, pool("blue").as_ref()).await?;
    for tenant in [&ada, &bob, &eve] {
        tenant.say("s", "k", "hello").await?;
    }
    let (red, default) = (with_login(&world, "red").await?, with_login(&world, "").await?);

    // Whatever the program asks for, the database gives no other session.
    for name in ["blue", ""] {
        assert!(claimed(&red.clone().in_pool(pool(name))).await?.is_empty(), "`{name}`");
    }
    assert!(claimed(&default.clone().in_pool(pool("red"))).await?.is_empty());
    let runner = RunnerId::generate();
    let claims = red.claim(runner, 10).await?;
    assert_eq!(claims.iter().map(|claim| claim.tenant).collect::<Vec<_>>(), [ada.id]);
    let of_eve = default.claim(runner, 10).await?;
    assert_eq!(of_eve.iter().map(|claim| claim.tenant).collect::<Vec<_>>(), [eve.id]);

    assert_eq!(red.renew(runner, &claims).await?.renewed.len(), 1);
    assert!(red.renew(runner, &of_eve).await?.renewed.is_empty());
    World::answer_with(&red, &claims[0], "hi").await?;
    World::answer_with(&default, &of_eve[0], "hi").await?;
    let of_bob = of_pool(&world, "blue").claim(runner, 10).await?;
    let refused = red.yield_session(&of_bob[0], Wait::Anything).await.unwrap_err();
    assert!(refused.is_fenced(), "{refused}");
    let answered = "select count(*) from session.inbox where state = 'done'";
    assert_eq!(world.number(answered).await?, 2);
    // Messages are accepted and sessions are swept by any of these logins.
    red.ingest(ada.id, ada.message("s", "next", "and this")).await?;
    assert!(red.sweep().await.failure.is_none());
    assert_eq!(claimed(&red).await?, [ada.id]);
    Ok(())
}

#[tokio::test]
async fn a_turn_whose_tenant_moves_goes_on_in_the_other_pool() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let pools = world.sessions.runner_pools();
    pools.assign(ada.id, pool("red").as_ref()).await?;
    let (red, blue) = (with_login(&world, "red").await?, with_login(&world, "blue").await?);
    let (of_red, of_blue) = (RunnerId::generate(), RunnerId::generate());
    ada.say("s", "k", "hello").await?;
    let begun = red.claim(of_red, 1).await?;
    let item =
        HeldItem { kind: HeldKind::Command, name: "prc_1".to_owned(), title: "x".to_owned() };
    red.renew_runner(of_red).await?;
    red.record_held((ada.id, begun[0].session), ada.agent, of_red, &[item]).await?;

    pools.assign(ada.id, pool("blue").as_ref()).await?;
    let refused = World::answer_with(&red, &begun[0], "too late").await.unwrap_err();
    assert!(refused.is_fenced(), "{refused}");
    assert!(red.renew(of_red, &begun).await?.renewed.is_empty(), "the turn is stopped");
    assert!(claimed(&blue).await?.is_empty(), "the lease still holds");

    world.lapse().await?;
    assert_eq!(red.sweep().await.done.orphaned, 0);
    assert_eq!(blue.sweep().await.done.orphaned, 1);
    let taken = blue.claim(of_blue, 1).await?;
    assert_eq!((taken[0].session, taken[0].attempts), (begun[0].session, 2));
    assert_eq!(blue.settle_lost(&taken[0], "agent:s:main").await?.len(), 1);
    World::answer_with(&blue, &taken[0], "hi").await?;
    let runs = "select count(*) from session.runs where outcome = 'completed'";
    assert_eq!(world.number(runs).await?, 1, "answered once");
    // The former runner ends what it holds.
    let lost = red.renew_runner(of_red).await?;
    assert_eq!(lost, [(ada.id, begun[0].session, HeldKind::Command, "prc_1".to_owned())]);
    Ok(())
}

#[tokio::test]
async fn each_pool_does_its_upkeep_while_nobody_does_that_of_all() -> anyhow::Result<()> {
    const LEASE: Duration = Duration::from_secs(60);
    const NEAR_THE_END: &str = "
        update session.duties set until = until - interval '40 seconds' where name <> 'upkeep'";
    let world = World::start().await?;
    let (red, blue) = (with_login(&world, "red").await?, with_login(&world, "blue").await?);
    let default = with_login(&world, "").await?;
    let runner = RunnerId::generate();
    let another = RunnerId::generate();

    for sessions in [&red, &blue, &default] {
        assert!(sessions.upkeep().hold(runner, LEASE).await?);
        assert!(!sessions.upkeep().hold(another, LEASE).await?);
    }
    assert!(world.sessions.upkeep().hold(another, LEASE).await?);
    world.admin(NEAR_THE_END).await?;
    for sessions in [&red, &blue, &default] {
        assert!(!sessions.upkeep().hold(runner, LEASE).await?, "another runner does it for all");
    }
    world.sessions.upkeep().leave(another).await?;
    for sessions in [&red, &blue, &default] {
        assert!(sessions.upkeep().hold(runner, LEASE).await?);
    }

    // The login of a pool takes nobody else's duty.
    let pools = world.runner_pool_login("red").await?;
    let mut tx = pools.system().await?;
    let changed = holdfast_pg::query("update session.duties set until = 'infinity'")
        .execute(tx.conn())
        .await?
        .rows_affected();
    assert_eq!(changed, 1);
    let taken = holdfast_pg::query(
        "insert into session.duties (name, owner, until)
         values ('upkeep:green', gen_random_uuid(), 'infinity')",
    );
    let refused = taken.execute(tx.conn()).await.unwrap_err().to_string();
    assert!(refused.contains("row-level security policy"), "{refused}");
    Ok(())
}
