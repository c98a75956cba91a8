//! Queue modes: messages that arrive while their session is busy.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast_session::{NewMessage, TurnOutcome};
use holdfast_testkit::{
    Reply,
    model::{Gate, Request},
};
use holdfast_types::{KeyId, QueueMode, Source};

use crate::{
    gated::Gated,
    world::{Running, World, place},
};

async fn gated(world: &World) -> anyhow::Result<(Gated, Running)> {
    world.use_demo().await?;
    let model = Gated::closed();
    let shared = Arc::new(model.clone());
    let runner = world.runner_with(world.config(), |app| app.with_demo(shared)).await?;
    Ok((model, runner))
}

#[tokio::test]
async fn steered_messages_are_seen_at_the_next_step_and_share_the_answer() -> anyhow::Result<()> {
    let world = World::start().await?;
    let thought = Gate::default();
    world.model.queue([Reply::call("a", "agents_list", "{}").behind(&thought)]);
    let _runner = world.runner().await?;

    let first = world.say("s", "one").await?;
    world.until("it is asked", async || world.model.count() == 1).await?;
    let second = NewMessage { target: Some(place("7")), ..world.message("s", "two") };
    let second = world.send(second).await?;
    thought.open();
    let (first, second) = (world.answer(&first).await?, world.answer(&second).await?);

    assert_eq!((first.run, first.text.as_str()), (second.run, "echo: two"));
    assert_eq!(world.model.count(), 2);
    assert_eq!(world.number("select count(*) from session.deliveries").await?, 1);
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn what_comes_during_the_last_answer_has_a_turn_of_its_own() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (model, _runner) = gated(&world).await?;

    let first = world.say("s", "one").await?;
    model.until_asked(1).await?;
    let second = world.say("s", "two").await?;
    model.let_out(2);

    assert_eq!(world.text(&first).await?, "echo: one");
    assert_eq!(world.text(&second).await?, "echo: two");
    Ok(())
}

#[tokio::test]
async fn followups_have_one_turn_each_in_their_order() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (model, _runner) = gated(&world).await?;

    let first = world.say_as(QueueMode::Followup, "s", "one").await?;
    model.until_asked(1).await?;
    let second = world.say_as(QueueMode::Followup, "s", "two").await?;
    let third = world.say_as(QueueMode::Followup, "s", "three").await?;
    model.let_out(3);

    assert_eq!(world.text(&first).await?, "echo: one");
    assert_eq!(world.text(&second).await?, "echo: two");
    assert_eq!(world.text(&third).await?, "echo: three");
    assert_eq!(model.heard(), ["one", "two", "three"]);
    Ok(())
}

#[tokio::test]
async fn collected_messages_wait_for_a_pause_and_share_one_turn() -> anyhow::Result<()> {
    let world = World::start().await?;
    let collect = |text: &str| NewMessage {
        mode: QueueMode::Collect,
        debounce: Duration::from_secs(3),
        ..world.message("s", text)
    };
    let first = world.send(collect("one")).await?;
    tokio::time::sleep(Duration::from_millis(150)).await;
    // From before it is stored, which is when its pause begins.
    let begun = Instant::now();
    let second = world.send(collect("two")).await?;
    // No runner existed until now, so the first message is unanswered however long sending took.
    let (model, _runner) = gated(&world).await?;
    model.let_out(1);

    assert_eq!(world.text(&first).await?, "echo: one | two");
    assert_eq!(world.text(&second).await?, "echo: one | two");
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_message_with_a_backlog_is_seen_at_the_next_step_and_answered_again() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let thought = Gate::default();
    world.model.queue([Reply::call("a", "agents_list", "{}").behind(&thought)]);
    let _runner = world.runner().await?;

    let first = world.say("s", "one").await?;
    world.until("it is asked", async || world.model.count() == 1).await?;
    let second = world.say_as(QueueMode::SteerBacklog, "s", "two").await?;
    thought.open();
    let (first, second) = (world.answer(&first).await?, world.answer(&second).await?);

    assert_eq!((first.text.as_str(), second.text.as_str()), ("echo: two", "echo: two"));
    assert_ne!(first.run, second.run);
    assert_eq!(world.model.count(), 3);
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn a_conversation_has_a_queue_of_its_own_and_takes_no_more_than_its_cap() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let (model, _runner) = gated(&world).await?;
    let shown = world.ask("s", "/queue").await?;
    let wrong = world.ask("s", "/queue later").await?;
    let set = world.ask("s", "/queue followup cap:2 drop:old").await?;
    // What `/queue` sets is for people and programs, and not for the mesh itself.
    let key = KeyId::generate();
    let say = async |text: &str| {
        let source = Source::Key(key);
        world.send(NewMessage { source, ..world.message("s", text) }).await
    };

    let first = say("one").await?;
    model.until_asked(1).await?;
    let mut others = Vec::new();
    for text in ["two", "three", "four"] {
        others.push(say(text).await?);
    }
    model.let_out(3);
    let mut answers = vec![world.text(&first).await?];
    for sent in &others {
        answers.push(world.text(sent).await?);
    }

    assert_eq!(shown, "Queue: steer (the assistant's; its channel may have another)");
    assert!(wrong.starts_with("`later` is not a queue mode"), "{wrong}");
    assert_eq!(set, "Queue: followup cap:2 drop:old (set for this conversation)");
    let heard = model.heard();
    assert_eq!(heard.len(), 3, "{heard:?}");
    assert!(heard[1].ends_with("three") && !heard[1].contains("two"), "{heard:?}");
    assert_eq!(heard[2], "four");
    assert_eq!(answers[0], "echo: one");
    assert_eq!((&answers[1], answers[3].as_str()), (&answers[2], "echo: four"));
    assert_eq!(
        world.ask("s", "/queue reset").await?,
        "Queue: steer (the assistant's; its channel may have another)"
    );
    Ok(())
}

