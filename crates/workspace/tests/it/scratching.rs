//! A tree on a runner's disk is what was asked for, and what a command does to it is found.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
    time::SystemTime,
};

use holdfast_types::{AgentId, InvalidPath, TreePath};
use holdfast_workspace::{
    Base, BringOutcome, Clash, ContentCache, Edit, Error, Limits, PathView, Scratch,
    UnstorableEntry, UnstorableReason,
};

use crate::world::{World, by, delete, hash, path, put, put_on, tree};

/// All files below a folder, and what they say.
fn on_disk(root: &Path) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                let path = entry.path();
                let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
                found.push((name, fs::read(path)?));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn inodes(root: &Path) -> anyhow::Result<BTreeMap<String, u64>> {
    let inode = |name: String| anyhow::Ok((name.clone(), fs::metadata(root.join(name))?.ino()));
    on_disk(root)?.into_iter().map(|(name, _)| inode(name)).collect()
}

fn stray(path: &str, kind: UnstorableReason) -> UnstorableEntry {
    UnstorableEntry { path: path.to_owned(), kind }
}

#[tokio::test]
async fn a_tree_is_brought_and_then_only_what_differs_is_written() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("a", "1")?, put("b/c", "1")?, put("b/d/e", "1")?]).await?;
    let mut scratch = world.scratch().await?;

    let first = scratch.bring(None).await?;
    assert_eq!(first, BringOutcome { revision: 1.into(), written: 3, removed: 0, fetched: 1 });
    assert_eq!(on_disk(scratch.tree())?, world.tree(None).await?);
    let before = inodes(scratch.tree())?;

    world.commit(vec![put("a", "2")?, delete("b/d/e")?, put("f", "1")?]).await?;
    let second = scratch.bring(None).await?;
    assert_eq!(second, BringOutcome { revision: 2.into(), written: 2, removed: 1, fetched: 1 });
    assert_eq!(on_disk(scratch.tree())?, world.tree(None).await?);
    assert_eq!(inodes(scratch.tree())?.get("b/c"), before.get("b/c"));
    assert!(!scratch.tree().join("b/d").exists());

    let third = scratch.bring(None).await?;
    assert_eq!(third, BringOutcome { revision: 2.into(), written: 0, removed: 0, fetched: 0 });
    scratch.bring(Some(1.into())).await?;
    assert_eq!(on_disk(scratch.tree())?, world.tree(Some(1.into())).await?);
    Ok(())
}

#[tokio::test]
async fn another_process_goes_on_with_what_is_there() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("a", "1")?, put("b", "1")?]).await?;
    world.scratch().await?.bring(None).await?;

    let mut later = world.scratch().await?;
    assert_eq!(later.changes().await?.edits, []);
    assert_eq!(later.bring(None).await?.written, 0);

    // A manifest that is lost or cut off costs writing, and nothing else.
    fs::write(world.folder("scratch/manifest"), b"{\"tenant\":")?;
    let mut later = world.scratch().await?;
    let brought = later.bring(None).await?;
    assert_eq!(brought, BringOutcome { revision: 1.into(), written: 2, removed: 0, fetched: 0 });
    Ok(())
}

#[tokio::test]
async fn the_folder_of_another_tree_is_emptied_first() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("secret", "of the first")?, put("a", "1")?]).await?;
    world.scratch().await?.bring(None).await?;
    let other = AgentId::generate();
    world.trees.commit(world.tenant, other, &by("eve"), vec![put("a", "2")?]).await?;

    let (trees, root) = (world.trees.clone(), world.folder("scratch"));
    let mut scratch = Scratch::open(trees, world.cache()?, root, world.tenant, other).await?;
    scratch.bring(None).await?;

    assert_eq!(on_disk(scratch.tree())?, tree(&[("a", "2")]));
    Ok(())
}

