//! Prompt options of an agent are set by its owner.

use holdfast_testkit::Reply;
use holdfast_types::{ContextOptions, PromptStrategy};

use crate::world::World;

/// The system message and the tools of what an agent with these options is told.
async fn told(options: ContextOptions) -> anyhow::Result<(String, Vec<String>)> {
    let world = World::start().await?;
    world.model.answer(|_| Reply::text("hello"));
    world
        .change_agent(|agent| {
            agent.instructions = "Be kind.".to_owned();
            agent.settings.context = options;
        })
        .await?;
    let _runner = world.runner().await?;
    world.text(&world.send(world.owners("hello")).await?).await?;
    let request = world.model.requests().remove(0);
    let tools = request.tool_names().into_iter().map(str::to_owned).collect();
    Ok((request.messages()[0].to_string(), tools))
}

#[tokio::test]
async fn a_full_prompt_holds_everything() -> anyhow::Result<()> {
    let (full, tools) = told(ContextOptions::default()).await?;

    for section in ["Be kind.", "## Tooling", "# Project Context", "Runtime: ", "SOUL.md"] {
        assert!(full.contains(section), "{section}: {full}");
    }
    assert!(tools.contains(&"read".to_owned()), "{tools:?}");
    Ok(())
}

#[tokio::test]
async fn a_lite_prompt_says_who_it_is_and_when_and_what_else_is_asked_for() -> anyhow::Result<()> {
    let lite = ContextOptions { strategy: PromptStrategy::Lite, ..ContextOptions::default() };
    let with_runtime = ContextOptions { include_runtime: Some(true), ..lite.clone() };

    let (short, tools) = told(lite).await?;
    let (longer, _) = told(with_runtime).await?;

    assert!(short.contains("Be kind.") && short.contains("## Now"), "{short}");
    for section in ["## Tooling", "# Project Context", "Runtime: "] {
        assert!(!short.contains(section), "{section}: {short}");
    }
    // Not described, and there all the same.
    assert!(tools.contains(&"read".to_owned()), "{tools:?}");
    assert!(longer.contains("Runtime: ") && !longer.contains("## Tooling"), "{longer}");
    Ok(())
}

#[tokio::test]
async fn a_custom_prompt_leaves_out_what_it_is_told_to_and_its_tools_are_not_there()
-> anyhow::Result<()> {
    let options = ContextOptions {
        strategy: PromptStrategy::Custom,
        include_tools: Some(vec!["read".into(), "write".into(), "session_status".into()]),
        exclude_tools: Some(vec!["write".into()]),
        include_runtime: Some(false),
        ..ContextOptions::default()
    };
    let (custom, tools) = told(options.clone()).await?;

    assert_eq!(tools, ["read", "session_status"]);
    assert!(custom.contains("# Project Context") && !custom.contains("Runtime: "), "{custom}");

    let world = World::start().await?;
    world.model.answer(|asked| match asked.tool_results().as_slice() {
        [] => Reply::call("a", "write", r#"{"path":"a.txt","content":"x"}"#),
        results => Reply::text(results[0].1.clone()),
    });
    world.change_agent(|agent| agent.settings.context = options).await?;
    let _runner = world.runner().await?;

    let refused = world.ask("s", "write it").await?;

    assert!(refused.contains("not one of yours"), "{refused}");
    assert_eq!(world.file("a.txt").await?, None);
    Ok(())
}
