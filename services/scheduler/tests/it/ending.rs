//! A firing ends as its message does.

use std::time::Duration;

use holdfast_schedule::AgentTurn;
use holdfast_schedule::store::{JobState, Outcome};
use holdfast_session::{NewMessage, TurnOutcome as Heard};
use holdfast_types::{Body, QueueMode, SessionKey, Source};

use crate::world::{self, World, each_second, soon, turn};

#[tokio::test]
async fn an_error_is_on_record_with_its_class_and_delays_the_next_slot() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _scheduler = world.scheduler().await?;
    let job = world.add(world.new_job(each_second()?, turn("x"))).await?;

    let (claim, loaded) = world.claim().await?;
    world.answer(&claim, &loaded, Heard::Failed).await?;
    let line = world.line(&job).await?;
    let job = world.jobs.get(world.tenant, job.id).await?;

    assert_eq!((line.outcome, line.class.as_deref()), (Outcome::Error, Some("failed")));
    assert_eq!((job.errors, job.state), (1, JobState::Active));
    let after = job.next_due.unwrap().duration_since(line.finished_at);
    assert!(after >= jiff::SignedDuration::from_secs(29), "{after:?}");
    Ok(())
}

#[tokio::test]
async fn what_its_user_ended_is_no_error_and_is_not_tried_again() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _scheduler = world.scheduler().await?;
    let job = world.add(world.new_job(soon(10)?, turn("x"))).await?;

    let (claim, loaded) = world.claim().await?;
    world.answer(&claim, &loaded, Heard::Cancelled).await?;
    let line = world.line(&job).await?;

    assert_eq!((line.outcome, line.class.as_deref()), (Outcome::Skipped, Some("cancelled")));
    let job = world.jobs.get(world.tenant, job.id).await?;
    assert_eq!((job.errors, job.state), (0, JobState::Done));
    Ok(())
}

#[tokio::test]
async fn a_run_that_takes_too_long_is_cancelled_and_one_that_waits_for_a_runner_goes_on_waiting()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let short_turn = AgentTurn { timeout_seconds: 1, ..AgentTurn::new("x") };
    let _scheduler = world.scheduler().await?;
    let runs = world.add(world.new_job(soon(10)?, world::json(short_turn.clone()))).await?;
    let (claim, _) = world.claim().await?;
    let waits = world.add(world.new_job(soon(10)?, world::json(short_turn))).await?;

    let line = world.line(&runs).await?;
    world.until("select count(*) from schedule.firings where until > clock_timestamp() + interval '100 s'", 1).await?;

    assert_eq!((line.outcome, line.class.as_deref()), (Outcome::Error, Some("timeout")));
    let cancelled = world.sessions.load(&claim, 10).await?.cancel_upto;
    assert_eq!(cancelled, 1);
    assert_eq!(world.jobs.runs(world.tenant, waits.id, 10).await?, []);
    let (claim, loaded) = world.claim().await?;
    world.answer(&claim, &loaded, Heard::Completed).await?;
    assert_eq!(world.line(&waits).await?.outcome, Outcome::Ok);
    Ok(())
}

#[tokio::test]
async fn what_ended_while_no_scheduler_ran_has_ended_and_is_not_lost() -> anyhow::Result<()> {
    let world = World::start().await?;
    let first = world.scheduler().await?;
    let job = world.add(world.new_job(soon(10)?, turn("x"))).await?;
    let (claim, loaded) = world.claim().await?;
    world.until("select count(*) from schedule.firings where state = 'delivered'", 1).await?;
    first.stop().await?;
    world.answer(&claim, &loaded, Heard::Completed).await?;
    // No scheduler ran for longer than the firing's limit.
    world.admin("update schedule.firings set until = clock_timestamp() - interval '1 s'").await?;

    let _second = world.scheduler().await?;

    let line = world.line(&job).await?;
    assert_eq!((line.outcome, line.class), (Outcome::Ok, None));
    Ok(())
}

#[tokio::test]
async fn a_reminder_that_waits_behind_somebody_s_turn_ends_neither_that_nor_itself()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let session = SessionKey::main(&world.agent.name);
    let words = NewMessage {
        key: session.clone(),
        agent: world.agent.id,
        label: None,
        source: Source::Internal("test".to_owned()),
        idem_key: "words".to_owned(),
        body: Body::text("write me a novel"),
        target: None,
        mode: QueueMode::Followup,
        debounce: Duration::ZERO,
        trace: None,
    };
    world.sessions.ingest(world.tenant, words).await?;
    let (theirs, heard) = world.claim().await?;
    let _scheduler = world.scheduler().await?;
    let reminder = world.add(world.reminder(soon(10)?, &session)).await?;
    let is_out = "select count(*) from schedule.firings where state = 'delivered'";
    world.until(is_out, 1).await?;

    let late = "update schedule.firings set until = clock_timestamp() + interval '30 s'";
    world.admin(late).await?;
    // The firing is checked, and continues to wait.
    let waits = "until > clock_timestamp() + interval '100 s'";
    world.until(&format!("{is_out} and {waits}"), 1).await?;

    assert_eq!(world.sessions.load(&theirs, 10).await?.cancel_upto, 0);
    assert_eq!(world.jobs.runs(world.tenant, reminder.id, 10).await?, []);
    world.answer(&theirs, &heard, Heard::Completed).await?;
    let (claim, loaded) = world.claim().await?;
    world.answer(&claim, &loaded, Heard::Completed).await?;
    assert_eq!(world.line(&reminder).await?.outcome, Outcome::Ok);
    assert_eq!(world.number("select count(*) from schedule.firings").await?, 1);
    Ok(())
}

