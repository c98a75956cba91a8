//! A chain of a planner, parallel workers and a reviewer survives crashes of its runners.

use std::{sync::Arc, time::Duration};

use holdfast_directory::{Actor, NewAgent};
use holdfast_testkit::{
    Reply,
    model::{Gate, Request},
};
use holdfast_types::{AgentName, Chain, ChainStep, Entry, SessionId, Stage};

use crate::world::{World, place};

const PLAN: &str = r#"["count the stars", "count the fish"]"#;

/// Plans, works and reviews; and speaks of the end.
fn script(asked: &Request) -> Reply {
    match asked.last_user_text().as_str() {
        text if text.starts_with("Split what is asked") => Reply::text(PLAN),
        text if text.starts_with("count the stars") => Reply::text("seven stars"),
        text if text.starts_with("count the fish") => Reply::text("two fish"),
        text if text.starts_with("A request was split") => {
            let both = text.contains("seven stars") && text.contains("two fish");
            Reply::text(if both { "seven stars and two fish" } else { "something is missing" })
        }
        text if text.contains("just completed") && text.contains("seven stars and two fish") => {
            Reply::text("there are seven stars and two fish")
        }
        text if text.contains("just failed") => Reply::text(format!("it failed: {text}")),
        text => Reply::text(format!("odd: {text}")),
    }
}

async fn told(world: &World, session: SessionId, expected: &str) -> anyhow::Result<()> {
    world
        .until("the session that asked speaks of it", async || {
            let journal = world.journal(session).await.unwrap_or_default();
            matches!(journal.last(), Some(Entry::Thought { text, .. }) if text.contains(expected))
        })
        .await
}

/// Waits until the outcome and the last stage of the one run are recorded. The session that asked
/// is told before.
async fn recorded(world: &World, end: &str) -> anyhow::Result<()> {
    let ends = "select outcome || ':' || stage from session.chain_runs where outcome is not null";
    let is_recorded = async || world.texts(ends).await.is_ok_and(|ends| ends == [end]);
    world.until("the end is recorded", is_recorded).await
}

const STEPS: &str = "select step || ':' || stage || ':' || outcome from session.subagents \
                     order by stage, task";

#[tokio::test]
async fn a_chain_plans_works_at_once_reviews_and_tells_whoever_asked() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(script);
    let _runner = world.runner().await?;
    let mut said = world.message("s", "/chain plan-work-review count everything in the sea");
    said.target = Some(place("42"));

    let sent = world.send(said).await?;
    let begun = world.text(&sent).await?;
    told(&world, sent.session, "there are seven stars and two fish").await?;

    assert_eq!(begun, "The chain `plan-work-review` has begun. You will be told.");
    let steps = world.texts(STEPS).await?;
    assert_eq!(steps, ["plan:0:ok", "work:1:ok", "work:1:ok", "review:2:ok"]);
    recorded(&world, "ok:2").await?;
    let delivered = world.texts("select body from session.deliveries order by out_seq").await?;
    assert_eq!(delivered.last().unwrap(), "there are seven stars and two fish");
    assert_eq!(delivered.len(), 2, "nothing of the steps is sent: {delivered:?}");
    Ok(())
}

#[tokio::test]
async fn runners_that_die_at_any_stage_change_nothing() -> anyhow::Result<()> {
    let world = Arc::new(World::start().await?);
    world.model.answer(script);
    world.model.latency(Duration::from_millis(250));
    let mut config = world.config();
    config.runner.lease = Duration::from_secs(2);
    config.runner.sweep = Duration::from_millis(100);
    let mut runner = world.runner_with(config.clone(), |app| app).await?;

    let sent = world.say("s", "/chain plan-work-review count everything").await?;
    // A runner crashes in each stage: planning, work, review.
    for stage in 0..3 {
        let begun = format!("select count(*) from session.subagents where stage = {stage}");
        world
            .until("the stage is begun", async || world.number(&begun).await.is_ok_and(|n| n > 0))
            .await?;
        runner.kill();
        runner = world.runner_with(config.clone(), |app| app).await?;
    }
    told(&world, sent.session, "there are seven stars and two fish").await?;

    let steps = world.texts(STEPS).await?;
    assert_eq!(steps, ["plan:0:ok", "work:1:ok", "work:1:ok", "review:2:ok"]);
    let told = "select count(*) from session.inbox where body->>'event' = 'chain'";
    assert_eq!(world.number(told).await?, 1);
    let alone = "select count(*) from session.inbox where body->>'event' = 'subagent'";
    assert_eq!(world.number(alone).await?, 0);
    Ok(())
}

