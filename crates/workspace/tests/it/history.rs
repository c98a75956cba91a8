//! History: authors of changes, diffs and restorations.

use holdfast_types::TreePath;
use holdfast_workspace::{
    Base, CommitOutcome, DiffBody, Edit, Error, FileChange, LogEntry, LogFilter, Revision,
};

use crate::world::{World, by, delete, path, put, tree};

async fn log(world: &World, filter: LogFilter) -> Result<Vec<LogEntry>, Error> {
    world.trees.log(world.tenant, world.agent, &filter).await
}

async fn restore(
    world: &World,
    within: Option<&TreePath>,
    to: i64,
) -> Result<CommitOutcome, Error> {
    world.trees.restore(world.tenant, world.agent, &by("ada"), within, to.into()).await
}

async fn diff(world: &World, from: i64, to: i64) -> Result<String, Error> {
    let diff = world.trees.diff(world.tenant, world.agent, from.into(), to.into(), None).await?;
    Ok(diff.to_string())
}

#[tokio::test]
async fn the_log_tells_who_why_and_what_newest_first() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("a", "1")?, put("b", "1")?]).await?;
    let why = by("eve");
    world.trees.commit(world.tenant, world.agent, &why, vec![delete("a")?]).await?;
    world.put("b", "three").await?;

    let all = log(&world, LogFilter { limit: 10, ..LogFilter::default() }).await?;
    let told: Vec<(i64, &str, u32)> = all
        .iter()
        .map(|entry| (entry.revision.number(), entry.author.as_str(), entry.changed))
        .collect();
    assert_eq!(told, [(3, "ada", 1), (2, "eve", 1), (1, "ada", 2)]);
    assert!(all.windows(2).all(|pair| pair[0].at >= pair[1].at));
    let FileChange { path, before, after } = &all[0].files[0];
    assert_eq!(path.as_str(), "b");
    assert_eq!((before.map(|said| said.size), after.map(|said| said.size)), (Some(1), Some(5)));
    assert_eq!(all[1].files[0].after, None);
    Ok(())
}

#[tokio::test]
async fn the_log_can_be_of_one_file_and_is_read_in_pages() -> anyhow::Result<()> {
    let world = World::start().await?;
    for n in 1..=6 {
        world.put(if n % 2 == 0 { "even" } else { "odd" }, &n.to_string()).await?;
    }
    let numbers =
        |log: Vec<LogEntry>| log.iter().map(|entry| entry.revision.number()).collect::<Vec<_>>();

    let page = LogFilter { limit: 2, ..LogFilter::default() };
    let of_even = LogFilter { path: Some(path("even")?), ..page.clone() };
    let next = LogFilter { before: Some(4.into()), ..of_even.clone() };

    assert_eq!(numbers(log(&world, page).await?), [6, 5]);
    assert_eq!(numbers(log(&world, of_even).await?), [6, 4]);
    assert_eq!(numbers(log(&world, next).await?), [2]);
    Ok(())
}

#[tokio::test]
async fn the_log_of_a_folder_has_the_changes_of_its_files_alone() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("notes/a", "1")?, put("notes/b/c", "1")?, put("plan", "1")?]).await?;
    world.commit(vec![put("notes-old", "1")?, put("notes0", "1")?]).await?;
    world.commit(vec![delete("notes/b/c")?]).await?;
    let of = async |name: &str| {
        let filter = LogFilter { path: Some(path(name)?), limit: 10, ..LogFilter::default() };
        let entries = log(&world, filter).await?;
        let told = entries.iter().map(|entry| {
            let files = entry.files.iter().map(|file| file.path.to_string()).collect();
            (entry.revision.number(), files)
        });
        anyhow::Ok(told.collect::<Vec<(i64, Vec<String>)>>())
    };
    let files = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();

    let notes = of("notes").await?;

    assert_eq!(notes, [(3, files(&["notes/b/c"])), (1, files(&["notes/a", "notes/b/c"]))]);
    assert_eq!(of("notes/b").await?.len(), 2);
    assert_eq!(of("notes-old").await?, [(2, files(&["notes-old"]))]);
    assert_eq!(of("note").await?, []);
    Ok(())
}

#[tokio::test]
async fn one_revision_names_its_first_files_and_counts_all() -> anyhow::Result<()> {
    let world = World::start().await?;
    let edits = (0..60).map(|n| put(&format!("{n:02}"), "x")).collect::<Result<_, _>>()?;
    world.commit(edits).await?;

    let all = log(&world, LogFilter { limit: 10, ..LogFilter::default() }).await?;

    assert_eq!((all[0].changed, all[0].files.len()), (60, 50));
    assert_eq!(all[0].files[49].path.as_str(), "49");
    Ok(())
}

#[tokio::test]
async fn a_diff_reads_as_others_write_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("a.md", "one\ntwo\nthree\n")?, put("gone", "x\n")?]).await?;
    world.commit(vec![put("a.md", "one\n2\nthree\n")?, put("new", "no newline")?]).await?;
    world.commit(vec![delete("gone")?]).await?;

    assert_eq!(
        diff(&world, 1, 3).await?,
        "--- a/a.md\n+++ b/a.md\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n\
         --- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
         --- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+no newline\n\\ No newline at end of file\n"
    );
    assert!(diff(&world, 3, 1).await?.contains("-2\n+two\n"));
    assert_eq!(diff(&world, 2, 2).await?, "");
    Ok(())
}