#[tokio::test]
async fn what_begins_late_has_as_long_as_what_begins_at_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    let what = AgentTurn { timeout_seconds: 600, ..AgentTurn::new("x") };
    let _scheduler = world.scheduler().await?;
    let job = world.add(world.new_job(soon(10)?, world::json(what))).await?;
    let is_out = "select count(*) from schedule.firings where state = 'delivered'";
    world.until(is_out, 1).await?;
    let so_long_ago = "update schedule.firings set delivered_at = delivered_at - interval '620 s',
                       until = until - interval '620 s'";
    world.admin(so_long_ago).await?;
    world.until(&format!("{is_out} and patience between 659 and 661"), 1).await?;

    let (claim, _) = world.claim().await?;
    let a_minute_later = "update schedule.firings set until = until - interval '61 s'";
    world.admin(a_minute_later).await?;
    let anew = "until > clock_timestamp() + interval '500 s' and patience is null";
    world.until(&format!("{is_out} and {anew}"), 1).await?;
    assert_eq!(world.sessions.load(&claim, 10).await?.cancel_upto, 0);

    world.admin(so_long_ago).await?;
    assert_eq!(world.line(&job).await?.class.as_deref(), Some("timeout"));
    assert_eq!(world.sessions.load(&claim, 10).await?.cancel_upto, 1);
    Ok(())
}

#[tokio::test]
async fn one_whose_message_was_forgotten_has_ended_and_holds_nothing_up() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _scheduler = world.scheduler().await?;
    let job = world.add(world.new_job(soon(10)?, turn("x"))).await?;
    world.until("select count(*) from schedule.firings where state = 'delivered'", 1).await?;
    // The state after months, when only the key is left.
    world.admin("delete from session.inbox").await?;

    let late = "update schedule.firings set until = clock_timestamp() + interval '30 s'";
    world.admin(late).await?;

    let line = world.line(&job).await?;
    assert_eq!((line.outcome, line.class.as_deref()), (Outcome::Skipped, Some("gone")));
    assert_eq!(world.jobs.get(world.tenant, job.id).await?.state, JobState::Done);
    Ok(())
}

#[tokio::test]
async fn a_firing_that_the_database_refuses_for_good_ends_as_an_error_with_the_reason()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _scheduler = world.scheduler().await?;
    world.admin("revoke select on control.accounts from holdfast_app").await?;
    world.admin("revoke select on control.accounts from holdfast_scheduler_app").await?;
    let (channel, to) = ("webhook".to_owned(), Some("bert".to_owned()));
    let named = AgentTurn { channel, to, ..AgentTurn::new("look") };

    let job = world.add(world.new_job(soon(0)?, world::json(named))).await?;
    let line = world.line(&job).await?;

    assert_eq!(line.outcome, Outcome::Error);
    assert_eq!(line.class.as_deref(), Some("database_permission_denied"));
    let last = world.jobs.get(world.tenant, job.id).await?.last;
    let last = last.and_then(|last| last.class);
    assert_eq!(last.as_deref(), Some("database_permission_denied"));
    Ok(())
}

#[tokio::test]
async fn a_firing_that_cannot_be_stored_does_not_hold_up_the_others() -> anyhow::Result<()> {
    let world = World::start().await?;
    let refuse = "create function session.refuse() returns trigger language plpgsql as $$ begin
                      if new.body::text like '%poison%' then
                          raise exception using errcode = '23514', message = 'not this one';
                      end if;
                      return new;
                  end $$";
    world.admin(refuse).await?;
    let each = "create trigger refuse before insert on session.inbox
                for each row execute function session.refuse()";
    world.admin(each).await?;
    let same_slot = soon(1_000)?;
    let mut jobs = Vec::new();
    for text in ["tea", "poison", "coffee"] {
        jobs.push(world.add(world.new_job(same_slot.clone(), turn(text))).await?);
    }

    let _scheduler = world.scheduler().await?;
    let line = world.line(&jobs[1]).await?;

    assert_eq!(line.class.as_deref(), Some("database_constraint_violated"));
    for _ in ["tea", "coffee"] {
        let (claim, loaded) = world.claim().await?;
        world.answer(&claim, &loaded, Heard::Completed).await?;
    }
    assert_eq!(world.line(&jobs[0]).await?.outcome, Outcome::Ok);
    assert_eq!(world.line(&jobs[2]).await?.outcome, Outcome::Ok);
    Ok(())
}
