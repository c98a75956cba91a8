//! Commands are answered without a model, each in a turn of its own, also after a crash.

use std::{sync::Arc, time::Duration};

use holdfast_session::{NewMessage, TurnOutcome};
use holdfast_testkit::Reply;
use holdfast_types::{Entry, Note, SessionKey, Target};

use crate::{
    gated::Gated,
    world::{World, place},
};

#[tokio::test]
async fn a_command_is_answered_without_a_model_and_is_no_part_of_the_conversation()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.ask("s", "hello").await?;

    let help = world.ask("s", "/help").await?;
    let status = world.ask("s", "/status@our_bot").await?;
    world.ask("s", "and now?").await?;

    assert!(help.starts_with("/status – "), "{help}");
    assert!(status.starts_with("Model: fake:one\nChannel: none\nTurns: 2\n"), "{status}");
    assert_eq!(world.model.count(), 2);
    let asked = world.model.requests().pop().unwrap().body.to_string();
    assert!(asked.contains("hello") && asked.contains("and now?"), "{asked}");
    assert!(!asked.contains("/help") && !asked.contains("Turns: "), "{asked}");
    Ok(())
}

#[tokio::test]
async fn a_new_conversation_knows_nothing_of_the_one_before() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let sent = world.say("s", "my name is Ada").await?;
    world.text(&sent).await?;

    world.ask("s", "/new").await?;
    world.ask("s", "what is my name?").await?;

    let asked = world.model.requests().pop().unwrap().body.to_string();
    assert!(!asked.contains("Ada"), "{asked}");
    let journal = world.journal(sent.session).await?;
    let resets = journal.iter().filter(|e| matches!(e, Entry::Noted { note: Note::Reset, .. }));
    assert_eq!(resets.count(), 1);
    assert!(format!("{journal:?}").contains("Ada"));
    Ok(())
}

#[tokio::test]
async fn stopping_ends_what_runs_and_what_waits_before_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let model = Gated::closed();
    let shared = Arc::new(model.clone());
    let _runner = world.runner_with(world.config(), |app| app.with_demo(shared)).await?;

    let first = world.say("s", "one").await?;
    model.until_asked(1).await?;
    let second = world.say("s", "two").await?;
    let stop = world.say("s", "/stop").await?;

    assert_eq!(world.text(&stop).await?, "Stopped.");
    assert_eq!(world.answer(&first).await?.outcome, Some(TurnOutcome::Cancelled));
    assert_eq!(world.answer(&second).await?.outcome, Some(TurnOutcome::Cancelled));
    Ok(())
}

#[tokio::test]
async fn a_conversation_takes_another_model_and_only_one_that_there_is() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;

    let wrong = world.ask("s", "/model nonsense").await?;
    let missing = world.ask("s", "/switch model to acme:x").await?;
    let taken = world.ask("s", "/model fake:two").await?;
    world.ask("s", "hello").await?;
    world.ask("other", "hello").await?;
    let thinking = world.ask("s", "/think high").await?;
    let shown = world.ask("s", "/show model").await?;
    let back = world.ask("s", "/model default").await?;

    assert!(wrong.contains("is not a model's id"), "{wrong}");
    assert!(missing.contains("acme"), "{missing}");
    assert_eq!(taken, "Model: fake:two (set for this conversation)");
    assert_eq!(thinking, "Thinking: high");
    assert_eq!(shown, taken);
    assert_eq!(back, "Model: fake:one");
    let models: Vec<_> = world.model.requests().iter().map(|r| r.body["model"].clone()).collect();
    assert_eq!(models, ["two", "one"]);
    Ok(())
}

#[tokio::test]
async fn a_held_conversation_says_how_to_go_on_and_takes_no_more() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;

    let held = world.ask("s", "/pause").await?;
    let waiting = world.say("s", "hello").await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = world.sessions.views().answer(world.tenant, waiting.message).await?.outcome;
    world.sessions.resume(world.tenant, waiting.session).await?;

    assert!(held.contains("/resume"), "{held}");
    assert_eq!(before, None);
    world.text(&waiting).await?;
    Ok(())
}

#[tokio::test]
async fn in_a_group_nobody_changes_or_lists_what_is_not_the_groups() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let mut said = world.message("x", "/list agents");
    said.key = SessionKey::group(&world.agent.name, "telegram", "g1", None)?;
    said.target = Some(place("g1"));

    let refused = world.send(said.clone()).await?;
    said.idem_key.push('2');
    said.body.text = "/status".into();
    let shown = world.send(said).await?;

    assert!(world.text(&refused).await?.contains("not for groups"));
    assert!(world.text(&shown).await?.contains("Channel: telegram"));
    let texts = world.texts("select body from session.deliveries order by out_seq").await?;
    assert_eq!(texts.len(), 2);
    assert_eq!(world.model.count(), 0);
    Ok(())
}

#[tokio::test]
async fn what_there_is_can_be_listed() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;

    assert!(world.ask("s", "/list agents").await?.starts_with("main: "));
    assert_eq!(world.ask("s", "/list models").await?, "fake:one (the default)");
    assert_eq!(world.ask("s", "/list channels").await?, "There are none.");
    Ok(())
}

#[tokio::test]
async fn a_command_steps_aside_for_a_turn_that_uses_tools() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.latency(Duration::from_millis(200));
    world.model.queue([Reply::call("a", "agents_list", "{}")]);
    let _runner = world.runner().await?;

    let sent = world.say("s", "hello").await?;
    world.until("it runs", async || world.model.count() == 1).await?;
    let status = world.say("s", "/status").await?;
    world.text(&sent).await?;
    let shown = world.text(&status).await?;

    assert!(shown.contains("Turns: 1\n"), "{shown}");
    assert_eq!(world.model.count(), 2);
    Ok(())
}

#[tokio::test]
async fn unasked_messages_go_to_the_channel_that_the_owner_has_chosen() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let by = async |channel: &str, text: &str| {
        let target = Target { channel: channel.to_owned(), ..place(channel) };
        let message = NewMessage { target: Some(target), ..world.owners(text) };
        world.text(&world.send(message).await?).await
    };
    let target = async || {
        let sql = "select last_target->>'channel' from session.sessions";
        anyhow::Ok(world.texts(sql).await?.pop())
    };

    by("telegram", "hello").await?;
    by("webhook", "hello").await?;
    let unknown = by("webhook", "/switch channel to slack").await?;
    let before = target().await?;
    let chosen = by("webhook", "/switch channel to telegram").await?;
    let after = target().await?;
    by("webhook", "and now?").await?;
    let kept = target().await?;
    by("webhook", "/switch channel to last").await?;
    let last = target().await?;

    assert!(unknown.contains("have not written to me here by `slack`"), "{unknown}");
    assert_eq!(before.as_deref(), Some("webhook"));
    assert!(chosen.starts_with("Channel: telegram"), "{chosen}");
    assert_eq!((after.as_deref(), kept.as_deref()), (Some("telegram"), Some("telegram")));
    assert_eq!(last.as_deref(), Some("webhook"));
    let answers =
        world.texts("select target->>'channel' from session.deliveries order by out_seq").await?;
    assert_eq!(answers.last().map(String::as_str), Some("webhook"));
    Ok(())
}
