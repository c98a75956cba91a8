//! A conversation that has become long is summarised beside its turns, and none of them waits.

use std::{sync::Arc, time::Duration};

use holdfast_directory::{Actor, Budget};
use holdfast_llm::ModelCard;
use holdfast_session::{NewSummary, SummaryResult};
use holdfast_testkit::{
    Reply,
    model::{Gate, Usage},
};
use holdfast_types::{Entry, Note, RunId, RunnerId, SessionId};
use serde_json::json;

use crate::world::World;

const SUMMARISER: &str = "You are a conversation summarizer.";

/// Answers, and summarises when asked to.
fn script(world: &World) {
    world.model.answer(|asked| {
        if asked.body.to_string().contains(SUMMARISER) {
            return Reply::text("They counted.");
        }
        Reply::text(format!("answer to {}", asked.last_user_text()))
    });
}

async fn summaries(world: &World, session: SessionId) -> anyhow::Result<Vec<(String, u32)>> {
    let journal = world.journal(session).await?;
    let found = journal.into_iter().filter_map(|entry| match entry {
        Entry::Noted { note: Note::Summary, text, keeps, .. } => Some((text, keeps)),
        _ => None,
    });
    Ok(found.collect())
}

async fn count_to(world: &World, last: u32) -> anyhow::Result<SessionId> {
    let mut session = None;
    for n in 1..=last {
        let sent = world.say("s", &format!("number {n}")).await?;
        world.text(&sent).await?;
        session = Some(sent.session);
    }
    session.ok_or_else(|| anyhow::anyhow!("nothing was said"))
}

#[tokio::test]
async fn after_more_than_twenty_messages_the_older_ones_are_summarised_once() -> anyhow::Result<()>
{
    let world = World::start().await?;
    script(&world);
    let card = ModelCard { temperature: true, ..ModelCard::default() };
    let models = world.directory.models();
    models.put(world.tenant, Actor::Operator, &"fake:one".parse()?, &card).await?;
    let _runner = world.runner().await?;

    let session = count_to(&world, 10).await?;
    assert_eq!(summaries(&world, session).await?, []);
    count_to(&world, 1).await?;
    world
        .until("a summary is stored", async || {
            summaries(&world, session).await.is_ok_and(|found| !found.is_empty())
        })
        .await?;
    world.ask("s", "and now?").await?;

    let found = summaries(&world, session).await?;
    let shown = world.sessions.views().session(world.tenant, session).await?.summary;
    assert_eq!(Some(&shown), found.first().map(|(text, _)| text));
    assert_eq!(found, [("They counted.".to_owned(), 4)]);
    let requests = world.model.requests();
    let is_summary = |body: &serde_json::Value| body.to_string().contains(SUMMARISER);
    for request in &requests {
        let temperature = is_summary(&request.body).then(|| json!(0.3));
        assert_eq!(request.body.get("temperature"), temperature.as_ref());
    }
    let last = requests.last().unwrap().body.to_string();
    assert!(last.contains("They counted.") && last.contains("number 10"), "{last}");
    assert!(!last.contains("number 9"), "{last}");
    assert_eq!(world.model.violations(), Vec::<String>::new());
    // Without new messages nothing is requested or stored.
    let (asked, stored) = (world.model.count(), world.journal(session).await?.len());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.model.count(), asked);
    assert_eq!(world.journal(session).await?.len(), stored);
    Ok(())
}

