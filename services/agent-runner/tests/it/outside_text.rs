//! Text from outside becomes no instruction without a person, by whatever way it comes.

use std::sync::Arc;

use holdfast_llm::ScriptedModel;
use holdfast_pg::Pools;
use holdfast_sandbox::BackendChoice;
use holdfast_schedule::store::Reminder;
use holdfast_session::{NewMessage, NewSystemEvent};
use holdfast_testkit::Reply;
use holdfast_types::{ApprovalDecision, Body, ChatMessage, NewTodo, TodoInit, TodoOperation};
use holdfast_work::{Actor, ActorKind, Place, Work};
use holdfast_workspace::{Base, ChangeAuthor, Edit};
use serde_json::json;

use crate::{
    approvals::{Page, say_of, waiting},
    world::{Running, World},
};

/// Call that makes an instruction of a text.
fn write_heartbeat() -> Reply {
    let input = json!({ "path": "HEARTBEAT.md", "content": "X" });
    Reply::call("w", "write", input.to_string())
}

fn page() -> Reply {
    Reply::call("p", "page", "{}")
}

async fn started(world: &World) -> anyhow::Result<Running> {
    world.workspaces.seed(world.tenant, world.agent.id).await?;
    world.runner_with(world.config(), |app| app.with_tool(Page)).await
}

/// Runs a turn of the owner's conversation with these answers of the model.
async fn turn<const N: usize>(world: &World, replies: [Reply; N]) -> anyhow::Result<()> {
    world.model.queue(replies);
    world.answer(&world.send(world.owners("go on")).await?).await?;
    Ok(())
}

/// Asserts that the owner's conversation cannot change an instruction without a person.
async fn assert_asked(world: &World) -> anyhow::Result<()> {
    let before = world.file("HEARTBEAT.md").await?;
    world.model.queue([write_heartbeat(), Reply::text("done")]);
    let sent = world.send(world.owners("go on")).await?;
    let asked = waiting(world, 1).await?;
    assert!(asked[0].subject.starts_with("reason: "), "{}", asked[0].subject);
    assert!(asked[0].subject.contains("\npath: HEARTBEAT.md"), "{}", asked[0].subject);
    say_of(world, &asked[0], ApprovalDecision::Deny).await?;
    world.answer(&sent).await?;
    assert_eq!(world.file("HEARTBEAT.md").await?, before);
    Ok(())
}

/// Asserts that the owner's conversation changes an instruction without a person.
async fn assert_free(world: &World) -> anyhow::Result<()> {
    turn(world, [write_heartbeat(), Reply::text("done")]).await?;
    assert_eq!(world.file("HEARTBEAT.md").await?.as_deref(), Some("X"));
    Ok(())
}

#[tokio::test]
async fn what_was_read_counts_behind_the_loaded_history_until_the_conversation_begins_anew()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    config.runner.history_entries = 4;
    let _runner = world.runner_with(config, |app| app.with_tool(Page)).await?;
    turn(&world, [page(), Reply::text("read")]).await?;
    for _ in 0..3 {
        turn(&world, [Reply::text("and then")]).await?;
    }

    assert_asked(&world).await?;
    world.text(&world.send(world.owners("/new")).await?).await?;

    assert_free(&world).await
}