#[tokio::test]
async fn an_interrupting_message_ends_the_turn_at_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (model, _runner) = gated(&world).await?;

    let old = NewMessage { target: Some(place("7")), ..world.message("s", "one") };
    let old = world.send(old).await?;
    model.until_asked(1).await?;
    let new = world.say_as(QueueMode::Interrupt, "s", "two").await?;
    // The model is not let answer: nothing else ends it.
    let ended = world.answer(&old).await?;

    assert_eq!(ended.outcome, Some(TurnOutcome::Interrupted));
    assert_eq!(ended.reason.as_deref(), Some("a newer message ended this turn"));
    model.let_out(1);
    let text = world.text(&new).await?;
    assert!(text.ends_with("| two"), "{text}");
    assert_eq!(world.number("select count(*) from session.deliveries").await?, 0);
    Ok(())
}

#[tokio::test]
async fn of_many_interrupting_messages_the_newest_is_answered() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut sent = Vec::new();
    for text in ["one", "two", "three"] {
        sent.push(world.say_as(QueueMode::Interrupt, "s", text).await?);
    }

    let (model, _runner) = gated(&world).await?;
    model.let_out(3);

    assert_eq!(world.answer(&sent[0]).await?.outcome, Some(TurnOutcome::Interrupted));
    assert_eq!(world.answer(&sent[1]).await?.outcome, Some(TurnOutcome::Interrupted));
    assert!(world.text(&sent[2]).await?.ends_with("three"));
    assert_eq!(model.asked(), 1, "an interrupted message costs no model call");
    Ok(())
}

#[tokio::test]
async fn one_slow_answer_holds_up_nobody_else() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(|request| match request.last_user_text().as_str() {
        "slow" => Reply::hang(Duration::from_secs(300)),
        text => Reply::text(format!("echo: {text}")),
    });
    let _runner = world.runner().await?;
    world.say("slow", "slow").await?;
    world.until("it is asked", async || world.model.count() == 1).await?;

    // Each is waited for, and none for as long as the slow one takes.
    for n in 0..10 {
        assert_eq!(world.ask(&format!("s{n}"), "quick").await?, "echo: quick");
    }
    Ok(())
}

#[tokio::test]
async fn more_sessions_than_slots_are_all_answered() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    config.runner.slots = 2;
    // A full batch triggers the next claim without the poll.
    config.runner.poll = Duration::from_secs(120);
    let mut sent = Vec::new();
    for n in 0..12 {
        sent.push(world.say(&format!("s{n}"), "hello").await?);
    }

    let _runner = world.runner_with(config, |app| app).await?;
    for one in &sent {
        assert_eq!(world.text(one).await?, "echo: hello");
    }
    Ok(())
}

#[tokio::test]
async fn a_job_gives_its_slot_to_a_person_at_the_end_of_its_step_and_goes_on_after_it()
-> anyhow::Result<()> {
    const STEPS: usize = 12;
    let world = World::start().await?;
    let step = Gate::default();
    let gate = step.clone();
    // One of four claims is in the fair order: the job may have some more steps before it yields.
    world.model.latency(Duration::from_millis(250));
    world.model.answer(move |asked| {
        let is_job = asked.body.to_string().contains("count the stars");
        let made = asked.messages().iter().filter(|message| message["role"] == "tool");
        match (is_job, made.count()) {
            (true, 0) => Reply::call("c0", "agents_list", "{}").behind(&gate),
            (true, n) if n < STEPS => Reply::call(format!("c{n}"), "agents_list", "{}"),
            (true, _) => Reply::text("counted"),
            (false, _) => Reply::text("hello to you"),
        }
    });
    let mut config = world.config();
    config.runner.slots = 1;
    let _runner = world.runner_with(config, |app| app).await?;
    let key = format!("agent:{}:cron:stars:1", world.agent.name).parse()?;

    let job = world.send(NewMessage { key, ..world.message("stars", "count the stars") }).await?;
    world.until("the job runs", async || world.model.count() == 1).await?;
    let person = world.say("s", "hello").await?;
    // The runner looks once a second for people who wait.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(world.model.count(), 1, "a step is not cut short");
    step.open();
    assert_eq!(world.text(&person).await?, "hello to you");
    assert_eq!(world.text(&job).await?, "counted");

    let requests = world.model.requests();
    let is_person = |asked: &Arc<Request>| asked.last_user_text().ends_with("hello");
    let at = requests.iter().position(is_person).unwrap();
    assert!(at < STEPS, "the person was answered in the midst of the job, not at {at}");
    // The job went on where it was, in one run.
    assert_eq!(requests.len(), STEPS + 2);
    assert_eq!(world.number("select count(*) from session.runs").await?, 2);
    let id = job.session.as_uuid();
    let lease = format!("select epoch from session.session_lease where session_id = '{id}'");
    assert!(world.number(&lease).await? >= 2);
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}
