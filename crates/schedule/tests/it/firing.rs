//! Requested runs: now, or for past slots.

use std::time::Duration;

use holdfast_schedule::store::{
    DeliveryReport, Error, Origin, Outcome, Overlap, RunMode, RunRequestOutcome, Slot,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use uuid::Uuid;

use crate::world::{World, ago, since};

#[tokio::test]
async fn a_job_that_is_asked_for_runs_once_for_each_request() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.add(ada.job(json!({"every_s": 3600}))).await?;
    let request = Uuid::now_v7();

    let first = world.jobs.run_now(ada.id, job.id, request, RunMode::Force).await?;
    let again = world.jobs.run_now(ada.id, job.id, request, RunMode::Force).await?;
    let firings = world.sweep().await?;
    let during = world.jobs.run_now(ada.id, job.id, request, RunMode::Force).await?;

    assert!(matches!(first, RunRequestOutcome::Fired(firing) if firing.slot == Slot::Now(request)));
    assert_eq!((first, during), (again, again));
    assert_eq!(firings.len(), 1);
    assert_eq!(firings[0].origin, Origin::Forced);
    assert_eq!(ada.get(job.id).await?.next_slot, job.next_slot, "its slots are as they were");
    Ok(())
}

#[tokio::test]
async fn a_job_that_runs_is_not_run_beside_unless_it_may() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    for (overlap, beside, after) in
        [(Overlap::Skip, 0, 0), (Overlap::Queue, 0, 1), (Overlap::Allow, 1, 0)]
    {
        let mut new = ada.job(since(5, json!({"every_s": 3600})));
        new.overlap = overlap;
        let job = ada.add(new).await?;
        let running = world.claim_one().await?;
        let lease = Duration::from_secs(60);
        world
            .jobs
            .mark_delivered(&[DeliveryReport {
                firing: running.id,
                run: None,
                lease,
                message: None,
                arrives: false,
            }])
            .await?;

        let ran = world.jobs.run_now(ada.id, job.id, Uuid::now_v7(), RunMode::Force).await?;
        assert_eq!(ran == RunRequestOutcome::Skipped("already running"), overlap == Overlap::Skip);
        assert_eq!(world.sweep().await?.len(), beside, "{overlap:?}");
        world.end(&running, Outcome::Ok).await?;

        assert_eq!(world.sweep().await?.len(), after, "{overlap:?}");
        world.jobs.remove(ada.id, job.id).await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_was_asked_for_waits_for_a_slot_that_was_quicker() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(5, json!({"every_s": 3600})).await?;
    world.jobs.run_now(ada.id, job.id, Uuid::now_v7(), RunMode::Force).await?;

    let slot = world.claim_one().await?;
    assert!(world.sweep().await?.is_empty());
    world.end(&slot, Outcome::Ok).await?;
    let asked = world.sweep().await?;

    assert_eq!(asked.iter().map(|one| one.origin).collect::<Vec<_>>(), [Origin::Forced]);
    Ok(())
}

#[tokio::test]
async fn a_job_that_is_asked_for_only_if_due_says_when_it_is_not() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let later = ada.add(ada.job(json!({"every_s": 3600}))).await?;
    let due = ada.due(5, json!({"every_s": 3600})).await?;

    let ran = async |job| world.jobs.run_now(ada.id, job, Uuid::now_v7(), RunMode::Due).await;

    assert_eq!(ran(later.id).await?, RunRequestOutcome::Skipped("not due"));
    assert_eq!(ran(due.id).await?, RunRequestOutcome::Due);
    assert!(world.sweep().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn slots_are_caught_up_with_once_and_a_due_one_does_not_fire_again() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(25, json!({"every_s": 10, "missed": "all"})).await?;
    let first = job.next_slot.ok_or_else(|| anyhow::anyhow!("it has no slot"))?;
    let slots = [first - SignedDuration::from_secs(10), first];

    assert_eq!(world.jobs.backfill(ada.id, job.id, &slots).await?, 2);
    assert_eq!(world.jobs.backfill(ada.id, job.id, &slots).await?, 0);
    assert!(world.claim().await?.is_empty(), "its first slot is there, the others wait");
    let mut seen = Vec::new();
    loop {
        let firings = world.sweep().await?;
        let Some(firing) = firings.first() else { break };
        assert_eq!(firings.len(), 1);
        seen.push(firing.at);
        world.end(firing, Outcome::Ok).await?;
    }

    let expected: Vec<Timestamp> =
        (-1..=2).map(|n| first + SignedDuration::from_secs(10 * n)).collect();
    assert_eq!(seen, expected);
    Ok(())
}

#[tokio::test]
async fn slots_to_come_and_too_many_of_them_are_refused() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.add(ada.job(json!({"every_s": 3600}))).await?;

    let future = world.jobs.backfill(ada.id, job.id, &[ago(5), ago(-60)]).await;
    let many = world.jobs.backfill(ada.id, job.id, &vec![ago(5); 1001]).await;

    assert!(matches!(future, Err(Error::FutureSlot(_))));
    assert!(matches!(many, Err(Error::TooManySlots { given: 1001, limit: 1000 })));
    assert_eq!(world.number("select count(*) from schedule.firings").await?, 0);
    Ok(())
}

#[tokio::test]
async fn slots_that_the_log_has_forgotten_are_not_run_again() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let mut new = ada.job(json!({"every_s": 3600}));
    new.overlap = Overlap::Allow;
    let job = ada.add(new).await?;
    let slots: Vec<_> = (1..=101).map(|n| ago(n * 60 + 30)).collect();
    assert_eq!(world.jobs.backfill(ada.id, job.id, &slots[1..]).await?, 100);
    for firing in world.sweep().await? {
        world.end(&firing, Outcome::Ok).await?;
    }
    assert_eq!(world.jobs.backfill(ada.id, job.id, &slots).await?, 1, "the log has them all");
    for firing in world.sweep().await? {
        world.end(&firing, Outcome::Ok).await?;
    }
    assert_eq!(world.number("select count(*) from schedule.firings").await?, 100);

    let again = world.jobs.backfill(ada.id, job.id, &slots).await;
    assert!(matches!(again, Err(Error::ForgottenSlot(_))), "{again:?}");
    // The log is complete after that.
    let logged = "update schedule.runs set finished_at = slot_at";
    world.admin(logged).await?;
    let later = slots[0] + SignedDuration::from_secs(15);
    assert_eq!(world.jobs.backfill(ada.id, job.id, &[later]).await?, 1);
    Ok(())
}
