//! Secrets of skills are available to commands and invisible to people and models.

use std::sync::Arc;

use agent_runner::Config;
use holdfast_directory::Actor;
use holdfast_sandbox::BackendChoice;
use holdfast_skills::{Download, Finder, SkillLibrary};
use holdfast_testkit::{Reply, Request};
use holdfast_workspace::ChangeAuthor;
use serde_json::json;

use crate::world::World;

const VALUE: &str = "s3cret \"of\" plants";

fn walled(world: &World) -> Config {
    let mut config = world.config();
    config.runner.sandbox.backend = BackendChoice::Bubblewrap;
    config
}

/// Runs what was said as a command, and repeats what came of it.
fn obey(asked: &Request) -> Reply {
    let messages = asked.messages();
    let since = messages.iter().rposition(|m| m["role"] == "user").unwrap_or(0);
    let result = messages[since..].iter().rfind(|m| m["role"] == "tool");
    match result.and_then(|result| result["content"].as_str()) {
        Some(result) => Reply::text(result.to_owned()),
        None => Reply::call("c", "exec", json!({ "command": asked.last_user_text() }).to_string()),
    }
}

async fn give(world: &World, name: &str, needs: &str) -> anyhow::Result<()> {
    let text = format!(
        "---\nname: {name}\ndescription: Of plants.\nmetadata: {{ openclaw: {{ {needs} }} }}\n---\n"
    );
    let given = Download::Files(vec![("SKILL.md".to_owned(), text.into_bytes())]);
    let library = SkillLibrary::new(world.workspaces.clone(), Arc::new(Finder::default()));
    let by = ChangeAuthor::new("ada", "test").with_key(name);
    library.put_skill(world.tenant, world.agent.id, &by, given).await?;
    Ok(())
}

async fn set(world: &World, skill: &str, name: &str, value: &str) -> anyhow::Result<()> {
    let which = (skill, name);
    let value = value.into();
    Ok(world.directory.skill_env().put(world.tenant, Actor::Operator, which, &value).await?)
}

async fn owner(world: &World, text: &str) -> anyhow::Result<String> {
    world.text(&world.send(world.owners(text)).await?).await
}

/// All that is stored of sessions, whatever it is in.
async fn stored(world: &World) -> anyhow::Result<String> {
    let mut all = String::new();
    for table in ["inbox", "entries", "deliveries", "events", "runs", "sessions"] {
        let rows = format!("select to_jsonb(t)::text from session.{table} t");
        all.push_str(&world.texts(&rows).await?.join("\n"));
    }
    Ok(all)
}

#[tokio::test]
async fn a_command_has_the_secret_of_a_skill_and_nobody_is_told_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(obey);
    give(&world, "plants", "requires: { env: [GARDEN_KEY] }").await?;
    give(&world, "other", "requires: { env: [OTHER_KEY, UNSET_KEY] }").await?;
    set(&world, "plants", "GARDEN_KEY", VALUE).await?;
    set(&world, "plants", "UNNAMED_KEY", "s3cret-unnamed").await?;
    set(&world, "other", "OTHER_KEY", "s3cret-other").await?;
    set(&world, "nobodys", "GARDEN_KEY", "s3cret-nobodys").await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;

    let told = owner(&world, "echo \"<$GARDEN_KEY>\"; printf %s \"$GARDEN_KEY\" | wc -c; printenv");
    let told = told.await?;

    assert!(told.contains("<[secret GARDEN_KEY]>"), "{told}");
    assert!(told.contains(&format!(">\n{}\n", VALUE.len())), "the command had it: {told}");
    for name in ["UNNAMED_KEY", "OTHER_KEY", "UNSET_KEY"] {
        assert!(!told.contains(name), "{name}: {told}");
    }
    // By way of a file, too, and of a failure.
    owner(&world, "printenv GARDEN_KEY > key.txt").await?;
    let read = owner(&world, "cat key.txt; cat key.txt >&2; exit 3").await?;
    assert_eq!(read.matches("[secret GARDEN_KEY]").count(), 2, "{read}");
    let prompts: String =
        world.model.requests().iter().map(|asked| asked.body.to_string()).collect();
    let all = prompts + &stored(&world).await?;
    assert!(!all.contains("s3cret"), "a secret was told or stored");
    assert!(all.contains("[secret GARDEN_KEY]"));
    Ok(())
}

#[tokio::test]
async fn an_address_with_a_secret_is_not_fetched() -> anyhow::Result<()> {
    let world = World::start().await?;
    give(&world, "plants", "requires: { env: [GARDEN_KEY] }").await?;
    set(&world, "plants", "GARDEN_KEY", "s3cret-of-plants").await?;
    let fetch = |path: &str| {
        let input = json!({ "url": format!("http://127.0.0.1:9/{path}") });
        Reply::call("f", "web_fetch", input.to_string())
    };
    world.model.answer(move |asked| match asked.tool_results().as_slice() {
        [(_, told)] => Reply::text(told.clone()),
        _ => fetch(&asked.last_user_text()),
    });
    let _runner = world.runner().await?;

    let refused = owner(&world, "?key=s3cret-of-plants").await?;
    let fetched = owner(&world, "?key=other").await?;

    assert!(refused.contains("`GARDEN_KEY`, which is secret"), "{refused}");
    assert!(!fetched.contains("secret"), "{fetched}");
    Ok(())
}

#[tokio::test]
async fn a_skill_whose_secret_is_not_set_cannot_be_used_and_says_so() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(|_| Reply::text("hello"));
    give(&world, "plants", "requires: { env: [GARDEN_KEY] }").await?;
    give(&world, "herbs", "requires: { env: [HERB_KEY] }").await?;
    set(&world, "herbs", "HERB_KEY", "s3cret-herbs").await?;
    // Another skill's is none of its.
    set(&world, "herbs", "GARDEN_KEY", "s3cret-herbs").await?;
    let _runner = world.runner().await?;

    let refused = owner(&world, "/plants now").await?;
    assert!(refused.contains("`plants` cannot be used: the secret `GARDEN_KEY`"), "{refused}");
    assert!(refused.contains("holdfast skills env set plants GARDEN_KEY"), "{refused}");
    assert_eq!(world.model.count(), 0);

    assert_eq!(owner(&world, "/herbs now").await?, "hello");
    let prompt = world.model.requests()[0].messages()[0].to_string();
    assert!(prompt.contains("- herbs: ") && !prompt.contains("- plants: "), "{prompt}");
    Ok(())
}
