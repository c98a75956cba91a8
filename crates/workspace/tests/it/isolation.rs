//! Two tenants never meet, also where an agent's id is the same; nor do two agents of one tenant.

use holdfast_types::{AgentId, TenantId};
use holdfast_workspace::{Error, Import, LogFilter, Revision, Scratch};

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
    trees.forget(eve, agent).await?;

    assert_eq!(world.text("diary.md").await?.as_deref(), Some("secret"));
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
    assert_eq!(world.trees.committed(eve, AgentId::generate(), "k").await?, None);

    assert_eq!(world.number("select count(*) from workspace.contents").await?, 2);
    world.trees.forget(eve, agent).await?;
    assert_eq!(world.number("select count(*) from workspace.contents").await?, 1);
    assert_eq!(world.text("a").await?.as_deref(), Some("same"));

    let archive = world.trees.export(ada, agent, None).await?.0;
    let replace = Import::Replace;
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

    world.trees.forget(world.tenant, gone).await?;

    assert_eq!(world.number("select count(*) from workspace.contents").await?, 2);
    let then = world.trees.read(world.tenant, world.agent, &path("a")?, Some(1.into())).await?;
    assert_eq!(then.as_ref().and_then(|file| file.text()), Some("shared"));
    for table in TABLES {
        let sql = format!("select count(*) from workspace.{table} where tenant_id is not null");
        assert!(world.number(&sql).await? > 0, "{table}");
    }
    world.trees.forget(world.tenant, world.agent).await?;
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
                sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(tx.conn()).await?;
            assert_eq!(found, rows, "{table}");
        }
    }
    let mut tx = pools.tenant(world.tenant).await?;
    let foreign = "insert into workspace.trees (tenant_id, agent_id) \
                   values (gen_random_uuid(), gen_random_uuid())";
    assert!(sqlx::query(foreign).execute(tx.conn()).await.is_err());
    Ok(())
}

#[tokio::test]
async fn the_system_role_sees_no_file_and_nobody_rewrites_history() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.put("a", "x").await?;
    let pools = world.pools()?;

    let mut tx = pools.system().await?;
    let read = sqlx::query("select 1 from workspace.files").execute(tx.conn()).await;
    assert!(read.is_err());
    for forbidden in [
        "update workspace.contents set content = ''",
        "update workspace.revisions set author = 'nobody'",
        "update workspace.changes set new_hash = null",
        "update workspace.files set tenant_id = gen_random_uuid()",
    ] {
        let mut tx = pools.tenant(world.tenant).await?;
        let done = sqlx::query(sqlx::AssertSqlSafe(forbidden)).execute(tx.conn()).await;
        assert!(done.is_err(), "{forbidden}");
    }
    Ok(())
}

#[tokio::test]
async fn an_agent_is_forgotten_while_another_of_its_tenant_writes_the_same() -> anyhow::Result<()> {
    let world = World::start().await?;
    for round in 0..10 {
        let gone = AgentId::generate();
        let text = format!("round {round}");
        world.trees.commit(world.tenant, gone, &by("eve"), vec![put("x", &text)?]).await?;

        let edits = vec![put("a", &text)?];
        let (forgotten, written) =
            futures::future::join(world.trees.forget(world.tenant, gone), world.commit(edits))
                .await;
        forgotten?;
        written?;
        assert_eq!(world.text("a").await?, Some(text));
    }
    let lost = world
        .number(
            "select count(*) from workspace.changes c where new_hash is not null and not exists \
             (select from workspace.contents where hash = c.new_hash)",
        )
        .await?;
    assert_eq!(lost, 0);
    let error = world.trees.read(world.tenant, world.agent, &path("a")?, Some(99.into())).await;
    assert!(matches!(error, Err(Error::NoRevision { .. })));
    Ok(())
}
