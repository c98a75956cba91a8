//! Every failure of a model ends the turn with a text that helps the user.

use std::time::{Duration, Instant};

use holdfast_directory::{Actor, NewAgent};
use holdfast_session::{NewMessage, TurnOutcome};
use holdfast_testkit::Reply;
use holdfast_types::{AgentName, Entry};

use crate::world::{World, place};

/// Sends a message and returns what it is told in failure.
async fn failure(world: &World) -> anyhow::Result<String> {
    let message = NewMessage { target: Some(place("7")), ..world.message("s", "hello") };
    let sent = world.send(message).await?;
    let answer = world.answer(&sent).await?;
    assert_eq!(answer.outcome, Some(TurnOutcome::Failed), "{answer:?}");
    assert!(answer.text.contains(&format!("(run_{}", sent.message.as_uuid().simple())));
    let told = world.texts("select body from session.deliveries").await?;
    assert_eq!(told, [answer.text.as_str()], "the channel and the caller are told the same");
    Ok(answer.text)
}

#[tokio::test]
async fn a_refused_key_is_told_once_and_not_tried_again() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.queue([Reply::status(401)]);
    let _runner = world.runner().await?;

    let text = failure(&world).await?;

    assert!(text.contains("refused the key"), "{text}");
    assert_eq!(world.model.count(), 1);
    assert_eq!(world.ask("s", "again").await?, "echo: again");
    Ok(())
}

#[tokio::test]
async fn a_limited_rate_is_waited_for_as_told() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.queue([Reply::rate_limited(Duration::from_secs(1))]);
    let _runner = world.runner().await?;

    let begun = Instant::now();
    let text = world.ask("s", "hello").await?;

    assert_eq!(text, "echo: hello");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    Ok(())
}

#[tokio::test]
async fn a_limited_rate_past_the_deadline_is_told() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.queue([Reply::rate_limited(Duration::from_secs(3600))]);
    let _runner = world.runner().await?;

    let text = failure(&world).await?;

    assert!(text.contains("takes no more requests for now"), "{text}");
    Ok(())
}

#[tokio::test]
async fn what_may_pass_is_tried_again_and_then_told() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.queue([Reply::status(500), Reply::cut_mid_stream("half an ans")]);
    let _runner = world.runner().await?;
    assert_eq!(world.ask("t", "hello").await?, "echo: hello");
    assert_eq!(world.model.count(), 3);

    world.model.answer(|_| Reply::status(500));
    let text = failure(&world).await?;

    assert!(text.contains("not available right now"), "{text}");
    Ok(())
}

#[tokio::test]
async fn nonsense_and_silence_are_told() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.model.answer(|request| match request.last_user_text().as_str() {
        "nonsense" => Reply::malformed("data: {not json\n\n"),
        _ => Reply::empty(),
    });

    let nonsense = world.answer(&world.say("a", "nonsense").await?).await?;
    let silence = world.answer(&world.say("b", "silence").await?).await?;

    assert!(nonsense.text.contains("could not be read"), "{}", nonsense.text);
    assert!(silence.text.contains("was empty"), "{}", silence.text);
    Ok(())
}

