//! Todo lists: the tool `todo`, subagents that change only their own todos, and sessions that wait
//! for a change.

use holdfast_pg::Pools;
use holdfast_testkit::Reply;
use holdfast_types::{
    AgentId, MessageFilter, RunnerId, SessionId, TodoOperation, TodoStatus, Wait,
};
use holdfast_work::{Actor, ActorKind, Place, Todo, TodoFilter, Work};
use serde_json::json;

use crate::world::World;

/// Calls `todo` with what was said, and repeats what came of it.
async fn started() -> anyhow::Result<World> {
    let world = World::start().await?;
    world.model.answer(|asked| match asked.tool_results().first() {
        Some((_, told)) => Reply::text(told.clone()),
        None => Reply::call("c", "todo", asked.last_user_text()),
    });
    Ok(world)
}

fn work(world: &World) -> anyhow::Result<Work> {
    Ok(Work::new(Pools::lazy(&world.config().database, "test")?))
}

async fn todos(world: &World, session: SessionId) -> anyhow::Result<Vec<Todo>> {
    let page = work(world)?.todos(world.tenant, session, TodoFilter::All, (None, 100)).await?;
    Ok(page.todos)
}

async fn change_by_hand(
    world: &World,
    session: SessionId,
    agent: AgentId,
    to_status: TodoStatus,
) -> anyhow::Result<()> {
    let actor = Actor {
        kind: ActorKind::User,
        name: "anna".to_owned(),
        role: None,
        has_outside_text: false,
    };
    let place = Place::outside(session, agent);
    let update = TodoOperation::Update {
        code: "T001".to_owned(),
        to_status: Some(to_status),
        priority: None,
        reason: "by hand".to_owned(),
    };
    let results = work(world)?.apply(world.tenant, &place, &actor, ("hand", &[update])).await?;
    anyhow::ensure!(results == [Ok(())], "{results:?}");
    Ok(())
}

#[tokio::test]
async fn an_agent_plans_works_and_checks_by_its_list() -> anyhow::Result<()> {
    let world = started().await?;
    let _runner = world.runner().await?;
    let say = async |input: serde_json::Value| world.ask("s", &input.to_string()).await;
    let set =
        |status: &str| json!({"action": "set", "code": "T001", "status": status, "reason": "r"});

    assert_eq!(say(json!({"action": "list"})).await?, "The list is empty.");
    let items = json!([{"title": "dig", "skills": ["shovel"]}, {"title": "all?", "type": "bench"}]);
    let planned = say(json!({"action": "plan", "items": items})).await?;
    assert!(
        planned.contains("To do next: T001.\n- T001 WAIT: dig\n- T002 WAIT bench: all?"),
        "{planned}"
    );
    let early = say(set("COMPLETE")).await?;
    assert!(early.contains("INVALID_TRANSITION: `T001` is WAIT"), "{early}");
    say(set("IN_PROGRESS")).await?;
    let given_up = say(set("FAILED")).await?;
    assert!(given_up.contains("`T001` was tried 1 time, and fails after 2"), "{given_up}");
    let bench = json!({"action": "set", "code": "T002", "status": "DONE", "reason": "r"});
    let bench = say(bench).await?;
    assert!(bench.contains("INVALID_TRANSITION: `T002` waits for T001"), "{bench}");
    say(set("COMPLETE")).await?;
    let shown = say(json!({"action": "show", "code": "T001"})).await?;
    assert!(shown.contains("Skills: shovel\nAttempts: 1"), "{shown}");
    say(set("DONE")).await?;
    let unknown = say(json!({"action": "note", "code": "T007", "text": "x"})).await?;

    assert!(unknown.contains("NOT_FOUND"), "{unknown}");
    let sent = world.say("s", &json!({"action": "list"}).to_string()).await?;
    assert!(world.text(&sent).await?.contains("Bench to be checked: T002."));
    let statuses: Vec<TodoStatus> =
        todos(&world, sent.session).await?.iter().map(|todo| todo.status).collect();
    assert_eq!(statuses, [TodoStatus::Done, TodoStatus::Wait]);
    Ok(())
}

