//! Due firings become messages, once.

use std::time::Duration;

use holdfast_schedule::store::{
    JobKind, JobState, NewJob, Outcome, RunMode, RunRequestOutcome, Spec,
};
use holdfast_schedule::{AgentTurn, Missed, Payload, Schedule, Timer};
use holdfast_session::{NewMessage, TurnOutcome as Heard};
use holdfast_types::{Author, Body, MessageFilter, QueueMode, SessionKey, Source, Thinking, Wait};
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;
use uuid::Uuid;

use crate::world::{self, World, each_second, soon, turn};

/// A message without the signature of its job.
fn unsigned(body: &Body) -> Body {
    Body { job_signature: None, ..body.clone() }
}

#[tokio::test]
async fn a_job_that_is_due_becomes_a_turn_in_a_session_of_its_own_and_its_end_is_on_record()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _scheduler = world.scheduler().await?;
    let what = AgentTurn {
        model: Some("fake:big".to_owned()),
        thinking: Some("high".to_owned()),
        ..AgentTurn::new("water the plants")
    };
    let job = world.add(world.new_job(each_second()?, world::json(what))).await?;

    let (claim, loaded) = world.claim().await?;
    let run = world.answer(&claim, &loaded, Heard::Completed).await?;
    let line = world.line(&job).await?;

    let prefix = format!("agent:{}:cron:{}:", world.agent.name, job.id);
    assert!(loaded.key.starts_with(&prefix), "{}", loaded.key);
    assert_eq!(loaded.waiting.len(), 1);
    assert_eq!(unsigned(&loaded.waiting[0].body), Body::text("water the plants"));
    assert_eq!(loaded.waiting[0].source, "schedule");
    assert_eq!(loaded.settings.model.as_deref(), Some("fake:big"));
    assert_eq!(loaded.settings.thinking, Some(Thinking::High));
    assert_eq!((line.outcome, line.class, line.run), (Outcome::Ok, None, Some(run)));
    assert!(line.took.is_some());
    Ok(())
}

#[tokio::test]
async fn a_reminder_keeps_the_mark_of_text_from_outside() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _scheduler = world.scheduler().await?;
    for outside in [false, true] {
        let mut new = world.reminder(soon(10)?, &SessionKey::main(&world.agent.name));
        new.payload["outside"] = json!(outside);
        world.add(new).await?;

        let (claim, loaded) = world.claim().await?;

        assert_eq!(loaded.waiting[0].body.outside, outside);
        world.answer(&claim, &loaded, Heard::Completed).await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_was_made_a_moment_ago_is_due_in_time_though_the_scheduler_slept() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let _scheduler = world.scheduler().await?;
    let mut all_late = Vec::new();
    // A busy machine may be late, but not always.
    for round in 0..10 {
        world.add(world.new_job(soon(50)?, turn("first"))).await?;
        let (claim, loaded) = world.claim().await?;
        world.answer(&claim, &loaded, Heard::Completed).await?;

        let job = world.add(world.new_job(soon(300)?, turn("second"))).await?;
        let (claim, loaded) = world.claim().await?;
        let late = Timestamp::now().duration_since(job.next_slot.unwrap());

        assert!(late >= jiff::SignedDuration::ZERO, "{late:?} early");
        // A sleep that no wake-up ended would be a whole second.
        if late < jiff::SignedDuration::from_millis(500) {
            return Ok(());
        }
        all_late.push((round, late));
        world.answer(&claim, &loaded, Heard::Completed).await?;
    }
    anyhow::bail!("late each time: {all_late:?}")
}

#[tokio::test]
async fn a_repeated_job_of_a_disabled_agent_is_skipped_and_one_with_one_slot_waits_for_it()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.admin("update control.agents set state = 'disabled'").await?;
    let _scheduler = world.scheduler().await?;

    let often = world.add(world.new_job(each_second()?, turn("water"))).await?;
    let line = world.line(&often).await?;
    let once = world.add(world.new_job(soon(50)?, turn("once"))).await?;
    let (_, loaded) = world.claim().await?;

    assert_eq!((line.outcome, line.class.as_deref()), (Outcome::Skipped, Some("agent_disabled")));
    assert!(loaded.key.contains(&once.id.to_string()), "{}", loaded.key);
    assert_eq!(unsigned(&loaded.waiting[0].body), Body::text("once"));
    Ok(())
}

