//! Scratch folders: copies of trees on a runner's disk in which commands run.
//!
//! ```text
//! <root>/tree        the files, visible to commands
//! <root>/manifest    the files that the runner wrote, with their stamps
//! <root>/trash       new files before they are moved into place, removed ones before deletion
//! ```
//!
//! Commands see only `tree`. [`Scratch::bring`] brings it to a revision and writes only files that
//! differ. [`Scratch::changes`] finds what a command changed and reads only files whose stamp
//! changed.
//!
//! ## What can go wrong
//!
//! If a command still runs during these operations, they can see half of its changes: end it first.
//! It cannot lead them out of `tree` (see `folder`).

mod cache;
mod change_scan;
mod changes;
mod folder;
mod manifest;
mod path_view;
mod scratch_dir;
mod walk;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use holdfast_types::{AgentId, TenantId, TreePath};

pub use self::{
    cache::ContentCache,
    changes::{ScratchChanges, UnstorableEntry, UnstorableReason},
    path_view::PathView,
};
use self::{
    manifest::{Manifest, ManifestEntry},
    path_view::ScratchView,
    scratch_dir::{CleanOutcome, MissingFile, ScratchDir},
};
use crate::{
    ChangeAuthor, CommitOutcome, ContentHash, Edit, Error, FileEntry, Revision, Workspaces,
    export::run_blocking,
    read::{batches, list_at, load_contents},
    workspaces::head_and_outside_files,
};

/// Scratch folder of one tree. Used by one turn at a time.
#[derive(Debug)]
pub struct Scratch {
    dir: Arc<ScratchDir>,
    workspaces: Workspaces,
    cache: ContentCache,
    tenant: TenantId,
    agent: AgentId,
    manifest: Manifest,
    view: ScratchView,
    /// Changes found by the last [`Scratch::changes`] and not committed yet; `None` is a deletion.
    pending: BTreeMap<TreePath, Option<ManifestEntry>>,
    /// Whether the last [`Scratch::bring`] brought a file that may have text from outside.
    outside: bool,
}