#[tokio::test]
async fn what_a_conversation_that_read_a_page_tells_others_is_marked() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = started(&world).await?;
    world.model.queue([Reply::text("hello")]);
    let other = world.say("other", "hi").await?;
    world.text(&other).await?;
    let outside = "select count(*) from session.inbox where body->>'outside' = 'true'";
    let send = |id: &str| {
        let input = json!({ "session": other.session.to_string(), "message": "do X" });
        Reply::call(id, "sessions_send", input.to_string())
    };
    let wake = |id: &str, mode: &str| {
        let input = json!({ "action": "wake", "message": "do X", "mode": mode });
        Reply::call(id, "cron", input.to_string())
    };

    turn(&world, [wake("a", "next-heartbeat"), Reply::text("told")]).await?;
    let before = world.texts("select outside::text from session.system_events").await?;
    world.model.answer({
        let (send, wake) = (send("b"), wake("c", "next-heartbeat"));
        move |request| match request.last_user_text().as_str() {
            "read" => match request.messages().iter().filter(|m| m["role"] == "tool").count() {
                1 => page(),
                2 => send.clone(),
                3 => wake.clone(),
                _ => Reply::text("told"),
            },
            _ => Reply::text("heard"),
        }
    });
    world.answer(&world.send(world.owners("read")).await?).await?;

    assert_eq!(before, ["false"]);
    world.until("it is told", async || world.number(outside).await.is_ok_and(|n| n == 1)).await?;
    let events = "select outside::text from session.system_events where gone_at is null";
    assert_eq!(world.texts(events).await?, ["true"]);
    Ok(())
}

#[tokio::test]
async fn a_message_or_an_event_that_is_marked_marks_the_conversation_that_hears_it()
-> anyhow::Result<()> {
    for by_event in [false, true] {
        let world = World::start().await?;
        let _runner = started(&world).await?;
        let message = world.owners("do X");
        if by_event {
            let event = NewSystemEvent {
                key: message.key.clone(),
                idem_key: "e".to_owned(),
                text: "do X".to_owned(),
                outside: true,
                signed: None,
            };
            world.sessions.add_system_event(world.tenant, &event).await?;
        }
        let body = Body { outside: !by_event, ..message.body.clone() };
        world.model.queue([Reply::text("heard")]);
        world.answer(&world.send(NewMessage { body, ..message }).await?).await?;

        assert_asked(&world).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_todo_of_a_conversation_that_read_a_page_marks_the_conversation_that_reads_it()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = started(&world).await?;
    world.model.queue([Reply::text("hello")]);
    let owners = world.send(world.owners("hi")).await?;
    world.answer(&owners).await?;
    let work = Work::new(Pools::lazy(&world.config().database, "test")?);
    let place = Place::outside(owners.session, world.agent.id);
    let add = |name: &str, has_outside_text| {
        let (work, place, name, tenant) = (&work, &place, name.to_owned(), world.tenant);
        async move {
            let items = vec![NewTodo { title: "do X".to_owned(), ..NewTodo::default() }];
            let add = TodoOperation::Init { mode: TodoInit::Merge, items };
            let (kind, role) = (ActorKind::User, None);
            let actor = Actor { kind, name: name.clone(), role, has_outside_text };
            work.apply(tenant, place, &actor, (&name, &[add])).await
        }
    };
    let list = || Reply::call("t", "todo", json!({ "action": "list" }).to_string());

    add("anna", false).await?;
    turn(&world, [list(), Reply::text("read")]).await?;
    assert_free(&world).await?;
    add("main", true).await?;
    turn(&world, [list(), Reply::text("read")]).await?;

    assert_asked(&world).await
}

#[tokio::test]
async fn a_reminder_of_a_conversation_that_read_a_page_marks_the_conversation_that_lists_it()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = started(&world).await?;
    let remind = |content: &str| {
        let input = json!({ "content": content, "time": "in 2 hours" });
        Reply::call("r", "scheduler_add", input.to_string())
    };
    let list = || Reply::call("l", "scheduler_list", "{}");

    turn(&world, [remind("tea"), Reply::text("noted")]).await?;
    turn(&world, [list(), Reply::text("one")]).await?;
    assert_free(&world).await?;
    turn(&world, [page(), remind("do X"), Reply::text("noted")]).await?;
    world.text(&world.send(world.owners("/new")).await?).await?;
    assert_free(&world).await?;
    turn(&world, [list(), Reply::text("two")]).await?;

    assert_asked(&world).await?;
    let mut marks = Vec::new();
    for job in world.all_jobs().await? {
        let reminder = job.payload::<Reminder>()?;
        marks.push((reminder.content, reminder.outside));
    }
    marks.sort();
    assert_eq!(marks, [("do X".to_owned(), true), ("tea".to_owned(), false)]);
    Ok(())
}

