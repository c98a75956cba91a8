//! Disk usage of a workspace.
//!
//! **What can go wrong.** A script changes the tree while it is walked: directories are opened
//! beneath one another and never through a symlink, so that the walk stays inside. A directory that
//! the walk cannot measure (one that may be entered and not listed, or nested very deep) counts as
//! over the limit.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, MetadataExt as _},
};
use rustix::process::Pid;
use tokio::{task::spawn_blocking, time::sleep};

use crate::{Error, tree};

/// Delay between two measurements; five times their duration if that is longer.
const MEASURE_INTERVAL: Duration = Duration::from_millis(250);

/// Depth beyond which a tree is not walked.
const MAX_DEPTH: usize = 200;

/// Unit of `st_blocks` in bytes, whatever the file system's block size; see stat(2).
const BLOCK_BYTES: u64 = 512;

/// Workspace with a limit on its growth.
#[derive(Debug, Clone)]
pub(crate) struct GrowthLimit {
    dir: Arc<Dir>,
    ceiling: u64,
}

impl GrowthLimit {
    /// Measures the workspace, which may grow by `most` bytes from now on.
    pub(crate) async fn from_now(dir: &Path, most: u64) -> Result<Self, Error> {
        let failed = || Error::failed("open the workspace");
        let dir = dir.to_owned();
        let measured = spawn_blocking(move || {
            let dir = Dir::open_ambient_dir(dir, ambient_authority())?;
            let used = used_bytes(&dir);
            Ok((dir, used))
        });
        let (dir, used) =
            measured.await.map_err(std::io::Error::other).and_then(|it| it).map_err(failed())?;
        // A workspace that cannot be measured at the start is not the command's fault.
        let ceiling = used.unwrap_or(u64::MAX / 2).saturating_add(most);
        Ok(Self { dir: Arc::new(dir), ceiling })
    }

    /// Waits until the workspace, plus deleted files that the processes hold open, is too large.
    pub(crate) async fn exceeded(&self, root: Pid) {
        let mut pause = MEASURE_INTERVAL;
        loop {
            sleep(pause).await;
            let began = Instant::now();
            if self.is_exceeded(Some(root)).await {
                return;
            }
            pause = MEASURE_INTERVAL.max(began.elapsed() * 5);
        }
    }

    /// Whether the workspace is too large now, or cannot be measured.
    pub(crate) async fn is_exceeded(&self, root: Option<Pid>) -> bool {
        let (dir, ceiling) = (Arc::clone(&self.dir), self.ceiling);
        let looked = spawn_blocking(move || {
            let deleted = root.map_or(0, deleted_bytes);
            used_bytes(&dir).is_none_or(|used| used.saturating_add(deleted) > ceiling)
        });
        looked.await.unwrap_or(true)
    }
}

/// Returns the bytes that a tree takes, or `None` if part of it cannot be read.
fn used_bytes(dir: &Dir) -> Option<u64> {
    let mut seen = HashSet::new();
    walk(dir, 0, &mut seen)
}

fn walk(dir: &Dir, depth: usize, seen: &mut HashSet<u64>) -> Option<u64> {
    if depth > MAX_DEPTH {
        return None;
    }
    let mut sum: u64 = 0;
    for entry in dir.entries().ok()? {
        // The entry was deleted while we listed the folder: count it as zero.
        let Ok(entry) = entry else { continue };
        let Ok(metadata) = entry.metadata() else { continue };
        // Inode numbers are unique here: the workspace is one file system.
        if metadata.is_dir() || metadata.nlink() < 2 || seen.insert(metadata.ino()) {
            sum += metadata.blocks() * BLOCK_BYTES;
        }
        if metadata.is_dir() {
            match entry.open_dir() {
                Ok(below) => sum += walk(&below, depth + 1, seen)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(_) => return None,
            }
        }
    }
    Some(sum)
}

/// Bytes of deleted files that these processes still hold open.
fn deleted_bytes(root: Pid) -> u64 {
    let mut seen = HashSet::new();
    let mut sum = 0;
    for pid in tree::pids(root) {
        let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for file in files.flatten() {
            let Ok(metadata) = fs::metadata(file.path()) else { continue };
            let is_deleted = metadata.is_file() && metadata.nlink() == 0;
            if is_deleted && seen.insert((metadata.dev(), metadata.ino())) {
                sum += metadata.blocks() * BLOCK_BYTES;
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn measure(dir: &Path) -> Option<u64> {
        used_bytes(&Dir::open_ambient_dir(dir, ambient_authority()).unwrap())
    }

    #[test]
    fn a_tree_is_measured_once_for_each_file_and_not_through_symlinks() {
        let (outside, inside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("large"), vec![1; 1 << 20]).unwrap();
        fs::create_dir(inside.path().join("sub")).unwrap();
        fs::write(inside.path().join("sub/a"), vec![1; 100_000]).unwrap();
        fs::hard_link(inside.path().join("sub/a"), inside.path().join("b")).unwrap();
        symlink(outside.path(), inside.path().join("link")).unwrap();

        let used = measure(inside.path()).unwrap();

        assert!((100_000..200_000).contains(&used), "{used}");
    }

    #[test]
    fn what_is_hidden_is_too_much() {
        let deep = tempfile::tempdir().unwrap();
        let mut path = deep.path().to_owned();
        path.extend(std::iter::repeat_n("d", MAX_DEPTH + 2));
        fs::create_dir_all(path).unwrap();
        assert_eq!(measure(deep.path()), None);

        let dark = tempfile::tempdir().unwrap();
        let hidden = dark.path().join("hidden");
        fs::create_dir(&hidden).unwrap();
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o300)).unwrap();
        // Root can read every directory.
        assert_eq!(measure(dark.path()).is_none(), !rustix::process::geteuid().is_root());
    }

    #[tokio::test]
    async fn growth_is_counted_from_the_beginning_and_includes_what_was_deleted() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("old"), vec![1; 1 << 20]).unwrap();
        let growth = GrowthLimit::from_now(dir.path(), 500_000).await.unwrap();
        let own = rustix::process::getpid();
        assert!(!growth.is_exceeded(Some(own)).await);

        let held = fs::File::create(dir.path().join("new")).unwrap();
        fs::write(dir.path().join("new"), vec![1; 1 << 20]).unwrap();
        assert!(growth.is_exceeded(None).await);

        fs::remove_file(dir.path().join("new")).unwrap();
        assert!(!growth.is_exceeded(None).await);
        assert!(growth.is_exceeded(Some(own)).await);
        drop(held);
        assert!(!growth.is_exceeded(Some(own)).await);
    }
}
