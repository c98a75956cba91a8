//! An agent that looks after itself while nobody needs it.

use std::time::Duration;

use holdfast_directory::BehaviorSettings;
use holdfast_testkit::{Reply, model::Request};
use holdfast_types::{SelfImproveSettings, SessionKey};
use serde_json::json;

use super::script::{input, result};
use crate::world::World;

/// Time in which an agent that may look after itself would have begun to.
const LONG_ENOUGH: Duration = Duration::from_secs(4);

impl World {
    async fn look_after_itself(&self, settings: SelfImproveSettings) -> anyhow::Result<()> {
        self.change_agent(|agent| {
            let default = "do".to_owned();
            agent.settings.behaviors = Some(BehaviorSettings { default, ..Default::default() });
            agent.settings.self_improve = Some(settings);
        })
        .await?;
        Ok(())
    }

    /// Number of runs that looked after the agent.
    async fn upkeep_runs(&self) -> anyhow::Result<i64> {
        let key = SessionKey::self_improvement(&self.agent.name);
        let sql = format!(
            "select count(*) from session.runs r join session.sessions s using (tenant_id, session_id)
             where s.key = '{key}'"
        );
        self.number(&sql).await
    }

    async fn until_upkeep(&self, runs: i64) -> anyhow::Result<()> {
        let done = async || self.upkeep_runs().await.is_ok_and(|all| all == runs);
        self.until("the agent has looked after itself", done).await
    }
}

fn rested() -> SelfImproveSettings {
    SelfImproveSettings { idle_s: 1, max_per_day: 2, max_tokens: 1_000_000 }
}

fn is_upkeep(asked: &Request) -> bool {
    let system = asked.messages()[0]["content"].as_str().unwrap_or_default();
    system.contains("Put your own things in order")
}

#[tokio::test]
async fn an_agent_that_has_rested_looks_after_itself_in_a_session_of_its_own_and_proposes()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.look_after_itself(rested()).await?;
    let skill = "---\nname: tea\ndescription: Makes tea.\n---\nBoil water.\n";
    let called = |tool: &str, input: serde_json::Value| json!({"tool": tool, "input": input});
    let propose = json!({
        "action": "propose", "kind": "skill", "name": "tea", "text": skill,
        "goal": "make tea faster", "risk": "none", "benefit": "time",
    });
    world.model.answer(move |asked| match (is_upkeep(asked), input(asked)) {
        (false, _) => result(&json!({"reply": "here", "next_behavior": "END"})),
        (true, input) if input.contains("Proposed as prp_") => {
            result(&json!({"next_behavior": "END"}))
        }
        (true, _) => result(&json!({"actions": [
            called("write", json!({"path": "skills/tea/SKILL.md", "content": skill})),
            called("self", json!({"action": "change", "section": "objectives"})),
            called("write", json!({"path": "memory/upkeep.md", "content": "Anna likes tea.\n"})),
            called("self", propose.clone()),
        ]})),
    });
    let _runner = world.runner().await?;
    // Nobody has talked to it yet.
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!((world.upkeep_runs().await?, world.model.count()), (0, 0));

    world.text(&world.send(world.owners("hello")).await?).await?;
    world.until_upkeep(1).await?;

    let asked = world.model.requests().into_iter().find(|asked| is_upkeep(asked)).unwrap();
    assert!(input(&asked).contains("look after your own things"), "{}", input(&asked));
    let state = "select kind || ' ' || state from work.proposals";
    assert_eq!(world.texts(state).await?, ["skill proposed"]);
    assert_eq!(world.file("skills/tea/SKILL.md").await?, None);
    assert_eq!(world.file("self.md").await?, None);
    assert_eq!(world.file("memory/upkeep.md").await?.as_deref(), Some("Anna likes tea.\n"));
    assert_eq!(world.number("select count(*) from session.approvals").await?, 0);
    // Nothing has happened since.
    let count = world.model.count();
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!((world.upkeep_runs().await?, world.model.count()), (1, count));
    Ok(())
}

#[tokio::test]
async fn it_runs_as_often_in_a_day_as_is_set_and_never_if_it_is_off() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.look_after_itself(rested()).await?;
    world.model.answer(|_| result(&json!({"reply": "here", "next_behavior": "END"})));
    let _runner = world.runner().await?;

    for runs in [1, 2] {
        world.text(&world.send(world.owners("hello")).await?).await?;
        world.until_upkeep(runs).await?;
    }
    world.text(&world.send(world.owners("hello")).await?).await?;
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!(world.upkeep_runs().await?, 2);

    world.admin("update session.self_improvements set day = day - 1").await?;
    world.change_agent(|agent| agent.settings.self_improve = None).await?;
    world.text(&world.send(world.owners("hello")).await?).await?;
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!(world.upkeep_runs().await?, 2);
    assert_eq!(world.number("select count(*) from session.self_improvements").await?, 0);
    Ok(())
}

#[tokio::test]
async fn its_run_ends_after_the_step_that_uses_up_the_tokens_of_the_day() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.look_after_itself(SelfImproveSettings { max_tokens: 1, ..rested() }).await?;
    world.model.answer(|asked| match is_upkeep(asked) {
        false => result(&json!({"reply": "here", "next_behavior": "END"})),
        // It would go on and on.
        true => result(&json!({"thinking": "more", "actions": []})),
    });
    let _runner = world.runner().await?;

    world.text(&world.send(world.owners("hello")).await?).await?;
    world.until_upkeep(1).await?;
    let asked = || world.model.requests().iter().filter(|asked| is_upkeep(asked)).count();
    assert_eq!(asked(), 1);

    // The next run of the day has nothing left, and asks no model.
    world.text(&world.send(world.owners("hello")).await?).await?;
    world.until_upkeep(2).await?;
    assert_eq!(asked(), 1);
    Ok(())
}

#[tokio::test]
async fn it_waits_while_a_conversation_runs() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.look_after_itself(rested()).await?;
    world.model.answer(|_| Reply::hang(Duration::from_secs(30)));
    let _runner = world.runner().await?;

    world.send(world.owners("think long")).await?;
    tokio::time::sleep(LONG_ENOUGH).await;

    assert_eq!(world.upkeep_runs().await?, 0);
    assert_eq!(world.number("select count(*) from session.sessions").await?, 1);
    Ok(())
}