#[tokio::test]
async fn what_a_command_did_is_found_and_committed() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("same", "1")?, put("edited", "1")?, put("deleted", "1")?]).await?;
    let mut scratch = world.scratch().await?;
    scratch.bring(None).await?;
    assert_eq!(scratch.changes().await?.edits, []);

    // Of the same size, at once, and with its time put back.
    let edited = scratch.tree().join("edited");
    let written = fs::metadata(&edited)?.modified()?;
    fs::write(&edited, "2")?;
    fs::File::options().write(true).open(&edited)?.set_modified(written)?;
    fs::remove_file(scratch.tree().join("deleted"))?;
    fs::create_dir_all(scratch.tree().join("new/folder"))?;
    fs::write(scratch.tree().join("new/folder/été"), "3")?;
    // Touched, and the same.
    fs::write(scratch.tree().join("same"), "1")?;

    let changes = scratch.changes().await?;
    assert_eq!(
        changes.edits,
        [
            Edit::Delete { path: path("deleted")?, base: hash("1") },
            put_on("edited", "2", hash("1"))?,
            put_on("new/folder/été", "3", Base::Absent)?,
        ]
    );
    assert_eq!(changes.unstorable, []);

    let committed = scratch.commit(&by("ada"), changes.edits).await?;
    assert_eq!(committed.revision, 2.into());
    assert_eq!(scratch.changes().await?.edits, []);
    let brought = scratch.bring(None).await?;
    assert_eq!(brought, BringOutcome { revision: 2.into(), written: 0, removed: 0, fetched: 0 });
    let expected = tree(&[("edited", "2"), ("new/folder/été", "3"), ("same", "1")]);
    assert_eq!(world.tree(None).await?, expected);
    Ok(())
}

#[tokio::test]
async fn a_command_on_an_old_tree_is_told_and_its_work_is_not_lost_by_that() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("a", "1")?, put("b", "1")?]).await?;
    let mut scratch = world.scratch().await?;
    scratch.bring(None).await?;
    fs::write(scratch.tree().join("a"), "mine")?;
    world.put("a", "theirs").await?;
    world.put("c", "theirs").await?;

    let changes = scratch.changes().await?;
    let clash = world.commit(changes.edits).await;
    assert!(matches!(clash, Err(Error::Clash { clash: Clash::Changed, .. })));
    assert_eq!(scratch.changes().await?.edits, [put_on("a", "mine", hash("1"))?]);

    // It decides to write beside it; what others did comes with the next bringing.
    fs::rename(scratch.tree().join("a"), scratch.tree().join("mine"))?;
    let mut edits = scratch.changes().await?.edits;
    edits.retain(|edit| edit.path().as_str() == "mine");
    scratch.commit(&by("ada"), edits).await?;
    scratch.bring(None).await?;
    assert_eq!(
        on_disk(scratch.tree())?,
        tree(&[("a", "theirs"), ("b", "1"), ("c", "theirs"), ("mine", "mine")])
    );
    Ok(())
}

#[tokio::test]
async fn of_what_a_command_did_a_part_can_be_kept() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("a", "1")?, put("b", "1")?]).await?;
    let mut scratch = world.scratch().await?;
    scratch.bring(None).await?;
    for name in ["a", "b", "c"] {
        fs::write(scratch.tree().join(name), "2")?;
    }

    let mut edits = scratch.changes().await?.edits;
    edits.retain(|edit| edit.path().as_str() == "b");
    scratch.commit(&by("ada"), edits).await?;
    assert_eq!(scratch.changes().await?.edits.len(), 2);
    scratch.bring(None).await?;
    assert_eq!(on_disk(scratch.tree())?, tree(&[("a", "1"), ("b", "2")]));

    // What the folder does not know of is brought as anybody's.
    scratch.commit(&by("ada"), vec![put("beside", "x")?]).await?;
    scratch.bring(None).await?;
    assert_eq!(on_disk(scratch.tree())?, world.tree(None).await?);
    Ok(())
}

#[tokio::test]
async fn links_pipes_and_odd_names_are_told_and_never_followed() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("a", "1")?, put("b/c", "1")?, put("d", "1")?]).await?;
    let mut scratch = world.scratch().await?;
    scratch.bring(None).await?;
    let outside = world.folder("outside");
    fs::create_dir_all(&outside)?;
    fs::write(outside.join("c"), "of somebody else")?;
    let at = scratch.tree().to_owned();

    // A file and a folder of the tree are swapped for links that lead out of it.
    fs::remove_file(at.join("a"))?;
    symlink(outside.join("c"), at.join("a"))?;
    fs::remove_dir_all(at.join("b"))?;
    symlink(&outside, at.join("b"))?;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at.join("d2"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )?;
    fs::write(at.join("line\nbreak"), "x")?;
    fs::write(at.join("d"), "2")?;

    let changes = scratch.changes().await?;
    assert_eq!(changes.edits, [put_on("d", "2", hash("1"))?]);
    assert_eq!(
        changes.unstorable,
        [
            stray("a", UnstorableReason::Link),
            stray("b", UnstorableReason::Link),
            stray("d2", UnstorableReason::Special),
            stray("line\u{fffd}break", UnstorableReason::InvalidName),
        ]
    );

    let brought = scratch.bring(None).await?;
    assert_eq!((brought.written, brought.removed), (3, 4));
    assert_eq!(on_disk(&at)?, world.tree(None).await?);
    assert_eq!(on_disk(&outside)?, tree(&[("c", "of somebody else")]));
    assert!(!fs::symlink_metadata(at.join("b"))?.is_symlink());
    Ok(())
}

