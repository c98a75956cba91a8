//! Todos that a subagent does, and skills that a todo names.

use holdfast_testkit::{
    Reply,
    model::{Gate, Request},
};
use holdfast_types::SessionState;
use holdfast_workspace::{Base, ChangeAuthor, Edit};
use serde_json::{Value, json};

use super::script::{behavior_of, input, result};
use crate::world::World;

fn update(code: &str, to: &str) -> Value {
    json!({"op": "update", "code": code, "to_status": to, "reason": "as it is"})
}

/// The parent plans two todos, gives the first one to a subagent, and does the second one after it.
fn delegate(asked: &Request) -> Reply {
    let input = input(asked);
    let is_current = |todo: &str| input.contains(&format!("<current_todo>\n{todo}"));
    match behavior_of(asked) {
        "plan" if input.contains("Paint the fence.") => {
            result(&json!({"next_behavior": "DO:todo=T001"}))
        }
        "do" if is_current("T001 WAIT") => result(&json!({
            "todo_delta": [update("T002", "IN_PROGRESS"), update("T001", "IN_PROGRESS")],
        })),
        "do" if is_current("T001") => result(&json!({
            "todo_delta": [update("T001", "COMPLETE")], "reply": "painted", "next_behavior": "END",
        })),
        "plan" => result(&json!({
            "todo_delta": [{"op": "init", "items": [
                {"title": "paint the fence", "assignee": "painter"},
                {"title": "look at the fence"},
            ]}],
            "actions": [{"tool": "sessions_spawn",
                         "input": {"task": "Paint the fence.", "label": "painter"}}],
            "reply": "Somebody paints.",
            "next_behavior": "DO:todo=T002",
        })),
        "do" => result(&json!({
            "todo_delta": [update("T002", "IN_PROGRESS"), update("T002", "COMPLETE")],
            "reply": "It looks good.",
            "next_behavior": "END",
        })),
        _ => Reply::text("this is no behaviour"),
    }
}

/// Whether the subagent works on its todo.
fn is_painting(asked: &Request) -> bool {
    input(asked).contains("<current_todo>\nT001 IN_PROGRESS")
}

#[tokio::test]
async fn a_todo_waits_for_the_subagent_that_does_the_one_before_it_and_asks_no_model_meanwhile()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "plan".to_owned()).await?;
    let painted = Gate::default();
    let gate = painted.clone();
    world.model.answer(move |asked| {
        if is_painting(asked) { delegate(asked).behind(&gate) } else { delegate(asked) }
    });
    let _runner = world.runner().await?;

    let sent = world.send(world.on_channel("s", "make the fence nice")).await?;
    world.text(&sent).await?;
    // Three requests of the subagent, of which the last one is held back.
    world.until("the subagent works", async || world.model.count() == 4).await?;
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    assert_eq!(world.model.count(), 4, "the waiting parent asks no model");
    assert_eq!(world.state_of(sent.session).await?, SessionState::Wait);
    let state = world.behavior_state(sent.session).await?;
    assert_eq!((&state["behavior"], &state["step"]), (&json!("DO:todo=T002"), &json!(0)));
    painted.open();
    world
        .until("the parent goes on", async || {
            world
                .told_in(sent.session)
                .await
                .is_ok_and(|told| told.last().is_some_and(|last| last == "It looks good."))
        })
        .await?;

    assert_eq!(world.todos(sent.session).await?, ["1 task COMPLETE", "2 task COMPLETE"]);
    // The subagent reads its parent's list, and changes its own todo only.
    let works: Vec<String> = world.asked_as("do").iter().map(|asked| input(asked)).collect();
    let refused = "operation 1 of `todo_delta` was not applied: FORBIDDEN";
    assert!(works.iter().any(|work| work.contains(refused)), "{works:?}");
    let records = "select scope || ' ' || type from work.worklog
                   where type in ('CreateSubAgent.v1', 'TodoChange.v1') order by seq";
    let records = world.texts(records).await?;
    assert!(records.contains(&"session CreateSubAgent.v1".to_owned()), "{records:?}");
    assert!(records.contains(&"subagent TodoChange.v1".to_owned()), "{records:?}");
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn somebody_who_writes_meanwhile_is_answered_by_the_waiting_parent() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "plan".to_owned()).await?;
    world.model.answer(move |asked| match input(asked).contains("how far are you?") {
        true => result(&json!({"reply": "The painter paints.", "next_behavior": "WAIT"})),
        false if is_painting(asked) => Reply::hang(std::time::Duration::from_secs(300)),
        false => delegate(asked),
    });
    let _runner = world.runner().await?;
    world.text(&world.say("s", "make the fence nice").await?).await?;
    world.until("the subagent works", async || world.model.count() == 4).await?;

    assert_eq!(world.ask("s", "how far are you?").await?, "The painter paints.");
    Ok(())
}

#[tokio::test]
async fn the_skills_of_the_current_todo_are_in_its_prompt() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "plan".to_owned()).await?;
    for (name, text) in [("fern", "Mist the leaves."), ("cactus", "Keep it dry.")] {
        let path = format!("skills/{name}/SKILL.md").parse()?;
        let content = format!("---\nname: {name}\ndescription: Care of a {name}.\n---\n{text}");
        let edit = Edit::Put { path, content: content.into(), base: Base::Any };
        let by = ChangeAuthor::new("main", "test");
        world.workspaces.commit(world.tenant, world.agent.id, &by, vec![edit]).await?;
    }
    world.model.answer(|asked| {
        match (behavior_of(asked), input(asked).contains("<current_todo>\nT001")) {
            ("plan", _) => result(&json!({
                "todo_delta": [{"op": "init", "items": [
                    {"title": "water the fern", "skills": ["fern", "no-such-skill"]},
                    {"title": "dust the cactus", "skills": ["cactus"]},
                ]}],
                "next_behavior": "DO:todo=T001",
            })),
            ("do", true) => result(&json!({
                "todo_delta": [update("T001", "IN_PROGRESS"), update("T001", "COMPLETE")],
                "next_behavior": "DO:todo=T002",
            })),
            _ => result(&json!({"reply": "done", "next_behavior": "END"})),
        }
    });
    let _runner = world.runner().await?;

    assert_eq!(world.ask("s", "look after the plants").await?, "done");

    let system = |asked: &Request| asked.messages()[0]["content"].to_string();
    let has = |asked: &Request| {
        (system(asked).contains("Mist the leaves."), system(asked).contains("Keep it dry."))
    };
    assert_eq!(has(&world.asked_as("plan")[0]), (false, false));
    let works = world.asked_as("do");
    assert_eq!((has(&works[0]), has(&works[1])), ((true, false), (false, true)));
    Ok(())
}
