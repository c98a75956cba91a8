//! A turn can be cancelled and paused, and a paused turn continues where it stopped.

use std::{sync::Arc, time::Duration};

use holdfast_bus::{Control, ControlKind};
use holdfast_session::{CancelResult, SessionOwner as Owner, TurnOutcome};
use holdfast_testkit::{Reply, model::Gate};
use holdfast_types::{Entry, MessageFilter, Note, QueueMode, RunnerId, SessionId, Wait};

use crate::{gated::Gated, world::World};

fn tell(world: &World, session: SessionId, owner: Owner, kind: ControlKind) {
    world.bus.control(owner.owner, &Control { session, kind, epoch: owner.epoch });
}

#[tokio::test]
async fn a_cancelled_turn_ends_at_once_and_says_so() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let model = Gated::closed();
    let shared = Arc::new(model.clone());
    let _runner = world.runner_with(world.config(), |app| app.with_demo(shared)).await?;

    let sent = world.say("s", "one").await?;
    model.until_asked(1).await?;
    let owner = world.sessions.cancel(world.tenant, sent.session).await?.owner().unwrap();
    tell(&world, sent.session, owner, ControlKind::Cancel);
    let answer = world.answer(&sent).await?;

    assert_eq!(answer.outcome, Some(TurnOutcome::Cancelled));
    assert_eq!(answer.text, "");
    let journal = world.journal(sent.session).await?;
    assert!(matches!(journal.last(), Some(Entry::Noted { note: Note::Cancelled, .. })));
    model.let_out(1);
    assert!(world.ask("s", "two").await?.ends_with("two"));
    Ok(())
}

#[tokio::test]
async fn cancelling_reaches_the_runner_without_the_bus_too() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let model = Gated::closed();
    let shared = Arc::new(model.clone());
    let mut config = world.config();
    config.runner.lease = Duration::from_secs(3);
    let _runner = world.runner_with(config, |app| app.with_demo(shared)).await?;

    let sent = world.say("s", "one").await?;
    model.until_asked(1).await?;
    world.sessions.cancel(world.tenant, sent.session).await?.owner().unwrap();

    assert_eq!(world.answer(&sent).await?.outcome, Some(TurnOutcome::Cancelled));
    Ok(())
}

#[tokio::test]
async fn a_turn_that_is_cancelled_while_it_is_backed_off_calls_no_model() -> anyhow::Result<()> {
    let world = World::start().await?;
    let sent = world.say("s", "one").await?;
    let next = world.say_as(QueueMode::Followup, "s", "two").await?;
    // As after lost runners.
    let backed_off = "update session.session_lease
                      set attempts = 3, ready_at = clock_timestamp() + interval '1 hour'";
    world.admin(backed_off).await?;

    let cancelled = world.sessions.cancel(world.tenant, sent.session).await?;
    let _runner = world.runner().await?;

    assert_eq!(cancelled, CancelResult::Queued { wake: true });
    assert_eq!(world.answer(&sent).await?.outcome, Some(TurnOutcome::Cancelled));
    assert_eq!(world.text(&next).await?, "echo: two");
    assert_eq!(world.model.count(), 1);
    Ok(())
}

#[tokio::test]
async fn a_queued_turn_is_cancelled_with_all_the_messages_that_it_combines() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut combined = Vec::new();
    for text in ["one", "two", "three"] {
        combined.push(world.say_as(QueueMode::Collect, "s", text).await?);
    }
    let next = world.say_as(QueueMode::Followup, "s", "four").await?;

    world.sessions.cancel(world.tenant, next.session).await?;
    let _runner = world.runner().await?;

    for sent in &combined {
        assert_eq!(world.answer(sent).await?.outcome, Some(TurnOutcome::Cancelled));
    }
    assert_eq!(world.text(&next).await?, "echo: four");
    assert_eq!(world.model.count(), 1);
    Ok(())
}

#[tokio::test]
async fn a_held_turn_stops_between_two_steps_and_goes_on_when_resumed() -> anyhow::Result<()> {
    let world = World::start().await?;
    let thought = Gate::default();
    world.model.queue([Reply::call("a", "agents_list", "{}").behind(&thought)]);
    let _runner = world.runner().await?;

    let sent = world.say("s", "hello").await?;
    world.until("it runs", async || world.model.count() == 1).await?;
    world.sessions.pause(world.tenant, sent.session).await?;
    thought.open();
    world
        .until("it was given back", async || {
            let held = "select count(*) from session.session_lease where state = 'RUNNING'";
            world.number(held).await.is_ok_and(|held| held == 0)
        })
        .await?;
    tokio::time::sleep(Duration::from_millis(600)).await;
    let asked = world.model.count();
    assert_eq!(world.sessions.views().answer(world.tenant, sent.message).await?.outcome, None);

    world.sessions.resume(world.tenant, sent.session).await?;
    let answer = world.answer(&sent).await?;

    assert_eq!((asked, world.model.count()), (1, 2));
    assert_eq!(answer.outcome, Some(TurnOutcome::Completed));
    // The thought before the pause is not repeated.
    assert_eq!(world.kinds(sent.session).await?, ["heard", "thought", "returned", "thought"]);
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn a_wait_that_is_over_is_thought_about_with_its_note() -> anyhow::Result<()> {
    let world = World::start().await?;
    let sent = world.say("s", "remind me").await?;
    let claim = world.claim_as(RunnerId::generate()).await?;
    let loaded = world.sessions.load(&claim, 10).await?;
    let wait = Wait::Message {
        filter: MessageFilter { contains: Some("yes".to_owned()), ..MessageFilter::default() },
        deadline_ms: Some(300),
        note: "whether the tea is ready".to_owned(),
    };
    world.end(&claim, &loaded, wait).await?;
    // Before the deadline of the wait can be noticed.
    let other = world.say("s", "no match").await?;

    let _runner = world.runner().await?;
    world.until("it is asked", async || world.model.count() == 1).await?;
    let answer = world.text(&other).await?;

    assert!(answer.contains("no match"), "{answer}");
    let asked = &world.model.requests()[0];
    let said = asked.messages().iter().map(|message| message["content"].to_string());
    let said: Vec<String> = said.collect();
    assert!(
        said.iter().any(|text| text.contains("deadline: whether the tea is ready")),
        "{said:?}"
    );
    assert_eq!(world.number("select count(*) from session.runs").await?, 2);
    assert_eq!(other.session, sent.session);
    Ok(())
}