#[tokio::test]
async fn a_job_that_read_a_page_posts_a_marked_text() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = started(&world).await?;
    world.model.queue([page(), Reply::text("Do X.")]);
    let message = world.isolated_run("look").await?;

    world.answer(&world.send(message).await?).await?;

    let events = "select outside::text from session.system_events";
    assert_eq!(world.texts(events).await?, ["true"]);
    Ok(())
}

#[tokio::test]
async fn a_file_that_came_from_outside_counts_once_it_is_read() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = started(&world).await?;
    let put = Edit::Put { path: "came.txt".parse()?, content: b"do X".into(), base: Base::Any };
    let by = ChangeAuthor::new("holdfast", "came with a message").from_outside(true);
    world.workspaces.commit(world.tenant, world.agent.id, &by, vec![put]).await?;
    let read = |path: &str| Reply::call("r", "read", json!({ "path": path }).to_string());

    turn(&world, [read("AGENTS.md"), Reply::text("read")]).await?;
    assert_free(&world).await?;
    turn(&world, [read("came.txt"), Reply::text("read")]).await?;

    assert_asked(&world).await
}

#[tokio::test]
async fn a_patch_moves_no_text_from_outside_into_the_instructions() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = started(&world).await?;
    let put = Edit::Put { path: "came.txt".parse()?, content: b"do X\n".into(), base: Base::Any };
    let by = ChangeAuthor::new("holdfast", "came with a message").from_outside(true);
    world.workspaces.commit(world.tenant, world.agent.id, &by, vec![put]).await?;
    let before = world.file("HEARTBEAT.md").await?;
    let moved = |to: &str| {
        let patch = format!(
            "*** Begin Patch\n*** Update File: came.txt\n*** Move to: {to}\n@@\n-do X\n+do Y\n\
             *** End Patch"
        );
        Reply::call("m", "apply_patch", json!({ "patch": patch }).to_string())
    };

    turn(&world, [moved("skills/x/SKILL.md"), Reply::text("moved")]).await?;
    world.text(&world.send(world.owners("/new")).await?).await?;
    turn(&world, [moved("moved.txt"), Reply::text("moved")]).await?;
    world.text(&world.send(world.owners("/new")).await?).await?;
    let read = json!({ "path": "moved.txt" }).to_string();
    turn(&world, [Reply::call("r", "read", read), Reply::text("read")]).await?;

    assert_eq!(world.file("skills/x/SKILL.md").await?, None);
    assert_eq!(world.file("moved.txt").await?.as_deref(), Some("do Y\n"));
    assert_eq!(world.file("HEARTBEAT.md").await?, before);
    assert_asked(&world).await
}

#[tokio::test]
async fn what_another_person_wrote_counts_as_text_from_outside_for_the_owner() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let _runner = started(&world).await?;
    let path = "people/telegram=9/plan.md";
    let put = Edit::Put { path: path.parse()?, content: b"do X".into(), base: Base::Any };
    let by = ChangeAuthor::new("main", "wrote it");
    world.workspaces.commit(world.tenant, world.agent.id, &by, vec![put]).await?;

    let read = json!({ "path": path }).to_string();
    turn(&world, [Reply::call("r", "read", read), Reply::text("read")]).await?;

    assert_asked(&world).await
}

#[tokio::test]
async fn a_file_that_was_written_after_a_page_was_read_is_marked() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = started(&world).await?;
    let write = json!({ "path": "kept.txt", "content": "do X" }).to_string();
    turn(&world, [page(), Reply::call("w", "write", write), Reply::text("kept")]).await?;
    world.text(&world.send(world.owners("/new")).await?).await?;

    let read = json!({ "path": "kept.txt" }).to_string();
    turn(&world, [Reply::call("r", "read", read), Reply::text("read")]).await?;

    assert_asked(&world).await
}

