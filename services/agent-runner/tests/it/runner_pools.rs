//! Runners of two pools: each works for its tenants only.

use std::time::Duration;

use tokio::time::sleep;

use crate::world::{Running, World};

async fn runner(world: &World, pool: &str) -> anyhow::Result<Running> {
    let mut config = world.config();
    pool.clone_into(&mut config.runner.pool);
    if pool == "red" {
        // Only wake-ups tell it of new messages.
        config.runner.poll = Duration::from_secs(120);
    }
    config.runner.lease = Duration::from_secs(3);
    world.runner_with(config, |app| app).await
}

#[tokio::test]
async fn a_tenants_turns_run_in_its_pool_and_wait_for_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let pools = world.sessions.runner_pools();
    pools.assign(world.tenant, Some(&"red".parse()?)).await?;
    let blue = runner(&world, "blue").await?;
    let default = runner(&world, "").await?;

    let waiting = world.say("s", "hello").await?;
    sleep(Duration::from_secs(3)).await;
    let claimed = "select count(*) from session.session_lease where epoch > 0";
    assert_eq!(world.number(claimed).await?, 0, "a runner of another pool took the session");

    let red = runner(&world, "red").await?;
    assert!(!world.text(&waiting).await?.is_empty());
    // A wake-up goes to each pool.
    world.ask("s", "again").await?;
    let is_alone =
        async || pools.of_tenant(world.tenant).await.is_ok_and(|found| found.live_runners == 1);
    world.until("one runner of the pool is alive", is_alone).await?;

    // The default pool, without a restart and without a loss.
    let asked = [world.say("s", "one").await?, world.say("t", "two").await?];
    pools.assign(world.tenant, None).await?;
    let moved = world.say("s", "three").await?;
    red.stop().await?;
    for accepted in asked.iter().chain([&moved]) {
        assert!(!world.text(accepted).await?.is_empty());
    }
    blue.stop().await?;
    default.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_pool_is_named_as_kubernetes_names_things() -> anyhow::Result<()> {
    let world = World::start().await?;

    let error = runner(&world, "Red Pool").await.err().map(|error| format!("{error:#}"));

    let error = error.unwrap_or_default();
    assert!(error.contains("`runner.pool`") && error.contains("1 to 40 characters"), "{error}");
    Ok(())
}

#[tokio::test]
async fn turns_and_upkeep_run_with_the_login_of_the_pool() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    world.sessions.runner_pools().assign(world.tenant, Some(&"red".parse()?)).await?;
    let mut config = world.config();
    config.database = world.database_of_runner_pool("red").await?;
    "red".clone_into(&mut config.runner.pool);
    config.runner.lease = Duration::from_secs(3);
    let red = world.runner_with(config, |app| app).await?;

    assert!(!world.ask("s", "hello").await?.is_empty());
    assert!(!world.ask("s", "again").await?.is_empty());
    // The events of its tenant are moved to the log.
    let has_log = async || {
        let logged = "select count(*) from session.event_log";
        world.number(logged).await.is_ok_and(|rows| rows > 0)
    };
    world.until("events are logged", has_log).await?;
    let of_pool = "select count(*) from session.duties where name = 'upkeep:red'";
    assert_eq!(world.number(of_pool).await?, 1);

    // The tenant moves: the runner no longer reaches it, and one of the other pool answers.
    world.sessions.runner_pools().assign(world.tenant, None).await?;
    let waiting = world.say("s", "and now").await?;
    let default = runner(&world, "").await?;
    assert!(!world.text(&waiting).await?.is_empty());
    red.stop().await?;
    default.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_runner_with_the_login_of_another_pool_does_not_start() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    config.database = world.database_of_runner_pool("red").await?;
    "blue".clone_into(&mut config.runner.pool);

    let error = world.runner_with(config, |app| app).await.err().map(|error| format!("{error:#}"));

    let error = error.unwrap_or_default();
    assert!(error.contains("login of the runner pool `red`"), "{error}");
    Ok(())
}
