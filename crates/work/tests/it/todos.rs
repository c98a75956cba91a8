//! Changes of stored lists: once for each operation id, by one writer at a time, with their events.

use holdfast_types::{
    BehaviorRole, NewTodo, RunId, SessionId, TodoInit, TodoKind, TodoNoteKind, TodoOperation,
    TodoStatus,
};
use holdfast_work::{
    Actor, ActorKind, Error, Place, TodoErrorKind, TodoFilter, Wakeups, apply_todos, todo,
    todo_page, todo_view, worklog_page, worklog_text,
};

use crate::world::{World, agent, init, kinds, task, update, user};

#[tokio::test]
async fn a_list_goes_from_its_plan_to_its_bench() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.plan(2).await?;
    let (doing, checking) = (agent(BehaviorRole::Do), agent(BehaviorRole::Check));

    for code in ["T001", "T002"] {
        let ops = [update(code, TodoStatus::InProgress), update(code, TodoStatus::Complete)];
        assert_eq!(kinds(&world.apply(&doing, code, &ops).await?), [None, None]);
    }
    let bench = update("T003", TodoStatus::Done);
    let by_doing = world.apply(&doing, "bench", std::slice::from_ref(&bench)).await?;
    assert_eq!(kinds(&by_doing), [Some(TodoErrorKind::InvalidTransition)]);
    let ops = [update("T001", TodoStatus::Done), update("T002", TodoStatus::CheckFailed)];
    assert_eq!(kinds(&world.apply(&checking, "check", &ops).await?), [None, None]);
    // The failed check holds up the bench until the task is done again.
    let early = world.apply(&checking, "early", std::slice::from_ref(&bench)).await?;
    assert_eq!(kinds(&early), [Some(TodoErrorKind::InvalidTransition)]);
    let again = [
        update("T002", TodoStatus::Wait),
        update("T002", TodoStatus::InProgress),
        update("T002", TodoStatus::Complete),
    ];
    let roles = [BehaviorRole::Adjust, BehaviorRole::Do, BehaviorRole::Do];
    for (op, role) in again.iter().zip(roles) {
        let op_id = format!("again {op:?}");
        let results = world.apply(&agent(role), &op_id, std::slice::from_ref(op)).await?;
        assert_eq!(kinds(&results), [None], "{op:?}");
    }
    let last = [update("T002", TodoStatus::Done), bench];
    assert_eq!(kinds(&world.apply(&checking, "last", &last).await?), [None, None]);

    let mut tx = world.tx().await?;
    let view = todo_view(&mut tx, world.list).await?;
    assert_eq!((view.unfinished(), view.next_ready(), view.ready_bench()), (0, None, None));
    assert!(view.render(1_600).starts_with("Todos: 3 of 3 done."), "{}", view.render(1_600));
    Ok(())
}

#[tokio::test]
async fn what_a_call_adds_waits_for_what_was_there_before_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.plan(2).await?;
    let agent = Actor {
        kind: ActorKind::RootAgent,
        name: "painter".to_owned(),
        role: None,
        has_outside_text: false,
    };
    let add = |item| TodoOperation::Init { mode: TodoInit::Merge, items: vec![item] };
    let bench = NewTodo { kind: TodoKind::Bench, ..task("all is well") };

    let by_task = [add(task("more")), update("T004", TodoStatus::InProgress)];
    let by_task = world.apply(&agent, "task", &by_task).await?;
    let by_bench = [add(bench), update("T005", TodoStatus::Done)];
    let by_bench = world.apply(&agent, "bench", &by_bench).await?;

    assert!(by_task[0].is_ok() && by_task[1].is_err(), "{by_task:?}");
    assert!(by_bench[0].is_ok() && by_bench[1].is_err(), "{by_bench:?}");
    Ok(())
}

