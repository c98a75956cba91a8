//! Files of a workspace, from outside the sandbox: no path leads out.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use holdfast_sandbox::{EntryKind, PathError, Root, WorkPath};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempDir;

/// Workspace, and a directory beside it that must not be reachable.
struct Place {
    dir: TempDir,
    root: Root,
}

impl Place {
    fn new() -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        fs::create_dir_all(dir.path().join("in/sub"))?;
        fs::create_dir(dir.path().join("out"))?;
        fs::write(dir.path().join("out/secret"), "secret")?;
        let root = Root::open(dir.path().join("in"))?;
        Ok(Self { dir, root })
    }

    fn inside(&self, path: &str) -> std::path::PathBuf {
        self.dir.path().join("in").join(path)
    }

    fn outside(&self) -> std::path::PathBuf {
        self.dir.path().join("out")
    }
}

fn path(text: &str) -> WorkPath {
    WorkPath::parse(text).unwrap_or_default()
}

const DENIED: &str = "access denied: symlink resolves outside workspace";

#[test]
fn files_are_written_read_listed_and_removed() -> anyhow::Result<()> {
    let place = Place::new()?;
    let root = &place.root;

    root.write(&path("new/dir/a.txt"), b"one")?;
    root.write(&path("/workspace/new/dir/a.txt"), b"two")?;
    assert_eq!(root.read(&path("new/dir/a.txt"), 3)?, b"two");

    let listed = root.list(&path("new/dir"))?;
    assert_eq!(listed.len(), 1, "no temporary file is left: {listed:?}");
    assert_eq!(
        (listed[0].name.as_str(), listed[0].kind, listed[0].bytes),
        ("a.txt", EntryKind::File, 3)
    );

    assert!(matches!(root.remove(&path("new/dir")), Err(PathError::NotEmpty)));
    root.remove(&path("new/dir/a.txt"))?;
    root.remove(&path("new/dir"))?;
    assert!(matches!(root.list(&path("new/dir")), Err(PathError::NotFound)));
    assert!(matches!(root.remove(&WorkPath::top()), Err(PathError::Top)));
    root.make_dir(&path("x/y"))?;
    assert_eq!(root.list(&path("x"))?[0].kind, EntryKind::Directory);
    Ok(())
}

#[test]
fn symlinks_that_lead_out_are_denied_for_every_use() -> anyhow::Result<()> {
    let place = Place::new()?;
    let root = &place.root;
    symlink(place.outside().join("secret"), place.inside("file"))?;
    symlink("../out/secret", place.inside("relative"))?;
    symlink(place.outside(), place.inside("dir"))?;

    for at in ["file", "relative", "dir/secret"] {
        assert_eq!(root.read(&path(at), 100).unwrap_err().to_string(), DENIED, "{at}");
        assert_eq!(root.write(&path(at), b"x").unwrap_err().to_string(), DENIED, "{at}");
    }
    assert_eq!(root.list(&path("dir")).unwrap_err().to_string(), DENIED);
    assert_eq!(root.write(&path("dir/new"), b"x").unwrap_err().to_string(), DENIED);
    assert_eq!(root.make_dir(&path("dir/new")).unwrap_err().to_string(), DENIED);
    assert_eq!(root.remove(&path("dir/secret")).unwrap_err().to_string(), DENIED);

    root.remove(&path("file"))?;
    assert_eq!(fs::read_dir(place.outside())?.count(), 1);
    assert_eq!(fs::read(place.outside().join("secret"))?, b"secret");
    Ok(())
}

#[test]
fn a_symlink_that_stays_inside_is_followed() -> anyhow::Result<()> {
    let place = Place::new()?;
    fs::write(place.inside("sub/real"), "old")?;
    symlink("sub/real", place.inside("link"))?;

    place.root.write(&path("link"), b"new")?;

    assert_eq!(fs::read(place.inside("sub/real"))?, b"new");
    assert!(fs::symlink_metadata(place.inside("link"))?.is_symlink());
    assert_eq!(place.root.read(&path("link"), 3)?, b"new");
    Ok(())
}