#[tokio::test]
async fn a_job_that_is_asked_for_runs_now_and_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _scheduler = world.scheduler().await?;
    let job = world.add(world.new_job(soon(3_600_000)?, turn("now"))).await?;
    let request = Uuid::from_u128(7);

    for _ in 0..2 {
        let ran = world.jobs.run_now(world.tenant, job.id, request, RunMode::Force).await?;
        assert!(matches!(ran, RunRequestOutcome::Fired(_)), "{ran:?}");
        world.bus.wake_schedule();
    }
    let (claim, loaded) = world.claim().await?;
    world.answer(&claim, &loaded, Heard::Completed).await?;
    world.line(&job).await?;

    assert!(loaded.key.ends_with(&format!(":now-{}", request.simple())), "{}", loaded.key);
    assert_eq!(world.number("select count(*) from session.inbox").await?, 1);
    Ok(())
}

#[tokio::test]
async fn what_nobody_can_do_is_refused_with_its_class() -> anyhow::Result<()> {
    let world = World::start().await?;
    let unreadable = world.new_job(soon(0)?, turn("dance"));
    let nobody = holdfast_types::AgentId::generate();
    let orphaned = NewJob { agent: nobody, ..world.new_job(soon(0)?, turn("hello?")) };
    let lost = timer(&world, "no key at all")?;
    let mut jobs = Vec::new();
    for (new, class) in [(unreadable, "unreadable"), (orphaned, "no_agent"), (lost, "unreadable")] {
        jobs.push((world.add(new).await?, class));
    }
    let later_version = "
        update schedule.jobs set payload = '{\"kind\": \"dance\"}'
        where payload->>'message' = 'dance'";
    world.admin(later_version).await?;

    let _scheduler = world.scheduler().await?;

    for (job, class) in jobs {
        let line = world.line(&job).await?;
        assert_eq!((line.outcome, line.class.as_deref()), (Outcome::Error, Some(class)));
    }
    assert_eq!(world.number("select count(*) from session.inbox").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_timer_wakes_who_waits_for_it_and_disturbs_nobody_else() -> anyhow::Result<()> {
    let world = World::start().await?;
    let waits = waiting(&world, "waits").await?;
    let rests = waiting(&world, "rests").await?;
    let filter = MessageFilter { event: Some("timer.tea".to_owned()), ..MessageFilter::default() };
    let wait = Wait::Event { filter, deadline_ms: None, note: String::new() };
    world.rest(&waits, wait).await?;
    world.rest(&rests, Wait::Anything).await?;
    let mut jobs = Vec::new();
    for key in [&waits, &rests] {
        jobs.push(world.add(timer(&world, key.as_str())?).await?);
    }

    let _scheduler = world.scheduler().await?;
    for job in &jobs {
        assert_eq!(world.line(job).await?.outcome, Outcome::Ok);
    }
    let (_, loaded) = world.claim().await?;

    assert_eq!(loaded.key, waits.as_str());
    assert_eq!(loaded.waiting[0].body.event.as_deref(), Some("timer.tea"));
    let ready = "select count(*) from session.session_lease where state <> 'WAIT'";
    assert_eq!(world.number(ready).await?, 1);
    assert_eq!(world.number("select count(*) from session.inbox where state = 'new'").await?, 2);
    Ok(())
}

#[tokio::test]
async fn each_message_of_a_job_has_the_author_of_the_job() -> anyhow::Result<()> {
    let world = World::start().await?;
    let main = SessionKey::main(&world.agent.name);
    let author = Author { id: "person:per_1".to_owned(), roles: vec!["member".to_owned()] };
    let by = |new: NewJob| NewJob { author: Some(author.clone()), ..new };
    let say = json!({"kind": "message", "message": "fixed"});
    let event = |wake: &str, text: &str| {
        let payload = json!({"kind": "systemEvent", "message": text});
        Ok::<_, anyhow::Error>(NewJob {
            session_target: Some("main".to_owned()),
            wake_mode: Some(wake.to_owned()),
            ..world.new_job(soon(0)?, payload)
        })
    };
    let made = [
        by(world.new_job(soon(0)?, turn("turn"))),
        by(world.new_job(soon(0)?, say)),
        by(event("now", "event")?),
        by(event("next-heartbeat", "later")?),
        by(NewJob { name: "timer".to_owned(), ..timer(&world, main.as_str())? }),
        // From before there were authors.
        world.new_job(soon(0)?, turn("mesh")),
        event("next-heartbeat", "mesh")?,
    ];
    for new in made {
        world.add(new).await?;
    }

    let _scheduler = world.scheduler().await?;
    world.until("select count(*) from session.inbox", 5).await?;
    world.until("select count(*) from session.system_events", 2).await?;

    let authors = "select string_agg(concat_ws(' ', body->>'text', body->'author'->>'id',
                                               body->'author'->'roles'->>0, body->>'outside'), ', '
                                     order by body->>'text' collate \"C\") from session.inbox";
    assert_eq!(
        world.text(authors).await?,
        "event person:per_1 member, fixed person:per_1 member, mesh, \
         timer person:per_1 member true, turn person:per_1 member"
    );
    let events = "select string_agg(text || ' ' || outside, ', ' order by outside)
                  from session.system_events";
    assert_eq!(world.text(events).await?, "mesh false, later true");
    Ok(())
}

#[tokio::test]
async fn a_slot_is_skipped_while_the_run_before_it_lasts() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _scheduler = world.scheduler().await?;
    let job = world.add(world.new_job(each_second()?, turn("long"))).await?;
    let (claim, loaded) = world.claim().await?;

    world.until_logged(&job, "overlap").await?;

    assert_eq!(world.number("select count(*) from session.inbox").await?, 1);
    world.answer(&claim, &loaded, Heard::Completed).await?;
    let (_, next) = world.claim().await?;
    assert_ne!(next.key, loaded.key, "the next slot runs again");
    Ok(())
}