#[tokio::test]
async fn a_repeated_operation_changes_nothing_and_has_the_first_results() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.plan(1).await?;
    let ops = [update("T001", TodoStatus::InProgress), update("T009", TodoStatus::InProgress)];

    let first = world.apply(&agent(BehaviorRole::Do), "once", &ops).await?;
    let again = world.apply(&agent(BehaviorRole::Do), "once", &ops).await?;

    assert_eq!(kinds(&first), [None, Some(TodoErrorKind::NotFound)]);
    assert_eq!(first, again);
    let mut tx = world.tx().await?;
    assert_eq!(todo(&mut tx, world.list, "T001").await?.attempts, 1);
    for (table, rows) in [("todo_ops", 2), ("worklog", 2), ("wakeups", 2)] {
        let sql = format!("select count(*) from work.{table}");
        assert_eq!(world.number(&sql).await?, rows, "{table}");
    }
    assert_eq!(world.number("select count(*) from session.events").await?, 2);
    let place = Place::outside(world.list, world.agent);
    let no_id = apply_todos(&mut tx, &place, &user(), "", &[init(Vec::new())]).await;
    assert!(matches!(no_id, Err(Error::InvalidOperationId(0))));
    Ok(())
}

#[tokio::test]
async fn operations_at_the_same_time_are_applied_one_after_another() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.plan(1).await?;
    let note = |text: String| TodoOperation::Note {
        code: "T001".to_owned(),
        kind: TodoNoteKind::Note,
        text,
    };

    let writers = (0..12).map(|number| {
        let (world, note) = (&world, note(format!("note {number}")));
        async move { world.apply(&user(), &format!("op {number}"), &[note]).await }
    });
    futures::future::try_join_all(writers).await?;

    let mut tx = world.tx().await?;
    let mut notes: Vec<String> =
        todo(&mut tx, world.list, "T001").await?.notes.into_iter().map(|note| note.text).collect();
    notes.sort();
    let mut wanted: Vec<String> = (0..12).map(|number| format!("note {number}")).collect();
    wanted.sort();
    assert_eq!(notes, wanted);
    let gaps = "select max(seq) - count(*) from work.worklog";
    assert_eq!(world.number(gaps).await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_subagent_changes_only_its_own_todos_of_its_root_sessions_list() -> anyhow::Result<()> {
    let world = World::start().await?;
    let assigned = NewTodo { assignee: Some("painter".to_owned()), ..task("paint") };
    let free = NewTodo { deps: Some(Vec::new()), ..task("not painted") };
    let plan = init(vec![assigned, free]);
    world.apply(&agent(BehaviorRole::Plan), "plan", std::slice::from_ref(&plan)).await?;
    let subagent = Actor {
        kind: ActorKind::SubAgent,
        name: "painter".to_owned(),
        role: None,
        has_outside_text: false,
    };
    let session = SessionId::generate();
    let place = Place {
        session,
        run: Some(RunId::from(session.as_uuid())),
        ..Place::outside(world.list, world.agent)
    };

    let ops =
        [update("T001", TodoStatus::InProgress), update("T002", TodoStatus::InProgress), plan];
    let results = world.apply_at(&place, &subagent, "x", &ops).await?;

    let forbidden = Some(TodoErrorKind::Forbidden);
    assert_eq!(kinds(&results), [None, forbidden, forbidden]);
    let mut tx = world.tx().await?;
    let records = worklog_page(&mut tx, world.list, (None, 1)).await?;
    assert_eq!((records[0].scope.as_str(), records[0].session), ("subagent", session));
    // What is assigned to a subagent is nothing for the agent itself to do.
    assert_eq!(todo_view(&mut tx, world.list).await?.next_ready(), Some("T002"));
    tx.finish_reading();

    let wakeups = Wakeups::new(world.pools.clone());
    assert_eq!(wakeups.tenants().await?, [world.tenant]);
    let pending = wakeups.pending(world.tenant).await?;
    let by: Vec<Option<SessionId>> = pending.iter().map(|wakeup| wakeup.changed_by).collect();
    assert_eq!(by, [None, Some(session)]);
    assert_eq!(pending[1].text, "T001 is IN_PROGRESS: as planned");
    let ids: Vec<i64> = pending.iter().map(|wakeup| wakeup.id).collect();
    wakeups.remove(world.tenant, &ids).await?;
    assert!(wakeups.tenants().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn todos_worklog_and_wakeups_keep_the_mark_of_their_conversation() -> anyhow::Result<()> {
    let world = World::start().await?;
    let clean = Place::outside(world.list, world.agent);
    let marked = Place { has_outside_text: true, ..clean.clone() };
    let add = |title: &str| {
        let items = vec![task(title)];
        [TodoOperation::Init { mode: TodoInit::Merge, items }]
    };
    let reader = Actor { has_outside_text: true, ..agent(BehaviorRole::Plan) };

    world.apply_at(&clean, &agent(BehaviorRole::Plan), "a", &add("tea")).await?;
    let mut tx = world.tx().await?;
    let before = (
        todo_view(&mut tx, world.list).await?.has_outside_text(),
        worklog_text(&mut tx, world.list, 1_000).await?.has_outside_text,
    );
    tx.finish_reading();
    world.apply_at(&marked, &reader, "b", &add("as the page says")).await?;

    assert_eq!(before, (false, false));
    let mut tx = world.tx().await?;
    assert!(todo(&mut tx, world.list, "T002").await?.outside);
    assert!(!todo(&mut tx, world.list, "T001").await?.outside);
    assert!(todo_view(&mut tx, world.list).await?.has_outside_text());
    assert!(worklog_text(&mut tx, world.list, 1_000).await?.has_outside_text);
    tx.finish_reading();
    let pending = Wakeups::new(world.pools.clone()).pending(world.tenant).await?;
    let outside: Vec<bool> = pending.iter().map(|wakeup| wakeup.outside).collect();
    assert_eq!(outside, [false, true]);
    Ok(())
}

#[tokio::test]
async fn pages_go_through_the_list_by_number_by_status_and_by_what_is_left() -> anyhow::Result<()> {
    let world = World::start().await?;
    let urgent = |title: &str, priority: i32| NewTodo { priority, ..task(title) };
    let items = vec![urgent("a", 5), urgent("b", 1), urgent("c", 3), urgent("d", 1)];
    world.apply(&user(), "plan", &[init(items)]).await?;
    world.apply(&user(), "done", &[update("T002", TodoStatus::Done)]).await?;
    let mut tx = world.tx().await?;

    let mut codes = async |filter: TodoFilter, after: Option<&str>, limit: u32| {
        let page = todo_page(&mut tx, world.list, filter, (after, limit)).await?;
        assert_eq!(page.counts.total(), 4);
        anyhow::Ok(page.todos.iter().map(|todo| todo.code()).collect::<Vec<_>>().join(" "))
    };

    assert_eq!(codes(TodoFilter::All, None, 3).await?, "T001 T002 T003");
    assert_eq!(codes(TodoFilter::All, Some("T003"), 3).await?, "T004");
    assert_eq!(codes(TodoFilter::Pending, None, 9).await?, "T001 T003 T004");
    let waiting = TodoFilter::Status(TodoStatus::Wait);
    assert_eq!(codes(waiting, None, 2).await?, "T004 T003");
    assert_eq!(codes(waiting, Some("T003"), 2).await?, "T001");
    Ok(())
}

#[tokio::test]
async fn a_replaced_list_begins_again_and_its_log_goes_on() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.plan(3).await?;
    let ops = [init(vec![task("other")]), update("T001", TodoStatus::InProgress)];
    let planner = Actor { role: None, ..agent(BehaviorRole::Plan) };

    assert_eq!(kinds(&world.apply(&planner, "again", &ops).await?), [None, None]);

    let mut tx = world.tx().await?;
    let page = todo_page(&mut tx, world.list, TodoFilter::All, (None, 9)).await?;
    assert_eq!((page.todos.len(), page.counts.in_progress, page.counts.total()), (1, 1, 1));
    assert_eq!(page.todos[0].title, "other");
    assert_eq!(world.number("select max(seq) from work.todo_ops").await?, 2);
    assert!(matches!(todo(&mut tx, world.list, "T002").await, Err(Error::NotFound(_))));
    Ok(())
}

#[tokio::test]
async fn lists_and_worklogs_go_with_their_session_and_the_ledger_stays() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.plan(3).await?;
    let place = world.step(RunId::from(world.list.as_uuid()), "DO", 1);
    let mut tx = world.tx().await?;
    holdfast_work::record_step(&mut tx, &place, &crate::steps::step("done")).await?;
    tx.commit().await?;

    let mut tx = world.tx().await?;
    holdfast_pg::query("delete from session.sessions where tenant_id = $1 and session_id = $2")
        .bind(world.tenant.as_uuid())
        .bind(world.list.as_uuid())
        .execute(tx.conn())
        .await?;
    tx.commit().await?;

    for table in ["lists", "todos", "todo_ops", "wakeups", "worklog", "tasks"] {
        let sql = format!("select count(*) from work.{table}");
        assert_eq!(world.number(&sql).await?, 0, "{table}");
    }
    assert!(world.number("select count(*) from work.ledger").await? > 0);
    Ok(())
}
