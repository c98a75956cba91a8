//! A tree goes out as an archive and comes back the same; what else an archive may be is refused.

use std::io::{Cursor, Read, Write as _};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use holdfast_types::AgentId;
use holdfast_workspace::{Base, Edit, Error, ImportMode, ImportOutcome, Limits};
use tar::{Builder, EntryType, Header};

use crate::world::{World, by, path, put, tree};

async fn import(world: &World, archive: Vec<u8>, mode: ImportMode) -> Result<ImportOutcome, Error> {
    world.trees.import(world.tenant, world.agent, &by("ada"), Cursor::new(archive), mode).await
}

/// What is told of an archive that is refused.
async fn refused(world: &World, archive: Vec<u8>) -> anyhow::Result<String> {
    match import(world, archive, ImportMode::Merge).await {
        Ok(taken) => anyhow::bail!("it was taken: {taken:?}"),
        Err(error) => Ok(error.to_string()),
    }
}

/// An archive of one entry, whose name is written as it is given.
fn one(name: &str, kind: EntryType, content: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut header = Header::new_gnu();
    header.as_gnu_mut().ok_or_else(|| anyhow::anyhow!("not gnu"))?.name[..name.len()]
        .copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    if matches!(kind, EntryType::Symlink | EntryType::Link) {
        header.set_link_name("/etc/passwd")?;
    }
    header.set_cksum();
    let mut archive = Builder::new(Vec::new());
    archive.append(&header, content)?;
    Ok(archive.into_inner()?)
}

fn files(all: &[(&str, &[u8])]) -> anyhow::Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    for (name, content) in all {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        archive.append_data(&mut header, name, *content)?;
    }
    Ok(archive.into_inner()?)
}

fn gzip(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::best());
    gz.write_all(bytes)?;
    Ok(gz.finish()?)
}

#[tokio::test]
async fn a_tree_goes_out_and_comes_back_byte_for_byte() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.trees.seed(world.tenant, world.agent).await?;
    let long = format!("workshop/{}/{}.md", "d".repeat(200), "é".repeat(100));
    let bytes = Edit::Put {
        path: path("memory/things.db")?,
        content: (0..=255).cycle().take(100_000).collect(),
        base: Base::Any,
    };
    let mut edits = vec![bytes, put(&long, "long")?, put("empty", "")?];
    for name in ["role.md", "self.md", "behaviors/plan.yaml", "sub-agents/x/role.md", "日记/今天"]
    {
        edits.push(put(name, name)?);
    }
    world.commit(edits).await?;
    let other = AgentId::generate();

    let (archive, revision) = world.trees.export(world.tenant, world.agent, None).await?;
    let (then, _) = world.trees.export(world.tenant, world.agent, Some(1.into())).await?;
    let reader = Cursor::new(archive.clone());
    let came = world.trees.import(world.tenant, other, &by("x"), reader, ImportMode::Merge).await?;
    let (again, _) = world.trees.export(world.tenant, other, None).await?;

    assert_eq!((revision, came.files), (2.into(), 16));
    assert_eq!(archive, again);
    assert_ne!(archive, then);
    let listed = world.trees.list(world.tenant, other, None, None).await?;
    let names: Vec<&str> = listed.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(names, world.paths().await?);
    Ok(())
}

#[tokio::test]
async fn an_archive_is_what_others_read_and_tells_nothing_of_who_made_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("b", "two")?, put("a/c", "one")?]).await?;

    let (archive, _) = world.trees.export(world.tenant, world.agent, None).await?;

    let mut tar = tar::Archive::new(GzDecoder::new(Cursor::new(archive)));
    let mut told = Vec::new();
    for entry in tar.entries()? {
        let mut entry = entry?;
        let mut content = String::new();
        entry.read_to_string(&mut content)?;
        let header = entry.header();
        assert_eq!((header.mtime()?, header.uid()?, header.mode()?), (0, 0, 0o644));
        told.push((entry.path()?.display().to_string(), content));
    }
    assert_eq!(told, [("a/c".to_owned(), "one".to_owned()), ("b".to_owned(), "two".to_owned())]);
    Ok(())
}

