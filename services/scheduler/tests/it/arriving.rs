//! A run whose answer must be delivered ends when its delivery does (spec CRN-010).

use holdfast_schedule::AgentTurn;
use holdfast_schedule::store::{CLASS_UNSENT, JobState, Outcome, Reminder};
use holdfast_session::SendResult;
use holdfast_types::{JobId, SessionKey};

use crate::world::{self, World, each_second, soon, turn};

const ON_ITS_WAY: &str =
    "select count(*) from schedule.firings where state = 'delivered' and answered_at is not null";

fn refused() -> SendResult {
    SendResult::Rejected { reason: "no such chat".to_owned() }
}

#[tokio::test]
async fn an_answer_that_its_channel_refuses_is_its_runs_error() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _scheduler = world.scheduler().await?;
    let job = world.add(world.new_job(each_second()?, turn("x"))).await?;

    let (claim, loaded) = world.claim().await?;
    world.answer_by_channel(&claim, &loaded).await?;
    world.until(&format!("{ON_ITS_WAY} and run_id is not null"), 1).await?;
    world.send(refused()).await?;
    let line = world.line(&job).await?;
    let job = world.jobs.get(world.tenant, job.id).await?;

    assert_eq!((line.outcome, line.class.as_deref()), (Outcome::Error, Some("undelivered")));
    assert!(line.run.is_some() && line.took.is_some(), "{line:?}");
    assert_eq!((job.errors, job.state), (1, JobState::Active));
    Ok(())
}

#[tokio::test]
async fn one_that_arrives_late_is_well_and_the_next_slot_did_not_wait_for_it() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let _scheduler = world.scheduler().await?;
    let job = world.add(world.new_job(each_second()?, turn("x"))).await?;

    let (claim, loaded) = world.claim().await?;
    world.answer_by_channel(&claim, &loaded).await?;
    let (second, _) = world.claim().await?;
    assert_ne!(second.session, claim.session);
    assert_eq!(world.number("select count(*) from schedule.runs where slot is not null").await?, 0);
    world.send(SendResult::Sent { platform_id: "m1".to_owned() }).await?;

    assert_eq!(world.line(&job).await?.outcome, Outcome::Ok);
    Ok(())
}

#[tokio::test]
async fn with_best_effort_the_run_is_well_whatever_becomes_of_its_answer() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _scheduler = world.scheduler().await?;
    let what = AgentTurn { best_effort_deliver: true, ..AgentTurn::new("x") };
    let job = world.add(world.new_job(soon(10)?, world::json(what))).await?;

    let (claim, loaded) = world.claim().await?;
    world.answer_by_channel(&claim, &loaded).await?;
    let line = world.line(&job).await?;
    world.send(refused()).await?;

    assert_eq!((line.outcome, line.class), (Outcome::Ok, None));
    Ok(())
}

#[tokio::test]
async fn an_answer_that_nobody_sends_is_waited_for_no_longer_than_a_bridge_would_try()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _scheduler = world.scheduler().await?;
    let job = world.add(world.new_job(soon(10)?, turn("x"))).await?;
    let (claim, loaded) = world.claim().await?;
    world.answer_by_channel(&claim, &loaded).await?;
    let patient = "until > clock_timestamp() + interval '100 min'";
    world.until(&format!("{ON_ITS_WAY} and {patient}"), 1).await?;

    let soon = "clock_timestamp() + interval '30 s'";
    world.admin(&format!("update schedule.firings set until = {soon}")).await?;

    let line = world.line(&job).await?;
    assert_eq!((line.outcome, line.class.as_deref()), (Outcome::Error, Some(CLASS_UNSENT)));
    assert_eq!(world.jobs.get(world.tenant, job.id).await?.state, JobState::Done);
    let again = "select count(*) from schedule.firings where origin = 'retry'";
    assert_eq!(world.number(again).await?, 0, "it still goes, once somebody sends it");
    world.send(SendResult::Sent { platform_id: "m1".to_owned() }).await?;
    Ok(())
}

#[tokio::test]
async fn a_reminder_that_did_not_arrive_is_said_again_and_told_of() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _scheduler = world.scheduler().await?;
    let what = Reminder {
        content: "tea".to_owned(),
        session: SessionKey::main(&world.agent.name).to_string(),
        auto_continue: false,
        locale: "en".to_owned(),
        target: None,
        renewals: 0,
        author: None,
        outside: false,
    };
    let (id, user) = (JobId::generate(), "owner".to_owned());
    let new =
        holdfast_schedule::store::NewJob::reminder(id, world.agent.id, user, soon(10)?, &what);
    let job = world.add(new).await?;

    let (claim, loaded) = world.claim().await?;
    world.answer_by_channel(&claim, &loaded).await?;
    world.send(refused()).await?;

    assert_eq!(world.line(&job).await?.class.as_deref(), Some("undelivered"));
    let again = "select count(*) from schedule.firings where slot like '%~1' and origin = 'retry'";
    world.until(again, 1).await?;
    world.until("select count(*) from session.events where family = 'reminders'", 1).await?;
    let told = "select name || ' ' || payload::text from session.events where family = 'reminders'";
    let told = world.text(told).await?;
    assert!(told.starts_with("reminder.failed "), "{told}");
    assert!(told.contains(r#""reason": "undelivered""#) && told.contains(r#""again": true"#));
    assert!(told.contains(&job.id.to_string()) && !told.contains("tea"), "{told}");
    let where_to = format!(
        "select count(*) from session.events where family = 'reminders' and session_id = '{}'",
        claim.session.as_uuid()
    );
    assert_eq!(world.number(&where_to).await?, 1);
    Ok(())
}