#[tokio::test]
async fn a_file_in_a_folders_place_and_the_other_way_round_are_put_right() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("a/b", "1")?, put("c", "1")?]).await?;
    let mut scratch = world.scratch().await?;
    scratch.bring(None).await?;
    let at = scratch.tree().to_owned();
    fs::remove_dir_all(at.join("a"))?;
    fs::write(at.join("a"), "a file")?;
    fs::remove_file(at.join("c"))?;
    fs::create_dir_all(at.join("c/d"))?;
    fs::write(at.join("c/d/e"), "a folder")?;

    let edits = scratch.changes().await?.edits;
    assert_eq!(
        edits,
        [
            put_on("a", "a file", Base::Absent)?,
            Edit::Delete { path: path("a/b")?, base: hash("1") },
            Edit::Delete { path: path("c")?, base: hash("1") },
            put_on("c/d/e", "a folder", Base::Absent)?,
        ]
    );

    scratch.bring(None).await?;
    assert_eq!(on_disk(&at)?, world.tree(None).await?);
    world.commit(edits).await?;
    scratch.bring(None).await?;
    assert_eq!(on_disk(&at)?, tree(&[("a", "a file"), ("c/d/e", "a folder")]));
    Ok(())
}

#[tokio::test]
async fn what_is_too_large_or_closed_is_told_and_left_as_it_was() -> anyhow::Result<()> {
    let world = World::with(Limits { file: 10, tree: 15, files: 5 }).await?;
    world.commit(vec![put("a", "1")?, put("z/closed", "1")?]).await?;
    let mut scratch = world.scratch().await?;
    scratch.bring(None).await?;
    let at = scratch.tree().to_owned();
    fs::write(at.join("a"), "12345678901")?;
    fs::write(at.join("b"), "1234567890")?;
    fs::write(at.join("c"), "1234567890")?;

    let changes = scratch.changes().await?;
    assert_eq!(changes.edits, [put_on("b", "1234567890", Base::Absent)?]);
    assert_eq!(
        changes.unstorable,
        [stray("a", UnstorableReason::Large), stray("c", UnstorableReason::Large)]
    );

    fs::set_permissions(at.join("z"), fs::Permissions::from_mode(0o000))?;
    let closed = scratch.changes().await?;
    // Whoever runs this as root is kept out of nothing.
    if !closed.unstorable.iter().any(|stray| stray.kind == UnstorableReason::Unreadable) {
        assert!(rustix_is_root()?);
    }
    assert!(!closed.edits.iter().any(|edit| matches!(edit, Edit::Delete { .. })));
    scratch.bring(None).await?;
    assert_eq!(on_disk(&at)?, world.tree(None).await?);
    Ok(())
}

fn rustix_is_root() -> anyhow::Result<bool> {
    Ok(fs::metadata("/proc/self")?.uid() == 0)
}

