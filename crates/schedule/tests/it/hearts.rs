//! Heartbeat jobs exist while there is something to check, and results are recorded.

use std::{sync::Arc, time::Duration};

use holdfast_schedule::heartbeat::{HeartbeatConfig, HeartbeatEvent, Status};
use holdfast_schedule::store::{
    Calendar, Error, FiringRef, JobState, Jobs, NewHeartbeatLine, Slot, heartbeat_job,
};
use holdfast_types::AgentId;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::world::World;

const FLOOR: SignedDuration = SignedDuration::from_mins(1);

fn calendar(world: &World) -> anyhow::Result<Jobs> {
    Ok(Jobs::new(world.pools()?, Arc::new(Calendar::default())))
}

#[tokio::test]
async fn a_heart_beats_as_it_is_set_and_rests_when_there_is_nothing_to_look_at()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let (jobs, ada, eve) = (calendar(&world)?, world.tenant(), world.tenant());
    let agent = ada.agent;
    let usual = HeartbeatConfig::default();
    let often = HeartbeatConfig { every: "1s".to_owned(), ..usual.clone() };

    assert!(!jobs.update_heartbeat_job(ada.id, agent, &usual, false, FLOOR).await?);
    assert_eq!(jobs.heartbeat(ada.id, agent).await?, None);
    assert!(jobs.update_heartbeat_job(ada.id, agent, &usual, true, FLOOR).await?);
    assert!(!jobs.update_heartbeat_job(ada.id, agent, &usual, true, FLOOR).await?);
    let made = jobs.get(ada.id, heartbeat_job(agent)).await?;
    assert!(jobs.update_heartbeat_job(ada.id, agent, &often, true, FLOOR).await?);
    let faster = jobs.get(ada.id, made.id).await?;
    assert!(jobs.update_heartbeat_job(ada.id, agent, &often, false, FLOOR).await?);
    assert!(!jobs.update_heartbeat_job(ada.id, agent, &usual, false, FLOOR).await?);
    let rests = jobs.get(ada.id, made.id).await?;
    assert!(jobs.update_heartbeat_job(ada.id, agent, &usual, true, FLOOR).await?);
    let beats = jobs.get(ada.id, made.id).await?;

    let every = |ms: i64| json!(ms);
    assert_eq!(made.spec["schedule"]["every_ms"], every(300_000));
    assert_eq!(faster.spec["schedule"]["every_ms"], every(60_000), "the floor");
    assert_eq!((rests.state, rests.next_due), (JobState::Paused, None));
    assert_eq!((beats.state, beats.next_due.is_some()), (JobState::Active, true));
    assert_eq!(beats.spec["schedule"]["every_ms"], every(300_000));
    assert_eq!(jobs.heartbeat(eve.id, agent).await?, None);

    jobs.delete_heartbeat(ada.id, agent).await?;
    assert_eq!(jobs.heartbeat(ada.id, agent).await?, None);
    Ok(())
}

#[tokio::test]
async fn a_mark_that_is_set_while_it_is_looked_at_is_looked_at_again() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (jobs, ada) = (&world.jobs, world.tenant());

    jobs.mark_heartbeat(ada.id, ada.agent).await?;
    let first = jobs.take_heartbeat_marks(10).await?;
    jobs.mark_heartbeat(ada.id, ada.agent).await?;
    let meanwhile = jobs.take_heartbeat_marks(10).await?;
    jobs.clear_heartbeat_mark(&first[0]).await?;
    let second = jobs.take_heartbeat_marks(10).await?;
    jobs.clear_heartbeat_mark(&second[0]).await?;

    assert_eq!((first.len(), first[0].agent, first[0].tenant), (1, ada.agent, ada.id));
    assert_eq!(meanwhile, [], "somebody looks at it");
    assert_eq!(second.len(), 1);
    assert!(second[0].version > first[0].version);
    assert_eq!(jobs.take_heartbeat_marks(10).await?, []);
    assert_eq!(world.number("select count(*) from schedule.heartbeat_marks").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_mark_whose_scheduler_died_is_looked_at_by_another() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (jobs, ada) = (&world.jobs, world.tenant());
    jobs.mark_heartbeat(ada.id, ada.agent).await?;
    let first = jobs.take_heartbeat_marks(10).await?;

    world.admin("update schedule.heartbeat_marks set held_until = now()").await?;

    assert_eq!(jobs.take_heartbeat_marks(10).await?, first);
    Ok(())
}

#[tokio::test]
async fn the_last_hundred_are_kept_each_is_told_once_and_none_is_anothers() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (jobs, ada, eve) = (&world.jobs, world.tenant(), world.tenant());
    let agent: AgentId = ada.agent;
    let at = Timestamp::from_second(1_767_225_600)?;
    let note = async |n: i64, text: &str| -> Result<bool, Error> {
        let slot = Slot::at(at + SignedDuration::from_secs(n));
        let firing = FiringRef { tenant: ada.id, job: heartbeat_job(agent), slot };
        let event = HeartbeatEvent {
            to: Some("42".to_owned()),
            channel: Some("telegram".to_owned()),
            ..HeartbeatEvent::quiet(Status::Sent, Some("why\0"), at, Duration::from_millis(7))
        };
        let event = event.with_preview(text);
        jobs.note_heartbeat(NewHeartbeatLine { firing: &firing, agent, event: &event, run: None })
            .await
    };

    for n in 0..102 {
        assert!(note(n, &n.to_string()).await?);
    }
    let again = note(101, "again").await?;

    let kept = jobs.heartbeat_lines(ada.id, agent, 200).await?;
    assert!(!again);
    assert_eq!(kept.len(), 100);
    assert_eq!(kept[0].event.preview.as_deref(), Some("101"));
    assert_eq!(kept[99].event.preview.as_deref(), Some("2"));
    assert_eq!((kept[0].event.status, kept[0].event.silent), (Status::Sent, false));
    assert_eq!((kept[0].event.reason.as_deref(), kept[0].event.duration_ms), (Some("why"), 7));
    assert_eq!(jobs.heartbeat_lines(eve.id, agent, 200).await?, []);
    Ok(())
}
