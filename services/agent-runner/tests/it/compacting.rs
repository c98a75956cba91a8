//! A conversation that grows too long is summarised, and goes on.

use std::sync::Arc;

use holdfast_llm::{Error, ScriptedModel};
use holdfast_session::{NewMessage, TurnOutcome};
use holdfast_types::{Entry, Note, Reply, SessionId};

use crate::world::{Running, World, place};

/// A runner whose model answers so, and reads so many tokens at once.
async fn runner(
    world: &World,
    tokens: usize,
    outcomes: Vec<Result<Reply, Error>>,
) -> anyhow::Result<(Running, Arc<ScriptedModel>)> {
    world.use_demo().await?;
    let model = Arc::new(ScriptedModel::outcomes(outcomes));
    let shared = Arc::clone(&model);
    let mut config = world.config();
    config.runner.context_tokens = tokens;
    let runner = world.runner_with(config, |app| app.with_demo(shared)).await?;
    Ok((runner, model))
}

async fn summaries(world: &World, session: SessionId) -> anyhow::Result<Vec<String>> {
    let journal = world.journal(session).await?;
    let texts = journal.into_iter().filter_map(|entry| match entry {
        Entry::Noted { note: Note::Summary, text, .. } => Some(text),
        _ => None,
    });
    Ok(texts.collect())
}

#[tokio::test]
async fn what_the_model_refuses_as_too_long_is_summarised_and_the_turn_goes_on()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let outcomes = vec![
        Ok(ScriptedModel::text(&"long ".repeat(5_000))),
        Ok(ScriptedModel::text(&"longer ".repeat(3_000))),
        Err(Error::ContextOverflow),
        Ok(ScriptedModel::text("a part")),
        Ok(ScriptedModel::text("a part")),
        Ok(ScriptedModel::text("a part")),
        Ok(ScriptedModel::text("They spoke of long things.")),
        Ok(ScriptedModel::text("short")),
    ];
    let (_runner, model) = runner(&world, 24_000, outcomes).await?;

    let sent = world.say("s", "tell me much").await?;
    world.text(&sent).await?;
    world.ask("s", "more").await?;
    let answer = world.ask("s", "and now?").await?;

    assert_eq!(answer, "short");
    assert_eq!(summaries(&world, sent.session).await?, ["They spoke of long things."]);
    let requests = model.requests();
    let last = requests.last().unwrap();
    assert!(last.dynamic.contains("They spoke of long things."), "{}", last.dynamic);
    assert!(!format!("{:?}", last.messages).contains("long long"), "{:?}", last.messages);
    assert!(format!("{:?}", last.messages).contains("and now?"));
    // The summarised entries stay in the journal.
    assert!(format!("{:?}", world.journal(sent.session).await?).contains("long long"));
    assert_eq!(model.violations(), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn a_person_on_a_channel_is_told_once_that_the_conversation_is_shortened()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let outcomes = vec![
        Ok(ScriptedModel::text(&"long ".repeat(5_000))),
        Ok(ScriptedModel::text(&"longer ".repeat(3_000))),
        Err(Error::ContextOverflow),
        Ok(ScriptedModel::text("a part")),
        Ok(ScriptedModel::text("a part")),
        Ok(ScriptedModel::text("a part")),
        Ok(ScriptedModel::text("They spoke of long things.")),
        Ok(ScriptedModel::text("short")),
    ];
    let (_runner, _model) = runner(&world, 24_000, outcomes).await?;
    let say = async |text: &str| {
        let said = NewMessage { target: Some(place("7")), ..world.message("s", text) };
        world.text(&world.send(said).await?).await
    };

    say("tell me much").await?;
    say("more").await?;
    let before = world.texts("select body from session.deliveries").await?.len();
    let answer = say("and now?").await?;

    assert_eq!(answer, "short");
    let told = world.texts("select body from session.deliveries order by out_seq").await?;
    let notice = "Our conversation is longer than the model can read.";
    assert!(told[before].starts_with(notice), "{told:?}");
    assert_eq!(told[before + 1..], ["short"]);
    Ok(())
}

#[tokio::test]
async fn what_does_not_fit_is_summarised_before_the_model_is_asked() -> anyhow::Result<()> {
    let world = World::start().await?;
    let long = "much ".repeat(6_000);
    let outcomes = vec![
        Ok(ScriptedModel::text(&long)),
        Ok(ScriptedModel::text(&long)),
        Ok(ScriptedModel::text("a part")),
        Ok(ScriptedModel::text("a part")),
        Ok(ScriptedModel::text("a part")),
        Ok(ScriptedModel::text("a part")),
        Ok(ScriptedModel::text("They spoke much.")),
        Ok(ScriptedModel::text("short")),
    ];
    let (_runner, model) = runner(&world, 20_000, outcomes).await?;

    let sent = world.say("s", "tell me much").await?;
    world.text(&sent).await?;
    world.ask("s", "more").await?;
    let answer = world.ask("s", "and now?").await?;

    assert_eq!(answer, "short");
    assert_eq!(summaries(&world, sent.session).await?, ["They spoke much."]);
    assert_eq!(model.violations(), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn what_no_summary_makes_short_enough_loses_its_oldest_half_and_then_is_told()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let mut outcomes = vec![
        Ok(ScriptedModel::text(&"one ".repeat(5_000))),
        Ok(ScriptedModel::text("two")),
        Ok(ScriptedModel::text("three")),
        Ok(ScriptedModel::text(&"four ".repeat(5_000))),
    ];
    // The request is too long, no summary comes, and it remains too long however much is dropped.
    outcomes.push(Err(Error::ContextOverflow));
    outcomes.push(Err(Error::Unavailable { status: Some(503), source: None }));
    outcomes.extend((0..6).map(|_| Err(Error::ContextOverflow)));
    let (_runner, model) = runner(&world, 24_000, outcomes).await?;
    let sent = world.say("s", "1").await?;
    world.text(&sent).await?;
    for text in ["2", "3", "4"] {
        world.ask("s", text).await?;
    }

    let answer = world.answer(&world.say("s", "and now?").await?).await?;

    assert_eq!(answer.outcome, Some(TurnOutcome::Failed));
    assert!(answer.text.contains("longer than the model can read"), "{}", answer.text);
    let dropped = summaries(&world, sent.session).await?;
    assert!((1..=2).contains(&dropped.len()), "{dropped:?}");
    assert!(dropped.iter().all(|text| text.contains("Emergency compression")), "{dropped:?}");
    let sizes: Vec<usize> = model.requests().iter().map(|chat| chat.messages.len()).collect();
    assert!(sizes.last() < sizes.get(4), "{sizes:?}");
    Ok(())
}
