//! Tokens of steps: limits of the router's memory, and actions in a batch.

use holdfast_agent::{
    compact::SUMMARISER,
    tokens::{CjkAware, Tokenizer as _},
};
use holdfast_directory::Actor;
use holdfast_llm::ModelCard;
use holdfast_testkit::Reply;
use serde_json::json;

use super::script::{input, result, shown};
use crate::{patches::put, world::World};

/// Tokens of a bucket of a memory section, without its tags.
fn bucket_tokens(memory: &str, name: &str) -> usize {
    let rest = memory.split(&format!("<{name}>")).nth(1).unwrap_or_default();
    CjkAware.count(rest.split(&format!("</{name}>")).next().unwrap_or_default())
}

#[tokio::test]
async fn the_router_is_shown_memory_history_and_summary_up_to_their_limits() -> anyhow::Result<()> {
    let world = World::start().await?;
    let card = ModelCard { context: 100_000, ..ModelCard::default() };
    let model = "fake:one".parse()?;
    world.directory.models().put(world.tenant, Actor::Operator, &model, &card).await?;
    world.use_behaviors(|_| {}).await?;
    // A CJK character is about one token.
    put(&world, "MEMORY.md", &"\u{8a18}".repeat(5_000)).await?;
    let (summary, said) = ("\u{7d04}".repeat(10_000), "\u{597d}".repeat(2_500));
    world.model.answer(move |asked| {
        let system = asked.messages()[0]["content"].as_str().unwrap_or_default();
        if system.contains(SUMMARISER) {
            return Reply::text(summary.clone());
        }
        if asked.last_user_text().starts_with("Pre-compaction memory flush") {
            return Reply::text("NO_REPLY");
        }
        result(&json!({"next_behavior": "END", "reply": "Noted.", "memory_queries": []}))
    });
    let _runner = world.runner().await?;

    for text in ["one", "two", "/compact", said.as_str(), said.as_str(), "and now?"] {
        world.text(&world.send(world.owners(text)).await?).await?;
    }

    let told = world.asked_as("route").last().map(|asked| shown(asked)).unwrap();
    let memory = told.split("<</memory>>").next().unwrap_or_default();
    let memory = memory.trim_start_matches("<<memory>>").trim();
    for (name, limit) in
        [("agent_memory", 3_000), ("history_messages", 3_000), ("session_summaries", 6_000)]
    {
        let used = bucket_tokens(memory, name);
        assert!(used <= limit && used > limit * 9 / 10, "{name}: {used} of {limit}");
    }
    let all = CjkAware.count(memory);
    assert!(all <= 12_000, "{all} of 12000");
    // The newest message is whole, and the one before it is cut.
    let kept = memory.matches('\u{597d}').count();
    assert!((2_501..5_000).contains(&kept), "{kept} of 5000 characters");
    Ok(())
}

#[tokio::test]
async fn actions_in_a_batch_use_fewer_tokens_than_the_same_calls_one_by_one() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "do".to_owned()).await?;
    let _runner = world.runner().await?;
    let files = ["a", "b", "c"];
    let write = |path: &str| json!({"path": path, "content": "x"});
    let end = || result(&json!({"reply": "done", "next_behavior": "END"}));

    let actions = files.map(|path| json!({"tool": "write", "input": write(path)}));
    world.model.queue([result(&json!({"actions": actions})), end()]);
    let batch = world.answer(&world.say("batch", "write three files").await?).await?;
    let calls = files.map(|path| Reply::call(path, "write", write(path).to_string()));
    world.model.queue(calls.into_iter().chain([end()]));
    let single = world.answer(&world.say("single", "write three files").await?).await?;

    assert_eq!((batch.text.as_str(), single.text.as_str()), ("done", "done"));
    for path in files {
        for session in ["batch", "single"] {
            let written = world.file(&format!("people/api={session}/{path}")).await?;
            assert_eq!(written.as_deref(), Some("x"), "{session}, {path}");
        }
    }
    // The model has seen the results of both before it ended the work.
    let requests = world.model.requests();
    assert_eq!(requests.len(), 2 + 4);
    let results = "<result tool=\"write\" state=\"ok\">";
    assert_eq!(input(&requests[1]).matches(results).count(), 3, "{}", input(&requests[1]));
    let used = [batch.usage, single.usage].map(|usage| usage.input + usage.output);
    assert!(used[0] < used[1], "{used:?} tokens");
    Ok(())
}
