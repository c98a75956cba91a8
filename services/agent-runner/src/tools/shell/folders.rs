//! Scratch folders, one for each running command.
//!
//! ```text
//! <dir>/cache                                  contents of files, for all runners on this machine
//! <dir>/<n>/lock                               held by the runner that owns <n>
//! <dir>/<n>/<tenant>-<agent>-<session>-<who>-<m>   a folder; see `holdfast_workspace::Scratch`
//! ```
//!
//! Nothing is created before the first command. Parallel commands of a session have a folder each;
//! the next command takes the first free one, which already has most files. The files
//! of a person, those of the owner, and those of the owner without the notes are in separate folders.
//!
//! ## What can go wrong
//!
//! A killed runner leaves its folders behind. The next runner on this machine takes over its `<n>`,
//! whose lock is free, and uses the folders.

use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use holdfast_agent::{
    bootstrap::Audience,
    file_view::{FileSpace, FileView},
};
use holdfast_kit::{FairSlot, FairSlots};
use holdfast_types::{AgentId, InvalidPath, SessionId, TenantId, TreePath};
use holdfast_workspace::{ContentCache, PathView, Scratch, Workspaces};
use tokio::{sync::OnceCell, task::spawn_blocking, time::timeout};
use tracing::{debug, warn};

use crate::{config, tools::files::is_of_person};

/// Runners that can share a directory.
const MAX_RUNNERS: u16 = 1_000;

/// Time that a command waits for its turn on a busy machine.
const SLOT_TIMEOUT: Duration = Duration::from_secs(20);

/// File whose modification time tells when a folder was last used.
const LAST_USED_FILE: &str = "used";

/// Reason why there is no folder for a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("`runner.scratch.dir`, `{}`, cannot be used", dir.display())]
    Dir {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Too many commands of the tenant run here.
    #[error(
        "`{most}` commands of this tenant run here, which is the limit: end a background command \
         with `process`, or try again when one has ended"
    )]
    TooMany { most: usize },
    /// Commands of all tenants use up the machine.
    #[error(
        "all {slots} places for commands on this machine were in use for {} s: end a background \
         command with `process`, or try again in a minute", SLOT_TIMEOUT.as_secs()
    )]
    Busy { slots: usize },
    #[error(transparent)]
    Workspace(#[from] holdfast_workspace::Error),
}

#[derive(Debug, Clone)]
pub(crate) struct FolderKey {
    pub(crate) tenant: TenantId,
    pub(crate) agent: AgentId,
    pub(crate) session: SessionId,
    pub(crate) view: FileView,
}

impl FolderKey {
    /// Name that differs for every agent, session and view: a session has one person at most.
    fn name(&self) -> String {
        let who = match (self.view.space(), self.view.audience()) {
            (FileSpace::Folder(_), _) => "person",
            (FileSpace::Whole, Audience::Owner) => "own",
            (FileSpace::Whole, Audience::Agent | Audience::Others) => "agent",
        };
        format!(
            "{}-{}-{}-{who}",
            self.tenant.as_uuid().simple(),
            self.agent.as_uuid().simple(),
            self.session.as_uuid().simple(),
        )
    }
}

/// The files of a scratch folder are those of a conversation's view.
struct ScratchFiles(FileView);

impl PathView for ScratchFiles {
    fn view_path(&self, path: &TreePath) -> Option<TreePath> {
        self.0.view_path(path)
    }

    fn tree_path(&self, path: &TreePath) -> Result<TreePath, InvalidPath> {
        self.0.tree_path(path)
    }
}

#[derive(Debug)]
pub(crate) struct Folders {
    config: config::ScratchConfig,
    workspaces: Workspaces,
    runner_dir: OnceCell<RunnerDir>,
    /// Commands of all tenants.
    slots: Arc<FairSlots<TenantId>>,
    /// Folders in use: numbers by name.
    busy: Mutex<HashMap<String, BTreeSet<usize>>>,
}

/// Directory of this runner.
#[derive(Debug)]
struct RunnerDir {
    dir: PathBuf,
    cache: ContentCache,
    /// Held as long as the runner lives.
    _lock: File,
}

#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) scratch: Scratch,
    pub(crate) view: FileView,
    _reservation: FolderReservation,
    _slot: FairSlot<TenantId>,
}

impl Folder {
    /// Whether the command sees a file that may have text from outside. For the owner, the files of
    /// other people are such.
    pub(super) fn has_outside_text(&self) -> bool {
        let sees_others = *self.view.space() == FileSpace::Whole;
        self.scratch.has_outside_text() || (sees_others && self.scratch.paths().any(is_of_person))
    }

