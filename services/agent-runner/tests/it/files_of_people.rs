//! People who share an agent have files of their own: none sees another's, all see what is shared,
//! and the owner sees everything.

use holdfast_directory::Actor;
use holdfast_sandbox::BackendChoice;
use holdfast_session::NewMessage;
use holdfast_testkit::Reply;
use holdfast_tools::{Call, Output, Part, Tool, ToolError};
use holdfast_types::{Effect, Entry, SessionKey};
use serde_json::{Value, json};

use crate::{patches::put, world::World};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Brings a picture.
struct Camera;

impl Tool<Output> for Camera {
    const NAME: &'static str = "camera";
    const EFFECT: Effect = Effect::Reads;
    type Input = Nothing;

    async fn call(&self, _: Call, _: Nothing) -> Result<Output, ToolError> {
        let data = b"\x89PNG\r\n\x1a\n a picture".to_vec();
        Ok(Output::from("taken").with(Part::Image { media_type: "image/png".into(), data }))
    }
}

type ToolCall = (&'static str, Value);

fn write(path: &str, content: &str) -> ToolCall {
    ("write", json!({ "path": path, "content": content }))
}

fn read(path: &str) -> ToolCall {
    ("read", json!({ "path": path }))
}

fn list() -> ToolCall {
    ("list_files", json!({}))
}

fn exec(command: &str) -> ToolCall {
    ("exec", json!({ "command": command }))
}

/// Has the model make these calls, one after the other, and returns their results.
async fn results(
    world: &World,
    message: NewMessage,
    calls: &[ToolCall],
) -> anyhow::Result<Vec<String>> {
    let replies = calls.iter().map(|(tool, input)| Reply::call("a", *tool, input.to_string()));
    world.model.queue(replies.chain([Reply::text("done")]).collect::<Vec<_>>());
    let sent = world.send(message).await?;
    world.text(&sent).await?;
    let journal = world.journal(sent.session).await?;
    let output = |entry| match entry {
        Entry::Returned { output, .. } => Some(output),
        _ => None,
    };
    let mut all: Vec<String> = journal.into_iter().filter_map(output).collect();
    Ok(all.split_off(all.len() - calls.len()))
}

/// What one call returns in a person's conversation.
async fn result(world: &World, session: &str, call: ToolCall) -> anyhow::Result<String> {
    Ok(results(world, world.message(session, "go"), &[call]).await?.remove(0))
}

/// A world with a file of the owner's and a shared one.
async fn shared_agent() -> anyhow::Result<World> {
    let world = World::start().await?;
    world.workspaces.seed(world.tenant, world.agent.id).await?;
    put(&world, "plan.md", "the owner's plan\n").await?;
    put(&world, "shared/rules.md", "be kind\n").await?;
    Ok(world)
}

#[tokio::test]
async fn a_person_reads_and_lists_their_own_files_and_no_other_persons() -> anyhow::Result<()> {
    let world = shared_agent().await?;
    let _runner = world.runner().await?;

    let wrote = result(&world, "anna", write("notes/secret.md", "anna's secret\n")).await?;
    let bob = [
        read("notes/secret.md"),
        read("people/api=anna/notes/secret.md"),
        read("plan.md"),
        list(),
        read("shared/rules.md"),
        read("SOUL.md"),
    ];
    let bobs = results(&world, world.message("bob", "go"), &bob).await?;
    let annas = results(
        &world,
        world.message("anna/trip", "go"),
        &[read("notes/secret.md"), list(), ("list_files", json!({ "path": "notes" }))],
    )
    .await?;
    let owners = results(
        &world,
        world.owners("go"),
        &[list(), read("people/api=anna/notes/secret.md"), read("plan.md")],
    )
    .await?;

    assert!(wrote.contains("notes/secret.md") && !wrote.contains("people"), "{wrote}");
    let tree = world.file("people/api=anna/notes/secret.md").await?;
    assert_eq!(tree.as_deref(), Some("anna's secret\n"));
    for hidden in &bobs[..3] {
        assert!(hidden.contains("there is no file"), "{hidden}");
    }
    assert!(bobs[3].contains("shared/rules.md") && bobs[3].contains("SOUL.md"), "{}", bobs[3]);
    for hidden in ["secret", "plan.md", "people", "MEMORY.md"] {
        assert!(!bobs[3].contains(hidden), "{hidden}: {}", bobs[3]);
    }
    assert!(bobs[4].contains("be kind"), "{}", bobs[4]);
    assert!(!bobs[5].contains("there is no file"), "{}", bobs[5]);
    assert!(annas[0].contains("anna's secret"), "{}", annas[0]);
    assert!(annas[1].contains("\nnotes/secret.md") || annas[1].starts_with("notes/secret.md"));
    assert!(annas[2].contains("notes/secret.md"), "{}", annas[2]);
    assert!(owners[0].contains("people/api=anna/notes/secret.md"), "{}", owners[0]);
    assert!(owners[1].contains("anna's secret") && owners[2].contains("the owner's plan"));
    Ok(())
}

#[tokio::test]
async fn a_person_changes_their_own_files_and_neither_shared_nor_other_ones() -> anyhow::Result<()>
{
    let world = shared_agent().await?;
    put(&world, "people/api=anna/a.md", "anna's\n").await?;
    let _runner = world.runner().await?;

    let bob = [
        write("a.md", "bob's\n"),
        write("people/api=anna/a.md", "taken over\n"),
        write("shared/rules.md", "be rude\n"),
        write("shared/new.md", "x"),
        write("SOUL.md/x", "x"),
        ("delete_file", json!({ "path": "plan.md" })),
    ];
    let told = results(&world, world.message("bob", "go"), &bob).await?;
    let owner = [write("shared/new.md", "for all\n"), write("people/api=anna/b.md", "for you\n")];
    results(&world, world.owners("go"), &owner).await?;

    assert_eq!(world.file("people/api=bob/a.md").await?.as_deref(), Some("bob's\n"));
    assert_eq!(world.file("people/api=anna/a.md").await?.as_deref(), Some("anna's\n"));
    for refused in &told[2..5] {
        assert!(refused.contains("in a conversation with your owner only"), "{refused}");
    }
    assert!(told[5].contains("there is no file"), "{}", told[5]);
    assert_eq!(world.file("shared/rules.md").await?.as_deref(), Some("be kind\n"));
    assert!(world.file("plan.md").await?.is_some());
    assert!(result(&world, "anna", read("shared/new.md")).await?.contains("for all"));
    assert!(result(&world, "anna", read("b.md")).await?.contains("for you"));
    Ok(())
}

#[tokio::test]
async fn nobody_is_asked_about_a_file_that_the_conversation_may_not_change() -> anyhow::Result<()> {
    let world = shared_agent().await?;
    let document = json!({ "approvals": { "tools": { "write": "always" } } });
    world.directory.policies().put(world.tenant, Actor::Operator, None, None, &document).await?;
    let _runner = world.runner().await?;

    // The first is a protected path, about which the default policy asks as well.
    for path in ["AGENTS.md", "shared/rules.md", "skills/x/SKILL.md"] {
        let told = result(&world, "bob", write(path, "be rude\n")).await?;
        assert!(told.contains("in a conversation with your owner only"), "{path}: {told}");
    }
    assert_eq!(world.number("select count(*) from session.approvals").await?, 0);

    // What can be changed is asked about.
    world.model.queue(vec![Reply::call("a", "write", write("a.md", "x").1.to_string())]);
    world.send(world.message("bob", "go")).await?;
    let asks = async || {
        let asked = world.number("select count(*) from session.approvals").await;
        asked.is_ok_and(|asked| asked == 1)
    };
    world.until("somebody is asked", asks).await
}

#[tokio::test]
async fn a_command_has_the_files_of_its_person_and_changes_no_others() -> anyhow::Result<()> {
    let world = shared_agent().await?;
    put(&world, "people/api=anna/a.md", "anna's secret\n").await?;
    let mut config = world.config();
    config.runner.sandbox.backend = BackendChoice::Bubblewrap;
    let _runner = world.runner_with(config, |app| app).await?;

    let anna = result(&world, "anna", exec("cat a.md; echo more >> a.md; echo n > n.md")).await?;
    let all =
        exec("find . -type f | sort; grep -r secret . ; echo x >> shared/rules.md; rm SOUL.md");
    let bob = result(&world, "bob", all).await?;
    let read = [exec("cat people/api=anna/n.md plan.md")];
    let owner = results(&world, world.owners("go"), &read).await?.remove(0);

    assert!(anna.contains("anna's secret") && anna.contains("~ a.md\n"), "{anna}");
    assert!(!anna.contains("people"), "{anna}");
    let tree = world.file("people/api=anna/a.md").await?;
    assert_eq!(tree.as_deref(), Some("anna's secret\nmore\n"));
    assert!(bob.contains("./shared/rules.md\n"), "{bob}");
    for hidden in ["secret", "a.md", "n.md", "plan.md", "people"] {
        assert!(!bob.contains(hidden), "{hidden}: {bob}");
    }
    assert!(bob.contains("`shared/rules.md` was not kept"), "{bob}");
    assert!(bob.contains("`SOUL.md` was not kept"), "{bob}");
    assert_eq!(world.file("shared/rules.md").await?.as_deref(), Some("be kind\n"));
    assert!(owner.contains("n\nthe owner's plan\n"), "{owner}");
    Ok(())
}

#[tokio::test]
async fn a_picture_belongs_to_the_person_in_whose_conversation_it_was_taken() -> anyhow::Result<()>
{
    let world = shared_agent().await?;
    let _runner = world.runner_with(world.config(), |app| app.with_tool(Camera)).await?;

    let camera = || ("camera", json!({}));
    let anna = results(&world, world.message("anna", "go"), &[camera(), list()]).await?;
    let bob = result(&world, "bob", list()).await?;
    let owner = results(&world, world.owners("go"), &[camera(), list()]).await?;

    assert!(anna[0].contains("[kept as `media/"), "{}", anna[0]);
    assert!(anna[1].contains("media/") && !anna[1].contains("people"), "{}", anna[1]);
    assert!(!bob.contains("media/"), "{bob}");
    assert!(owner[1].contains("people/api=anna/media/"), "{}", owner[1]);
    assert!(owner[1].lines().any(|line| line.starts_with("media/")), "{}", owner[1]);
    Ok(())
}

/// Spawns a subagent when told to go, which makes these calls; the answer is all their results.
fn delegate(world: &World, spawn: Value, calls: Vec<ToolCall>) {
    world.model.answer(move |asked| {
        let results = asked.tool_results();
        let said = results.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
        match (asked.last_user_text().contains("TASK"), results.is_empty()) {
            (true, true) => Reply::calls(calls.iter().enumerate().map(|(at, (tool, input))| {
                (format!("c{at}"), (*tool).to_owned(), input.to_string())
            })),
            (false, true) => Reply::call("s", "sessions_spawn", spawn.to_string()),
            (_, false) => Reply::text(said),
        }
    });
}

#[tokio::test]
async fn a_subagent_has_the_files_of_the_person_who_asked_for_it() -> anyhow::Result<()> {
    let world = shared_agent().await?;
    put(&world, "people/api=anna/a.md", "anna's secret\n").await?;
    let _runner = world.runner().await?;
    let calls = vec![read("a.md"), read("plan.md"), read("shared/rules.md"), write("b.md", "b\n")];
    delegate(&world, json!({ "task": "TASK", "wait": true }), calls);

    let anna = world.ask("anna", "go").await?;
    let bob = world.ask("bob", "go").await?;
    let owner = world.text(&world.send(world.owners("go")).await?).await?;

    assert!(anna.contains("anna's secret") && anna.contains("be kind"), "{anna}");
    assert!(!anna.contains("the owner's plan"), "{anna}");
    assert!(!bob.contains("secret") && bob.contains("be kind"), "{bob}");
    assert!(owner.contains("the owner's plan") && !owner.contains("secret"), "{owner}");
    for path in ["people/api=anna/b.md", "people/api=bob/b.md", "b.md"] {
        assert!(world.file(path).await?.is_some(), "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn a_merge_shows_and_takes_over_the_files_of_its_person() -> anyhow::Result<()> {
    let world = shared_agent().await?;
    put(&world, "people/api=anna/a.md", "one\n").await?;
    let _runner = world.runner().await?;
    let calls = vec![read("a.md"), write("b.md", "two\n")];
    delegate(&world, json!({ "task": "TASK", "files": "patch", "wait": true }), calls);

    let told = world.ask("anna", "go").await?;
    let ids = "select replace(session_id::text, '-', '') from session.subagents";
    let child = format!("ses_{}", world.texts(ids).await?.remove(0));
    world.model.answer(|_| Reply::text("nothing"));
    let merge = |more: Value| {
        let mut input = json!({ "session": child });
        for (name, value) in more.as_object().into_iter().flatten() {
            input[name] = value.clone();
        }
        ("sessions_merge", input)
    };
    let shown = merge(json!({ "action": "show" }));
    let merged = merge(json!({ "action": "merge" }));
    let shown = result(&world, "anna", shown).await?;
    assert_eq!(world.file("people/api=anna/b.md").await?, None);
    let merged = result(&world, "anna", merged).await?;

    assert!(told.contains("+++ b/b.md") && !told.contains("people/"), "{told}");
    assert!(shown.contains("+++ b/b.md") && !shown.contains("people/"), "{shown}");
    assert!(merged.starts_with("Merged"), "{merged}");
    assert_eq!(world.file("people/api=anna/b.md").await?.as_deref(), Some("two\n"));
    Ok(())
}

#[tokio::test]
async fn a_group_has_files_of_its_own() -> anyhow::Result<()> {
    let world = shared_agent().await?;
    let policy = json!({ "chats": [{ "kind": "group", "policy": { "also_allow": ["write"] } }] });
    world.directory.policies().put(world.tenant, Actor::Operator, None, None, &policy).await?;
    let _runner = world.runner().await?;
    let key = SessionKey::group(&world.agent.name, "telegram", "-100", None)?;
    let in_group = || NewMessage { key: key.clone(), ..world.message("s", "go") };

    results(&world, in_group(), &[write("agenda.md", "tea\n")]).await?;
    let group = results(&world, in_group(), &[read("agenda.md"), read("plan.md"), list()]).await?;
    let anna = result(&world, "anna", read("agenda.md")).await?;

    assert!(group[0].contains("tea"), "{}", group[0]);
    assert!(group[1].contains("there is no file"), "{}", group[1]);
    assert!(group[2].contains("shared/rules.md"), "{}", group[2]);
    assert!(anna.contains("there is no file"), "{anna}");
    assert!(world.file("people/group=telegram=-100/agenda.md").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn the_prompt_says_whose_files_there_are() -> anyhow::Result<()> {
    let world = shared_agent().await?;
    let _runner = world.runner().await?;
    world.model.answer(|_| Reply::text("hi"));

    world.ask("anna", "hello").await?;
    world.text(&world.send(world.owners("hello")).await?).await?;

    let prompts: Vec<String> =
        world.model.requests().iter().map(|asked| asked.body.to_string()).collect();
    assert!(prompts[0].contains("The files here belong to this person or group"));
    assert!(prompts[1].contains("`people/` has a folder for each other person"));
    Ok(())
}
