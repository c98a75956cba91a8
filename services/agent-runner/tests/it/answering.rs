//! A message is answered once, with what was thought and done on record.

use holdfast_session::{NewMessage, TurnOutcome};
use holdfast_testkit::Reply;
use holdfast_types::{Body, Entry, RunId};

use crate::world::{World, place};

#[tokio::test]
async fn a_message_is_answered_and_the_turn_is_on_record() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;

    let sent = world.say("s", "hello").await?;
    let answer = world.answer(&sent).await?;

    assert_eq!(
        (answer.text.as_str(), answer.outcome),
        ("echo: hello", Some(TurnOutcome::Completed))
    );
    assert_eq!(answer.run, Some(RunId::from(sent.message)));
    assert!(answer.usage.input > 0 && answer.usage.output > 0, "{:?}", answer.usage);
    assert_eq!(world.kinds(sent.session).await?, ["heard", "thought"]);
    let (run, entries) =
        world.sessions.views().run(world.tenant, RunId::from(sent.message)).await?;
    assert_eq!((run.steps, run.model.as_str(), entries.len()), (1, "fake:one", 2));
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn a_turn_without_tools_writes_its_session_in_one_transaction() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;

    let sent = world.say("s", "hello").await?;
    world.answer(&sent).await?;

    // Rows of one transaction have the same transaction id.
    let writers = world
        .number(
            "select count(distinct x)::bigint from (
                 select xmin::text as x from session.entries
                 union all select xmin::text from session.runs
                 union all select xmin::text from session.inbox
                 union all select xmin::text from session.session_lease) written",
        )
        .await?;
    assert_eq!(writers, 1);
    Ok(())
}

#[tokio::test]
async fn the_conversation_goes_on_where_it_was() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;

    world.ask("s", "one").await?;
    world.ask("s", "two").await?;

    let requests = world.model.requests();
    let roles: Vec<&str> =
        requests[1].messages().iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles.iter().filter(|role| **role == "user").count(), 2);
    assert_eq!(roles.iter().filter(|role| **role == "assistant").count(), 1);
    assert_eq!(requests[0].messages()[0], requests[1].messages()[0], "the stable part changed");
    Ok(())
}

#[tokio::test]
async fn an_answer_goes_to_its_channel_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;

    let message = NewMessage { target: Some(place("7")), ..world.message("s", "hello") };
    let sent = world.send(message).await?;
    world.answer(&sent).await?;

    let texts = world.texts("select body from session.deliveries").await?;
    assert_eq!(texts, ["echo: hello"]);
    let id = world.texts("select delivery_id::text from session.deliveries").await?;
    assert_eq!(id, [sent.message.as_uuid().to_string()]);
    Ok(())
}

#[tokio::test]
async fn no_reply_sends_nothing_and_is_no_failure() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.queue([Reply::text(" NO_REPLY\n")]);
    let _runner = world.runner().await?;

    let message = NewMessage { target: Some(place("7")), ..world.message("s", "hello") };
    let answer = world.answer(&world.send(message).await?).await?;

    assert_eq!((answer.outcome, answer.text.as_str()), (Some(TurnOutcome::Completed), ""));
    assert_eq!(world.number("select count(*) from session.deliveries").await?, 0);
    Ok(())
}

#[tokio::test]
async fn what_is_silent_costs_nothing_and_is_heard_with_what_comes_next() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.ask("s", "hello").await?;
    let mut silent = world.message("s", "psst");
    silent.body = Body { silent: true, ..Body::text("psst") };

    let overheard = world.send(silent).await?;
    // A session that is woken with nothing but silence rests again.
    world
        .admin("update session.session_lease set state = 'READY', fair_key = 0, ready_at = now()")
        .await?;
    world
        .until("it rests", async || {
            world
                .number("select count(*) from session.session_lease where state = 'WAIT'")
                .await
                .is_ok_and(|resting| resting == 1)
        })
        .await?;
    assert_eq!(world.model.count(), 1);
    assert_eq!(world.number("select count(*) from session.runs").await?, 1);

    world.ask("s", "and now?").await?;

    assert_eq!(world.model.count(), 2);
    assert_eq!(world.answer(&overheard).await?.outcome, Some(TurnOutcome::Completed));
    let heard = world.journal(overheard.session).await?;
    assert!(matches!(&heard[2], Entry::Heard { seq: 2, body } if body.silent));
    Ok(())
}

#[tokio::test]
async fn tenants_do_not_meet_in_a_model() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (other, _) =
        world.directory.tenants().create(holdfast_directory::Actor::Operator, "other").await?;
    let agent = world.directory.agents().default_agent(other.id).await?;
    let _runner = world.runner().await?;

    world.ask("s", "secret").await?;
    let message = NewMessage { agent: agent.id, ..world.message("s", "hello") };
    let answer = world.answer_in(other.id, message).await?;

    // The other tenant has no provider: it gets the built-in model, and none of this one's.
    assert_eq!(answer.outcome, Some(TurnOutcome::Completed));
    assert_eq!(world.model.count(), 1);
    assert!(world.sessions.views().answer(world.tenant, answer.message).await.is_err());
    Ok(())
}

#[tokio::test]
async fn much_silence_is_taken_in_without_a_thought() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    // So much text would be summarised in the background, with calls of the same model.
    config.runner.summaries = 0;
    let _runner = world.runner_with(config, |app| app).await?;
    world.ask("s", "hello").await?;
    for n in 0..60 {
        let mut silent = world.message("s", "");
        silent.body = Body { silent: true, ..Body::text(format!("psst {n}")) };
        world.send(silent).await?;
    }

    world
        .until("most is taken in", async || {
            let open = "select count(*) from session.inbox where state <> 'done'";
            world.number(open).await.is_ok_and(|open| open < 50)
        })
        .await?;
    assert_eq!(world.model.count(), 1);
    let answer = world.ask("s", "and now?").await?;

    assert_eq!((answer.as_str(), world.model.count()), ("echo: and now?", 2));
    let heard = world.model.requests()[1].body.to_string();
    assert!(heard.contains("psst 0") && heard.contains("psst 59"), "{heard}");
    Ok(())
}
