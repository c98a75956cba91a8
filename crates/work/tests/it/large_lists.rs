//! A list of 10,000 todos is read and changed as one of 100: by index, with as many rows.

use holdfast_types::{BehaviorRole, NewTodo, SessionId, TodoStatus};
use holdfast_work::{MAX_TODOS, Place, TodoFilter, apply_todos, todo_page, todo_view};

use crate::world::{World, agent, init, kinds, task, update, user};

/// Rows of `work.todos` that were read since the statistics were reset, by index or not.
async fn rows_read(world: &World) -> anyhow::Result<i64> {
    // Statistics of a connection are reported when it is idle, at the latest with this.
    const SQL: &str = "
        select coalesce(sum(idx_tup_fetch + seq_tup_read), 0)::bigint
        from pg_stat_user_tables where schemaname = 'work' and relname = 'todos'";
    world.number(SQL).await
}

/// Makes a list in a session of its own, of which the first half is done.
async fn list_of(world: &World, todos: u32) -> anyhow::Result<SessionId> {
    let list = SessionId::generate();
    world.add_session(world.tenant, list).await?;
    let items: Vec<NewTodo> = (1..=todos).map(|number| task(&format!("task {number}"))).collect();
    let mut ops = vec![init(items)];
    ops.extend((1..=todos / 2).map(|number| update(&format!("T{number:03}"), TodoStatus::Done)));
    let mut tx = world.tx().await?;
    let place = Place::outside(list, world.agent);
    let results = apply_todos(&mut tx, &place, &user(), "plan", &ops).await?;
    anyhow::ensure!(results.iter().all(Result::is_ok));
    tx.commit().await?;
    Ok(list)
}

/// Rows that each kind of use reads: a page, a view, a change.
async fn rows_of_uses(world: &World, list: SessionId, todos: u32) -> anyhow::Result<[i64; 3]> {
    let flush = "select pg_stat_force_next_flush()";
    let mut used = [0; 3];
    for (at, rows) in used.iter_mut().enumerate() {
        let before = rows_read(world).await?;
        let mut tx = world.tx().await?;
        match at {
            0 => {
                let after = format!("T{:03}", todos / 2);
                for filter in
                    [TodoFilter::All, TodoFilter::Pending, TodoFilter::Status(TodoStatus::Wait)]
                {
                    let page = todo_page(&mut tx, list, filter, (Some(&after), 32)).await?;
                    anyhow::ensure!(page.todos.len() == 32, "{filter:?}: {}", page.todos.len());
                }
            }
            1 => {
                let view = todo_view(&mut tx, list).await?;
                let next = format!("T{:03}", todos / 2 + 1);
                anyhow::ensure!(view.next_ready() == Some(next.as_str()));
                anyhow::ensure!(!view.render(1_600).is_empty());
            }
            _ => {
                let op = update(&format!("T{:03}", todos / 2 + 1), TodoStatus::InProgress);
                let place = Place::outside(list, world.agent);
                let doing = agent(BehaviorRole::Do);
                let results = apply_todos(&mut tx, &place, &doing, "begin", &[op]).await?;
                anyhow::ensure!(kinds(&results) == [None]);
            }
        }
        holdfast_pg::query(flush).execute(tx.conn()).await?;
        tx.commit().await?;
        *rows = rows_read(world).await? - before;
    }
    Ok(used)
}

#[tokio::test]
async fn a_list_of_ten_thousand_reads_at_most_twice_the_rows_of_one_of_a_hundred()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let small = list_of(&world, 100).await?;
    let large = list_of(&world, MAX_TODOS).await?;
    world.admin("vacuum analyze work.todos").await?;

    let of_small = rows_of_uses(&world, small, 100).await?;
    let of_large = rows_of_uses(&world, large, MAX_TODOS).await?;

    for (small, large) in of_small.into_iter().zip(of_large) {
        assert!(small > 0 && large <= 2 * small, "{of_small:?} {of_large:?}");
    }
    let one_more = [holdfast_types::TodoOperation::Init {
        mode: holdfast_types::TodoInit::Merge,
        items: vec![task("too many")],
    }];
    let place = Place::outside(large, world.agent);
    let full = world.apply_at(&place, &user(), "full", &one_more).await?;
    assert_eq!(kinds(&full), [Some(holdfast_work::TodoErrorKind::Invalid)]);
    Ok(())
}
