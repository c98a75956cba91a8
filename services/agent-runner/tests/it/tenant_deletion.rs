//! A deleted tenant leaves nothing behind, and no other loses anything.

use std::time::Duration;

use holdfast_directory::{Actor, Error};

use crate::world::World;

const WORD: &str = "zyxommatophobia";

/// Returns the tables that have rows with one of these texts in any column.
async fn tables_with(world: &World, texts: &[String]) -> anyhow::Result<Vec<String>> {
    const TABLES: &str = "
        select format('%I.%I', n.nspname, c.relname)
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where c.relkind = 'r' and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
        order by 1";
    let texts = texts.join("', '");
    let mut found = Vec::new();
    for table in world.texts(TABLES).await? {
        // A row as text has all its columns: identifiers, texts, lists and JSON.
        let sql = format!(
            "select count(*) from {table} t, unnest(array['{texts}']) as x (text)
             where strpos(lower(t::text), lower(x.text)) > 0"
        );
        if world.number(&sql).await? > 0 {
            found.push(table);
        }
    }
    Ok(found)
}

#[tokio::test]
async fn a_deleted_tenant_leaves_no_row_and_no_word_behind() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    config.runner.prune = Duration::from_millis(300);
    config.runner.relay = Duration::from_millis(100);
    config.runner.tenant_limits = Duration::from_millis(100);
    let _runner = world.runner_with(config, |app| app).await?;
    let sent = world.say("s", &format!("I have {WORD}")).await?;
    world.text(&sent).await?;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
    let ours = [world.tenant.to_string(), world.tenant.as_uuid().to_string(), WORD.to_owned()];
    let theirs = [other.id.as_uuid().to_string()];
    let (before, kept) = (tables_with(&world, &ours).await?, tables_with(&world, &theirs).await?);
    for table in ["session.sessions", "session.inbox", "session.entries", "control.tenants"] {
        assert!(before.iter().any(|found| found == table), "{table} is not among {before:?}");
    }

    world.directory.tenants().delete(world.tenant, Actor::Operator).await?;
    world
        .until("the tenant is gone", async || {
            let found = world.directory.tenants().get(&world.tenant.to_string()).await;
            matches!(found, Err(Error::NotFound { .. }))
        })
        .await?;

    // Its last event goes when it is published.
    let events = "select count(*) from control.tenant_events where kind = 'tenant.deleted'";
    world.until("it is told", async || world.number(events).await.unwrap() == 0).await?;
    assert_eq!(tables_with(&world, &ours).await?, Vec::<String>::new());
    assert_eq!(tables_with(&world, &theirs).await?, kept);
    Ok(())
}