#[test]
fn a_hard_link_is_broken_by_a_write_not_written_through() -> anyhow::Result<()> {
    let place = Place::new()?;
    fs::hard_link(place.outside().join("secret"), place.inside("hard"))?;

    place.root.write(&path("hard"), b"new")?;

    assert_eq!(fs::read(place.outside().join("secret"))?, b"secret");
    Ok(())
}

#[test]
fn what_is_no_regular_file_is_neither_read_nor_waited_for() -> anyhow::Result<()> {
    let place = Place::new()?;
    let fifo = place.inside("fifo");
    assert!(std::process::Command::new("mkfifo").arg(fifo).status()?.success());
    let began = Instant::now();

    assert!(matches!(place.root.read(&path("fifo"), 10), Err(PathError::NotAFile)));
    assert!(matches!(place.root.read(&path("sub"), 10), Err(PathError::NotAFile)));
    assert!(matches!(place.root.write(&path("sub"), b"x"), Err(PathError::NotAFile)));

    assert!(began.elapsed() < Duration::from_secs(20));
    Ok(())
}

#[test]
fn a_file_that_is_too_large_is_refused_with_both_sizes() -> anyhow::Result<()> {
    let place = Place::new()?;
    fs::write(place.inside("a"), "12345")?;

    let error = place.root.read(&path("a"), 4).unwrap_err();

    assert_eq!(error.to_string(), "the file has `5` bytes, the most is `4`");
    Ok(())
}

#[test]
fn a_file_that_is_written_again_stays_executable() -> anyhow::Result<()> {
    let place = Place::new()?;
    fs::write(place.inside("run"), "old")?;
    fs::set_permissions(place.inside("run"), fs::Permissions::from_mode(0o750))?;

    place.root.write(&path("run"), b"new")?;

    assert_eq!(fs::metadata(place.inside("run"))?.permissions().mode() & 0o777, 0o750);
    Ok(())
}

#[test]
fn a_reader_sees_the_old_file_or_the_new_one() -> anyhow::Result<()> {
    let place = Place::new()?;
    let (old, new) = (vec![b'a'; 200_000], vec![b'b'; 200_000]);
    place.root.write(&path("f"), &old)?;
    let done = AtomicBool::new(false);

    std::thread::scope(|scope| -> anyhow::Result<()> {
        let writer = scope.spawn(|| -> Result<(), PathError> {
            for _ in 0..100 {
                place.root.write(&path("f"), &new)?;
                place.root.write(&path("f"), &old)?;
            }
            done.store(true, Ordering::Relaxed);
            Ok(())
        });
        while !done.load(Ordering::Relaxed) && !writer.is_finished() {
            let seen = place.root.read(&path("f"), 1 << 20)?;
            assert!(seen == old || seen == new);
        }
        Ok(writer.join().unwrap()?)
    })
}

#[test]
fn no_write_lands_outside_while_a_directory_becomes_a_symlink() -> anyhow::Result<()> {
    let place = Place::new()?;
    let until = Instant::now() + Duration::from_secs(2);
    let (directory, link) = (place.inside("d"), place.inside("link"));
    fs::create_dir(&directory)?;
    symlink(place.outside(), &link)?;
    let (mut written, mut denied) = (0, 0);

    std::thread::scope(|scope| -> anyhow::Result<()> {
        let swapper = scope.spawn(|| -> std::io::Result<()> {
            while Instant::now() < until {
                renameat_with(CWD, &directory, CWD, &link, RenameFlags::EXCHANGE)?;
            }
            Ok(())
        });
        while !swapper.is_finished() {
            match place.root.write(&path("d/f"), b"x") {
                Ok(()) => written += 1,
                Err(PathError::SymlinkOutside) => denied += 1,
                // The path was replaced between the check and the open.
                Err(PathError::NotFound | PathError::Failed(_) | PathError::NotADirectory) => {}
                Err(error) => return Err(error.into()),
            }
            if let Ok(bytes) = place.root.read(&path("d/secret"), 100) {
                assert!(bytes.is_empty(), "read what lies outside");
            }
        }
        Ok(swapper.join().unwrap()?)
    })?;

    assert!(written > 0, "no write succeeded");
    assert!(denied > 0, "no write met the symlink");
    let outside: Vec<_> =
        fs::read_dir(place.outside())?.flatten().map(|it| it.file_name()).collect();
    assert_eq!(outside, ["secret"]);
    Ok(())
}