#[tokio::test]
async fn a_flood_of_files_and_a_bottomless_folder_are_survived() -> anyhow::Result<()> {
    let world = World::with(Limits { files: 5, ..Limits::default() }).await?;
    world.put("a", "1").await?;
    let mut scratch = world.scratch().await?;
    scratch.bring(None).await?;
    let at = scratch.tree().to_owned();

    // Deeper than a path may be long, and than a process may have files open.
    let mut below = rustix::fs::openat(
        rustix::fs::CWD,
        &at,
        rustix::fs::OFlags::DIRECTORY,
        rustix::fs::Mode::empty(),
    )?;
    for _ in 0..3_000 {
        rustix::fs::mkdirat(&below, "d", rustix::fs::Mode::RWXU)?;
        let flags = rustix::fs::OFlags::DIRECTORY;
        below = rustix::fs::openat(&below, "d", flags, rustix::fs::Mode::empty())?;
    }
    drop(below);
    let deep = scratch.changes().await;
    assert!(matches!(deep, Err(Error::Invalid(told)) if told.contains("more than 50 files")));
    scratch.bring(None).await?;
    assert_eq!(on_disk(&at)?, tree(&[("a", "1")]));

    for n in 0..60 {
        fs::write(at.join(format!("{n}.o")), "x")?;
    }
    assert!(matches!(scratch.changes().await, Err(Error::Invalid(_))));
    // Too many to be looked through: all go, and what belongs there is written anew.
    let brought = scratch.bring(None).await?;
    assert_eq!((brought.removed, brought.written), (61, 1));
    assert_eq!(on_disk(&at)?, tree(&[("a", "1")]));
    Ok(())
}

#[tokio::test]
async fn a_cleared_folder_uses_no_disk_and_is_brought_again() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("a", "1")?]).await?;
    let mut scratch = world.scratch().await?;
    scratch.bring(None).await?;
    let at = scratch.tree().to_owned();
    fs::create_dir(at.join("big"))?;
    fs::write(at.join("big/file"), "left by a command")?;

    scratch.clear().await?;

    assert_eq!(on_disk(at.parent().unwrap())?.len(), 1, "the manifest");
    let brought = scratch.bring(None).await?;
    assert_eq!((brought.written, brought.fetched), (1, 0));
    assert_eq!(on_disk(&at)?, tree(&[("a", "1")]));
    Ok(())
}

#[tokio::test]
async fn no_command_can_change_the_cache_through_its_folder() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.put("a", "what it says").await?;
    let mut scratch = world.scratch().await?;
    scratch.bring(None).await?;

    let file = scratch.tree().join("a");
    assert_eq!(fs::metadata(&file)?.nlink(), 1);
    fs::write(&file, "changed in its place")?;
    let brought = scratch.bring(None).await?;

    assert_eq!((brought.written, brought.fetched), (1, 0));
    assert_eq!(fs::read_to_string(&file)?, "what it says");
    Ok(())
}

#[tokio::test]
async fn a_link_that_a_command_made_keeps_what_it_said() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.put("a", "1").await?;
    let mut scratch = world.scratch().await?;
    scratch.bring(None).await?;
    let kept = world.folder("kept");
    fs::hard_link(scratch.tree().join("a"), &kept)?;

    world.put("a", "2").await?;
    scratch.bring(None).await?;

    assert_eq!(fs::read_to_string(kept)?, "1");
    assert_eq!(fs::read_to_string(scratch.tree().join("a"))?, "2");
    Ok(())
}

#[tokio::test]
async fn a_cached_content_that_was_damaged_is_fetched_again() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.put("a", "what it says").await?;
    world.scratch().await?.bring(None).await?;
    for (name, _) in on_disk(&world.folder("cache"))? {
        fs::write(world.folder("cache").join(name), "what it sa")?;
    }
    fs::remove_dir_all(world.folder("scratch"))?;

    let mut scratch = world.scratch().await?;
    let brought = scratch.bring(None).await?;

    assert_eq!((brought.written, brought.fetched), (1, 1));
    assert_eq!(on_disk(scratch.tree())?, tree(&[("a", "what it says")]));
    Ok(())
}