    /// Removes what a command left, so that it does not use the disk until the folder is used
    /// again.
    pub(crate) async fn clear(&mut self) {
        if let Err(error) = self.scratch.clear().await {
            let error = &error as &dyn std::error::Error;
            warn!(error, "a scratch folder could not be cleared");
        }
    }
}

/// Reservation of a folder, released on drop.
#[derive(Debug)]
struct FolderReservation {
    folders: Arc<Folders>,
    name: String,
    number: usize,
}

impl Drop for FolderReservation {
    fn drop(&mut self) {
        let mut busy = self.folders.lock_busy();
        if let Some(numbers) = busy.get_mut(&self.name) {
            numbers.remove(&self.number);
            if numbers.is_empty() {
                busy.remove(&self.name);
            }
        }
    }
}

impl Folders {
    pub(crate) fn new(config: config::ScratchConfig, workspaces: Workspaces) -> Self {
        let slots = FairSlots::new(config.command_slots());
        Self { config, workspaces, runner_dir: OnceCell::new(), slots, busy: Mutex::default() }
    }

    fn lock_busy(&self) -> MutexGuard<'_, HashMap<String, BTreeSet<usize>>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a folder with the current files that the session may see.
    ///
    /// The caller may be cancelled: the files are written completely before another command gets
    /// the folder.
    pub(crate) async fn acquire(self: &Arc<Self>, whose: FolderKey) -> Result<Folder, Error> {
        let laid_out = tokio::spawn(Arc::clone(self).prepare(whose)).await;
        laid_out.unwrap_or_else(|ended| match ended.try_into_panic() {
            Ok(panicked) => std::panic::resume_unwind(panicked),
            Err(ended) => Err(self.dir_error(io::Error::other(ended))),
        })
    }

    async fn prepare(self: Arc<Self>, whose: FolderKey) -> Result<Folder, Error> {
        let home = self.open_runner_dir().await?;
        let taken = self.reserve(&whose)?;
        let slot = timeout(SLOT_TIMEOUT, self.slots.acquire(whose.tenant)).await;
        let slot = slot.map_err(|_elapsed| Error::Busy { slots: self.config.command_slots() })?;
        let root = home.dir.join(format!("{}-{}", taken.name, taken.number));
        let scratch = Scratch::open(
            self.workspaces.clone(),
            home.cache.clone(),
            &root,
            whose.tenant,
            whose.agent,
        );
        let view = whose.view;
        let mut scratch = scratch.await?.with_view(ScratchFiles(view.clone()));
        scratch.bring(None).await?;
        fs::write(root.join(LAST_USED_FILE), "").map_err(|error| self.dir_error(error))?;
        self.remove_excess(home.dir.clone(), whose.tenant).await;
        Ok(Folder { scratch, view, _reservation: taken, _slot: slot })
    }

    fn dir_error(&self, source: io::Error) -> Error {
        Error::Dir { dir: self.config.dir.clone(), source }
    }

    fn reserve(self: &Arc<Self>, whose: &FolderKey) -> Result<FolderReservation, Error> {
        let (name, tenant) = (whose.name(), whose.tenant.as_uuid().simple().to_string());
        let mut busy = self.lock_busy();
        let theirs = busy.iter().filter(|(name, _)| name.starts_with(&tenant));
        let most = self.config.commands_per_tenant;
        if theirs.map(|(_, numbers)| numbers.len()).sum::<usize>() >= most {
            return Err(Error::TooMany { most });
        }
        let numbers = busy.entry(name.clone()).or_default();
        let number = (0..).find(|number| !numbers.contains(number)).unwrap_or_default();
        numbers.insert(number);
        Ok(FolderReservation { folders: Arc::clone(self), name, number })
    }

