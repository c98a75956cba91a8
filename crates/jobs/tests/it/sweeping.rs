//! What a crash left is found, and what nobody survives is given up.

use std::time::Duration;

use holdfast_jobs::{Delivered, LOSSES, Outcome};
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_firing_that_nobody_survives_is_given_up_and_the_next_slot_comes() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(5, json!({"every_s": 3600})).await?;
    world.claim_one().await?;

    for _ in 1..LOSSES {
        world.lapse().await?;
        assert_eq!(world.sweep().await?.len(), 1);
    }
    world.lapse().await?;
    let swept = world.jobs.sweep(100).await?;

    assert_eq!((swept.firings.len(), swept.ended), (0, 1));
    let job = ada.get(job.id).await?;
    let last = job.last.ok_or_else(|| anyhow::anyhow!("nothing is logged"))?;
    assert_eq!((last.outcome, last.class.as_deref()), (Outcome::Error, Some("abandoned")));
    assert!(job.next_due.is_some() && job.running.is_none());
    Ok(())
}

#[tokio::test]
async fn a_run_of_which_nothing_is_heard_is_lost_and_holds_nothing_up() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(5, json!({"every_s": 3600})).await?;
    let firing = world.claim_one().await?;
    let lease = Duration::from_secs(60);
    world
        .jobs
        .delivered(&[Delivered {
            firing: firing.id,
            run: None,
            lease,
            message: None,
            arrives: false,
        }])
        .await?;
    assert_eq!(world.jobs.sweep(100).await?.ended, 0);

    world.lapse().await?;
    let swept = world.jobs.sweep(100).await?;

    assert_eq!((swept.firings.len(), swept.ended), (0, 1));
    let runs = world.jobs.runs(ada.id, job.id, 10).await?;
    assert_eq!(runs[0].class.as_deref(), Some("lost"));
    assert_eq!(world.end(&firing, Outcome::Ok).await?, 0, "it was ended already");
    Ok(())
}

#[tokio::test]
async fn a_run_that_says_that_it_goes_on_is_not_lost() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(5, json!({"every_s": 3600})).await?;
    let firing = world.claim_one().await?;
    let lease = Duration::from_secs(60);
    let goes_on =
        [Delivered { firing: firing.id, run: None, lease, message: None, arrives: false }];
    world.jobs.delivered(&goes_on).await?;
    world.lapse().await?;

    world.jobs.delivered(&goes_on).await?;

    assert_eq!(world.jobs.sweep(100).await?.ended, 0);
    assert!(ada.get(job.id).await?.running.is_some());
    Ok(())
}

#[tokio::test]
async fn jobs_that_have_been_done_for_long_are_forgotten() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(5, json!({})).await?;
    let firing = world.claim_one().await?;
    world.end(&firing, Outcome::Ok).await?;

    assert_eq!(world.jobs.forget_done(Duration::from_secs(3600)).await?, 0);
    assert_eq!(world.jobs.forget_done(Duration::ZERO).await?, 1);

    assert!(ada.get(job.id).await.is_err());
    for table in ["firings", "runs"] {
        assert_eq!(world.number(&format!("select count(*) from schedule.{table}")).await?, 0);
    }
    Ok(())
}

#[tokio::test]
async fn all_that_have_been_done_for_long_are_forgotten_however_many_they_are() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let ada = world.tenant();
    ada.due(5, json!({})).await?;
    world.end(&world.claim_one().await?, Outcome::Ok).await?;
    world
        .admin(
            "insert into schedule.jobs
                 (tenant_id, job_id, external_id, kind, agent_id, name, spec, payload, state)
             select tenant_id, gen_random_uuid(), external_id || n, kind, agent_id, name, spec,
                    payload, state
             from schedule.jobs, generate_series(1, 2000) n",
        )
        .await?;

    assert_eq!(world.jobs.forget_done(Duration::ZERO).await?, 2_001);
    assert_eq!(world.number("select count(*) from schedule.jobs").await?, 0);
    Ok(())
}
