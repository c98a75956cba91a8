//! A subagent that works on a copy: nothing of it is in the files until the conversation that asked
//! for it says so, and then all of it or none.

use std::time::Duration;

use holdfast_sandbox::BackendChoice;
use holdfast_session::Acceptance;
use holdfast_testkit::{Reply, model::Request};
use holdfast_types::Entry;
use holdfast_workspace::{Base, ChangeAuthor, Edit, LogFilter};
use serde_json::json;

use crate::world::World;

const WAITED: &str = r#"{"task":"TASK","label":"notes","files":"patch","wait":true}"#;

/// Spawns when told to go, does what it is told to do with the patch, and repeats what came of it;
/// as the subagent, does the work.
fn script(
    spawn: &'static str,
    work: impl Fn(&Request) -> Reply + Send + Sync + 'static,
) -> impl Fn(&Request) -> Reply + Send + Sync + 'static {
    move |asked| {
        let (text, results) = (asked.last_user_text(), asked.tool_results());
        match (text.as_str(), results.first()) {
            (text, _) if text.contains("TASK") => work(asked),
            (text, _) if text.contains("A background task") => Reply::text("I heard of it"),
            (_, Some((_, result))) => Reply::text(result.clone()),
            ("go", None) => Reply::call("s", "sessions_spawn", spawn),
            (input, None) => Reply::call("m", "sessions_merge", input),
        }
    }
}

