//! Sweep: finds what a crash left behind, and gives up firings that every holder lost.

use std::time::Duration;

use holdfast_schedule::store::{
    CLASS_ABANDONED, DeliveryReport, MAX_LOSSES, Outcome, PostponedFiring, Refused, SweepResult,
};
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_firing_that_nobody_survives_is_delivered_no_more_and_the_next_slot_comes()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(5, json!({"every_s": 3600})).await?;
    world.claim_one().await?;

    for lost in 0..MAX_LOSSES {
        world.lapse().await?;
        let firings = world.sweep().await?;
        assert_eq!(firings.iter().map(|firing| firing.lost).collect::<Vec<_>>(), [lost]);
        assert_eq!(world.jobs.begin_delivery(&firings).await?, firings);
    }
    world.lapse().await?;
    for swept in [world.jobs.sweep(100).await?, world.jobs.sweep_in_turn(100, &[]).await?] {
        assert_eq!((swept.firings.len(), swept.ended), (0, 0));
        let lost: Vec<i32> = swept.abandoned.iter().map(|firing| firing.lost).collect();
        assert_eq!(lost, [MAX_LOSSES]);
    }
    let firing = world.jobs.sweep(100).await?.abandoned[0];
    let (outcome, class) = (Outcome::Error, CLASS_ABANDONED.to_owned());
    assert_eq!(world.jobs.refuse(&[Refused { firing, outcome, class }]).await?, 1);

    assert_eq!(world.jobs.sweep(100).await?, SweepResult::default());
    let job = ada.get(job.id).await?;
    let last = job.last.ok_or_else(|| anyhow::anyhow!("nothing is logged"))?;
    assert_eq!((last.outcome, last.class.as_deref()), (Outcome::Error, Some("abandoned")));
    assert!(job.next_due.is_some() && job.running.is_none());
    Ok(())
}

#[tokio::test]
async fn a_firing_that_was_in_lost_hands_and_not_being_delivered_is_handed_out_again()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(5, json!({"every_s": 3600})).await?;
    let first = world.claim_one().await?;

    for attempt in 2..MAX_LOSSES + 5 {
        world.lapse().await?;
        let swept = world.jobs.sweep(100).await?;
        assert_eq!((swept.firings.len(), swept.ended), (1, 0), "attempt {attempt}");
        assert_eq!((swept.firings[0].attempt, swept.firings[0].lost), (attempt, 0));
    }

    assert!(world.jobs.begin_delivery(&[first]).await?.is_empty(), "others have it now");
    assert_eq!(ada.get(job.id).await?.last, None);
    Ok(())
}

#[tokio::test]
async fn whoever_begins_a_firing_has_it_for_longer_and_giving_it_back_clears_it()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.due(5, json!({"every_s": 3600})).await?;
    let mut firing = world.claim_one().await?;
    // The run has timed out, and no sweep has run yet.
    world.lapse().await?;

    for _ in 0..MAX_LOSSES + 2 {
        assert_eq!(world.jobs.begin_delivery(&[firing]).await?, [firing]);
        assert!(world.sweep().await?.is_empty(), "it is held again");
        let after = Duration::ZERO;
        assert_eq!(world.jobs.postpone(&[PostponedFiring { firing, after }]).await?, 1);
        assert!(world.jobs.begin_delivery(&[firing]).await?.is_empty(), "it was given back");
        firing = world.sweep().await?[0];
    }
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
        .mark_delivered(&[DeliveryReport {
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
        [DeliveryReport { firing: firing.id, run: None, lease, message: None, arrives: false }];
    world.jobs.mark_delivered(&goes_on).await?;
    world.lapse().await?;

    world.jobs.mark_delivered(&goes_on).await?;

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

    assert_eq!(world.jobs.delete_done(Duration::from_secs(3600)).await?, 0);
    assert_eq!(world.jobs.delete_done(Duration::ZERO).await?, 1);

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

    assert_eq!(world.jobs.delete_done(Duration::ZERO).await?, 2_001);
    assert_eq!(world.number("select count(*) from schedule.jobs").await?, 0);
    Ok(())
}

#[tokio::test]
async fn by_turns_the_one_of_a_tenant_is_handed_out_before_the_many_of_another()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, bob) = (world.tenant(), world.tenant());
    world.many_due(ada.id, 100).await?;
    assert_eq!(world.claim().await?.len(), 100);
    let job = bob.due(5, json!({"every_s": 3600})).await?;
    world.claim_one().await?;
    world.lapse().await?;
    world
        .admin(
            "update schedule.firings set offer_at = offer_at + interval '500 milliseconds'
             where slot_at = (select max(slot_at) from schedule.firings)",
        )
        .await?;

    assert!(world.jobs.sweep(10).await?.firings.iter().all(|one| one.id.tenant == ada.id));
    let swept = world.jobs.sweep_in_turn(10, &[]).await?.firings;

    let of_bob = swept.iter().filter(|one| one.id.job == job.id);
    assert_eq!((swept.len(), of_bob.count()), (10, 1));
    assert!(
        world.jobs.sweep_in_turn(10, &[ada.id]).await?.firings.is_empty(),
        "hers were not asked for"
    );
    Ok(())
}