#[tokio::test]
async fn the_cache_is_bounded_and_keeps_what_was_used_last() -> anyhow::Result<()> {
    let world = World::start().await?;
    let cache = ContentCache::open(world.folder("small"), 100)?;
    let root = world.folder("scratch");
    let open = || {
        let (trees, cache, root) = (world.trees.clone(), cache.clone(), root.clone());
        Scratch::open(trees, cache, root, world.tenant, world.agent)
    };
    for n in 0..10 {
        world.put("a", &format!("{n}").repeat(10)).await?;
        open().await?.bring(None).await?;
        // Each is plainly older than the next.
        for (name, _) in on_disk(&world.folder("small"))? {
            let file = fs::File::options().append(true).open(world.folder("small").join(name))?;
            let older = file.metadata()?.modified()? - std::time::Duration::from_secs(10);
            file.set_modified(older)?;
        }
    }
    let size = || -> anyhow::Result<usize> {
        Ok(on_disk(&world.folder("small"))?.iter().map(|(_, content)| content.len()).sum())
    };
    assert_eq!(size()?, 100);

    // The first is used, so the second is the oldest.
    assert_eq!(open().await?.bring(Some(1.into())).await?.fetched, 0);
    world.put("a", "x").await?;
    open().await?.bring(None).await?;
    assert!(size()? <= 90, "{}", size()?);
    assert_eq!(open().await?.bring(Some(1.into())).await?.fetched, 0);
    assert_eq!(open().await?.bring(Some(2.into())).await?.fetched, 1);

    let _smaller = ContentCache::open(world.folder("small"), 20)?;
    assert!(size()? <= 20, "{}", size()?);
    world.put("a", &"large".repeat(50)).await?;
    assert_eq!(open().await?.bring(None).await?.written, 1);
    Ok(())
}

#[tokio::test]
async fn files_are_of_the_time_of_their_revision() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.put("a", "1").await?;
    let listed = world.trees.list(world.tenant, world.agent, None, None).await?;
    let mut scratch = world.scratch().await?;
    scratch.bring(None).await?;

    let written = fs::metadata(scratch.tree().join("a"))?.modified()?;
    let second = written.duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    assert_eq!(i64::try_from(second)?, listed[0].changed_at.as_second());
    Ok(())
}

#[tokio::test]
async fn commands_see_the_files_of_a_view_under_its_paths_and_miss_no_others() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.commit(vec![put("own/a", "1")?, put("memory/x", "secret")?]).await?;
    let mut scratch = world.scratch().await?.with_view(OwnFolder);

    scratch.bring(None).await?;
    assert_eq!(on_disk(scratch.tree())?, [("a".to_owned(), b"1".to_vec())]);
    fs::write(scratch.tree().join("b"), "2")?;
    let changes = scratch.changes().await?;
    scratch.commit(&by("it"), changes.edits).await?;

    assert_eq!(world.paths().await?, ["memory/x", "own/a", "own/b"]);
    world.commit(vec![put("memory/y", "secret")?]).await?;
    scratch.bring(None).await?;
    assert_eq!(on_disk(scratch.tree())?.len(), 2);

    fs::write(scratch.tree().join("b"), "3")?;
    world.commit(vec![put("own/b", "theirs")?]).await?;
    let changes = scratch.changes().await?;
    let clash = scratch.commit(&by("it"), changes.edits).await.unwrap_err();
    assert!(matches!(clash, Error::Clash { path, .. } if path.as_str() == "b"));
    Ok(())
}

#[tokio::test]
async fn a_file_whose_path_is_too_long_in_the_tree_is_reported() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut scratch = world.scratch().await?.with_view(OwnFolder);
    scratch.bring(None).await?;
    let long = ["a".repeat(250), "b".repeat(250), "c".repeat(9)].join("/");
    fs::create_dir_all(scratch.tree().join(&long).parent().unwrap())?;
    fs::write(scratch.tree().join(&long), "1")?;

    let changes = scratch.changes().await?;

    assert_eq!(changes.edits, []);
    assert_eq!(changes.unstorable[0].kind, UnstorableReason::InvalidName);
    Ok(())
}

/// Shows the files of one folder as if it were the tree.
struct OwnFolder;

impl PathView for OwnFolder {
    fn view_path(&self, path: &TreePath) -> Option<TreePath> {
        path.as_str().strip_prefix("own/")?.parse().ok()
    }

    fn tree_path(&self, path: &TreePath) -> Result<TreePath, InvalidPath> {
        format!("own/{path}").parse()
    }
}

#[tokio::test]
async fn a_folder_goes_with_all_that_a_command_left_there() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("a", "1")?]).await?;
    let mut scratch = world.scratch().await?;
    scratch.bring(None).await?;
    let root = scratch.tree().parent().unwrap().to_owned();
    let closed = scratch.tree().join("b/closed");
    fs::create_dir_all(&closed)?;
    fs::write(closed.join("x"), "1")?;
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000))?;
    symlink("/etc", scratch.tree().join("link"))?;
    drop(scratch);

    Scratch::discard(&root).await?;

    assert!(!root.exists() && Path::new("/etc/passwd").exists());
    Ok(())
}
