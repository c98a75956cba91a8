//! Runners crash, lose their connections and return; accepted messages are answered exactly once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast_agent::UNKNOWN_OUTCOME;
use holdfast_session::{MAX_ATTEMPTS, StepWrite, TurnOutcome};
use holdfast_testkit::{Reply, model::Gate};
use holdfast_types::{Effect, Entry, RunId, RunnerId, ToolCall, Usage};

use crate::{
    gated::Gated,
    idling::get,
    world::{LONG, World},
};

#[tokio::test]
async fn a_session_is_run_by_one_runner_at_a_time() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let model = Gated::closed();
    model.let_out(1_000);
    let mut runners = Vec::new();
    for _ in 0..2 {
        let shared = Arc::new(model.clone());
        runners.push(world.runner_with(world.config(), |app| app.with_demo(shared)).await?);
    }

    let mut sent = Vec::new();
    for n in 0..30 {
        // The first words name the session: the model counts by them.
        let session = format!("s{}", n % 3);
        if n < 3 {
            world.ask(&session, &session).await?;
        }
        sent.push(world.say(&session, &format!("message {n}")).await?);
    }
    for one in &sent {
        world.text(one).await?;
    }

    assert_eq!(model.overlaps(), 0);
    let twice = "select count(*) from (select seq from session.entries, \
                 lateral (select (body->>'seq')::bigint as heard) h \
                 where kind = 'heard' group by session_id, heard, seq having count(*) > 1) x";
    assert_eq!(world.number(twice).await?, 0);
    Ok(())
}

#[tokio::test]
async fn another_runner_goes_on_where_one_died() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    config.runner.lease = Duration::from_secs(2);
    config.runner.sweep = Duration::from_millis(100);
    world.model.latency(Duration::from_millis(300));
    world.model.queue([Reply::call("a", "agents_list", "{}")]);
    let first = world.runner_with(config.clone(), |app| app).await?;

    let sent = world.say("s", "hello").await?;
    world
        .until("it has thought", async || {
            world.kinds(sent.session).await.is_ok_and(|kinds| kinds.contains(&"returned"))
        })
        .await?;
    first.kill();
    let begun = Instant::now();
    let _second = world.runner_with(config, |app| app).await?;
    let answer = world.answer(&sent).await?;

    assert_eq!(answer.outcome, Some(TurnOutcome::Completed));
    // Without the sweep the session would never continue; the delay is measured elsewhere.
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    assert_eq!(world.kinds(sent.session).await?, ["heard", "thought", "returned", "thought"]);
    assert_eq!(world.number("select count(*) from session.runs").await?, 1);
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn what_was_begun_in_the_world_is_reported_as_unknown_and_not_done_again()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let sent = world.say("s", "hello").await?;
    let dead = RunnerId::generate();
    let claim = world.claim_as(dead).await?;
    let call = ToolCall { id: "a".into(), tool: "pay".into(), input: "{}".into() };
    let loaded = world.sessions.load(&claim, 10).await?;
    let thought = Entry::Thought {
        text: String::new(),
        calls: vec![call],
        usage: Usage::default(),
        model: "fake:one".into(),
        carry: None,
        record: None,
    };
    let begun = StepWrite {
        at: None,
        run: Some(RunId::from(sent.message)),
        entries: vec![
            Entry::Heard { seq: 1, body: loaded.waiting[0].body.clone() },
            thought,
            Entry::Called { call: "a".into(), effect: Effect::Acts },
        ],
        seen: vec![1],
        ..StepWrite::default()
    };
    world.sessions.append(&claim, begun).await?;
    world.admin("update session.session_lease set lease_until = now() - interval '1 s'").await?;

    let _runner = world.runner().await?;
    world.text(&sent).await?;

    let returned: Vec<(String, bool)> = world
        .journal(sent.session)
        .await?
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Returned { output, failed, .. } => Some((output, failed)),
            _ => None,
        })
        .collect();
    assert_eq!(returned, [(UNKNOWN_OUTCOME.to_owned(), true)]);
    assert_eq!(world.model.count(), 1);
    Ok(())
}

#[tokio::test]
async fn a_runner_that_was_fenced_off_stops_and_writes_nothing() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let model = Gated::closed();
    let shared = Arc::new(model.clone());
    let _runner = world.runner_with(world.config(), |app| app.with_demo(shared)).await?;

    let sent = world.say("s", "hello").await?;
    model.until_asked(1).await?;
    // As if it had been suspended for longer than its lease.
    world.admin("update session.session_lease set lease_until = now() - interval '1 s'").await?;
    model.until_asked(2).await?;
    model.let_out(2);
    world.text(&sent).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;

    assert_eq!(world.kinds(sent.session).await?, ["heard", "thought"]);
    assert_eq!(world.number("select count(*) from session.runs").await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_message_that_breaks_its_runner_leaves_and_its_successors_run() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    config.runner.lease = Duration::from_secs(1);
    config.runner.sweep = Duration::from_millis(50);
    let _runner = world.runner_with(config, |app| app.with_tool(Broken)).await?;
    world.model.answer(|request| match request.last_user_text().as_str() {
        "poison" => Reply::call("a", "broken", "{}"),
        text => Reply::text(format!("echo: {text}")),
    });

    let poison = world.say_as(holdfast_types::QueueMode::Followup, "s", "poison").await?;
    let after = world.say_as(holdfast_types::QueueMode::Followup, "s", "hello").await?;

    assert_eq!(world.answer(&poison).await?.outcome, Some(TurnOutcome::Dead));
    assert_eq!(world.text(&after).await?, "echo: hello");
    Ok(())
}

