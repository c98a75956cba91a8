//! A runner works for the tenants of its pool, and a change of the pool loses no message.

use holdfast_session::{HeldItem, HeldKind, RunnerPool, Sessions};
use holdfast_types::{RunnerId, TenantId};

use crate::world::World;

fn pool(name: &str) -> Option<RunnerPool> {
    name.parse().ok()
}

fn of_pool(world: &World, name: &str) -> Sessions {
    world.sessions.clone().in_pool(pool(name))
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
