//! What the journal tells of each model call, and the prompt of a call composed again.

use std::time::Duration;

use holdfast_bus::{DeltaBody, ProcessReport, PromptAnswer, PromptQuestion, RenderedPrompt};
use holdfast_session::{Acceptance, RunFilter};
use holdfast_testkit::{Reply, model::Usage};
use holdfast_types::{Entry, ModelRecord, RunId, TenantId};
use jiff::Timestamp;
use tokio::time::timeout;

use crate::world::{LONG, World};

impl World {
    /// Records of the model calls of a session.
    async fn model_records(&self, of: &Acceptance) -> anyhow::Result<Vec<ModelRecord>> {
        let entries = self.journal(of.session).await?.into_iter();
        let records = entries.filter_map(|entry| match entry {
            Entry::Thought { record, .. } => record.map(|record| *record),
            _ => None,
        });
        Ok(records.collect())
    }

    /// Asks for a prompt until a runner has subscribed.
    async fn ask_prompt(&self, question: &PromptQuestion) -> anyhow::Result<PromptAnswer> {
        self.until_some("a runner answers", async || question.ask(&self.bus, "").await.ok()).await
    }
}

#[tokio::test]
async fn a_call_is_recorded_with_its_time_its_attempts_its_cost_and_its_runner()
-> anyhow::Result<()> {
    const LATE: Duration = Duration::from_millis(150);
    let world = World::start().await?;
    world.card(1_000).await?;
    let usage = Usage { prompt: 10_000, cached: 0, completion: 100 };
    world.model.queue([
        Reply::status(500).latency(LATE),
        Reply::call("a", "agents_list", "{}").usage(usage),
        Reply::text("there").usage(usage),
    ]);
    let before = Timestamp::now().as_millisecond();
    let _runner = world.runner().await?;

    let said = world.say("a", "hello").await?;
    assert_eq!(world.text(&said).await?, "there");

    let records = world.model_records(&said).await?;
    let [first, second] = &records[..] else { panic!("{records:?}") };
    assert_eq!((first.attempts, second.attempts), (2, 1));
    assert_eq!((first.cost_micros, second.cost_micros), (11_000, 11_000));
    assert_eq!((first.stop.as_str(), second.stop.as_str()), ("tool_use", "end"));
    assert!(first.runner.is_some() && first.runner == second.runner, "{records:?}");
    // The failed attempt counts. The delay before the retry is random and may be zero.
    assert!(u128::from(first.took_ms) >= LATE.as_millis(), "{records:?}");
    assert!(second.first_piece_ms <= second.took_ms, "{records:?}");
    assert!(first.started_at_ms >= before && second.started_at_ms > first.started_at_ms);
    let filter = RunFilter { limit: 1, ..RunFilter::default() };
    let run = world.sessions.views().runs(world.tenant, filter).await?.remove(0);
    assert_eq!(run.cost_micros, 22_000, "the run costs what its calls cost");
    Ok(())
}

#[tokio::test]
async fn a_record_names_the_models_that_failed_before() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _spare = world.with_fallback().await?;
    world.model.answer(|_| Reply::status(503));
    let _runner = world.runner().await?;

    let said = world.say("a", "hello").await?;
    assert_eq!(world.text(&said).await?, "echo: hello");

    let record = world.model_records(&said).await?.remove(0);
    assert_eq!((record.failed, record.attempts), (vec!["fake:one: unavailable".to_owned()], 1));
    Ok(())
}

#[tokio::test]
async fn a_prompt_is_composed_again_as_of_its_step_and_nothing_else_happens() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.change_agent(|agent| agent.instructions = "Speak of ships.".to_owned()).await?;
    world.model.queue([Reply::call("a", "agents_list", "{}"), Reply::text("there")]);
    let _runner = world.runner().await?;
    let said = world.say("a", "hello").await?;
    assert_eq!(world.text(&said).await?, "there");
    let mut followed = world.bus.subscribe_deltas(world.tenant, said.session).await?;
    world.bus.flush().await;
    world.model.queue([Reply::text("later")]);
    assert_eq!(world.ask("a", "and now?").await?, "later");
    // The journal may have the answer before it is told.
    let is_end = |body: &DeltaBody| matches!(body, DeltaBody::Done { text, .. } if text == "later");
    while !is_end(&timeout(LONG, followed.next()).await?.expect("the bus is there").body) {}
    let entries = world.sessions.views().history(world.tenant, said.session, 100, None).await?;
    let is_thought = |entry: &Entry| matches!(entry, Entry::Thought { .. });
    let thoughts: Vec<_> = entries.iter().filter(|one| is_thought(&one.entry)).collect();
    let (tenant, session) = (world.tenant, said.session);
    let question = |at: usize| PromptQuestion {
        tenant,
        session,
        run: thoughts[at].run,
        seq: thoughts[at].seq,
    };
    let ask = async |at: usize| match world.ask_prompt(&question(at)).await? {
        PromptAnswer::Rendered { prompt } => Ok::<RenderedPrompt, anyhow::Error>(*prompt),
        PromptAnswer::Failed { error } => anyhow::bail!(error),
    };

    let (first, second) = (ask(0).await?, ask(1).await?);

    let roles = |prompt: &RenderedPrompt| {
        prompt.messages.iter().map(|one| one.role.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        (roles(&first), first.messages[0].text.as_str()),
        (vec!["user".to_owned()], "hello")
    );
    assert_eq!(roles(&second), ["user", "assistant", "tool"]);
    assert_eq!(second.messages[1].calls[0].tool, "agents_list");
    assert_eq!(second.messages[2].call_id, "a");
    assert!(first.stable.contains("Speak of ships."), "{}", first.stable);
    assert_eq!(first.model, "fake:one");
    assert!(first.estimated_tokens > 100 && !first.missing.is_empty(), "{:?}", first.missing);
    // The prompts are those that were sent, as far as nothing has changed since.
    for (at, prompt) in [&first, &second].into_iter().enumerate() {
        let names: Vec<&str> = prompt.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, world.model.requests()[at].tool_names());
    }
    // Nobody is asked, told or written to.
    assert_eq!(world.model.count(), 3);
    let told = timeout(Duration::from_millis(300), followed.next()).await;
    assert!(told.is_err(), "{told:?}");
    let after = world.sessions.views().history(world.tenant, said.session, 100, None).await?;
    assert_eq!(after.len(), entries.len());

    let strange = PromptQuestion { run: RunId::generate(), ..question(0) };
    assert!(matches!(world.ask_prompt(&strange).await?, PromptAnswer::Failed { .. }));
    let foreign = PromptQuestion { tenant: TenantId::generate(), ..question(0) };
    assert!(matches!(world.ask_prompt(&foreign).await?, PromptAnswer::Failed { .. }));
    Ok(())
}

#[tokio::test]
async fn a_runner_reports_what_it_does() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.queue([Reply::hang(Duration::from_secs(60))]);
    let runner = world.runner().await?;
    world.say("a", "hello").await?;
    let report = async || {
        let reports = ProcessReport::of_all(&world.bus, Duration::from_millis(300)).await.ok()?;
        reports.into_iter().find(|one| one.service == "agent-runner" && one.running == 1)
    };

    let found = world.until_some("it runs a session", report).await?;

    assert_eq!((found.capacity, found.pool.as_str(), found.is_stopping), (8, "", false));
    assert!(found.id.starts_with("rnr_") && found.started_at_ms > 0, "{found:?}");
    runner.kill();
    Ok(())
}