#[tokio::test]
async fn a_summary_is_charged_and_there_is_none_when_the_budget_is_spent() -> anyhow::Result<()> {
    // The last answer leaves enough for a summary, or nothing.
    for (last, summed) in [(90, true), (1_000_000, false)] {
        let world = World::start().await?;
        world.model.answer(move |asked| {
            let is_last = asked.last_user_text().contains("number 11");
            let prompt = if is_last { last } else { 90 };
            let usage = Usage { prompt, cached: 0, completion: 10 };
            let summary = asked.body.to_string().contains(SUMMARISER);
            Reply::text(if summary { "They." } else { "well" }).usage(usage)
        });
        let budget = Budget { agent: None, tokens: Some(1_000_000), micros: None };
        world.sessions.usage().open_budget(world.tenant, None).await?;
        world.directory.budgets().put(world.tenant, Actor::Operator, &budget).await?;
        let _runner = world.runner().await?;

        let session = count_to(&world, 11).await?;

        let spent = "select tokens from session.spending";
        if summed {
            world
                .until("a summary is stored", async || {
                    summaries(&world, session).await.is_ok_and(|found| !found.is_empty())
                })
                .await?;
            let answers = i64::try_from(world.model.count())?;
            assert!(answers > 11);
            assert_eq!(world.number(spent).await?, answers * 100);
            let read = "select sum(input_tokens)::bigint from session.runs";
            assert_eq!(world.number(read).await?, answers * 90);
        } else {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(world.model.count(), 11);
            assert_eq!(world.number(spent).await?, 1_001_010);
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_is_said_while_a_summary_is_made_is_answered_at_once_and_stays_as_it_was_said()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let summary = Gate::default();
    let gate = summary.clone();
    world.model.answer(move |asked| {
        if asked.body.to_string().contains(SUMMARISER) {
            return Reply::text("They counted.").behind(&gate);
        }
        Reply::text(format!("answer to {}", asked.last_user_text()))
    });
    let _runner = world.runner().await?;
    let session = count_to(&world, 11).await?;
    let is_summariser = |body: &serde_json::Value| body.to_string().contains(SUMMARISER);
    world
        .until("a summary is asked for", async || {
            world.model.requests().iter().any(|request| is_summariser(&request.body))
        })
        .await?;

    let answer = world.ask("s", "what is said meanwhile").await?;
    assert_eq!(answer, "answer to what is said meanwhile");
    assert_eq!(summaries(&world, session).await?, []);
    summary.open();
    world
        .until("a summary is stored", async || {
            summaries(&world, session).await.is_ok_and(|found| !found.is_empty())
        })
        .await?;
    world.ask("s", "and now?").await?;

    assert_eq!(summaries(&world, session).await?.len(), 1);
    let last = world.model.requests().last().unwrap().body.to_string();
    assert!(last.contains("what is said meanwhile") && last.contains("They counted."), "{last}");
    Ok(())
}

#[tokio::test]
async fn a_summary_is_kept_out_of_a_turn_and_of_a_conversation_that_has_moved_on()
-> anyhow::Result<()> {
    let world = World::start().await?;
    script(&world);
    let mut config = world.config();
    config.runner.summaries = 0;
    let runner = world.runner_with(config.clone(), |app| app).await?;
    let session = count_to(&world, 3).await?;
    let at = i64::try_from(world.journal(session).await?.len())? + 1;
    let new = NewSummary { run: RunId::generate(), at, text: "They counted.".into(), keeps: 2 };
    let keep =
        async |new: &NewSummary| world.sessions.store_summary(world.tenant, session, new).await;

    // A turn is under way: its writes go through, and the summary waits.
    runner.stop().await?;
    world.say("s", "number 4").await?;
    assert_eq!(keep(&new).await?, SummaryResult::Busy);
    let claim = world.claim_as(RunnerId::generate()).await?;
    assert_eq!(keep(&new).await?, SummaryResult::Busy);
    let loaded = world.sessions.load(&claim, 50).await?;
    assert_eq!(loaded.next_entry, at);
    world.end(&claim, &loaded, holdfast_types::Wait::Anything).await?;

    // The session is idle again; the summary does not cover the new messages.
    assert_eq!(keep(&new).await?, SummaryResult::Stored);
    assert_eq!(summaries(&world, session).await?, [("They counted.".to_owned(), 4)]);

    // Another one of the same is of no use, nor is one from before a new beginning.
    assert_eq!(keep(&new).await?, SummaryResult::Stale);
    let _runner = world.runner_with(config, |app| app).await?;
    let at = i64::try_from(world.journal(session).await?.len())? + 1;
    let old = NewSummary { at, text: "What is to be forgotten.".into(), ..new.clone() };
    world.ask("s", "/new").await?;
    assert_eq!(keep(&old).await?, SummaryResult::Stale);
    world.ask("s", "hello").await?;
    let last = world.model.requests().last().unwrap().body.to_string();
    assert!(!last.contains("What is to be forgotten") && !last.contains("They counted"), "{last}");

    // A session of another tenant is not found.
    let (other, _) =
        world.directory.tenants().create(holdfast_directory::Actor::Operator, "other").await?;
    let at = i64::try_from(world.journal(session).await?.len())? + 1;
    let mine = NewSummary { at, ..new };
    assert_eq!(world.sessions.store_summary(other.id, session, &mine).await?, SummaryResult::Stale);
    assert_eq!(keep(&mine).await?, SummaryResult::Stored);
    Ok(())
}

#[tokio::test]
async fn two_runners_make_one_summary_of_a_conversation() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(|asked| {
        if asked.body.to_string().contains(SUMMARISER) {
            // Hangs until the end of the test.
            return Reply::hang(Duration::from_secs(120));
        }
        Reply::text("counted")
    });
    let mut runners = Vec::new();
    for _ in 0..2 {
        runners.push(Arc::new(world.runner().await?));
    }

    count_to(&world, 11).await?;
    let asked = |world: &World| {
        let requests = world.model.requests();
        requests.iter().filter(|r| r.body.to_string().contains(SUMMARISER)).count()
    };
    world.until("a summary is asked for", async || asked(&world) > 0).await?;
    // Each of these turns would ask for one too.
    for n in 12..16 {
        world.ask("s", &format!("number {n}")).await?;
    }

    // Two halves of one summary, each asked for once while it is awaited.
    assert!(asked(&world) <= 2, "{}", asked(&world));
    Ok(())
}
