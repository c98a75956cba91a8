//! Reads of current and earlier revisions.

use holdfast_types::{Fault as _, Kind};
use holdfast_workspace::{Base, Edit, Revision};

use crate::world::{World, delete, path, put, tree};

#[tokio::test]
async fn a_tree_that_nobody_wrote_to_is_empty() -> anyhow::Result<()> {
    let world = World::start().await?;

    assert_eq!(world.trees.head(world.tenant, world.agent).await?, Revision::EMPTY);
    assert_eq!(world.tree(None).await?, []);
    assert_eq!(world.tree(Some(Revision::EMPTY)).await?, []);
    assert_eq!(world.text("SOUL.md").await?, None);
    assert_eq!(world.number("select count(*) from workspace.trees").await?, 0);
    Ok(())
}

#[tokio::test]
async fn every_earlier_state_can_be_read() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("a", "1")?, put("b", "1")?]).await?;
    world.commit(vec![put("a", "2")?]).await?;
    world.commit(vec![delete("a")?, put("c/d", "3")?]).await?;
    world.commit(vec![put("a", "4")?]).await?;

    for (at, expected) in [
        (0, tree(&[])),
        (1, tree(&[("a", "1"), ("b", "1")])),
        (2, tree(&[("a", "2"), ("b", "1")])),
        (3, tree(&[("b", "1"), ("c/d", "3")])),
        (4, tree(&[("a", "4"), ("b", "1"), ("c/d", "3")])),
    ] {
        assert_eq!(world.tree(Some(at.into())).await?, expected, "revision {at}");
    }
    assert_eq!(world.tree(None).await?, world.tree(Some(4.into())).await?);
    Ok(())
}

#[tokio::test]
async fn a_revision_that_is_not_there_is_not_found() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.put("a", "x").await?;

    for at in [-1, 2] {
        let at = Some(Revision::from(at));
        let list = world.trees.list(world.tenant, world.agent, at, None).await.unwrap_err();
        let read = world.trees.read(world.tenant, world.agent, &path("a")?, at).await.unwrap_err();
        assert_eq!((list.kind(), read.kind()), (Kind::NotFound, Kind::NotFound));
        assert!(list.to_string().ends_with("the newest is 1"), "{list}");
    }
    Ok(())
}

#[tokio::test]
async fn a_folder_is_listed_without_those_whose_names_only_begin_like_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    let names = ["a/b/c", "a.md", "a-b/c", "a/é", "aa", "a0"];
    let edits = names.iter().map(|name| put(name, name)).collect::<Result<_, _>>()?;
    world.commit(edits).await?;

    let folder = path("a")?;
    for at in [None, Some(Revision::from(1))] {
        let listed = world.trees.list(world.tenant, world.agent, at, Some(&folder)).await?;
        let listed: Vec<&str> = listed.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(listed, ["a/b/c", "a/é"]);

        let file = path("a.md")?;
        let listed = world.trees.list(world.tenant, world.agent, at, Some(&file)).await?;
        assert_eq!(listed.len(), 1);
    }
    Ok(())
}

#[tokio::test]
async fn many_files_are_read_at_once_and_what_is_missing_is_left_out() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("SOUL.md", "kind")?, put("USER.md", "Ada")?]).await?;

    let wanted = [path("USER.md")?, path("SOUL.md")?, path("NONE.md")?];
    let found = world.trees.read_many(world.tenant, world.agent, &wanted).await?;

    let texts: Vec<(&str, Option<&str>)> =
        found.iter().map(|(path, file)| (path.as_str(), file.text())).collect();
    assert_eq!(texts, [("SOUL.md", Some("kind")), ("USER.md", Some("Ada"))]);
    Ok(())
}

#[tokio::test]
async fn empty_files_any_bytes_and_foreign_names_are_kept_as_they_are() -> anyhow::Result<()> {
    let world = World::start().await?;
    let bytes: Vec<u8> = (0..=255).collect();
    let names = ["空.md", "日记/今天 🌱.md", "e\u{301}", "é", "with space", "%20", "'; drop --"];
    let mut edits = vec![
        put("empty", "")?,
        Edit::Put { path: path("bytes")?, content: bytes.clone(), base: Base::Any },
    ];
    for name in names {
        edits.push(put(name, name)?);
    }
    world.commit(edits).await?;

    let mut expected: Vec<(String, Vec<u8>)> =
        names.iter().map(|name| ((*name).to_owned(), name.as_bytes().to_vec())).collect();
    expected.extend([("empty".to_owned(), vec![]), ("bytes".to_owned(), bytes)]);
    expected.sort();

    assert_eq!(world.tree(None).await?, expected);
    assert_eq!(world.tree(Some(1.into())).await?, expected);
    Ok(())
}

#[tokio::test]
async fn what_a_file_says_is_not_in_its_debug_form() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.put("diary.md", "confession").await?;

    let file = world.trees.read(world.tenant, world.agent, &path("diary.md")?, None).await?;
    let diff = world.trees.diff(world.tenant, world.agent, Revision::EMPTY, 1.into(), None).await?;

    assert!(!format!("{file:?}").contains("confession"));
    assert!(!format!("{diff:?}").contains("confession"));
    assert!(!format!("{:?}", put("diary.md", "confession")?).contains("confession"));
    Ok(())
}