/// Writes these files, one after the other, and says so.
fn writes(files: &'static [(&str, &str)]) -> impl Fn(&Request) -> Reply + Send + Sync + 'static {
    move |asked| match asked.tool_results().as_slice() {
        [] => {
            let calls: Vec<(String, String)> = files
                .iter()
                .enumerate()
                .map(|(at, (path, content))| {
                    (format!("w{at}"), json!({"path": path, "content": content}).to_string())
                })
                .collect();
            Reply::calls(calls.iter().map(|(id, input)| (id.as_str(), "write", input.as_str())))
        }
        _ => Reply::text("written"),
    }
}

pub async fn put(world: &World, name: &str, text: &str) -> anyhow::Result<()> {
    let edit = Edit::Put { path: name.parse()?, content: text.into(), base: Base::Any };
    let by = ChangeAuthor::new("ada", "a test");
    world.workspaces.commit(world.tenant, world.agent.id, &by, vec![edit]).await?;
    Ok(())
}

async fn started(work: &'static [(&str, &str)]) -> anyhow::Result<World> {
    let world = World::start().await?;
    world.workspaces.seed(world.tenant, world.agent.id).await?;
    put(&world, "notes.txt", "one\n").await?;
    world.model.answer(script(WAITED, writes(work)));
    Ok(world)
}

async fn ask(world: &World, text: &str) -> anyhow::Result<(Acceptance, String)> {
    let sent = world.send(world.owners(text)).await?;
    let said = world.text(&sent).await?;
    Ok((sent, said))
}

/// The subagent's session, as a call names it.
async fn merge(world: &World, action: &str, more: serde_json::Value) -> anyhow::Result<String> {
    let ids = "select replace(session_id::text, '-', '') from session.subagents";
    let id = world.texts(ids).await?.remove(0);
    let mut input = json!({"session": format!("ses_{id}"), "action": action});
    for (name, value) in more.as_object().into_iter().flatten() {
        input[name] = value.clone();
    }
    Ok(input.to_string())
}

#[tokio::test]
async fn what_a_subagent_writes_is_in_no_file_until_it_is_merged() -> anyhow::Result<()> {
    let world = started(&[("notes.txt", "two\n"), ("new.txt", "x\n")]).await?;
    let _runner = world.runner().await?;

    let (_, told) = ask(&world, "go").await?;

    assert!(told.contains("changed 2 there; nothing of that is in your own yet"), "{told}");
    assert!(told.contains("-one\n+two\n") && told.contains("+++ b/new.txt"), "{told}");
    assert_eq!(world.file("notes.txt").await?.as_deref(), Some("one\n"));
    assert_eq!(world.file("new.txt").await?, None);

    let (_, shown) = ask(&world, &merge(&world, "show", json!({"path": "new.txt"})).await?).await?;
    assert!(shown.contains("not merged yet") && shown.contains("+x"), "{shown}");
    assert!(!shown.contains("notes.txt"), "{shown}");

    let (sent, merged) = ask(&world, &merge(&world, "merge", json!({})).await?).await?;
    assert!(merged.starts_with("Merged: your files are revision"), "{merged}");
    assert_eq!(world.file("notes.txt").await?.as_deref(), Some("two\n"));
    assert_eq!(world.file("new.txt").await?.as_deref(), Some("x\n"));
    let filter = LogFilter { limit: 1, ..LogFilter::default() };
    let log = world.workspaces.log(world.tenant, world.agent.id, &filter).await?;
    assert_eq!((log[0].author.as_str(), log[0].changed), (world.agent.name.as_str(), 2));
    assert_eq!(log[0].run, Some(sent.message.into()));
    assert!(log[0].reason.ends_with("notes"), "{}", log[0].reason);

    let (_, again) = ask(&world, &merge(&world, "merge", json!({})).await?).await?;
    assert!(again.contains("was merged: nothing more is changed in it"), "{again}");
    Ok(())
}

#[tokio::test]
async fn an_end_that_is_told_later_tells_what_was_changed_and_how_to_take_it() -> anyhow::Result<()>
{
    let world = started(&[("notes.txt", "two\n")]).await?;
    let spawn = r#"{"task":"TASK","label":"notes","files":"patch"}"#;
    world.model.answer(script(spawn, writes(&[("notes.txt", "two\n")])));
    let _runner = world.runner().await?;

    let (sent, _) = ask(&world, "go").await?;
    world
        .until("the end is told", async || {
            let journal = world.journal(sent.session).await.unwrap_or_default();
            matches!(journal.last(), Some(Entry::Thought { text, .. }) if text == "I heard of it")
        })
        .await?;

    let requests = world.model.requests();
    let mut told = requests.iter().rev().map(|asked| asked.last_user_text());
    let told = told.find(|text| text.contains("A background task")).unwrap();
    assert!(told.contains("<patch>\n--- a/notes.txt\n+++ b/notes.txt\n"), "{told}");
    assert!(told.contains("-one\n+two\n"), "{told}");
    assert!(told.contains("call `sessions_merge` with `session` `ses_"), "{told}");
    assert_eq!(world.file("notes.txt").await?.as_deref(), Some("one\n"));
    Ok(())
}

#[tokio::test]
async fn a_file_that_both_changed_is_named_and_nothing_is_half_applied() -> anyhow::Result<()> {
    let world = started(&[("notes.txt", "two\n"), ("new.txt", "x\n")]).await?;
    let _runner = world.runner().await?;
    ask(&world, "go").await?;
    put(&world, "notes.txt", "three\n").await?;

    let (_, told) = ask(&world, &merge(&world, "merge", json!({})).await?).await?;
    assert!(told.contains("`notes.txt` changed on both sides"), "{told}");
    assert_eq!(world.file("notes.txt").await?.as_deref(), Some("three\n"));
    assert_eq!(world.file("new.txt").await?, None);

    let read = merge(&world, "read", json!({"path": "notes.txt"})).await?;
    let (_, read) = ask(&world, &read).await?;
    assert!(read.contains("\ntwo\n"), "{read}");

    let rest = merge(&world, "merge", json!({"except": ["notes.txt"]})).await?;
    let (_, told) = ask(&world, &rest).await?;
    assert!(told.starts_with("Merged"), "{told}");
    assert_eq!(world.file("notes.txt").await?.as_deref(), Some("three\n"));
    assert_eq!(world.file("new.txt").await?.as_deref(), Some("x\n"));
    Ok(())
}

#[tokio::test]
async fn what_is_given_up_is_in_no_file() -> anyhow::Result<()> {
    let world = started(&[("notes.txt", "two\n")]).await?;
    let _runner = world.runner().await?;
    ask(&world, "go").await?;

    let (_, told) = ask(&world, &merge(&world, "discard", json!({})).await?).await?;
    assert!(told.contains("nothing of it is in your files"), "{told}");
    let (_, told) = ask(&world, &merge(&world, "merge", json!({})).await?).await?;
    assert!(told.contains("was discarded"), "{told}");
    assert_eq!(world.file("notes.txt").await?.as_deref(), Some("one\n"));
    Ok(())
}

#[tokio::test]
async fn another_conversation_and_the_subagent_itself_merge_nothing() -> anyhow::Result<()> {
    let world = started(&[]).await?;
    world.model.answer(script(WAITED, |asked| match asked.tool_results().as_slice() {
        [] => Reply::call("w", "write", r#"{"path":"notes.txt","content":"two\n"}"#),
        [(id, _)] if id == "w" => {
            Reply::call("m", "sessions_merge", r#"{"session":"ses_x","action":"merge"}"#)
        }
        [(_, told), ..] => Reply::text(told.clone()),
    }));
    let _runner = world.runner().await?;

    let (_, told) = ask(&world, "go").await?;
    let other = world.ask("other", &merge(&world, "merge", json!({})).await?).await?;

    assert!(told.contains("this conversation has no such subagent"), "{told}");
    assert!(other.contains("this conversation has no such subagent"), "{other}");
    assert_eq!(world.file("notes.txt").await?.as_deref(), Some("one\n"));
    Ok(())
}

#[tokio::test]
async fn what_a_command_of_a_subagent_changes_is_in_its_copy_only() -> anyhow::Result<()> {
    let world = started(&[]).await?;
    world.model.answer(script(WAITED, |asked| match asked.tool_results().as_slice() {
        [] => Reply::call("e", "exec", r#"{"command":"cat notes.txt && echo two > notes.txt"}"#),
        [(_, told), ..] => Reply::text(told.clone()),
    }));
    let mut config = world.config();
    config.runner.sandbox.backend = BackendChoice::Bubblewrap;
    let _runner = world.runner_with(config, |app| app).await?;

    let (_, told) = ask(&world, "go").await?;

    assert!(told.contains("one") && told.contains("-one\n+two\n"), "{told}");
    assert_eq!(world.file("notes.txt").await?.as_deref(), Some("one\n"));
    let (_, told) = ask(&world, &merge(&world, "merge", json!({})).await?).await?;
    assert!(told.starts_with("Merged"), "{told}");
    assert_eq!(world.file("notes.txt").await?.as_deref(), Some("two\n"));
    Ok(())
}

#[tokio::test]
async fn nothing_is_merged_while_the_subagent_is_at_work() -> anyhow::Result<()> {
    let world = started(&[]).await?;
    let spawn = r#"{"task":"TASK","files":"patch"}"#;
    world.model.answer(script(spawn, |asked| match asked.tool_results().as_slice() {
        [] => Reply::call("w", "write", r#"{"path":"notes.txt","content":"two\n"}"#),
        _ => Reply::hang(Duration::from_secs(30)),
    }));
    let _runner = world.runner().await?;
    ask(&world, "go").await?;

    let (_, told) = ask(&world, &merge(&world, "merge", json!({})).await?).await?;

    assert!(told.contains("it is still at work"), "{told}");
    assert_eq!(world.file("notes.txt").await?.as_deref(), Some("one\n"));
    Ok(())
}

#[tokio::test]
async fn a_patch_with_a_protected_file_waits_for_a_persons_word() -> anyhow::Result<()> {
    let world = started(&[]).await?;
    world.model.answer(script(WAITED, |asked| match asked.tool_results().as_slice() {
        [] => {
            let command = "mkdir behaviors; echo mine > behaviors/do.yaml; echo x > notes.txt";
            Reply::call("e", "exec", json!({ "command": command }).to_string())
        }
        _ => Reply::text("done"),
    }));
    let mut config = world.config();
    config.runner.sandbox.backend = BackendChoice::Bubblewrap;
    let _runner = world.runner_with(config, |app| app).await?;
    ask(&world, "go").await?;

    world.send(world.owners(&merge(&world, "merge", json!({})).await?)).await?;
    let asked = "select summary from session.approvals where tool = 'sessions_merge'";
    world
        .until("a person is asked", async || {
            world.texts(asked).await.is_ok_and(|asked| !asked.is_empty())
        })
        .await?;

    assert_eq!(world.texts(asked).await?, [r#"merge what "notes" changed in behaviors/do.yaml"#]);
    let shown = world.texts("select subject from session.approvals").await?.remove(0);
    assert!(shown.ends_with("\nfile: behaviors/do.yaml\ncontent:\n| mine\n|"), "{shown}");
    assert_eq!(world.file("behaviors/do.yaml").await?, None);
    assert_eq!(world.file("notes.txt").await?.as_deref(), Some("one\n"));
    Ok(())
}