#[tokio::test]
async fn a_command_that_is_told_what_a_page_said_changes_no_instruction() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.workspaces.seed(world.tenant, world.agent.id).await?;
    let mut config = world.config();
    config.runner.sandbox.backend = BackendChoice::Bubblewrap;
    let _runner = world.runner_with(config, |app| app.with_tool(Page)).await?;
    let before = world.file("HEARTBEAT.md").await?;
    world.model.answer(|request| {
        let said = request.body.to_string();
        let process = || {
            let from = said.find("prc_").expect("a process in what was told");
            said[from..].chars().take(36).collect::<String>()
        };
        let results = request.messages().iter().filter(|m| m["role"] == "tool").count();
        let call = |id: &str, tool: &str, input: serde_json::Value| {
            Reply::call(id, tool, input.to_string())
        };
        match results {
            0 => {
                let command = "read l; echo $l > HEARTBEAT.md; echo $l > other.txt";
                call("a", "exec", json!({ "command": command, "background": true }))
            }
            1 => page(),
            2 => {
                let input = json!({ "action": "stdin", "id": process(), "text": "X\n" });
                call("s", "process", input)
            }
            3 => {
                let input = json!({ "action": "status", "id": process(), "wait_ms": 30_000 });
                call("t", "process", input)
            }
            _ => Reply::text("done"),
        }
    });

    world.answer(&world.send(world.owners("go")).await?).await?;

    assert_eq!(world.file("other.txt").await?.as_deref(), Some("X\n"));
    assert_eq!(world.file("HEARTBEAT.md").await?, before);
    Ok(())
}

/// A world in which commands run, with a file from outside.
async fn with_commands(world: &World) -> anyhow::Result<Running> {
    world.workspaces.seed(world.tenant, world.agent.id).await?;
    let put = Edit::Put { path: "came.txt".parse()?, content: b"do X".into(), base: Base::Any };
    let by = ChangeAuthor::new("holdfast", "came with a message").from_outside(true);
    world.workspaces.commit(world.tenant, world.agent.id, &by, vec![put]).await?;
    let mut config = world.config();
    config.runner.sandbox.backend = BackendChoice::Bubblewrap;
    world.runner_with(config, |app| app.with_tool(Page)).await
}

fn exec(command: &str) -> Reply {
    Reply::call("e", "exec", json!({ "command": command }).to_string())
}

async fn is_marked(world: &World, path: &str) -> anyhow::Result<bool> {
    let found = world.workspaces.read(world.tenant, world.agent.id, &path.parse()?, None).await?;
    Ok(found.is_some_and(|file| file.outside))
}

#[tokio::test]
async fn a_command_passes_the_mark_of_a_file_on() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = with_commands(&world).await?;
    let before = world.file("AGENTS.md").await?;

    let copy = "cp came.txt notes.txt; cat came.txt > AGENTS.md";
    turn(&world, [exec(copy), Reply::text("copied")]).await?;
    world.text(&world.send(world.owners("/new")).await?).await?;
    let read = json!({ "path": "notes.txt" }).to_string();
    turn(&world, [Reply::call("r", "read", read), Reply::text("read")]).await?;

    assert_eq!(world.file("notes.txt").await?.as_deref(), Some("do X"));
    assert!(is_marked(&world, "notes.txt").await?);
    assert_eq!(world.file("AGENTS.md").await?, before);
    assert_asked(&world).await
}

#[tokio::test]
async fn a_command_that_sees_no_text_from_outside_changes_what_it_is_told_to() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let _runner = with_commands(&world).await?;
    let gone = Edit::Delete { path: "came.txt".parse()?, base: Base::Any };
    let by = ChangeAuthor::new("ada", "gone");
    world.workspaces.commit(world.tenant, world.agent.id, &by, vec![gone]).await?;

    let command = "echo tea > notes.txt; echo tea > TOOLS.md";
    turn(&world, [exec(command), Reply::text("written")]).await?;

    assert!(!is_marked(&world, "notes.txt").await?);
    assert_eq!(world.file("TOOLS.md").await?.as_deref(), Some("tea\n"));
    Ok(())
}

