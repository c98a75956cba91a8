//! Rollback of a step's operations: the list is what it would be without them.

use holdfast_types::{BehaviorRole, SessionId, TodoOperation, TodoStatus};
use holdfast_work::{
    Actor, Place, Todo, TodoFilter, TodoList, UndoneTodos, apply_todos, todo_page, undo_todos,
};
use jiff::Timestamp;
use proptest::{prelude::*, test_runner::TestRunner};

use crate::{
    replaying::{actor, item, operation},
    world::{World, agent, init, task, update, user},
};

/// A call, and whether it is the step's.
type Call = (Actor, Vec<TodoOperation>, bool);

/// Todos without times.
fn timeless<'t>(todos: impl Iterator<Item = &'t Todo>) -> Vec<Todo> {
    let plain = |todo: &Todo| {
        let mut todo = todo.clone();
        todo.notes.iter_mut().for_each(|note| note.at = Timestamp::UNIX_EPOCH);
        let at = Timestamp::UNIX_EPOCH;
        Todo { created_at: at, updated_at: at, ..todo }
    };
    todos.map(plain).collect()
}

async fn stored(world: &World, list: SessionId) -> anyhow::Result<Vec<Todo>> {
    let mut tx = world.tx().await?;
    let page = todo_page(&mut tx, list, TodoFilter::All, (None, 1_000)).await?;
    tx.finish_reading();
    anyhow::ensure!(page.counts.total() as usize == page.todos.len());
    Ok(timeless(page.todos.iter()))
}

async fn apply(
    world: &World,
    place: &Place,
    id: &str,
    (actor, ops): (&Actor, &[TodoOperation]),
) -> anyhow::Result<Vec<bool>> {
    let mut tx = world.tx().await?;
    let results = apply_todos(&mut tx, place, actor, id, ops).await?;
    tx.commit().await?;
    Ok(results.iter().map(Result::is_ok).collect())
}

async fn undo(world: &World, place: &Place, id: &str) -> anyhow::Result<UndoneTodos> {
    let mut tx = world.tx().await?;
    let is_step = |id: &str| id.starts_with("step");
    let undone = undo_todos(&mut tx, place, &user(), id, &is_step).await?;
    tx.commit().await?;
    Ok(undone)
}

async fn check(world: &World, calls: &[Call], later: &[Call]) -> anyhow::Result<()> {
    let list = SessionId::generate();
    world.add_session(world.tenant, list).await?;
    let place = Place::outside(list, world.agent);
    let mut wanted = TodoList::default();
    let mut applied = 0;
    for (at, (actor, ops, is_step)) in calls.iter().enumerate() {
        let id = format!("{} {at}", if *is_step { "step" } else { "other" });
        let results = apply(world, &place, &id, (actor, ops)).await?;
        if *is_step {
            applied += u32::try_from(results.iter().filter(|ok| **ok).count())?;
        } else {
            ops.iter().for_each(|op| drop(wanted.apply(actor, op, Timestamp::UNIX_EPOCH)));
        }
    }

    let undone = undo(world, &place, "undo").await?;

    anyhow::ensure!(undone.operations == applied, "{undone:?}, wanted {applied}");
    anyhow::ensure!(stored(world, list).await? == timeless(wanted.todos()), "wanted {wanted:?}");
    // The list goes on from there, and a second rollback finds nothing.
    for (at, (actor, ops, _)) in later.iter().enumerate() {
        let results = apply(world, &place, &format!("later {at}"), (actor, ops)).await?;
        let apply = |op| wanted.apply(actor, op, Timestamp::UNIX_EPOCH).is_ok();
        anyhow::ensure!(results == ops.iter().map(apply).collect::<Vec<_>>());
    }
    anyhow::ensure!(undo(world, &place, "again").await? == UndoneTodos::default());
    anyhow::ensure!(stored(world, list).await? == timeless(wanted.todos()));
    Ok(())
}

#[test]
fn a_list_without_a_steps_operations_is_what_it_would_be_had_they_not_been() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let world = runtime.block_on(World::start())?;
    let call = || (actor(), prop::collection::vec(operation(), 1..4), any::<bool>());
    let items = prop::collection::vec(item(), 1..6);
    let (calls, later) =
        (prop::collection::vec(call(), 1..14), prop::collection::vec(call(), 0..5));
    let config =
        ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config).run(&(items, calls, later), |(items, mut calls, later)| {
        calls.insert(0, (user(), vec![init(items)], false));
        let checked = runtime.block_on(check(&world, &calls, &later));
        checked.map_err(|error| TestCaseError::fail(format!("{error:#}")))
    })?;
    Ok(())
}

#[tokio::test]
async fn what_others_did_with_what_is_undone_is_told() -> anyhow::Result<()> {
    let world = World::start().await?;
    let place = Place::outside(world.list, world.agent);
    let planner = agent(BehaviorRole::Plan);
    let by_step = [init(vec![task("dig"), task("plant")])];
    apply(&world, &place, "step 1", (&planner, &by_step)).await?;
    let others = [update("T001", TodoStatus::Done), update("T009", TodoStatus::Done)];
    apply(&world, &place, "other", (&user(), &others)).await?;

    let undone = undo(&world, &place, "undo").await?;

    assert_eq!(undone.operations, 1);
    // The second one was refused before, too.
    assert_eq!(undone.refused.len(), 1);
    assert!(undone.refused[0].starts_with("by anna: NOT_FOUND: "), "{undone:?}");
    assert!(stored(&world, world.list).await?.is_empty());
    let logged = "select count(*) from work.todo_ops";
    assert_eq!(world.number(logged).await?, 3);
    Ok(())
}