struct Broken;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct BrokenInput {}

impl holdfast_tools::Tool for Broken {
    const NAME: &'static str = "broken";
    const EFFECT: Effect = Effect::Reads;
    type Input = BrokenInput;

    async fn call(
        &self,
        _: holdfast_tools::Call,
        _: BrokenInput,
    ) -> Result<String, holdfast_tools::ToolError> {
        Err(anyhow::anyhow!("as a defect does").into())
    }
}

#[tokio::test]
async fn a_message_whose_acting_calls_break_their_runners_is_given_up_after_five_attempts()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    config.runner.lease = Duration::from_secs(1);
    config.runner.sweep = Duration::from_millis(50);
    let _runner = world.runner_with(config, |app| app.with_tool(BrokenAct)).await?;
    // After each lost call the model looks around, and calls again.
    world.model.answer(|request| {
        let results = request.tool_results();
        let is_lost = results.first().is_some_and(|(_, output)| output == UNKNOWN_OUTCOME);
        let tool = if is_lost { "agents_list" } else { "broken_act" };
        Reply::call(format!("c{}", request.messages().len()), tool, "{}")
    });

    let poison = world.say("s", "poison").await?;

    let answer = world.answer(&poison).await?;
    assert_eq!(answer.outcome, Some(TurnOutcome::Dead), "{answer:?}");
    let begun = "select count(*) from session.entries where kind = 'called'";
    assert!(world.number(begun).await? <= i64::from(MAX_ATTEMPTS) + 1);
    Ok(())
}

#[tokio::test]
async fn acting_calls_that_succeed_in_between_do_not_keep_a_message_that_breaks_runners_alive()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    config.runner.lease = Duration::from_secs(1);
    config.runner.sweep = Duration::from_millis(50);
    let app = |app: agent_runner::App| app.with_tool(BrokenAct).with_tool(FineAct);
    let _runner = world.runner_with(config, app).await?;
    world.model.answer(|request| {
        let results = request.tool_results();
        let is_lost = results.first().is_some_and(|(_, output)| output == UNKNOWN_OUTCOME);
        let tool = if is_lost { "fine_act" } else { "broken_act" };
        Reply::call(format!("c{}", request.messages().len()), tool, "{}")
    });

    let poison = world.say("s", "poison").await?;

    let answer = world.answer(&poison).await?;
    assert_eq!(answer.outcome, Some(TurnOutcome::Dead), "{answer:?}");
    let broken = "select count(*) from session.entries
                  where kind = 'returned' and body::text like '%unknown%'";
    assert!(world.number(broken).await? <= 2 * i64::from(MAX_ATTEMPTS));
    Ok(())
}

struct FineAct;

impl holdfast_tools::Tool for FineAct {
    const NAME: &'static str = "fine_act";
    const EFFECT: Effect = Effect::Acts;
    type Input = BrokenInput;

    async fn call(
        &self,
        _: holdfast_tools::Call,
        _: BrokenInput,
    ) -> Result<String, holdfast_tools::ToolError> {
        Ok("done".to_owned())
    }
}

struct BrokenAct;

impl holdfast_tools::Tool for BrokenAct {
    const NAME: &'static str = "broken_act";
    const EFFECT: Effect = Effect::Acts;
    type Input = BrokenInput;

    async fn call(
        &self,
        _: holdfast_tools::Call,
        _: BrokenInput,
    ) -> Result<String, holdfast_tools::ToolError> {
        Err(anyhow::anyhow!("as a defect does").into())
    }
}

#[tokio::test]
async fn a_runner_that_stops_gives_its_sessions_back_at_a_steps_end() -> anyhow::Result<()> {
    let world = World::start().await?;
    let thought = Gate::default();
    world.model.queue([Reply::call("a", "agents_list", "{}").behind(&thought)]);
    let mut config = world.config();
    config.runner.shutdown_grace = LONG;
    let first = world.runner_with(config, |app| app).await?;
    let sent = world.say("s", "hello").await?;
    world.until("it runs", async || world.model.count() == 1).await?;

    let address = first.address;
    let stopping = tokio::spawn(first.stop());
    world
        .until("it stops", async || {
            get(address, "/readyz").await.is_ok_and(|answer| answer.contains("draining"))
        })
        .await?;
    thought.open();
    stopping.await??;
    assert_eq!(world.kinds(sent.session).await?, ["heard", "thought"]);
    let charged = world.number("select attempts::bigint from session.session_lease").await?;

    let _second = world.runner().await?;
    assert_eq!(world.answer(&sent).await?.outcome, Some(TurnOutcome::Completed));
    assert_eq!(charged, 0);
    assert_eq!(world.kinds(sent.session).await?, ["heard", "thought", "returned", "thought"]);
    Ok(())
}

#[tokio::test]
async fn a_turn_that_will_not_end_is_cut_short_and_given_back() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.queue([Reply::hang(Duration::from_secs(60))]);
    let mut config = world.config();
    config.runner.shutdown_grace = Duration::from_millis(300);
    config.runner.model_timeout = Duration::from_secs(60);
    let first = world.runner_with(config, |app| app).await?;
    let sent = world.say("s", "hello").await?;
    world.until("it runs", async || world.model.count() == 1).await?;

    let begun = Instant::now();
    first.stop().await?;

    // The model would take a minute.
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    let _second = world.runner().await?;
    assert_eq!(world.text(&sent).await?, "echo: hello");
    Ok(())
}