#[tokio::test]
async fn what_is_appended_to_a_file_from_outside_marks_the_conversation() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = with_commands(&world).await?;
    let append = json!({ "path": "came.txt", "content": "more" }).to_string();

    turn(&world, [Reply::call("a", "append_file", append), Reply::text("appended")]).await?;

    assert!(is_marked(&world, "came.txt").await?);
    assert_asked(&world).await
}

#[tokio::test]
async fn what_a_conversation_that_read_a_page_remembers_is_marked() -> anyhow::Result<()> {
    let world = World::start().await?;
    let memory = world.memory().await?;
    world.workspaces.seed(world.tenant, world.agent.id).await?;
    let runner = world.runner_with(world.config_with(&memory), |app| app.with_tool(Page)).await?;
    let save = |text: &str| {
        let input = json!({ "text": text, "type": "fact" }).to_string();
        Reply::call("s", "memory_save", input)
    };
    let marks =
        "select coalesce(provenance->>'outside', 'false') from memory.items order by created_at";

    turn(&world, [save("The kettle is green."), Reply::text("saved")]).await?;
    turn(&world, [page(), save("The boiler does X."), Reply::text("saved")]).await?;
    world.text(&world.send(world.owners("/new")).await?).await?;
    assert_eq!(world.texts(marks).await?, ["false", "true"]);
    let turns = "select count(*) from memory.units where provenance->>'outside' = 'true'
                 and kind = 5";
    world
        .until("turns are marked", async || world.number(turns).await.is_ok_and(|n| n > 0))
        .await?;
    drop(runner);
    Ok(())
}

/// Path of today's note.
fn note() -> String {
    format!("memory/{}.md", jiff::Timestamp::now().strftime("%Y%m/%Y%m%d"))
}

#[tokio::test]
async fn a_memory_flush_asks_nobody_and_its_note_marks_the_conversations_that_see_it()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let model = Arc::new(ScriptedModel::answering(|request| {
        let told = |words: &str| {
            let is_told = |message: &ChatMessage| matches!(message, ChatMessage::User { text, .. } if text.starts_with(words));
            request.chat.messages.iter().rposition(is_told)
        };
        let results = |from: usize| {
            let is_result = |message: &&ChatMessage| matches!(message, ChatMessage::Tool { .. });
            request.chat.messages[from..].iter().filter(is_result).count()
        };
        let write = |path: &str| {
            let input = json!({ "path": path, "content": "The page says X.\n" }).to_string();
            ScriptedModel::calls(&[("w", "write", &input)])
        };
        Ok(match told("Pre-compaction memory flush") {
            _ if &*request.chat.stable == holdfast_agent::compact::SUMMARISER => {
                ScriptedModel::text("They read a page.")
            }
            Some(at) if results(at) == 0 => write(&note()),
            Some(_) => ScriptedModel::text("NO_REPLY"),
            None => match (told("read"), told("change")) {
                (_, Some(at)) if results(at) == 0 => write("HEARTBEAT.md"),
                (Some(at), None) if results(at) == 0 => {
                    ScriptedModel::calls(&[("p", "page", "{}")])
                }
                _ => ScriptedModel::text("done"),
            },
        })
    }));
    let shared = Arc::clone(&model);
    let _runner =
        world.runner_with(world.config(), |app| app.with_demo(shared).with_tool(Page)).await?;
    let say = async |text: &str| -> anyhow::Result<()> {
        world.answer(&world.send(world.owners(text)).await?).await?;
        Ok(())
    };

    say("read the page").await?;
    // The newest exchange is never summarised.
    say("hello").await?;
    say("/compact").await?;
    assert_eq!(world.file(&note()).await?.as_deref(), Some("The page says X.\n"));
    say("/new").await?;
    say("hello").await?;
    let sent = world.send(world.owners("change it")).await?;
    let asked = waiting(&world, 1).await?;
    say_of(&world, &asked[0], ApprovalDecision::Deny).await?;
    world.answer(&sent).await?;

    assert_eq!(asked[0].tool, "write");
    Ok(())
}
