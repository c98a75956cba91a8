//! Hit points: charged by writers at a time, recovered by time, zero until a person enables.

use futures::future::join_all;
use holdfast_types::{HitPointSettings, RunId};
use holdfast_work::{Error, HitPoints, Work, charge_hit_points};
use uuid::Uuid;

use crate::world::World;

/// No recovery that a test could notice, unless it moves the clock.
fn settings() -> HitPointSettings {
    HitPointSettings { max: 100, floor: 10, recovery_milli: 1, ..HitPointSettings::default() }
}

async fn start() -> anyhow::Result<(World, Work)> {
    let world = World::start().await?;
    world.add_agent().await?;
    let work = Work::new(world.pools.clone());
    Ok((world, work))
}

async fn charge(world: &World, milli: u64) -> anyhow::Result<HitPoints> {
    let place = world.step(RunId::from(Uuid::now_v7()), "", 0);
    let mut tx = world.tx().await?;
    let charged = charge_hit_points(&mut tx, &place, &settings(), milli).await?;
    tx.commit().await.map_err(Error::from)?;
    Ok(charged)
}

/// Sets the time of the level back.
async fn pass(world: &World, seconds: u32) -> anyhow::Result<()> {
    world
        .admin(&format!("update work.hit_points set at = at - interval '{seconds} seconds'"))
        .await?;
    Ok(())
}

#[tokio::test]
async fn charges_at_a_time_add_up_and_each_is_in_the_ledger() -> anyhow::Result<()> {
    let (world, work) = start().await?;
    let before = work.hit_points(world.tenant, world.agent, &settings()).await?;
    assert_eq!((before.level_milli, before.disabled_at), (100_000, None));

    for charged in join_all((0..20).map(|_| charge(&world, 3_000))).await {
        assert_eq!(charged?.disabled_at, None);
    }

    let after = work.hit_points(world.tenant, world.agent, &settings()).await?;
    assert!((40_000..40_100).contains(&after.level_milli), "{after:?}");
    let ledger = "select count(*) * 1000000 + sum(amount)::bigint from work.ledger
                  where kind = 'hit_points' and outcome = 'charged'";
    assert_eq!(world.number(ledger).await?, 20_060_000);
    world.ledger.chain(world.tenant, 100).await?;
    assert_eq!(world.ledger.verify(world.tenant).await?.broken_at, None);
    Ok(())
}

#[tokio::test]
async fn a_charge_that_is_not_committed_costs_nothing() -> anyhow::Result<()> {
    let (world, work) = start().await?;
    charge(&world, 1_000).await?;
    {
        let place = world.step(RunId::from(Uuid::now_v7()), "", 0);
        let mut tx = world.tx().await?;
        charge_hit_points(&mut tx, &place, &settings(), 50_000).await?;
    }
    let after = work.hit_points(world.tenant, world.agent, &settings()).await?;
    assert!((99_000..99_100).contains(&after.level_milli), "{after:?}");
    assert_eq!(world.number("select count(*) from work.ledger").await?, 1);
    Ok(())
}

#[tokio::test]
async fn time_restores_hit_points_up_to_the_maximum() -> anyhow::Result<()> {
    let (world, work) = start().await?;
    let level = async || -> anyhow::Result<u64> {
        Ok(work.hit_points(world.tenant, world.agent, &settings()).await?.level_milli)
    };
    charge(&world, 95_000).await?;
    let low = level().await?;
    assert!((5_000..5_100).contains(&low), "{low}");
    assert_eq!(settings().rest(5_000).as_secs(), 5_000);
    pass(&world, 5_000).await?;
    let rested = level().await?;
    assert!((10_000..10_100).contains(&rested), "{rested}");
    assert!(settings().rest(rested).is_zero());
    // A charge keeps what was recovered before it.
    charge(&world, 1_000).await?;
    let kept = level().await?;
    assert!((9_000..9_100).contains(&kept), "{kept}");
    pass(&world, 10_000_000).await?;
    assert_eq!(level().await?, 100_000);
    Ok(())
}

#[tokio::test]
async fn at_zero_an_agent_is_disabled_until_it_is_enabled() -> anyhow::Result<()> {
    let (world, work) = start().await?;
    let charged = charge(&world, 100_000).await?;
    assert_eq!(charged.level_milli, 0);
    assert!(charged.disabled_at.is_some());
    pass(&world, 1_000_000).await?;
    let found = work.hit_points(world.tenant, world.agent, &settings()).await?;
    assert_eq!((found.level_milli, found.disabled_at), (0, charged.disabled_at));
    // Work that was under way is still charged, and does not enable.
    assert_eq!(charge(&world, 1).await?.disabled_at, charged.disabled_at);

    let enabled = work.enable_agent(world.tenant, world.agent, &settings()).await?;
    assert_eq!((enabled.level_milli, enabled.disabled_at), (10_000, None));
    let again = work.enable_agent(world.tenant, world.agent, &settings()).await?;
    assert!(again.level_milli < 10_100, "{again:?}");
    let disabled = "select count(*) from work.ledger where outcome = 'disabled'";
    assert_eq!(world.number(disabled).await?, 2);
    Ok(())
}
