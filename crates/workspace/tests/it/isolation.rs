//! Two tenants never meet, also where an agent's id is the same; nor do two agents of one tenant.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use holdfast_types::{AgentId, TenantId};
use holdfast_workspace::{ImportMode, LogFilter, Revision, Scratch};
use sqlx::{Connection as _, PgConnection};

use crate::world::{World, by, path, put};

const TABLES: [&str; 5] = ["trees", "contents", "files", "revisions", "changes"];

#[tokio::test]
async fn every_verb_of_another_tenant_finds_an_empty_tree() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.put("diary.md", "secret").await?;
    let (trees, eve, agent) = (&world.trees, TenantId::generate(), world.agent);
    let diary = path("diary.md")?;
    let first = Revision::from(1);

    assert_eq!(trees.head(eve, agent).await?, Revision::EMPTY);
    assert!(trees.list(eve, agent, None, None).await?.is_empty());
    assert!(trees.list(eve, agent, Some(first), None).await.is_err());
    assert_eq!(trees.read(eve, agent, &diary, None).await?, None);
    assert!(trees.read(eve, agent, &diary, Some(first)).await.is_err());
    assert!(trees.read_many(eve, agent, std::slice::from_ref(&diary)).await?.is_empty());
    let filter = LogFilter { limit: 10, path: Some(diary.clone()), before: None };
    assert!(trees.log(eve, agent, &filter).await?.is_empty());
    assert!(trees.log(eve, agent, &LogFilter { path: None, ..filter }).await?.is_empty());
    assert!(trees.diff(eve, agent, Revision::EMPTY, first, None).await.is_err());
    assert!(trees.export(eve, agent, Some(first)).await.is_err());
    assert_eq!(trees.export(eve, agent, None).await?.1, Revision::EMPTY);
    assert!(trees.restore(eve, agent, &by("eve"), None, first).await.is_err());
    let root = world.folder("eve");
    let mut scratch = Scratch::open(trees.clone(), world.cache()?, root, eve, agent).await?;
    assert_eq!(scratch.bring(None).await?.written, 0);
    trees.delete_tree(eve, agent).await?;

    assert_eq!(world.text("diary.md").await?.as_deref(), Some("secret"));
    Ok(())
}

#[tokio::test]
async fn an_erased_folder_is_gone_from_all_trees_and_their_history_and_no_other_is()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, eve, agent) = (world.tenant, TenantId::generate(), world.agent);
    let edits = || anyhow::Ok(vec![put("people/x/a", "one")?, put("people/xy/a", "other")?]);
    world.commit(edits()?).await?;
    world.commit(vec![put("people/x/a", "two")?, put("b", "shared")?]).await?;
    world.trees.commit(eve, agent, &by("eve"), edits()?).await?;
    let branch = AgentId::generate();
    world.trees.branch(ada, agent, branch, &by("ada")).await?;
    let mut scratch = world.scratch().await?;
    scratch.bring(None).await?;

    let erased = world.trees.erase_folder(ada, &path("people/x")?, &by("ada")).await?;
    let again = world.trees.erase_folder(ada, &path("people/x")?, &by("ada")).await?;

    // Two versions, and the branch's.
    assert_eq!((erased, again), (3, 0));
    assert_eq!(world.paths().await?, ["b", "people/xy/a"]);
    assert_eq!(world.tree(Some(Revision::from(1))).await?.len(), 1);
    assert_eq!(world.trees.list(ada, branch, None, None).await?.len(), 2);
    assert_eq!(world.trees.list(eve, agent, None, None).await?.len(), 2);
    // Of the erased contents, those of the other tenant are left.
    assert_eq!(world.number("select count(*) from workspace.contents").await?, 4);
    let sizes = "select bytes - (select sum(size)::bigint from workspace.files f
                                 where f.agent_id = t.agent_id and f.tenant_id = t.tenant_id)
                 from workspace.trees t order by 1 desc limit 1";
    assert_eq!(world.number(sizes).await?, 0);
    scratch.bring(None).await?;
    assert!(!scratch.tree().join("people/x").exists() && scratch.tree().join("b").exists());
    Ok(())
}

#[tokio::test]
async fn what_two_tenants_write_alike_is_stored_twice_and_keys_do_not_meet() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, eve, agent) = (world.tenant, TenantId::generate(), world.agent);
    let keyed = by("x").with_key("k");

    let hers = world.trees.commit(ada, agent, &keyed, vec![put("a", "same")?]).await?;
    let other = world.trees.commit(eve, agent, &keyed, vec![put("a", "same")?]).await?;
    let another = AgentId::generate();
    let third = world.trees.commit(ada, another, &keyed, vec![put("a", "same")?]).await?;
    assert!(!hers.repeated && !other.repeated && !third.repeated);
    assert_eq!(world.trees.outcome_by_key(eve, AgentId::generate(), "k").await?, None);

    assert_eq!(world.number("select count(*) from workspace.contents").await?, 2);
    world.trees.delete_tree(eve, agent).await?;
    assert_eq!(world.number("select count(*) from workspace.contents").await?, 1);
    assert_eq!(world.text("a").await?.as_deref(), Some("same"));

    let archive = world.trees.export(ada, agent, None).await?.0;
    let replace = ImportMode::Replace;
    world.trees.import(eve, agent, &by("eve"), std::io::Cursor::new(archive), replace).await?;
    assert_eq!(world.trees.seed(eve, AgentId::generate()).await?.revision, 1.into());
    assert_eq!(world.paths().await?, ["a"]);
    Ok(())
}