    async fn open_runner_dir(&self) -> Result<&RunnerDir, Error> {
        let open = async || {
            let (dir, limit) = (self.config.dir.clone(), self.config.cache);
            let opened = spawn_blocking(move || RunnerDir::open(&dir, limit)).await;
            opened.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))
        };
        self.runner_dir.get_or_try_init(open).await
    }

    /// Removes folders that were unused for longer than `idle`.
    pub(crate) async fn remove_unused(self: &Arc<Self>) {
        let Some(home) = self.runner_dir.get() else { return };
        let (dir, idle) = (home.dir.clone(), self.config.idle);
        let Ok(Ok(old)) = spawn_blocking(move || unused_folders(&dir, idle)).await else { return };
        self.discard_idle(old).await;
    }

    /// Removes the folders of a tenant that were unused for longest, if there are too many, so that
    /// the disk and the files that a tenant can use do not grow with its sessions.
    async fn remove_excess(self: &Arc<Self>, dir: PathBuf, tenant: TenantId) {
        let keep = self.config.folders_per_tenant;
        let excess = spawn_blocking(move || excess_folders(&dir, tenant, keep)).await;
        if let Ok(Ok(excess)) = excess {
            self.discard_idle(excess).await;
        }
    }

    /// Removes those of the folders in which no command runs.
    async fn discard_idle(self: &Arc<Self>, roots: Vec<PathBuf>) {
        for root in roots {
            let name = root.file_name().and_then(|name| name.to_str());
            let Some((name, number)) = name.and_then(|name| name.rsplit_once('-')) else {
                continue;
            };
            let Ok(number) = number.parse() else { continue };
            if !self.lock_busy().entry(name.to_owned()).or_default().insert(number) {
                continue;
            }
            let taken =
                FolderReservation { folders: Arc::clone(self), name: name.to_owned(), number };
            if let Err(error) = Scratch::discard(&root).await {
                let error = &error as &dyn std::error::Error;
                debug!(error, "a scratch folder could not be removed");
            }
            drop(taken);
        }
    }
}

impl RunnerDir {
    fn open(dir: &Path, cache: u64) -> Result<Self, Error> {
        let wrong = |source| Error::Dir { dir: dir.to_owned(), source };
        make_private(dir).map_err(wrong)?;
        let (own, lock) = lock_free_dir(dir).map_err(wrong)?;
        Ok(Self { dir: own, cache: ContentCache::open(dir.join("cache"), cache)?, _lock: lock })
    }
}

/// Creates a directory that only its owner can read.
fn make_private(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;

    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Takes the first numbered directory that no running runner has locked.
fn lock_free_dir(dir: &Path) -> io::Result<(PathBuf, File)> {
    for number in 0..MAX_RUNNERS {
        let own = dir.join(number.to_string());
        make_private(&own)?;
        let lock = File::options().create(true).append(true).open(own.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => return Ok((own, lock)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::other("too many runners share it"))
}

/// Folders that were unused for longer than `idle`.
fn unused_folders(dir: &Path, idle: Duration) -> io::Result<Vec<PathBuf>> {
    let is_old = |used: SystemTime| used.elapsed().is_ok_and(|age| age > idle);
    let folders = folders_by_use(dir)?.into_iter();
    Ok(folders.filter(|(used, _)| is_old(*used)).map(|(_, root)| root).collect())
}

/// Folders of a tenant beyond the `keep` that were used last.
fn excess_folders(dir: &Path, tenant: TenantId, keep: usize) -> io::Result<Vec<PathBuf>> {
    let prefix = tenant.as_uuid().simple().to_string();
    let is_theirs = |root: &Path| {
        root.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(&prefix))
    };
    let mut folders = folders_by_use(dir)?;
    folders.retain(|(_, root)| is_theirs(root));
    folders.sort_unstable();
    let excess = folders.len().saturating_sub(keep);
    Ok(folders.into_iter().take(excess).map(|(_, root)| root).collect())
}

/// All folders, with the time of their last use.
fn folders_by_use(dir: &Path) -> io::Result<Vec<(SystemTime, PathBuf)>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(dir)? {
        let root = entry?.path();
        if let Ok(used) = fs::metadata(root.join(LAST_USED_FILE)).and_then(|used| used.modified()) {
            folders.push((used, root));
        }
    }
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runners_on_a_machine_have_a_part_each_and_a_dead_ones_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();

        let (first, lock) = lock_free_dir(dir.path()).unwrap();
        let (second, _) = lock_free_dir(dir.path()).unwrap();
        drop(lock);
        let (third, _) = lock_free_dir(dir.path()).unwrap();

        assert_ne!(first, second);
        assert_eq!(first, third);
    }

    #[test]
    fn what_was_used_lately_stays() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("a").join(LAST_USED_FILE), "").unwrap();

        assert_eq!(
            unused_folders(dir.path(), Duration::from_secs(60)).unwrap(),
            Vec::<PathBuf>::new()
        );
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(unused_folders(dir.path(), Duration::ZERO).unwrap(), [dir.path().join("a")]);
    }
}
