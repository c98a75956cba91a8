//! Disk usage of a workspace.
//!
//! **What can go wrong.** A script changes the tree while it is walked: directories are opened
//! beneath one another and never through a symlink, so that the walk stays inside. A directory that
//! the walk cannot measure (one that may be entered and not listed, or nested very deep) counts as
//! over the limit. Files without content take no blocks, so entries are counted too, and a walk ends
//! as soon as it has counted too many.

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

use crate::{Error, Limit, Limits, tree};

/// Delay between two measurements; five times their duration if that is longer.
const MEASURE_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum delay between two measurements: after a slow one a command must not fill the disk.
const MAX_MEASURE_INTERVAL: Duration = Duration::from_secs(5);

/// Depth beyond which a tree is not walked.
const MAX_DEPTH: usize = 200;

/// Unit of `st_blocks` in bytes, whatever the file system's block size; see stat(2).
const BLOCK_BYTES: u64 = 512;

/// Workspace with a limit on its growth.
#[derive(Debug, Clone)]
pub(crate) struct GrowthLimit {
    dir: Arc<Dir>,
    ceiling: DiskUsage,
}

/// Disk usage of a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct DiskUsage {
    bytes: u64,
    /// Files and folders.
    entries: u64,
}

impl GrowthLimit {
    /// Measures the workspace, which may grow by the limits from now on.
    pub(crate) async fn from_now(dir: &Path, limits: &Limits) -> Result<Self, Error> {
        let failed = || Error::failed("open the workspace");
        let dir = dir.to_owned();
        let measured = spawn_blocking(move || {
            let dir = Dir::open_ambient_dir(dir, ambient_authority())?;
            let used = disk_usage(&dir, u64::MAX);
            Ok((dir, used))
        });
        let (dir, used) =
            measured.await.map_err(std::io::Error::other).and_then(|it| it).map_err(failed())?;
        // A workspace that cannot be measured at the start is not the command's fault.
        let used = used.unwrap_or(DiskUsage { bytes: u64::MAX / 2, entries: u64::MAX / 2 });
        let ceiling = DiskUsage {
            bytes: used.bytes.saturating_add(limits.disk),
            entries: used.entries.saturating_add(limits.entries),
        };
        Ok(Self { dir: Arc::new(dir), ceiling })
    }

    /// Waits until the workspace, plus deleted files that the processes hold open, is too large.
    pub(crate) async fn exceeded(&self, root: Pid) -> Limit {
        let mut pause = MEASURE_INTERVAL;
        loop {
            sleep(pause).await;
            let began = Instant::now();
            if let Some(limit) = self.exceeded_now(Some(root)).await {
                return limit;
            }
            pause = (began.elapsed() * 5).clamp(MEASURE_INTERVAL, MAX_MEASURE_INTERVAL);
        }
    }

    /// Returns the limit that the workspace exceeds now. One that cannot be measured is too large.
    pub(crate) async fn exceeded_now(&self, root: Option<Pid>) -> Option<Limit> {
        let (dir, ceiling) = (Arc::clone(&self.dir), self.ceiling);
        let looked = spawn_blocking(move || {
            let deleted = root.map_or(0, deleted_bytes);
            match disk_usage(&dir, ceiling.entries) {
                Some(used) if used.entries > ceiling.entries => Some(Limit::Entries),
                Some(used) if used.bytes.saturating_add(deleted) <= ceiling.bytes => None,
                Some(_) | None => Some(Limit::Disk),
            }
        });
        looked.await.unwrap_or(Some(Limit::Disk))
    }
}

/// Returns the disk usage of a tree, or `None` if part of it cannot be read. A tree with more than
/// `max_entries` is not measured further.
fn disk_usage(dir: &Dir, max_entries: u64) -> Option<DiskUsage> {
    let (mut seen, mut usage) = (HashSet::new(), DiskUsage::default());
    walk(dir, (0, max_entries), &mut seen, &mut usage)?;
    Some(usage)
}

fn walk(
    dir: &Dir,
    (depth, max_entries): (usize, u64),
    seen: &mut HashSet<u64>,
    usage: &mut DiskUsage,
) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    for entry in dir.entries().ok()? {
        // The entry was deleted while we listed the folder: count it as zero.
        let Ok(entry) = entry else { continue };
        let Ok(metadata) = entry.metadata() else { continue };
        usage.entries += 1;
        if usage.entries > max_entries {
            return Some(());
        }
        // Inode numbers are unique here: the workspace is one file system.
        if metadata.is_dir() || metadata.nlink() < 2 || seen.insert(metadata.ino()) {
            usage.bytes += metadata.blocks() * BLOCK_BYTES;
        }
        if metadata.is_dir() {
            match entry.open_dir() {
                Ok(below) => walk(&below, (depth + 1, max_entries), seen, usage)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(_) => return None,
            }
        }
    }
    Some(())
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
        let dir = Dir::open_ambient_dir(dir, ambient_authority()).unwrap();
        disk_usage(&dir, u64::MAX).map(|usage| usage.bytes)
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
        let limits = Limits { disk: 500_000, ..Limits::default() };
        let growth = GrowthLimit::from_now(dir.path(), &limits).await.unwrap();
        let own = rustix::process::getpid();
        assert_eq!(growth.exceeded_now(Some(own)).await, None);

        let held = fs::File::create(dir.path().join("new")).unwrap();
        fs::write(dir.path().join("new"), vec![1; 1 << 20]).unwrap();
        assert_eq!(growth.exceeded_now(None).await, Some(Limit::Disk));

        fs::remove_file(dir.path().join("new")).unwrap();
        assert_eq!(growth.exceeded_now(None).await, None);
        assert_eq!(growth.exceeded_now(Some(own)).await, Some(Limit::Disk));
        drop(held);
        assert_eq!(growth.exceeded_now(Some(own)).await, None);
    }

    #[tokio::test]
    async fn files_without_content_are_counted_too() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("old"), "").unwrap();
        let limits = Limits { entries: 10, ..Limits::default() };
        let growth = GrowthLimit::from_now(dir.path(), &limits).await.unwrap();
        for number in 0..10 {
            fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        assert_eq!(growth.exceeded_now(None).await, None);

        fs::create_dir(dir.path().join("one more")).unwrap();

        assert_eq!(growth.exceeded_now(None).await, Some(Limit::Entries));
    }
}
