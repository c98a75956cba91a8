//! Reports about firings: each counts once and moves the job on.

use std::time::Duration;

use holdfast_schedule::store::{
    AnsweredFiring, CLASS_UNSENT, DeliveryReport, FinishedFiring, FiringState, JobKind, JobState,
    Origin, Outcome, PostponedFiring, Refused, Slot,
};
use holdfast_types::{RunId, SessionId};
use serde_json::json;

use crate::world::{World, ended, since};

#[tokio::test]
async fn a_run_s_outcome_is_on_record_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(5, json!({"every_s": 3600})).await?;
    let firing = world.claim_one().await?;
    let run = RunId::generate();
    let delivered = DeliveryReport {
        firing: firing.id,
        run: Some(run),
        lease: Duration::from_secs(60),
        message: None,
        arrives: false,
    };

    assert_eq!(world.jobs.mark_delivered(&[delivered]).await?, 1);
    assert_eq!(world.end(&firing, Outcome::Ok).await?, 1);
    assert_eq!(world.end(&firing, Outcome::Error).await?, 0);
    assert_eq!(world.jobs.mark_delivered(&[delivered]).await?, 0);

    let runs = world.jobs.runs(ada.id, job.id, 10).await?;
    assert_eq!(runs.len(), 1);
    assert_eq!((runs[0].n, runs[0].slot, runs[0].outcome), (1, Some(firing.id.slot), Outcome::Ok));
    assert_eq!((runs[0].took, runs[0].run), (Some(Duration::from_millis(1500)), Some(run)));
    let job = ada.get(job.id).await?;
    assert_eq!(job.running, None);
    assert_eq!(job.last.map(|last| last.outcome), Some(Outcome::Ok));
    Ok(())
}

#[tokio::test]
async fn a_refusal_counts_only_while_the_firing_is_its_own() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.due(5, json!({"every_s": 3600})).await?;
    let slow = world.claim_one().await?;
    world.lapse().await?;
    let quick = world.sweep().await?[0];
    let refuse =
        |firing| [Refused { firing, outcome: Outcome::Skipped, class: "quiet-hours".to_owned() }];

    assert_eq!(world.jobs.refuse(&refuse(slow)).await?, 0);
    assert_eq!(world.jobs.refuse(&refuse(quick)).await?, 1);

    let view = world.jobs.firing(&quick.id).await?;
    assert_eq!(view.map(|view| view.state), Some(FiringState::Refused));
    Ok(())
}

#[tokio::test]
async fn what_is_postponed_comes_again_and_is_charged_nothing() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.due(5, json!({"every_s": 3600})).await?;
    let mut firing = world.claim_one().await?;

    for _ in 0..10 {
        let postponed = [PostponedFiring { firing, after: Duration::ZERO }];
        assert_eq!(world.jobs.postpone(&postponed).await?, 1);
        assert_eq!(world.jobs.postpone(&postponed).await?, 1, "saying it twice is harmless");
        firing = world.sweep().await?[0];
    }

    let later = [PostponedFiring { firing, after: Duration::from_secs(60) }];
    world.jobs.postpone(&later).await?;
    assert!(world.sweep().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn errors_delay_the_next_slot_the_more_of_them_there_are() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(5, json!({"every_s": 1})).await?;

    for pause in [30, 60, 300, 900, 3600, 3600] {
        let sql = "update schedule.jobs set due_at = now() where due_at is not null";
        world.admin(sql).await?;
        let firing = world.claim_one().await?;
        world.end(&firing, Outcome::Error).await?;
        let wait = world.jobs.next_due().await?.unwrap_or_default();
        assert!(wait.as_secs() + 20 >= pause && wait.as_secs() <= pause, "{wait:?} not {pause} s");
    }
    world.admin("update schedule.jobs set due_at = now()").await?;
    let firing = world.claim_one().await?;
    world.end(&firing, Outcome::Ok).await?;

    let job = ada.get(job.id).await?;
    assert_eq!(job.errors, 0);
    assert_eq!(job.next_due, job.next_slot);
    Ok(())
}

#[tokio::test]
async fn a_job_with_one_slot_never_fires_again_and_goes_if_it_was_to() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let stays = ada.due(5, json!({})).await?;
    let mut new = ada.job(since(5, json!({})));
    new.delete_after_run = true;
    let goes = ada.add(new).await?;

    let firings = world.claim().await?;
    assert_eq!(firings.len(), 2);
    assert_eq!(ada.get(stays.id).await?.state, JobState::Active, "it runs");
    let all: Vec<_> = firings.iter().map(|firing| ended(firing, Outcome::Ok)).collect();
    world.jobs.finish(&all).await?;

    assert_eq!(ada.get(stays.id).await?.state, JobState::Done);
    assert!(ada.get(goes.id).await.is_err());
    assert_eq!(world.number("select count(*) from schedule.firings").await?, 1);
    assert!(world.claim().await?.is_empty() && world.sweep().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_job_with_one_slot_that_failed_is_tried_three_times_more() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let mut new = ada.job(since(5, json!({})));
    new.delete_after_run = true;
    let job = ada.add(new).await?;
    let mut firing = world.claim_one().await?;

    for n in 1..=3 {
        world.end(&firing, Outcome::Error).await?;
        assert!(world.sweep().await?.is_empty(), "not at once");
        let sql = "update schedule.firings set offer_at = now() where offer_at is not null";
        world.admin(sql).await?;
        let again = world.sweep().await?[0];
        assert_eq!(again.origin, Origin::Retry);
        assert_eq!(again.id.slot, Slot::Again { at: firing.at, n });
        firing = again;
    }
    world.end(&firing, Outcome::Error).await?;

    let job = ada.get(job.id).await?;
    assert_eq!((job.state, job.errors), (JobState::Done, 4));
    assert_eq!(
        world.number("select count(*) from schedule.firings where state = 'pending'").await?,
        0
    );
    Ok(())
}