#[tokio::test]
async fn a_content_that_another_tree_has_had_outlives_an_agent() -> anyhow::Result<()> {
    let world = World::start().await?;
    let gone = AgentId::generate();
    world.put("a", "shared").await?;
    world.put("a", "newer").await?;
    let edits = vec![put("x", "shared")?, put("y", "alone")?];
    world.trees.commit(world.tenant, gone, &by("eve"), edits).await?;

    world.trees.delete_tree(world.tenant, gone).await?;

    assert_eq!(world.number("select count(*) from workspace.contents").await?, 2);
    let then = world.trees.read(world.tenant, world.agent, &path("a")?, Some(1.into())).await?;
    assert_eq!(then.as_ref().and_then(|file| file.text()), Some("shared"));
    for table in TABLES {
        let sql = format!("select count(*) from workspace.{table} where tenant_id is not null");
        assert!(world.number(&sql).await? > 0, "{table}");
    }
    world.trees.delete_tree(world.tenant, world.agent).await?;
    for table in TABLES {
        let sql = format!("select count(*) from workspace.{table}");
        assert_eq!(world.number(&sql).await?, 0, "{table}");
    }
    Ok(())
}

#[tokio::test]
async fn row_level_security_holds_where_a_query_forgets_the_tenant() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.put("a", "x").await?;
    let pools = world.pools()?;

    for (tenant, rows) in [(TenantId::generate(), 0), (world.tenant, 1)] {
        for table in TABLES {
            let mut tx = pools.tenant(tenant).await?;
            let sql = format!("select count(*) from workspace.{table}");
            let found: i64 =
                holdfast_pg::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(tx.conn()).await?;
            assert_eq!(found, rows, "{table}");
        }
    }
    let mut tx = pools.tenant(world.tenant).await?;
    let foreign = "insert into workspace.trees (tenant_id, agent_id) \
                   values (gen_random_uuid(), gen_random_uuid())";
    assert!(holdfast_pg::query(foreign).execute(tx.conn()).await.is_err());
    Ok(())
}

#[tokio::test]
async fn the_system_role_sees_no_file_and_nobody_rewrites_history() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.put("a", "x").await?;
    let pools = world.pools()?;

    let mut tx = pools.system().await?;
    let read = holdfast_pg::query("select 1 from workspace.files").execute(tx.conn()).await;
    assert!(read.is_err());
    for forbidden in [
        "update workspace.contents set content = ''",
        "update workspace.revisions set author = 'nobody'",
        "update workspace.changes set new_hash = null",
        "update workspace.files set tenant_id = gen_random_uuid()",
    ] {
        let mut tx = pools.tenant(world.tenant).await?;
        let done = holdfast_pg::query(sqlx::AssertSqlSafe(forbidden)).execute(tx.conn()).await;
        assert!(done.is_err(), "{forbidden}");
    }
    Ok(())
}

#[tokio::test]
async fn a_content_is_not_forgotten_while_a_change_that_needs_it_is_under_way() -> anyhow::Result<()>
{
    const FIRST: &str = "
        insert into workspace.revisions (tenant_id, agent_id, revision, author, reason, request, changed)
        values ($1, $2, 1, 'x', '', '', 0)";
    let world = World::start().await?;
    let gone = AgentId::generate();
    world.trees.commit(world.tenant, gone, &by("eve"), vec![put("x", "same")?]).await?;
    // Somebody stands where the change is to write its revision, after its contents.
    let mut holder = PgConnection::connect(&world.database.admin_url()).await?;
    sqlx::query("begin").execute(&mut holder).await?;
    sqlx::query(FIRST)
        .bind(world.tenant.as_uuid())
        .bind(world.agent.as_uuid())
        .execute(&mut holder)
        .await?;

    let is_forgotten = AtomicBool::new(false);
    let change = async { anyhow::Ok(world.commit(vec![put("a", "same")?]).await?) };
    let forget = async {
        waiting(&world, 1).await?;
        world.trees.delete_tree(world.tenant, gone).await?;
        is_forgotten.store(true, Ordering::Relaxed);
        anyhow::Ok(())
    };
    let let_go = async {
        tokio::select! {
            waiting = waiting(&world, 2) => waiting?,
            () = async { while !is_forgotten.load(Ordering::Relaxed) { pause().await } } => {}
        }
        sqlx::query("rollback").execute(&mut holder).await?;
        anyhow::Ok(())
    };
    tokio::try_join!(change, forget, let_go)?;

    assert_eq!(world.text("a").await?.as_deref(), Some("same"));
    Ok(())
}

/// Until so many wait for a lock.
async fn waiting(world: &World, many: i64) -> anyhow::Result<()> {
    const WAITING: &str = "
        select count(*) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'";
    while world.number(WAITING).await? < many {
        pause().await;
    }
    Ok(())
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}