#[tokio::test]
async fn a_model_that_never_answers_is_given_up() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.queue([Reply::hang(Duration::from_secs(300))]);
    let mut config = world.config();
    config.runner.model_timeout = Duration::from_millis(500);
    let _runner = world.runner_with(config, |app| app).await?;

    let text = failure(&world).await?;

    assert!(text.contains("did not answer in time"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_turn_that_takes_too_long_is_given_up() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.latency(Duration::from_millis(200));
    world.model.answer(|_| Reply::call("a", "agents_list", "{}"));
    let mut config = world.config();
    config.runner.turn_deadline = Duration::from_secs(1);
    config.runner.model_timeout = Duration::from_secs(1);
    let _runner = world.runner_with(config, |app| app).await?;

    let text = failure(&world).await?;

    assert!(text.contains("took too long") || text.contains("in time"), "{text}");
    Ok(())
}

#[tokio::test]
async fn an_unknown_tool_and_wrong_input_are_told_to_the_model() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.queue([
        Reply::call("a", "rm_rf", "{}"),
        Reply::call("b", "sessions_list", "{not json"),
        Reply::text("I give up"),
    ]);
    let _runner = world.runner().await?;

    let sent = world.say("s", "hello").await?;

    assert_eq!(world.text(&sent).await?, "I give up");
    let told: Vec<String> = world
        .journal(sent.session)
        .await?
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Returned { output, failed: true, .. } => Some(output),
            _ => None,
        })
        .collect();
    assert!(told[0].starts_with("there is no tool `rm_rf`; there are: "), "{told:?}");
    assert!(told[1].starts_with("the input is not JSON"), "{told:?}");
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn a_model_that_asks_for_tools_without_end_is_stopped() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(|_| Reply::call("a", "agents_list", "{}"));
    let mut config = world.config();
    config.runner.tool_calls_per_turn = 5;
    let _runner = world.runner_with(config, |app| app).await?;

    let text = failure(&world).await?;

    assert!(text.contains("kept asking for tools"), "{text}");
    let made = world
        .number(
            "select count(*) from session.entries where kind = 'returned' and not (body->>'failed')::boolean",
        )
        .await?;
    assert_eq!(made, 5);
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn calls_past_what_may_be_asked_for_at_once_are_refused_and_the_model_is_told()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let call = |id| (id, "agents_list", "{}");
    world.model.queue([
        Reply::calls(["a", "b", "c"].map(call)),
        Reply::call("c", "agents_list", "{}"),
        Reply::text("seen"),
    ]);
    let mut config = world.config();
    config.runner.tool_calls_at_once = 2;
    let _runner = world.runner_with(config, |app| app).await?;

    let sent = world.say("s", "hello").await?;

    assert_eq!(world.text(&sent).await?, "seen");
    let returned = world.journal(sent.session).await?.into_iter().filter_map(|entry| match entry {
        Entry::Returned { call, output, failed, .. } => Some((call, failed, output)),
        _ => None,
    });
    let returned: Vec<_> = returned.collect();
    let fates: Vec<_> = returned.iter().map(|(call, failed, _)| (call.as_str(), *failed)).collect();
    assert_eq!(fates, [("a", false), ("b", false), ("c", true), ("c", false)]);
    assert!(returned[2].2.contains("limit of 2 calls at once"), "{}", returned[2].2);
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn an_agent_that_is_gone_or_has_no_provider_is_told() -> anyhow::Result<()> {
    let world = World::start().await?;
    let gone = NewAgent { name: AgentName::new("gone"), ..NewAgent::default() };
    let gone = world.directory.agents().create(world.tenant, Actor::Operator, gone).await?;
    let lost = NewAgent {
        name: AgentName::new("lost"),
        model: Some("nowhere:x".to_owned()),
        ..NewAgent::default()
    };
    let lost = world.directory.agents().create(world.tenant, Actor::Operator, lost).await?;
    let to_gone = world.send(NewMessage { agent: gone.id, ..world.message("a", "hello") }).await?;
    let to_lost = world.send(NewMessage { agent: lost.id, ..world.message("b", "hello") }).await?;
    world.directory.agents().delete(world.tenant, Actor::Operator, "gone").await?;

    let _runner = world.runner().await?;

    let told = world.answer(&to_gone).await?.text;
    assert!(told.contains("was removed"), "{told}");
    let told = world.answer(&to_lost).await?.text;
    assert!(told.contains("the model `nowhere:x` is not set up rightly"), "{told}");
    Ok(())
}

#[tokio::test]
async fn where_tenants_are_hosted_the_demonstration_model_answers_nobody() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let mut config = world.config();
    config.runner.sandbox.hosted = true;
    let runner = world.runner_with(config.clone(), |app| app).await?;

    let told = world.answer(&world.say("s", "hello").await?).await?;
    runner.stop().await?;
    config.runner.demo_model = Some(true);
    let _runner = world.runner_with(config, |app| app).await?;
    let shown = world.answer(&world.say("s", "hello").await?).await?;

    assert_eq!(told.outcome, Some(TurnOutcome::Failed));
    assert!(told.text.contains("is not set up rightly"), "{}", told.text);
    assert_eq!(shown.outcome, Some(TurnOutcome::Completed), "{}", shown.text);
    assert!(shown.text.contains("demonstration model"), "{}", shown.text);
    Ok(())
}

#[tokio::test]
async fn one_failure_does_not_hold_up_the_next_message() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.queue([Reply::status(400)]);
    let _runner = world.runner().await?;

    let first = world.answer(&world.say("s", "one").await?).await?;

    assert_eq!(first.outcome, Some(TurnOutcome::Failed));
    let (reason, _run) = first.text.split_once(" (run_").unwrap();
    assert!(!reason.contains("400"), "{reason}");
    assert_eq!(world.ask("s", "two").await?, "echo: two");
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}
