//! Limits of behaviours: of a step, of a behaviour, and of a scheduling period.

use std::time::{Duration, Instant};

use holdfast_directory::{Actor, BehaviorSettings};
use holdfast_llm::ModelCard;
use holdfast_session::TurnOutcome;
use holdfast_testkit::Reply;
use holdfast_types::{Entry, HitPointSettings, SessionState};
use serde_json::json;

use super::script::{behavior_of, input, play, result};
use crate::{economy, world::World};

/// The agent works by one behaviour of its own.
async fn use_own(world: &World, rules: &str) -> anyhow::Result<()> {
    world.use_behaviors(|settings| settings.default = "own".to_owned()).await?;
    let (agent, source) = (Some(world.agent.id), format!("process_rule: Work.\n{rules}"));
    let put = world.directory.behaviors();
    put.put(world.tenant, Actor::Operator, (agent, "own"), None, &source).await?;
    Ok(())
}

#[tokio::test]
async fn a_turn_that_reaches_a_limit_of_its_period_yields_and_goes_on() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.max_steps = 2).await?;
    world.model.answer(play);
    let _runner = world.runner().await?;

    let sent = world.send(world.on_channel("s", "write the text and the note")).await?;

    assert_eq!(world.text(&sent).await?, "All is done.");
    assert_eq!(world.told_in(sent.session).await?, ["On it.", "All is done."]);
    // Nine steps, two at a time.
    let claims = world.number("select epoch from session.session_lease").await?;
    assert!(claims >= 5, "{claims}");
    assert_eq!(world.number("select count(*) from session.runs").await?, 1);
    assert_eq!(world.model.count(), 11);
    Ok(())
}

#[tokio::test]
async fn work_that_does_not_end_is_given_up() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.max_steps = 2).await?;
    world.model.answer(|asked| match behavior_of(asked) {
        "plan" => result(&json!({"next_behavior": "DO"})),
        "do" => result(&json!({"next_behavior": "PLAN"})),
        _ => play(asked),
    });
    let _runner = world.runner().await?;

    let answer = world.answer(&world.say("s", "go round in circles").await?).await?;

    assert_eq!(answer.outcome, Some(TurnOutcome::Failed), "{answer:?}");
    assert!(answer.text.contains("did not come to an end"), "{}", answer.text);
    assert_eq!(world.model.count(), 16);
    Ok(())
}

#[tokio::test]
async fn a_behaviour_beyond_its_step_limit_is_left() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "plan".to_owned()).await?;
    world.model.answer(|asked| match behavior_of(asked) {
        "adjust" => result(&json!({"reply": "This leads nowhere.", "next_behavior": "END"})),
        _ => result(&json!({"thinking": "hm"})),
    });
    let _runner = world.runner().await?;

    assert_eq!(world.ask("s", "think").await?, "This leads nowhere.");

    let planned = world.asked_as("plan").len();
    assert_eq!(planned, 17, "a limit of 16 is 17 steps, from 0");
    Ok(())
}