#[tokio::test]
async fn merging_keeps_what_the_archive_has_not_and_replacing_does_not() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.commit(vec![put("a", "old")?, put("b", "old")?]).await?;
    let archive = files(&[("b", b"new"), ("c", b"new")])?;

    let merged = import(&world, gzip(&archive)?, ImportMode::Merge).await?;
    assert_eq!((merged.files, merged.bytes, merged.committed.changed), (2, 6, 2));
    assert_eq!(world.tree(None).await?, tree(&[("a", "old"), ("b", "new"), ("c", "new")]));

    let replaced = import(&world, archive, ImportMode::Replace).await?;
    assert_eq!(replaced.committed.changed, 1);
    assert_eq!(world.tree(None).await?, tree(&[("b", "new"), ("c", "new")]));
    Ok(())
}

#[tokio::test]
async fn an_import_with_a_key_is_made_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    let keyed = by("ada").with_key("k");
    let archive = files(&[("a", b"archived")])?;
    let go = async |mode| {
        let archive = Cursor::new(archive.clone());
        world.trees.import(world.tenant, world.agent, &keyed, archive, mode).await
    };

    go(ImportMode::Merge).await?;
    world.put("a", "later").await?;
    let again = go(ImportMode::Merge).await?;
    let other = go(ImportMode::Replace).await;

    assert!(again.committed.repeated);
    assert!(matches!(other, Err(Error::KeyReused(_))));
    assert_eq!(world.text("a").await?.as_deref(), Some("later"));
    Ok(())
}

#[tokio::test]
async fn things_are_taken_under_both_of_their_names_but_not_twice() -> anyhow::Result<()> {
    let world = World::start().await?;

    import(&world, files(&[("./memory/things.sqlite", b"x")])?, ImportMode::Merge).await?;
    assert_eq!(world.paths().await?, ["memory/things.db"]);
    import(&world, files(&[("memory/things.db", b"y")])?, ImportMode::Merge).await?;
    assert_eq!(world.text("memory/things.db").await?.as_deref(), Some("y"));

    let both = files(&[("memory/things.db", b"x"), ("memory/things.sqlite", b"y")])?;
    assert_eq!(
        refused(&world, both).await?,
        "entry `memory/things.sqlite` of the archive is there twice: leave one out"
    );
    Ok(())
}