#[tokio::test]
async fn slots_that_passed_while_no_scheduler_ran_are_skipped_or_run_once_as_the_job_says()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let mut jobs = Vec::new();
    for missed in [Missed::Skip, Missed::Once] {
        // The last slot was half an hour ago.
        let anchor = Timestamp::now().as_millisecond() - 1_800_000;
        let spec = Spec { missed, ..Spec::of(Schedule::every(3_600_000, Some(anchor))?) };
        let schedule = spec.schedule.clone();
        let new = world.new_job(schedule, turn(&format!("{missed:?}")));
        jobs.push(world.add(NewJob { spec: spec.to_json(), ..new }).await?);
    }
    world
        .admin(
            "update schedule.jobs set slot_at = slot_at - interval '3 hours',
             due_at = due_at - interval '3 hours'",
        )
        .await?;

    let _scheduler = world.scheduler().await?;
    let (claim, loaded) = world.claim().await?;
    world.answer(&claim, &loaded, Heard::Completed).await?;

    assert_eq!(loaded.waiting[0].body.text, "Once");
    assert_eq!(world.line(&jobs[1]).await?.outcome, Outcome::Ok);
    for job in &jobs {
        world.until_logged(job, "missed").await?;
    }
    assert_eq!(world.number("select count(*) from session.inbox").await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_slot_whose_first_deliverer_died_is_the_same_message_though_its_job_was_changed()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let job = world.add(world.new_job(soon(0)?, turn("before"))).await?;
    let claimed = world.jobs.claim_due(10).await?;
    let firing = claimed.firings[0];
    let key = SessionKey::cron(&world.agent.name, &job.id.to_string(), "1")?;
    world.sessions.ingest(world.tenant, message(&world, key, firing.id.idem_key())).await?;
    let lapse = "update schedule.firings set offer_at = clock_timestamp()";
    world.admin(lapse).await?;

    let _scheduler = world.scheduler().await?;
    let delivered = "select count(*) from schedule.firings where state = 'delivered' and seq = 1";
    world.until(delivered, 1).await?;
    let (claim, loaded) = world.claim().await?;
    world.answer(&claim, &loaded, Heard::Completed).await?;

    assert_eq!(world.line(&job).await?.outcome, Outcome::Ok);
    assert_eq!(world.number("select count(*) from session.inbox").await?, 1);
    Ok(())
}

#[tokio::test]
async fn what_nobody_survived_to_say_has_come_if_its_message_is_there_and_only_then()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let came = world.add(world.new_job(soon(0)?, turn("came"))).await?;
    let lost = world.add(world.new_job(soon(0)?, turn("lost"))).await?;
    let claimed = world.jobs.claim_due(10).await?;
    let firing = claimed.firings.iter().find(|firing| firing.id.job == came.id).unwrap();
    let key = SessionKey::cron(&world.agent.name, &came.id.to_string(), "1")?;
    world.sessions.ingest(world.tenant, message(&world, key, firing.id.idem_key())).await?;
    // The maximum number of replicas died, the last one after it wrote the message.
    let lapse = format!(
        "update schedule.firings set offer_at = clock_timestamp(), lost = {}",
        holdfast_schedule::store::MAX_LOSSES
    );
    world.admin(&lapse).await?;

    let _scheduler = world.scheduler().await?;
    let line = world.line(&lost).await?;
    assert_eq!((line.outcome, line.class.as_deref()), (Outcome::Error, Some("abandoned")));
    let (claim, loaded) = world.claim().await?;
    assert_eq!(loaded.waiting.len(), 1);
    world.answer(&claim, &loaded, Heard::Completed).await?;

    assert_eq!(world.line(&came).await?.outcome, Outcome::Ok);
    let retried = "select count(*) from schedule.firings where origin = 'retry'";
    assert_eq!(world.number(retried).await?, 1, "only what did not come is tried again");
    Ok(())
}

