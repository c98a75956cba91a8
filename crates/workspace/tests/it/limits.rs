//! A tree holds so much and no more, and whoever meets the limit is told which and by how much.

use std::time::{Duration, Instant};

use holdfast_types::{Fault as _, Kind};
use holdfast_workspace::{Error, Limits, NewMedia};
use sqlx::{Connection as _, PgConnection};

use crate::world::{World, by, delete, put};

const SMALL: Limits = Limits { file: 10, tree: 25, files: 3 };

#[tokio::test]
async fn a_file_may_be_as_large_as_the_limit_and_no_larger() -> anyhow::Result<()> {
    let world = World::with(SMALL).await?;

    world.put("a", &"x".repeat(10)).await?;
    let error = world.commit(vec![put("b", &"x".repeat(11))?]).await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "`b` has 11 bytes, 1 more than a file may have (10): split it, or keep less"
    );
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(world.paths().await?, ["a"]);
    Ok(())
}

#[tokio::test]
async fn a_tree_may_be_as_large_as_the_limit_and_no_larger() -> anyhow::Result<()> {
    let world = World::with(SMALL).await?;
    world.commit(vec![put("a", &"x".repeat(10))?, put("b", &"y".repeat(10))?]).await?;

    let error = world.commit(vec![put("c", &"z".repeat(6))?]).await.unwrap_err();
    world.put("c", &"z".repeat(5)).await?;

    assert_eq!(
        error.to_string(),
        "the files would have 26 bytes together, 1 more than the 25 that they may: delete what \
         is not needed first"
    );
    assert_eq!(error.kind(), Kind::Exhausted);
    // In the place of another there is room.
    world.commit(vec![put("b", "1")?, put("c", &"z".repeat(10))?]).await?;
    assert_eq!(world.number("select bytes from workspace.trees").await?, 21);
    Ok(())
}

#[tokio::test]
async fn a_tree_has_as_many_files_as_the_limit_and_no_more() -> anyhow::Result<()> {
    let world = World::with(SMALL).await?;
    world.commit(vec![put("a", "")?, put("b", "")?, put("c", "")?]).await?;

    let error = world.commit(vec![put("d", "")?]).await.unwrap_err();
    world.commit(vec![delete("a")?, put("d", "")?]).await?;

    assert_eq!(
        error.to_string(),
        "there would be 4 files, and 3 is the most: delete what is not needed first"
    );
    assert_eq!(world.paths().await?, ["b", "c", "d"]);
    Ok(())
}

#[tokio::test]
async fn under_limits_that_were_lowered_a_tree_may_only_shrink() -> anyhow::Result<()> {
    let world = World::with(SMALL).await?;
    world.commit(vec![put("a", "12345")?, put("b", "12345")?, put("c", "12345")?]).await?;
    let lower = world.trees.clone().with_limits(Limits { file: 5, tree: 6, files: 1 });
    let commit = async |edits| lower.commit(world.tenant, world.agent, &by("ada"), edits).await;

    assert!(matches!(commit(vec![put("d", "")?]).await, Err(Error::TooManyFiles { .. })));
    commit(vec![put("a", "1234")?]).await?;
    assert!(matches!(commit(vec![put("a", "12345")?]).await, Err(Error::TreeTooLarge { .. })));
    commit(vec![delete("b")?]).await?;
    Ok(())
}

#[tokio::test]
async fn changes_at_once_do_not_pass_the_limit_together() -> anyhow::Result<()> {
    let world = World::with(SMALL).await?;
    world.connect(8).await?;

    let mut all = Vec::new();
    for n in 0..8 {
        all.push(world.commit(vec![put(&n.to_string(), "12345678")?]));
    }
    let outcomes = futures::future::join_all(all).await;

    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 3);
    assert_eq!(world.paths().await?.len(), 3);
    Ok(())
}

#[tokio::test]
async fn media_stored_at_once_make_room_by_deleting_the_same_file() -> anyhow::Result<()> {
    // As many as a process has connections.
    const CALLS: usize = 3;
    const WAITING: &str = "select count(*) from pg_stat_activity \
                           where datname = current_database() and wait_event_type = 'Lock'";
    let world = World::start().await?;
    let store = async |contents: Vec<Vec<u8>>| {
        let new = |content| NewMedia { name: String::new(), content };
        let new = contents.into_iter().map(new).collect();
        world.trees.store_media(world.tenant, world.agent, None, &by("ada"), new).await
    };
    // All that the folder may hold.
    store((0..4).map(|n| vec![n; 8 << 20]).collect()).await?;
    world.connect(CALLS).await?;
    let mut admin = PgConnection::connect(&world.database.admin_url()).await?;
    let mut held = admin.begin().await?;
    sqlx::query("select from workspace.trees for update").execute(&mut *held).await?;

    let calls = (0..CALLS).map(|n| store(vec![format!("new {n}").into_bytes()]));
    let release = async {
        // Every call has listed the folder, and waits to change it.
        let until = Instant::now() + Duration::from_secs(20);
        while world.number(WAITING).await? < CALLS.try_into()? {
            anyhow::ensure!(Instant::now() < until, "the calls do not wait for each other");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        held.commit().await.map_err(anyhow::Error::from)
    };
    let (stored, released) = tokio::join!(futures::future::join_all(calls), release);

    released?;
    for stored in stored {
        stored?;
    }
    let kept = world.paths().await?.into_iter().filter(|path| path.starts_with("media/"));
    assert_eq!(kept.count(), 3 + CALLS);
    Ok(())
}