#[tokio::test]
async fn an_end_that_was_told_but_not_recorded_is_told_once_and_then_recorded() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.model.answer(script);
    let _runner = world.runner().await?;
    let sent = world.say("s", "/chain plan-work-review count everything").await?;
    told(&world, sent.session, "there are seven stars and two fish").await?;
    recorded(&world, "ok:2").await?;

    // State after a crash between the two.
    world
        .admin(
            "with run as (update session.chain_runs set outcome = null, finished_at = null)
             update session.subagents set announced_at = null where step = 'review'",
        )
        .await?;
    recorded(&world, "ok:2").await?;

    let told = "select count(*) from session.inbox where body->>'event' = 'chain'";
    assert_eq!(world.number(told).await?, 1);
    let left = "select count(*) from session.subagents where announced_at is null";
    world
        .until("nothing is left to announce", async || {
            world.number(left).await.is_ok_and(|left| left == 0)
        })
        .await
}

#[tokio::test]
async fn a_chain_of_the_tenant_s_own_is_run_by_its_agents_with_their_bundles() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let looked = Gate::default();
    let gate = looked.clone();
    world.model.answer(move |asked| match asked.last_user_text().as_str() {
        "begin" if asked.tool_results().is_empty() => {
            Reply::call("a", "chain_run", r#"{"chain":"look","input":"the roof"}"#)
        }
        "begin" => Reply::text("asked"),
        "look at the roof" | "smell the roof" => Reply::text("fine").behind(&gate),
        text if text.contains("just completed") => Reply::text("all is fine"),
        text => Reply::text(format!("odd: {text}")),
    });
    let inspector = NewAgent {
        name: AgentName::new("inspector"),
        instructions: "You inspect.".into(),
        ..NewAgent::default()
    };
    world.directory.agents().create(world.tenant, Actor::Operator, inspector).await?;
    let step = |name: &str, prompt: &str| ChainStep {
        name: name.into(),
        agent: Some("inspector".into()),
        bundle: Some("none".into()),
        prompt: prompt.into(),
        ..ChainStep::default()
    };
    let steps = vec![step("look", "look at {{input}}"), step("smell", "smell {{input}}")];
    let chain = Chain { stages: vec![Stage { steps, each: false }], ..Chain::default() };
    world.directory.chains().put(world.tenant, Actor::Operator, "look", &chain).await?;
    let _runner = world.runner().await?;

    let sent = world.say("s", "begin").await?;
    assert_eq!(world.text(&sent).await?, "asked");
    // An end that is told before the turn has answered is heard by that turn.
    looked.open();
    told(&world, sent.session, "all is fine").await?;

    let requests = world.model.requests();
    let looks: Vec<_> =
        requests.iter().filter(|asked| asked.last_user_text().ends_with("the roof")).collect();
    assert_eq!(looks.len(), 2);
    for asked in looks {
        assert!(asked.messages()[0].to_string().contains("You inspect."));
        assert!(!asked.tool_names().contains(&"read"), "{:?}", asked.tool_names());
    }
    Ok(())
}

#[tokio::test]
async fn a_chain_that_fails_says_why_and_one_that_there_is_not_is_refused() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(|asked| match asked.last_user_text().as_str() {
        text if text.starts_with("Split what is asked") => Reply::status(400),
        _ => script(asked),
    });
    let _runner = world.runner().await?;

    let unknown = world.ask("s", "/chain nothing at all").await?;
    assert!(unknown.starts_with("there is no chain `nothing`; there are:\nplan-work-review: "));
    let shown = world.ask("s", "/chain").await?;
    assert!(shown.starts_with("plan-work-review: Splits a large request"), "{shown}");

    let sent = world.say("s", "/chain plan-work-review count everything").await?;
    told(&world, sent.session, "it failed: ").await?;

    recorded(&world, "error:0").await?;
    assert_eq!(world.number("select count(*) from session.subagents").await?, 1);
    Ok(())
}