#[tokio::test]
async fn calls_beyond_the_limits_of_a_step_are_not_made() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "check".to_owned()).await?;
    let calls = (0..20).map(|n| (format!("c{n}"), "agents_list".to_owned(), "{}".to_owned()));
    let calls: Vec<(String, String, String)> = calls.collect();
    world.model.answer(move |asked| match asked.tool_names().is_empty() {
        false => Reply::calls(calls.clone()),
        true => result(&json!({"reply": "enough", "next_behavior": "END"})),
    });
    let _runner = world.runner().await?;

    let sent = world.say("s", "look").await?;
    assert_eq!(world.text(&sent).await?, "enough");

    let (mut made, mut refused) = (0, 0);
    for entry in world.journal(sent.session).await? {
        match entry {
            Entry::Returned { output, failed: true, .. } => {
                assert!(output.starts_with("not made: the limit of calls at once"), "{output}");
                refused += 1;
            }
            Entry::Returned { .. } => made += 1,
            _ => {}
        }
    }
    // Eight rounds of eight calls of the twenty, and the call that applies the result.
    assert_eq!((made, refused), (8 * 8 + 1, 8 * 12));
    assert_eq!(world.model.count(), 9);
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn a_request_beyond_the_time_of_its_behaviour_ends_the_turn() -> anyhow::Result<()> {
    let world = World::start().await?;
    use_own(&world, "limits: {deadline_ms: 500}").await?;
    world.model.answer(|asked| match input(asked).contains("again") {
        false => Reply::hang(Duration::from_secs(300)),
        true => result(&json!({"reply": "here", "next_behavior": "END"})),
    });
    let _runner = world.runner().await?;

    // The runner itself waits for a minute, and `answer` for less.
    let late = world.answer(&world.say("s", "begin").await?).await?;
    assert_eq!(late.outcome, Some(TurnOutcome::Failed), "{late:?}");
    // The next answer has the usual time.
    use_own(&world, "").await?;
    tokio::time::sleep(holdfast_directory::AGENT_CACHE_TTL).await;
    assert_eq!(world.ask("s", "again").await?, "here");

    // The model is told no limit.
    let told = world.model.requests()[0].body.to_string();
    assert!(!told.contains("500") && !told.contains("deadline_ms\":5"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_step_whose_time_is_over_has_no_further_round_of_calls() -> anyhow::Result<()> {
    let world = World::start().await?;
    use_own(&world, "limits: {deadline_ms: 12000, max_tool_rounds: 100}").await?;
    world.model.latency(Duration::from_secs(2));
    world.model.answer(|asked| match asked.tool_names().is_empty() {
        false => {
            let id = format!("c{}", asked.messages().len());
            Reply::call(id, "agents_list", "{}")
        }
        true => result(&json!({"reply": "enough", "next_behavior": "END"})),
    });
    let _runner = world.runner().await?;

    assert_eq!(world.ask("s", "look").await?, "enough");

    let count = world.model.count();
    assert!((2..=8).contains(&count), "{count} requests of 2 s in 12 s");
    Ok(())
}

#[tokio::test]
async fn a_behaviour_is_asked_of_its_model_or_a_fallback_with_its_temperature() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let by = Actor::Operator;
    for (alias, model) in [("thinker", "fake:large"), ("quick", "fake:small")] {
        world.directory.models().put_alias(world.tenant, by, alias, model).await?;
    }
    let card = ModelCard { temperature: true, ..ModelCard::default() };
    world.directory.models().put(world.tenant, by, &"fake:large".parse()?, &card).await?;
    let end = json!({"reply": "done", "next_behavior": "END"});
    world.model.answer(move |_| result(&end));
    let _runner = world.runner().await?;

    let mut asked = Vec::new();
    for (number, llm) in [
        "{preferred: thinker, fallbacks: [quick], temperature: 0.25}",
        "{preferred: no-such-alias, fallbacks: [gone:model, quick]}",
        "{preferred: no-such-alias}",
    ]
    .iter()
    .enumerate()
    {
        use_own(&world, &format!("llm: {llm}")).await?;
        tokio::time::sleep(holdfast_directory::AGENT_CACHE_TTL).await;
        assert_eq!(world.ask(&format!("s{number}"), "work").await?, "done");
        let last = world.model.requests().last().map(|asked| asked.body.clone()).unwrap();
        asked.push((last["model"].clone(), last["temperature"].clone()));
    }

    assert_eq!(
        asked,
        [(json!("large"), json!(0.25)), (json!("small"), json!(null)), (json!("one"), json!(null)),]
    );
    Ok(())
}

#[tokio::test]
async fn a_prompt_beyond_its_limit_shrinks_and_keeps_its_rules() -> anyhow::Result<()> {
    let world = World::start().await?;
    let rules = "policy: Never shout.\nlimits: {max_prompt_tokens: 6000}";
    use_own(&world, rules).await?;
    let end = json!({"reply": "done", "next_behavior": "END"});
    world.model.answer(move |_| result(&end));
    let _runner = world.runner().await?;

    // A CJK character is about one token.
    for text in ["\u{597d}".repeat(4_000), "\u{4f60}".repeat(30_000)] {
        assert_eq!(world.ask("s", &text).await?, "done");
    }

    let requests = world.model.requests().into_iter().filter(|asked| {
        let system = asked.messages()[0]["content"].as_str();
        system.is_some_and(|system| system.contains("<<process_rules>>"))
    });
    let requests: Vec<_> = requests.collect();
    for asked in &requests {
        let system = asked.messages()[0]["content"].as_str().unwrap_or_default();
        for part in ["<<process_rules>>\nWork.", "<<policy>>\nNever shout.", "JSON schema:"] {
            assert!(system.contains(part), "{system}");
        }
    }
    let shown = requests[1].last_user_text();
    let kept = shown.matches('\u{4f60}').count();
    assert!((100..6_000).contains(&kept), "{kept} of 30000 characters");
    assert!(shown.contains("[TRUNCATED]"), "the cut is marked");
    Ok(())
}

#[tokio::test]
async fn a_turn_that_has_used_up_its_hit_points_gives_its_runner_back_and_goes_on_after_a_rest()
-> anyhow::Result<()> {
    let world = World::start().await?;
    // Each result of a tool, and so each step, costs 13; one comes back in a second. The first step
    // has 12 s to bring the level below the floor.
    let settings = HitPointSettings {
        max: 1_000,
        floor: 100,
        per_token_milli: 0,
        per_action_milli: 0,
        per_tool_milli: 13_000,
        per_io_milli: 0,
        recovery_milli: 1_000,
    };
    let work = BehaviorSettings { default: "do".to_owned(), ..BehaviorSettings::default() };
    world
        .change_agent(|agent| {
            agent.settings.behaviors = Some(work);
            agent.settings.hit_points = Some(settings);
        })
        .await?;
    world.model.queue([
        result(&json!({"thinking": "hm"})),
        result(&json!({"reply": "done", "next_behavior": "END"})),
    ]);
    let _runner = world.runner().await?;
    economy::set_level(&world, 101_000).await?;

    let begun = Instant::now();
    let sent = world.say("s", "work").await?;
    world.until("the first step is made", async || world.model.count() == 1).await?;
    world
        .until("the session rests", async || {
            world.state_of(sent.session).await.is_ok_and(|state| state == SessionState::Ready)
        })
        .await?;
    assert_eq!(world.model.count(), 1);

    assert_eq!(world.text(&sent).await?, "done");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(world.number("select count(*) from session.runs").await?, 1);
    assert!(world.number("select epoch from session.session_lease").await? >= 2);
    Ok(())
}
