//! The ledger: append-only, with a chain of hashes that shows what was changed or removed.

use std::time::Duration;

use holdfast_types::RunId;
use holdfast_work::{Period, record_period};

use crate::world::World;

async fn write(world: &World, entries: u32) -> anyhow::Result<()> {
    let place = world.step(RunId::from(world.list.as_uuid()), "DO", 1);
    for steps in 1..=entries {
        let mut tx = world.tx().await?;
        let period = Period {
            steps,
            outcome: "end".to_owned(),
            duration: Duration::from_millis(5),
            ..Period::default()
        };
        record_period(&mut tx, &place, &period).await?;
        tx.commit().await?;
    }
    Ok(())
}

#[tokio::test]
async fn entries_are_chained_after_their_transactions_and_the_chain_is_whole() -> anyhow::Result<()>
{
    let world = World::start().await?;
    write(&world, 5).await?;

    let before = world.ledger.verify(world.tenant).await?;
    assert_eq!((before.entries, before.unchained, before.broken_at), (0, 5, None));
    assert_eq!(world.ledger.unchained().await?, [world.tenant]);
    assert_eq!(world.ledger.chain(world.tenant, 3).await?, 3);
    assert_eq!(world.ledger.chain(world.tenant, 3).await?, 2);
    assert_eq!(world.ledger.chain(world.tenant, 3).await?, 0);
    assert!(world.ledger.unchained().await?.is_empty());

    let after = world.ledger.verify(world.tenant).await?;
    assert_eq!((after.entries, after.unchained, after.broken_at), (5, 0, None));
    assert_eq!(after.head.len(), 64);
    write(&world, 1).await?;
    world.ledger.chain(world.tenant, 10).await?;
    let longer = world.ledger.verify(world.tenant).await?;
    assert_eq!((longer.entries, longer.broken_at), (6, None));
    assert_ne!(longer.head, after.head);
    Ok(())
}

#[tokio::test]
async fn a_changed_a_removed_and_a_cut_off_entry_break_the_chain() -> anyhow::Result<()> {
    for (change, position) in [
        ("update work.ledger set cost_micros = 1 where position = 2", 2),
        ("update work.ledger set outcome = 'ok' where position = 4", 4),
        ("delete from work.ledger where position = 3", 3),
        ("delete from work.ledger where position >= 4", 4),
    ] {
        let world = World::start().await?;
        write(&world, 5).await?;
        world.ledger.chain(world.tenant, 10).await?;

        assert!(world.admin(change).await? > 0);

        let check = world.ledger.verify(world.tenant).await?;
        assert_eq!(check.broken_at, Some(position), "{change}");
    }
    Ok(())
}

#[tokio::test]
async fn services_can_neither_change_nor_remove_an_entry() -> anyhow::Result<()> {
    let world = World::start().await?;
    write(&world, 2).await?;
    world.ledger.chain(world.tenant, 1).await?;

    for refused in ["update work.ledger set cost_micros = 0", "update work.worklog set digest = ''"]
    {
        let mut tx = world.tx().await?;
        let done = holdfast_pg::query(sqlx::AssertSqlSafe(refused)).execute(tx.conn()).await;
        assert!(done.is_err(), "{refused}");
    }
    // Policies hide what is chained from updates, and everything from deletions.
    for (hidden, rows) in [
        ("update work.ledger set position = 9, hash = '' where position = 1", 0),
        ("delete from work.ledger", 0),
        ("delete from work.ledger_heads", 0),
    ] {
        let mut tx = world.tx().await?;
        let done = holdfast_pg::query(sqlx::AssertSqlSafe(hidden)).execute(tx.conn()).await?;
        assert_eq!(done.rows_affected(), rows, "{hidden}");
    }
    Ok(())
}