#[tokio::test]
async fn names_that_lead_elsewhere_are_refused() -> anyhow::Result<()> {
    let world = World::start().await?;
    for (name, told) in [
        ("../evil", "entry `../evil` of the archive cannot be taken"),
        ("a/../../evil", "`.` or `..`"),
        ("/etc/evil", "begins with `/`"),
        ("a\\evil", "backslash"),
        ("a\nevil", "control character"),
        ("a//b", "two in a row"),
    ] {
        let error = refused(&world, one(name, EntryType::Regular, b"x")?).await?;
        assert!(error.contains(told), "{error}");
    }
    let folder = refused(&world, one("../up/", EntryType::Directory, b"")?).await?;
    assert!(folder.contains("`.` or `..`"), "{folder}");
    assert_eq!(world.paths().await?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn links_and_devices_are_refused_and_folders_are_not() -> anyhow::Result<()> {
    let world = World::start().await?;
    for (kind, told) in [
        (EntryType::Symlink, "is a link"),
        (EntryType::Link, "is a link"),
        (EntryType::Char, "is a device or a pipe"),
        (EntryType::Block, "is a device or a pipe"),
        (EntryType::Fifo, "is a device or a pipe"),
        (EntryType::new(b'Z'), "of a kind that is not taken"),
    ] {
        let error = refused(&world, one("x", kind, b"")?).await?;
        assert!(error.contains(told), "{kind:?}: {error}");
    }

    let mut archive = Builder::new(Vec::new());
    let mut folder = Header::new_gnu();
    folder.set_entry_type(EntryType::Directory);
    folder.set_size(0);
    archive.append_data(&mut folder, "./", &[] as &[u8])?;
    archive.append_data(&mut folder, "skills/", &[] as &[u8])?;
    let mut file = Header::new_gnu();
    file.set_size(1);
    archive.append_data(&mut file, "./skills/a", b"x".as_slice())?;
    import(&world, archive.into_inner()?, ImportMode::Merge).await?;
    assert_eq!(world.paths().await?, ["skills/a"]);
    Ok(())
}

#[tokio::test]
async fn what_is_too_large_is_refused_by_its_name_before_it_is_unpacked() -> anyhow::Result<()> {
    let world = World::with(Limits { file: 1_000, tree: 2_500, files: 4 }).await?;
    let thousand = [b'x'; 1_000];

    let mut lies = Header::new_gnu();
    lies.set_path("lies")?;
    lies.set_size(1 << 40);
    lies.set_cksum();
    let error = refused(&world, lies.as_bytes().to_vec()).await?;
    assert!(error.contains("entry `lies`") && error.contains("1099511627776 bytes"), "{error}");

    let error = refused(&world, files(&[("a", &[0; 1_001])])?).await?;
    assert!(error.contains("1 more than a file may have (1000)"), "{error}");
    let three = files(&[("a", &thousand), ("b", &thousand), ("c", &thousand)])?;
    let error = refused(&world, three).await?;
    assert!(error.contains("entry `c`") && error.contains("2500 is the most"), "{error}");
    let many = files(&[("a", b""), ("b", b""), ("c", b""), ("d", b""), ("e", b"")])?;
    let error = refused(&world, many).await?;
    assert!(error.contains("entry `e`") && error.contains("4 files is the most"), "{error}");

    import(&world, files(&[("a", &thousand), ("b", &thousand)])?, ImportMode::Merge).await?;
    Ok(())
}

/// Zeros without end, and how many of them were read.
struct Zeros(std::sync::Arc<std::sync::atomic::AtomicU64>);

impl Read for Zeros {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        into.fill(b'\0');
        self.0.fetch_add(into.len() as u64, std::sync::atomic::Ordering::Relaxed);
        Ok(into.len())
    }
}

#[tokio::test]
async fn a_bomb_is_put_down_early() -> anyhow::Result<()> {
    let world = World::with(Limits { file: 1_000, tree: 2_000, files: 4 }).await?;

    // A name of a hundred million letters, packed to nearly nothing.
    let mut header = Header::new_gnu();
    header.set_path("././@LongLink")?;
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(100_000_000);
    header.set_cksum();
    let mut bomb = header.as_bytes().to_vec();
    bomb.resize(100_000_000, b'a');
    let bomb = gzip(&bomb)?;
    assert!(bomb.len() < 200_000);
    let error = refused(&world, bomb).await?;
    assert_eq!(error, "the archive unpacks to more than a tree may hold: leave something out");

    // An archive that never ends.
    let count = std::sync::Arc::default();
    let mut header = Header::new_gnu();
    header.set_path("comments")?;
    header.set_entry_type(EntryType::XGlobalHeader);
    header.set_size(1 << 50);
    header.set_cksum();
    let endless =
        Cursor::new(header.as_bytes().to_vec()).chain(Zeros(std::sync::Arc::clone(&count)));
    let by = by("ada");
    let outcome =
        world.trees.import(world.tenant, world.agent, &by, endless, ImportMode::Merge).await;
    assert!(matches!(outcome, Err(Error::Invalid(_))), "{outcome:?}");
    assert!(count.load(std::sync::atomic::Ordering::Relaxed) < 4 << 20);
    Ok(())
}

#[tokio::test]
async fn what_is_no_whole_archive_is_said_to_be_none() -> anyhow::Result<()> {
    let world = World::start().await?;
    let whole = gzip(&files(&[("a", &[7; 5_000]), ("b", b"x")])?)?;

    for broken in [
        b"hello, I am a letter and not an archive".to_vec(),
        vec![b'x'; 2_000],
        whole[..whole.len() / 2].to_vec(),
        files(&[("a", &[7; 5_000])])?[..3_000].to_vec(),
    ] {
        let outcome = import(&world, broken, ImportMode::Replace).await;
        assert!(
            matches!(outcome, Err(Error::Unreadable(_) | Error::Archive { .. })),
            "{outcome:?}"
        );
    }
    let empty = import(&world, files(&[])?, ImportMode::Replace).await;
    assert!(matches!(empty, Err(Error::Invalid(told)) if told.contains("no file in it")));
    assert_eq!(world.paths().await?, [""; 0]);
    Ok(())
}
