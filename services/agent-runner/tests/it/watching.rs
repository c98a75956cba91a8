//! Watchers see the answer as it is written, and its end.

use std::time::Duration;

use holdfast_bus::{DeltaBody, Outcome};
use holdfast_testkit::Reply;
use holdfast_types::RunnerId;
use tokio::time::timeout;

use crate::world::{LONG, World};

/// Asks once, and returns what a watcher of the second question sees.
async fn watch(world: &World, replies: Vec<Reply>) -> anyhow::Result<Vec<DeltaBody>> {
    let first = world.say("s", "first").await?;
    world.text(&first).await?;
    let mut deltas = world.bus.subscribe_deltas(world.tenant, first.session).await?;
    world.bus.flush().await;
    world.model.queue(replies);
    world.say("s", "second").await?;
    let mut seen = Vec::new();
    loop {
        let delta = timeout(LONG, deltas.next()).await?.expect("the bus is there");
        // The first answer is in the journal before its end is told, which may come only now.
        if seen.is_empty() && delta.body != DeltaBody::Started {
            continue;
        }
        assert_eq!(delta.n as usize, seen.len(), "none is lost and none comes twice");
        let is_last = matches!(delta.body, DeltaBody::Done { .. });
        seen.push(delta.body);
        if is_last {
            return Ok(seen);
        }
    }
}

#[tokio::test]
async fn a_reply_is_seen_piece_by_piece_and_its_end_whole() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.model.pace(Duration::from_millis(5));
    let long = "word ".repeat(60);

    let seen = watch(&world, vec![Reply::text(long.clone())]).await?;

    assert_eq!(seen[0], DeltaBody::Started);
    let pieces: Vec<&str> = seen
        .iter()
        .filter_map(|body| match body {
            DeltaBody::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(pieces.concat(), long);
    assert!((2..40).contains(&pieces.len()), "{} pieces", pieces.len());
    let Some(DeltaBody::Done { seqs, text, outcome, usage, .. }) = seen.last() else {
        panic!("{seen:?}");
    };
    assert_eq!((seqs.as_slice(), text, *outcome), (&[2][..], &long, Outcome::Completed));
    assert!(usage.output > 0);
    Ok(())
}

#[tokio::test]
async fn calls_are_seen_as_they_are_made() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;

    let seen =
        watch(&world, vec![Reply::call("a", "agents_list", "{}"), Reply::text("done")]).await?;

    let started = DeltaBody::ToolStarted { call: "a".into(), tool: "agents_list".into() };
    let at = seen.iter().position(|body| *body == started).expect("the call is seen");
    assert_eq!(seen[at + 1], DeltaBody::ToolEnded { call: "a".into(), failed: false });
    Ok(())
}

/// The pieces of thought and text, in order: which, and what.
fn pieces(seen: &[DeltaBody]) -> Vec<(bool, &str)> {
    seen.iter()
        .filter_map(|body| match body {
            DeltaBody::Thought { text } => Some((true, text.as_str())),
            DeltaBody::Text { text } => Some((false, text.as_str())),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn what_the_model_thinks_is_seen_before_its_answer_by_those_who_asked() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.model.pace(Duration::from_millis(5));
    let thought = "word ".repeat(60);
    let reply = || vec![Reply::text(format!("<think>{thought}</think>Yes."))];

    let usual = watch(&world, reply()).await?;
    world.ask("s", "/reasoning on").await?;
    let whole = watch(&world, reply()).await?;
    world.ask("s", "/reasoning stream").await?;
    let streamed = watch(&world, reply()).await?;

    assert_eq!(pieces(&usual), [(false, "Yes.")]);
    assert_eq!(pieces(&whole), [(true, thought.as_str()), (false, "Yes.")]);
    let mut streamed = pieces(&streamed);
    assert_eq!(streamed.pop(), Some((false, "Yes.")));
    // The first leaves at once, and what a busy machine reads at once after it is one.
    assert!(streamed.len() >= 2 && streamed.iter().all(|(thinks, _)| *thinks), "{streamed:?}");
    let all: String = streamed.into_iter().map(|(_, text)| text).collect();
    assert_eq!(all, thought);
    Ok(())
}

#[tokio::test]
async fn a_reply_that_begins_anew_says_so() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;

    let seen =
        watch(&world, vec![Reply::cut_mid_stream("half an answer"), Reply::text("whole")]).await?;

    let restarted = seen.iter().position(|body| *body == DeltaBody::StepRestarted);
    let whole = seen.iter().position(|body| *body == DeltaBody::Text { text: "whole".into() });
    assert!(restarted.is_some() && restarted < whole, "{seen:?}");
    Ok(())
}

#[tokio::test]
async fn a_step_that_another_runner_may_have_begun_says_so() -> anyhow::Result<()> {
    let world = World::start().await?;
    let sent = world.say("s", "hello").await?;
    let mut deltas = world.bus.subscribe_deltas(world.tenant, sent.session).await?;
    world.bus.flush().await;
    let lost = world.claim_as(RunnerId::generate()).await?;
    world.admin("update session.session_lease set lease_until = now() - interval '1 s'").await?;

    let _runner = world.runner().await?;
    world.text(&sent).await?;

    let first = timeout(LONG, deltas.next()).await?.expect("the bus is there");
    let second = timeout(LONG, deltas.next()).await?.expect("the bus is there");
    assert!(first.epoch > lost.epoch && first.epoch == second.epoch);
    assert_eq!((first.body, second.body), (DeltaBody::Started, DeltaBody::StepRestarted));
    Ok(())
}
