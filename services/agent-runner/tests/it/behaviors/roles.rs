//! What each of the built-in behaviours may do with todos, and where it goes on.

use holdfast_testkit::Reply;
use serde_json::{Value, json};

use super::script::{input, result};
use crate::world::World;

fn update(code: &str, to: &str) -> Value {
    json!({"op": "update", "code": code, "to_status": to, "reason": "as it is"})
}

fn plan(titles: &[&str], next: &str) -> Reply {
    let items: Vec<Value> = titles.iter().map(|title| json!({"title": title})).collect();
    result(&json!({"todo_delta": [{"op": "init", "items": items}], "next_behavior": next}))
}

fn change(updates: &[(&str, &str)], next: Value) -> Reply {
    let updates: Vec<Value> = updates.iter().map(|(code, to)| update(code, to)).collect();
    result(&json!({"todo_delta": updates, "next_behavior": next}))
}

fn end(reply: &str) -> Reply {
    result(&json!({"reply": reply, "next_behavior": "END"}))
}

async fn start() -> anyhow::Result<World> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "plan".to_owned()).await?;
    Ok(world)
}

/// Behaviour and number of each step, as the worklog has them.
async fn steps(world: &World) -> anyhow::Result<Vec<String>> {
    let steps = "select behavior || ' ' || step from work.worklog
                 where type = 'StepSummary.v1' order by seq";
    world.texts(steps).await
}

#[tokio::test]
async fn a_todo_is_given_up_only_after_several_attempts_and_then_adjusted() -> anyhow::Result<()> {
    let world = start().await?;
    world.model.queue([
        plan(&["dig"], "DO:todo=T001"),
        change(&[("T001", "IN_PROGRESS"), ("T001", "FAILED")], json!(null)),
        change(&[("T001", "IN_PROGRESS"), ("T001", "FAILED")], json!("ADJUST:todo=T001")),
        end("It cannot be dug."),
    ]);
    let _runner = world.runner().await?;

    let sent = world.say("s", "dig").await?;
    assert_eq!(world.text(&sent).await?, "It cannot be dug.");

    assert_eq!(world.todos(sent.session).await?, ["1 task FAILED"]);
    let second = input(&world.model.requests()[2]);
    assert!(second.contains("`T001` was tried 1 time, and fails after 2"), "{second}");
    assert!(second.contains("<current_todo>\nT001 IN_PROGRESS"), "{second}");
    let expected = ["plan 0", "DO:todo=T001 0", "DO:todo=T001 1", "ADJUST:todo=T001 0"];
    assert_eq!(steps(&world).await?, expected);
    Ok(())
}

#[tokio::test]
async fn each_behaviour_makes_the_changes_of_its_role_and_a_check_goes_on_with_what_is_left()
-> anyhow::Result<()> {
    let world = start().await?;
    world.model.queue([
        plan(&["dig", "fill"], "DO:todo=T001"),
        // Whether it is done is for the check to say.
        change(
            &[("T001", "IN_PROGRESS"), ("T001", "COMPLETE"), ("T001", "DONE")],
            json!("CHECK:todo=T001"),
        ),
        // The check repairs nothing, and begins nothing.
        change(&[("T002", "IN_PROGRESS"), ("T001", "CHECK_FAILED")], json!("ADJUST:todo=T001")),
        change(&[("T001", "DONE"), ("T001", "WAIT")], json!("DO:todo=T001")),
        change(&[("T001", "IN_PROGRESS"), ("T001", "COMPLETE")], json!("CHECK:todo=T001")),
        change(&[("T001", "DONE")], json!("DO:todo=T002")),
        change(&[("T002", "IN_PROGRESS"), ("T002", "COMPLETE")], json!("CHECK")),
        result(&json!({
            "todo_delta": [update("T002", "DONE")], "reply": "All is checked.",
            "next_behavior": "END",
        })),
    ]);
    let _runner = world.runner().await?;

    let sent = world.say("s", "dig and fill").await?;
    assert_eq!(world.text(&sent).await?, "All is checked.");

    assert_eq!(world.todos(sent.session).await?, ["1 task DONE", "2 task DONE"]);
    let requests = world.model.requests();
    for (at, operation) in [(2, 3), (3, 1), (4, 1)] {
        let told = input(&requests[at]);
        let refused = format!("operation {operation} of `todo_delta` was not applied");
        assert!(told.contains(&refused) && told.contains("INVALID_TRANSITION"), "{at}: {told}");
    }
    Ok(())
}

#[tokio::test]
async fn bench_and_replan_are_behaviours_too_and_done_is_the_end() -> anyhow::Result<()> {
    let world = start().await?;
    world.model.queue([
        plan(&["dig"], "BENCH"),
        result(&json!({"next_behavior": "REPLAN"})),
        plan(&["dig deeper", "fill"], "BENCH"),
        result(&json!({"reply": "Accepted.", "next_behavior": "DONE"})),
        end("Hello again."),
    ]);
    let _runner = world.runner().await?;

    let sent = world.say("s", "dig").await?;
    assert_eq!(world.text(&sent).await?, "Accepted.");
    assert_eq!(world.todos(sent.session).await?.len(), 2);
    assert_eq!(world.behavior_state(sent.session).await?["ended"], json!(true));
    let steps = steps(&world).await?;
    assert_eq!(steps[1..], ["BENCH 0", "REPLAN 0", "BENCH 0"]);

    // After the end the next message begins anew.
    assert_eq!(world.ask("s", "hi").await?, "Hello again.");
    assert_eq!(world.behavior_state(sent.session).await?["behavior"], json!("plan"));
    Ok(())
}