/// Files to bring.
struct TargetFiles {
    revision: Revision,
    /// `None` if the folder is at that revision.
    listed: Option<Vec<FileEntry>>,
    /// Whether one of them may have text from outside.
    outside: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BringOutcome {
    pub revision: Revision,
    pub written: usize,
    /// Number of removed files, links and special files.
    pub removed: usize,
    /// Number of contents that came from the database rather than the cache.
    pub fetched: usize,
}

impl Scratch {
    /// Opens or makes the scratch folder of a tree under `root`. Commands must not see `root`
    /// itself.
    ///
    /// Files of another tree in it are removed by the next [`bring`](Self::bring).
    ///
    /// # Errors
    ///
    /// [`Error::Disk`] if the folders cannot be made or read.
    pub async fn open(
        workspaces: Workspaces,
        cache: ContentCache,
        root: impl Into<PathBuf>,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Self, Error> {
        let (root, limits) = (root.into(), workspaces.limits);
        let (place, manifest) = run_blocking(move || {
            let open = Error::disk("make a scratch folder");
            ScratchDir::open(&root, limits).map_err(open).map(|place| {
                let manifest = Manifest::load(&place.manifest, tenant, agent);
                (place, manifest)
            })
        })
        .await?;
        let (pending, view) = (BTreeMap::new(), ScratchView::default());
        let dir = Arc::new(place);
        Ok(Self { dir, workspaces, cache, tenant, agent, manifest, view, pending, outside: false })
    }

    /// Sets the files that commands see, and their paths. Other files are not copied.
    ///
    /// Use another folder for another view: files that are already there are not checked again.
    #[must_use]
    pub fn with_view(self, view: impl PathView + 'static) -> Self {
        Self { view: ScratchView::new(view), ..self }
    }

    /// Deletes a scratch folder with all its files. It must not be open.
    ///
    /// # Errors
    ///
    /// [`Error::Disk`].
    pub async fn discard(root: impl Into<PathBuf>) -> Result<(), Error> {
        let root = root.into();
        run_blocking(move || {
            scratch_dir::discard(&root).map_err(Error::disk("remove a scratch folder"))
        })
        .await
    }

    /// Folder in which commands run.
    #[must_use]
    pub fn tree(&self) -> &Path {
        &self.dir.tree
    }

    /// Whether a file that the last [`bring`](Self::bring) brought may have text from outside.
    #[must_use]
    pub const fn has_outside_text(&self) -> bool {
        self.outside
    }

    /// Paths of the files that the runner has written to the folder.
    pub fn paths(&self) -> impl Iterator<Item = &TreePath> {
        self.manifest.files.keys()
    }

    /// Brings the folder to a revision, by default the newest. Uncommitted changes of commands are
    /// undone.
    ///
    /// # Errors
    ///
    /// [`Error::NoRevision`] if there is no such revision; [`Error::Disk`] or [`Error::Store`],
    /// after which the call can be repeated.
    pub async fn bring(&mut self, at: Option<Revision>) -> Result<BringOutcome, Error> {
        let TargetFiles { revision, listed, outside } = self.target_files(at).await?;
        self.outside = outside;
        let was_here = listed.is_none();
        self.pending.clear();
        let place = Arc::clone(&self.dir);
        let held = std::mem::take(&mut self.manifest.files);
        // If this fails half-way, the next call compares every file.
        self.manifest.revision = None;
        let cleaned = run_blocking(move || place.clean(held, listed)).await?;
        let CleanOutcome { kept, missing, removed } = cleaned;

        self.manifest.files = kept;
        let written = missing.len();
        let mut fetched = 0;
        for part in batches(&missing, |file| file.size) {
            fetched += self.write_missing(part).await?;
        }
        self.manifest.revision = Some(revision);
        if !was_here || written > 0 {
            self.save_manifest().await?;
        }
        Ok(BringOutcome { revision, written, removed, fetched })
    }

    /// Removes all files, and with them what a command left. The next [`bring`](Self::bring) writes
    /// the tree anew.
    ///
    /// # Errors
    ///
    /// [`Error::Disk`].
    pub async fn clear(&mut self) -> Result<(), Error> {
        self.pending.clear();
        self.manifest.files.clear();
        self.manifest.revision = None;
        let place = Arc::clone(&self.dir);
        run_blocking(move || place.clear().map_err(Error::disk("clear a scratch folder"))).await?;
        self.save_manifest().await
    }

    /// Changes since the last [`bring`](Self::bring), without those that were
    /// [committed](Self::commit).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the command left too many files, [`Error::Disk`].
    pub async fn changes(&mut self) -> Result<ScratchChanges, Error> {
        let place = Arc::clone(&self.dir);
        let held = std::mem::take(&mut self.manifest.files);
        let (held, looked) = run_blocking(move || {
            let looked = place.scan_changes(&held);
            Ok((held, looked))
        })
        .await?;
        self.manifest.files = held;
        let looked = looked?;
        for (path, stamp) in looked.restamped {
            if let Some(held) = self.manifest.files.get_mut(&path) {
                held.stamp = stamp;
            }
        }
        self.pending = looked.found;
        Ok(looked.changes.without_unstorable(&self.view))
    }

    /// Commits edits of the last [`changes`](Self::changes), all or some, with
    /// [`Workspaces::commit`]. They are not found again.
    ///
    /// # Errors
    ///
    /// Those of [`Workspaces::commit`]. After a clash the folder is unchanged. To get the others'
    /// changes, and lose the command's, call [`bring`](Self::bring).
    pub async fn commit(
        &mut self,
        by: &ChangeAuthor,
        edits: Vec<Edit>,
    ) -> Result<CommitOutcome, Error> {
        let paths: Vec<TreePath> = edits.iter().map(|edit| edit.path().clone()).collect();
        let edits = self.view.tree_edits(edits)?;
        let committed = self.workspaces.commit(self.tenant, self.agent, by, edits).await;
        let committed = committed.map_err(|error| self.view.error(error))?;
        let mut all_known = true;
        for path in paths {
            match self.pending.remove(&path) {
                Some(Some(held)) => drop(self.manifest.files.insert(path, held)),
                Some(None) => drop(self.manifest.files.remove(&path)),
                None => all_known = false,
            }
        }
        // A change of another session may have been made in between: it is not in the folder yet.
        self.manifest.revision = match self.manifest.revision {
            Some(before) if all_known && before.next() == committed.revision => {
                Some(committed.revision)
            }
            _ => None,
        };
        self.save_manifest().await?;
        Ok(committed)
    }

    /// Revision to bring, and its files.
    async fn target_files(&self, at: Option<Revision>) -> Result<TargetFiles, Error> {
        let mut tx = self.workspaces.pools.tenant(self.tenant).await?;
        let (revision, outside) = match at {
            // The marks of earlier versions are not known.
            Some(at) => (at, true),
            None => {
                let (head, marked) = head_and_outside_files(&mut tx, self.agent).await?;
                (head, marked.iter().any(|path| self.view.is_visible(path)))
            }
        };
        let listed = match self.manifest.revision {
            Some(here) if here == revision => None,
            _ => Some(self.view.visible(list_at(&mut tx, self.agent, revision, None).await?)),
        };
        tx.finish_reading();
        Ok(TargetFiles { revision, listed, outside })
    }

    /// Writes files from the cache or the database. Returns how many contents were not in the
    /// cache.
    async fn write_missing(&mut self, files: &[MissingFile]) -> Result<usize, Error> {
        let (cache, tenant) = (self.cache.clone(), self.tenant);
        let hashes: BTreeSet<ContentHash> = files.iter().map(|file| file.hash).collect();
        let (mut known, unknown) = run_blocking(move || {
            let mut known = BTreeMap::new();
            let mut unknown = Vec::new();
            for hash in hashes {
                match cache.get(tenant, hash) {
                    Some(content) => drop(known.insert(hash, content)),
                    None => unknown.push(hash),
                }
            }
            Ok((known, unknown))
        })
        .await?;

        let mut fetched = Vec::new();
        if !unknown.is_empty() {
            let mut tx = self.workspaces.pools.tenant(tenant).await?;
            fetched = load_contents(&mut tx, &unknown).await?;
            tx.finish_reading();
        }
        let count = fetched.len();
        let (place, cache, files) = (Arc::clone(&self.dir), self.cache.clone(), files.to_vec());
        let held = run_blocking(move || {
            for (hash, content) in &fetched {
                cache.put(tenant, *hash, content);
            }
            known.extend(fetched);
            place.write(files, &known)
        })
        .await?;
        self.manifest.files.extend(held);
        Ok(count)
    }

    async fn save_manifest(&self) -> Result<(), Error> {
        let (place, manifest) = (Arc::clone(&self.dir), self.manifest.clone());
        let save = Error::disk("keep a scratch folder's manifest");
        run_blocking(move || manifest.save(&place.manifest).map_err(save)).await
    }
}