#[tokio::test]
async fn many_that_are_due_at_once_come_once_each_and_in_their_own_sessions() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let at = soon(0)?;
    let made = (0..300).map(|n| world.new_job(at.clone(), turn(&format!("job {n}"))));
    for new in made {
        world.jobs.add(world.tenant, new).await?;
    }

    let one = world.scheduler().await?;
    let two = world.scheduler().await?;
    world.until("select count(*) from session.inbox", 300).await?;
    let delivered = "select count(*) from schedule.firings where state = 'delivered'";
    world.until(delivered, 300).await?;
    one.stop().await?;
    two.stop().await?;

    let distinct = "select count(distinct session_id) from session.inbox";
    assert_eq!(world.number(distinct).await?, 300);
    let cap = "select count(*) from session.session_lease where fair_key is not null";
    // Of the tenant's 64, a quarter is reserved for people.
    assert_eq!(world.number(cap).await?, 48, "no more than the share of jobs is admitted");
    assert_eq!(world.number("select sum(in_flight)::bigint from session.tenant_flight").await?, 48);
    Ok(())
}

#[tokio::test]
async fn a_job_that_has_no_slot_left_is_done_and_gone_if_it_was_to_go() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _scheduler = world.scheduler().await?;
    let stays = world.add(world.new_job(soon(10)?, turn("stays"))).await?;
    let (claim, loaded) = world.claim().await?;
    world.answer(&claim, &loaded, Heard::Completed).await?;
    world.line(&stays).await?;
    assert_eq!(world.jobs.get(world.tenant, stays.id).await?.state, JobState::Done);

    let goes = NewJob { delete_after_run: true, ..world.new_job(soon(10)?, turn("goes")) };
    world.add(goes).await?;
    let (claim, loaded) = world.claim().await?;
    world.answer(&claim, &loaded, Heard::Completed).await?;

    world.until("select count(*) from schedule.jobs", 1).await?;
    Ok(())
}

#[tokio::test]
async fn what_was_handed_out_and_not_delivered_is_given_back_at_the_end() -> anyhow::Result<()> {
    let world = World::start().await?;
    for _ in 0..50 {
        world.jobs.add(world.tenant, world.new_job(soon(0)?, turn("x"))).await?;
    }
    let begun = Instant::now();
    let first = world.scheduler().await?;
    world.until("select least(count(*), 1) from schedule.firings", 1).await?;
    first.stop().await?;
    let _second = world.scheduler().await?;

    world.until("select count(*) from session.inbox", 50).await?;
    // Firings that were not given back would be handed out after 30 s.
    assert!(begun.elapsed() < Duration::from_secs(28));
    Ok(())
}

/// A due timer for the session with this key.
fn timer(world: &World, key: &str) -> anyhow::Result<NewJob> {
    let timer = Timer { session: Some(key.to_owned()), event: "tea".to_owned() };
    let payload = serde_json::to_value(Payload::Timer(timer))?;
    Ok(NewJob { kind: JobKind::Timer, ..world.new_job(soon(0)?, payload) })
}

/// A session with a message in it.
async fn waiting(world: &World, name: &str) -> anyhow::Result<SessionKey> {
    let key = SessionKey::api(&world.agent.name, name)?;
    let message = NewMessage {
        key: key.clone(),
        agent: world.agent.id,
        label: None,
        source: Source::Internal("test".to_owned()),
        idem_key: name.to_owned(),
        body: Body::text("hello"),
        target: None,
        mode: QueueMode::Followup,
        debounce: Duration::ZERO,
        trace: None,
    };
    world.sessions.ingest(world.tenant, message).await?;
    Ok(key)
}

/// The message that the dead scheduler wrote.
fn message(world: &World, key: SessionKey, idem_key: String) -> NewMessage {
    NewMessage {
        key,
        agent: world.agent.id,
        label: None,
        source: Source::Internal("schedule".to_owned()),
        idem_key,
        body: Body::text("before"),
        target: None,
        mode: QueueMode::Followup,
        debounce: Duration::ZERO,
        trace: None,
    }
}
