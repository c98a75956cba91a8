//! What a step is shown of earlier work, and a step that has nothing to look at.

use holdfast_agent::compact::SUMMARISER;
use holdfast_directory::Actor;
use holdfast_testkit::Reply;
use holdfast_types::SessionState;
use serde_json::json;

use super::script::{input, play, result, shown};
use crate::world::World;

#[tokio::test]
async fn a_step_is_shown_the_todo_list_and_the_worklog_without_records_that_are_not_for_it()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|_| {}).await?;
    world.model.answer(play);
    let _runner = world.runner().await?;

    world.text(&world.send(world.on_channel("s", "write the text and the note")).await?).await?;

    let last = world.asked_as("check").last().map(|asked| shown(asked)).unwrap();
    let memory = last.split("<<input>>").next().unwrap_or_default();
    assert!(memory.contains("<<memory>>"), "{memory}");
    assert!(memory.contains("Todos: "), "{memory}");
    assert!(memory.contains("- T002 COMPLETE: write the note"), "{memory}");
    for part in ["Effects:\n- ", "Steps:\n- ", "Newest steps:\n- "] {
        assert!(memory.contains(part), "{part}: {memory}");
    }
    // A message is in the history, and its record is not shown.
    assert!(memory.contains("omitted_event_types: ") && memory.contains("GetMessage.v1"));
    Ok(())
}

#[tokio::test]
async fn a_step_is_shown_the_summary_of_what_was_said_before() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "do".to_owned()).await?;
    let long = "much ".repeat(500);
    world.model.answer(move |asked| {
        let system = asked.messages()[0]["content"].as_str().unwrap_or_default();
        if system.contains(SUMMARISER) {
            return Reply::text("They spoke of a cat.");
        }
        if asked.last_user_text().starts_with("Pre-compaction memory flush") {
            return Reply::text("NO_REPLY");
        }
        result(&json!({"reply": long, "next_behavior": "END"}))
    });
    let _runner = world.runner().await?;
    for text in ["my cat is Tom", "more", "/compact", "and now?"] {
        world.text(&world.send(world.owners(text)).await?).await?;
    }

    let last = world.model.requests().last().map(|asked| shown(asked)).unwrap();
    let memory = last.split("<<input>>").next().unwrap_or_default();
    assert!(memory.contains("They spoke of a cat."), "{memory}");
    assert!(!memory.contains("my cat is Tom"), "{memory}");
    Ok(())
}

#[tokio::test]
async fn a_step_without_input_asks_no_model_and_the_session_waits() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "own".to_owned()).await?;
    let own =
        "process_rule: Work.\ninput: |\n  Look at this:\n  {{new_event}}\n  {{current_todo}}\n";
    let (by, at) = (Actor::Operator, (Some(world.agent.id), "own"));
    world.directory.behaviors().put(world.tenant, by, at, None, own).await?;
    world.model.answer(|_| result(&json!({"reply": "seen", "next_behavior": "END"})));
    let _runner = world.runner().await?;

    let sent = world.say("s", "hello").await?;
    assert_eq!(world.text(&sent).await?, "");
    assert_eq!(world.model.count(), 0);
    assert_eq!(world.state_of(sent.session).await?, SessionState::Wait);
    let steps = "select count(*) from work.worklog where type = 'StepSummary.v1'";
    assert_eq!(world.number(steps).await?, 0);

    let event = holdfast_types::Body {
        event: Some("mail.new".to_owned()),
        ..holdfast_types::Body::text("a letter")
    };
    let told = holdfast_session::NewMessage { body: event, ..world.message("s", "") };
    assert_eq!(world.text(&world.send(told).await?).await?, "seen");
    assert_eq!(world.model.count(), 1);
    assert!(input(&world.model.requests()[0]).contains("a letter"));
    Ok(())
}
