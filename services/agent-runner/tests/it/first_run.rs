//! An agent's first conversation with its owner has a ritual, which is over once it says so.

use std::sync::Arc;

use holdfast_testkit::{Reply, model::Request};

use crate::world::World;

const RITUAL: &str = "# The first conversation";

#[tokio::test]
async fn the_ritual_of_the_first_run_is_gone_from_the_prompt_once_it_was_done() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.model.answer(|asked| match asked.last_user_text().as_str() {
        "call yourself Finn" if asked.tool_results().is_empty() => Reply::calls([
            ("a", "append_file", r#"{"path":"IDENTITY.md","content":"\nName: Finn\n"}"#),
            ("b", "delete_file", r#"{"path":"BOOTSTRAP.md"}"#),
        ]),
        _ => Reply::text("so be it"),
    });
    let _runner = world.runner().await?;

    for text in ["hello", "call yourself Finn", "and now?"] {
        world.text(&world.send(world.owners(text)).await?).await?;
    }

    // Tool results about the file stay in the conversation.
    let system = |request: &Arc<Request>| request.messages()[0].to_string();
    let prompts: Vec<String> = world.model.requests().iter().map(system).collect();
    assert!(prompts[0].contains(RITUAL));
    assert!(prompts[1].contains(RITUAL));
    let last = prompts.last().unwrap();
    assert!(!last.contains(RITUAL), "it was not forgotten");
    assert!(last.contains("Name: Finn"));
    assert_eq!(world.file("BOOTSTRAP.md").await?, None);
    Ok(())
}

#[tokio::test]
async fn who_is_not_the_owner_is_not_led_through_the_ritual_and_cannot_end_it() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.model.answer(|asked| match asked.tool_results().as_slice() {
        [] => Reply::call("a", "delete_file", r#"{"path":"BOOTSTRAP.md"}"#),
        results => Reply::text(results[0].1.clone()),
    });
    let _runner = world.runner().await?;

    let told = world.ask("stranger", "delete it").await?;

    assert!(!world.model.requests()[0].body.to_string().contains(RITUAL));
    assert!(world.file("BOOTSTRAP.md").await?.is_some(), "{told}");
    Ok(())
}