#[tokio::test]
async fn the_last_hundred_runs_of_a_job_are_kept() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(5, json!({"every_s": 3600})).await?;
    let slots: Vec<_> = (1..=120).map(|n| crate::world::ago(n * 60 + 30)).collect();
    assert_eq!(world.jobs.backfill(ada.id, job.id, &slots).await?, 120);

    let mut count = 0;
    loop {
        let firings = world.sweep().await?;
        if firings.is_empty() {
            break;
        }
        count += firings.len();
        for firing in &firings {
            world.end(firing, Outcome::Ok).await?;
        }
    }

    let runs = world.jobs.runs(ada.id, job.id, 1000).await?;
    assert_eq!((count, runs.len()), (120, 100));
    assert_eq!((runs[0].n, runs[99].n), (120, 21));
    assert_eq!(world.number("select count(*) from schedule.firings").await?, 100);
    Ok(())
}

#[tokio::test]
async fn one_whose_answer_is_on_its_way_goes_on_and_holds_nobody_up() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(5, json!({"every_s": 3600})).await?;
    let firing = world.claim_one().await?;
    let lease = Duration::from_secs(60);
    let message = Some((SessionId::generate(), 1));
    let out = DeliveryReport { firing: firing.id, run: None, lease, message, arrives: true };
    world.jobs.mark_delivered(&[out]).await?;
    let patience = Duration::from_secs(600);
    let answered = AnsweredFiring { firing: firing.id, run: Some(RunId::generate()), patience };

    assert_eq!(world.jobs.mark_answered(&[answered]).await?, 1);
    assert_eq!(world.jobs.mark_answered(&[answered]).await?, 0);

    let found = world.jobs.open_firings(None, 10).await?;
    assert!(found[0].arrives && found[0].answered && found[0].left > lease, "{found:?}");
    assert_eq!(ada.get(job.id).await?.running, None);
    world.admin("update schedule.jobs set due_at = now()").await?;
    let next = world.claim_one().await?;
    assert_ne!(next.id, firing.id);
    assert_eq!(world.end(&firing, Outcome::Error).await?, 1);
    let job = ada.get(job.id).await?;
    assert_eq!((job.errors, job.running.map(|running| running.slot)), (1, Some(next.id.slot)));
    Ok(())
}

#[tokio::test]
async fn of_a_reminder_that_failed_it_is_told_each_time_and_of_nothing_else() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let ada = world.tenant();
    let told = "select count(*) from session.events
                where family = 'reminders' and name = 'reminder.failed'";
    ada.due(5, json!({})).await?;
    let firing = world.claim_one().await?;
    world.end(&firing, Outcome::Error).await?;
    world.admin("delete from schedule.firings").await?;
    assert_eq!(world.number(told).await?, 0);

    let mut new = ada.job(since(5, json!({})));
    new.kind = JobKind::Reminder;
    ada.add(new).await?;
    let mut firing = world.claim_one().await?;
    for times in 1..=4 {
        world.end(&firing, Outcome::Error).await?;
        world.end(&firing, Outcome::Error).await?;
        assert_eq!(world.number(told).await?, times);
        let again = format!("{told} and payload->>'again' = 'true'");
        assert_eq!(world.number(&again).await?, times.min(3));
        if times < 4 {
            world
                .admin("update schedule.firings set offer_at = now() where offer_at is not null")
                .await?;
            firing = world.sweep().await?[0];
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_slot_that_comes_while_one_is_postponed_is_skipped_as_one_that_runs_would_have_it()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(5, json!({"every_s": 60})).await?;
    let firing = world.claim_one().await?;
    world.jobs.postpone(&[PostponedFiring { firing, after: Duration::from_secs(60) }]).await?;

    // A minute passes.
    for sql in [
        "update schedule.firings set offer_at = offer_at - interval '60 s'",
        "update schedule.jobs set due_at = now(), running_until = running_until - interval '60 s'",
    ] {
        world.admin(sql).await?;
    }
    assert_eq!(world.claim().await?, [], "the next slot");
    let again = world.sweep().await?;

    assert_eq!(again.iter().map(|one| one.id).collect::<Vec<_>>(), [firing.id]);
    let runs = world.jobs.runs(ada.id, job.id, 10).await?;
    assert_eq!(runs.iter().map(|run| run.class.as_deref()).collect::<Vec<_>>(), [Some("overlap")]);
    Ok(())
}

#[tokio::test]
async fn what_is_still_on_its_way_is_an_error_and_is_not_tried_again() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(5, json!({})).await?;
    let firing = world.claim_one().await?;
    let unsent =
        FinishedFiring { class: Some(CLASS_UNSENT.to_owned()), ..ended(&firing, Outcome::Error) };

    assert_eq!(world.jobs.finish(&[unsent]).await?, 1);

    let job = ada.get(job.id).await?;
    assert_eq!((job.state, job.errors), (JobState::Done, 1));
    assert_eq!(world.number("select count(*) from schedule.firings").await?, 1);
    Ok(())
}
