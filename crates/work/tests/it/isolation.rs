//! Two tenants never meet, also where ids are the same.

use holdfast_types::{RunId, TenantId};
use holdfast_work::{
    LedgerFilter, Place, TodoFilter, Wakeups, apply_todos, join_list, record_step, tasks_of, todo,
    todo_page, todo_view, worklog_page, worklog_text,
};

use crate::{
    steps::step,
    world::{World, init, task, user},
};

const TABLES: [&str; 9] = [
    "lists",
    "list_members",
    "todos",
    "todo_ops",
    "wakeups",
    "worklog",
    "tasks",
    "ledger",
    "ledger_heads",
];

#[tokio::test]
async fn every_read_of_another_tenant_finds_nothing() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.plan(2).await?;
    let place = world.step(RunId::from(world.list.as_uuid()), "DO", 1);
    let mut tx = world.tx().await?;
    record_step(&mut tx, &place, &step("secret")).await?;
    tx.commit().await?;
    world.ledger.chain(world.tenant, 10).await?;
    let (eve, list) = (TenantId::generate(), world.list);

    let mut tx = world.pools.tenant(eve).await?;
    assert_eq!(todo_view(&mut tx, list).await?, holdfast_work::TodoView::default());
    assert!(todo_page(&mut tx, list, TodoFilter::All, (None, 9)).await?.todos.is_empty());
    assert!(todo(&mut tx, list, "T001").await.is_err());
    assert!(worklog_page(&mut tx, list, (None, 9)).await?.is_empty());
    assert_eq!(worklog_text(&mut tx, list, 1_000).await?.text, "");
    assert!(tasks_of(&mut tx, list, 9).await?.is_empty());
    tx.finish_reading();
    let filter = LedgerFilter { limit: 9, ..LedgerFilter::default() };
    assert!(world.ledger.page(eve, &filter).await?.is_empty());
    assert_eq!(world.ledger.verify(eve).await?.entries, 0);
    assert_eq!(world.ledger.chain(eve, 9).await?, 0);
    assert!(Wakeups::new(world.pools.clone()).pending(eve).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_session_of_the_same_id_has_a_list_of_its_own() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.plan(2).await?;
    let eve = TenantId::generate();
    world.add_session(eve, world.list).await?;

    let mut tx = world.pools.tenant(eve).await?;
    let place = Place::outside(world.list, world.agent);
    let results =
        apply_todos(&mut tx, &place, &user(), "plan", &[init(vec![task("hers")])]).await?;
    assert_eq!(results, [Ok(())]);
    tx.commit().await?;

    let mut tx = world.tx().await?;
    let page = todo_page(&mut tx, world.list, TodoFilter::All, (None, 9)).await?;
    assert_eq!(page.todos.len(), 3);
    assert!(page.todos.iter().all(|todo| todo.title != "hers"));
    Ok(())
}

#[tokio::test]
async fn row_level_security_holds_where_a_query_forgets_the_tenant() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.plan(1).await?;
    let place = world.step(RunId::from(world.list.as_uuid()), "DO", 1);
    let mut tx = world.tx().await?;
    record_step(&mut tx, &place, &step("secret")).await?;
    let workspace = world.add_workspace().await?;
    join_list(&mut tx, world.agent, world.list, workspace).await?;
    tx.commit().await?;
    world.ledger.chain(world.tenant, 10).await?;

    for (tenant, is_own) in [(TenantId::generate(), false), (world.tenant, true)] {
        for table in TABLES {
            let mut tx = world.pools.tenant(tenant).await?;
            let sql = format!("select count(*) > 0 from work.{table}");
            let found: bool =
                holdfast_pg::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(tx.conn()).await?;
            assert_eq!(found, is_own, "{table}");
        }
    }
    for table in ["todos", "worklog", "todo_ops", "tasks"] {
        let mut tx = world.pools.system().await?;
        let sql = format!("select * from work.{table}");
        let read = holdfast_pg::query(sqlx::AssertSqlSafe(sql)).execute(tx.conn()).await;
        assert!(read.is_err(), "the system role reads work.{table}");
    }
    Ok(())
}