#[tokio::test]
async fn a_diff_is_of_what_was_asked_and_not_of_what_came_and_went() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("a/b", "1\n")?, put("c", "1\n")?]).await?;
    world.commit(vec![put("a/b", "2\n")?, put("c", "2\n")?, put("d", "x")?]).await?;
    world.commit(vec![put("c", "1\n")?, delete("d")?]).await?;

    let all = world.trees.diff(world.tenant, world.agent, 1.into(), 3.into(), None).await?;
    let folder = path("a")?;
    let within =
        world.trees.diff(world.tenant, world.agent, 1.into(), 2.into(), Some(&folder)).await?;
    let missing = world.trees.diff(world.tenant, world.agent, 1.into(), 4.into(), None).await;

    assert_eq!(all.files.len(), 1);
    assert_eq!(all, within);
    assert!(matches!(missing, Err(Error::NoRevision { .. })));
    Ok(())
}

#[tokio::test]
async fn what_is_no_text_or_too_much_is_said_and_not_shown() -> anyhow::Result<()> {
    let world = World::start().await?;
    let binary = Edit::Put { path: path("b")?, content: vec![0, 159, 146, 150], base: Base::Any };
    let lines = |what: &str| (0..2_000).map(|n| format!("{what} {n}\n")).collect::<String>();
    world.commit(vec![binary, put("large", &"x\n".repeat(300_000))?]).await?;
    world.put("long", &lines("old")).await?;
    world.put("long", &lines("new")).await?;

    assert_eq!(
        diff(&world, 0, 1).await?,
        "--- /dev/null\n+++ b/b\n[not text: 0 bytes before, 4 bytes after]\n\
         --- /dev/null\n+++ b/large\n[too large to compare: 0 bytes before, 600000 bytes after]\n"
    );
    let long = world.trees.diff(world.tenant, world.agent, 2.into(), 3.into(), None).await?;
    let DiffBody::Text { hunks, added, removed, hidden } = &long.files[0].body else {
        anyhow::bail!("{long:?}")
    };
    assert_eq!((*added, *removed, hunks.lines().count()), (2_000, 2_000, 1_000));
    assert_eq!(*hidden, 3_001);
    assert!(long.to_string().ends_with("[3001 more lines of the diff are not shown]\n"));
    Ok(())
}

#[tokio::test]
async fn a_tree_can_be_made_what_it_was_and_that_can_be_undone() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("a", "1")?, put("b", "1")?]).await?;
    world.commit(vec![put("a", "2")?, delete("b")?, put("c", "2")?]).await?;

    let back = restore(&world, None, 1).await?;
    assert_eq!(back, CommitOutcome { revision: 3.into(), changed: 3, repeated: false });
    assert_eq!(world.tree(None).await?, tree(&[("a", "1"), ("b", "1")]));

    restore(&world, None, 2).await?;
    assert_eq!(world.tree(None).await?, tree(&[("a", "2"), ("c", "2")]));
    restore(&world, None, 0).await?;
    assert_eq!(world.tree(None).await?, []);
    assert_eq!(world.number("select bytes + files from workspace.trees").await?, 0);
    assert_eq!(restore(&world, None, 0).await?.revision, 5.into());
    Ok(())
}

#[tokio::test]
async fn one_file_or_folder_can_be_made_what_it_was() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("a/b", "1")?, put("a/c", "1")?, put("d", "1")?]).await?;
    world.commit(vec![put("a/b", "2")?, delete("a/c")?, put("a/e", "2")?, put("d", "2")?]).await?;

    restore(&world, Some(&path("a/b")?), 1).await?;
    assert_eq!(world.tree(None).await?, tree(&[("a/b", "1"), ("a/e", "2"), ("d", "2")]));

    restore(&world, Some(&path("a")?), 1).await?;
    assert_eq!(world.tree(None).await?, tree(&[("a/b", "1"), ("a/c", "1"), ("d", "2")]));

    let never = restore(&world, Some(&path("never")?), 1).await;
    assert!(matches!(never, Err(Error::NotFound { .. })));
    let future = restore(&world, None, 9).await;
    assert!(matches!(future, Err(Error::NoRevision { head, .. }) if head == Revision::from(4)));
    Ok(())
}

#[tokio::test]
async fn a_restoration_with_a_key_is_made_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.put("a", "1").await?;
    world.put("a", "2").await?;
    let keyed = by("ada").with_key("k");
    let back = async |to: i64| {
        world.trees.restore(world.tenant, world.agent, &keyed, None, to.into()).await
    };

    let first = back(1).await?;
    world.put("a", "3").await?;
    let again = back(1).await?;
    let other = back(2).await;

    assert_eq!(again, CommitOutcome { repeated: true, ..first });
    assert!(matches!(other, Err(Error::KeyReused(_))));
    assert_eq!(world.text("a").await?.as_deref(), Some("3"));
    Ok(())
}