#[tokio::test]
async fn a_subagent_changes_only_the_todos_that_are_assigned_to_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(|asked| {
        let last = asked.tool_results().last().cloned();
        let (last, told) = last.unwrap_or_default();
        let set = |id: &str, code: &str| {
            let input =
                json!({"action": "set", "code": code, "status": "IN_PROGRESS", "reason": "r"});
            Reply::call(id, "todo", input.to_string())
        };
        match (asked.last_user_text().as_str(), last.as_str()) {
            ("paint", "") => set("a", "T001"),
            ("paint", "a") => set("b", "T002"),
            ("paint", _) => Reply::text(told),
            ("plan", "") => {
                let items = json!([
                    {"title": "paint", "assignee": "painter"},
                    {"title": "look", "deps": []},
                ]);
                Reply::call("p", "todo", json!({"action": "plan", "items": items}).to_string())
            }
            ("plan", "p") => {
                let spawn = json!({"task": "paint", "label": "painter"});
                Reply::call("s", "sessions_spawn", spawn.to_string())
            }
            _ => Reply::text("well"),
        }
    });
    let _runner = world.runner().await?;

    let sent = world.say("s", "plan").await?;
    world.text(&sent).await?;
    world
        .until("the subagent has ended", async || {
            let sql = "select count(*) from session.subagents where announced_at is not null";
            world.number(sql).await.is_ok_and(|ended| ended == 1)
        })
        .await?;

    let told = world.texts("select result from session.subagents").await?;
    assert!(told[0].contains("FORBIDDEN: `T002` is not assigned to you"), "{told:?}");
    let statuses: Vec<TodoStatus> =
        todos(&world, sent.session).await?.iter().map(|todo| todo.status).collect();
    assert_eq!(statuses, [TodoStatus::InProgress, TodoStatus::Wait]);
    let scopes = "select scope from work.worklog order by seq";
    assert_eq!(world.texts(scopes).await?, ["session", "subagent"]);
    Ok(())
}

#[tokio::test]
async fn a_changed_todo_wakes_a_session_that_waits_for_it_once_and_no_other() -> anyhow::Result<()>
{
    let world = started().await?;
    let runner = world.runner().await?;
    let plan = json!({"action": "plan", "items": [{"title": "dig"}]}).to_string();
    let waiting = world.say("waits", &plan).await?;
    world.text(&waiting).await?;
    let other = world.say("other", &plan).await?;
    world.text(&other).await?;
    world
        .until("nobody is left to be told", async || {
            world.number("select count(*) from work.wakeups").await.is_ok_and(|left| left == 0)
        })
        .await?;
    runner.stop().await?;
    // One session waits for the event, the other for anything.
    world.sessions.ingest(world.tenant, world.message("waits", "wait")).await?;
    let claim = world.claim_as(RunnerId::generate()).await?;
    let loaded = world.sessions.load(&claim, 100).await?;
    let filter = MessageFilter { event: Some("todo.*".to_owned()), ..MessageFilter::default() };
    let wait = Wait::Event { filter, deadline_ms: None, note: "a todo".to_owned() };
    world.end(&claim, &loaded, wait).await?;

    let turns = async || world.number("select count(*) from session.runs").await;
    let before = turns().await?;
    change_by_hand(&world, other.session, world.agent.id, TodoStatus::Done).await?;
    change_by_hand(&world, waiting.session, world.agent.id, TodoStatus::Done).await?;
    world.model.answer(|asked| Reply::text(format!("I see: {}", asked.last_user_text())));
    let _runner = world.runner().await?;

    world
        .until("the session has been woken", async || {
            turns().await.is_ok_and(|now| now > before)
                && world
                    .number("select count(*) from work.wakeups")
                    .await
                    .is_ok_and(|left| left == 0)
        })
        .await?;
    assert_eq!(turns().await?, before + 1);
    let journal = format!("{:?}", world.journal(waiting.session).await?);
    assert!(journal.contains("todo.changed"), "{journal}");
    assert!(journal.contains("T001 is DONE: by hand"), "{journal}");
    let told = "select count(*) from session.inbox where source = 'todo.changed'";
    assert_eq!(world.number(told).await?, 1);
    Ok(())
}
