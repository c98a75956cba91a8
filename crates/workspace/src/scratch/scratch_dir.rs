//! File operations in a scratch folder: removal of unwanted files, writing of missing ones.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use holdfast_types::TreePath;

use super::{
    folder::{Folder, Trash, c_name},
    manifest::ManifestEntry,
    walk::list_folder,
};
use crate::{ContentHash, Error, FileEntry, Limits};

/// Maximum number of entries in a scratch folder, per file that a tree may have.
const MAX_ENTRIES_PER_FILE: usize = 10;

/// Paths and open folders of a scratch folder.
#[derive(Debug)]
pub(super) struct ScratchDir {
    pub tree: PathBuf,
    pub manifest: PathBuf,
    pub root: Folder,
    pub trash: Trash,
    pub limits: Limits,
}

#[derive(Clone)]
pub(super) struct MissingFile {
    pub path: TreePath,
    pub hash: ContentHash,
    pub size: u64,
    pub second: i64,
}

/// Result of [`Place::clean`]: the remaining files are right, others are missing.
pub(super) struct CleanOutcome {
    pub kept: BTreeMap<TreePath, ManifestEntry>,
    pub missing: Vec<MissingFile>,
    pub removed: usize,
}

impl ScratchDir {
    pub fn open(root: &Path, limits: Limits) -> std::io::Result<Self> {
        let (tree, trash) = (root.join("tree"), root.join("trash"));
        fs::create_dir_all(&tree)?;
        fs::create_dir_all(&trash)?;
        Ok(Self {
            root: Folder::open(&tree)?,
            trash: Trash::open(&trash)?,
            manifest: root.join("manifest"),
            tree,
            limits,
        })
    }

    /// Entries beyond which the folder is not looked through.
    pub fn max_entries(&self) -> usize {
        let files = usize::try_from(self.limits.files).unwrap_or(usize::MAX);
        files.saturating_mul(MAX_ENTRIES_PER_FILE)
    }

    /// Removes everything from the tree. Returns the number of entries at its top.
    pub fn clear(&self) -> std::io::Result<usize> {
        let removed = self.trash.move_all_in(&self.root)?;
        self.trash.empty()?;
        Ok(removed)
    }

    /// Removes unwanted entries and returns the missing files. A tree with too many entries is
    /// removed whole. `listed` are the wanted files;
    /// without it, the files of the manifest (`held`) are.
    pub fn clean(
        &self,
        held: BTreeMap<TreePath, ManifestEntry>,
        listed: Option<Vec<FileEntry>>,
    ) -> Result<CleanOutcome, Error> {
        let clean = || Error::disk("clean a scratch folder");
        let mut missing: BTreeMap<TreePath, MissingFile> = match listed {
            Some(listed) => {
                listed.into_iter().map(|file| (file.path.clone(), file.into())).collect()
            }
            None => held
                .iter()
                .map(|(path, held)| (path.clone(), MissingFile::of(path, held)))
                .collect(),
        };
        let Some(walked) = list_folder(&self.root, self.max_entries())? else {
            let removed = self.clear().map_err(clean())?;
            let missing: Vec<MissingFile> = missing.into_values().collect();
            return Ok(CleanOutcome { kept: BTreeMap::new(), missing, removed });
        };
        let mut removed = walked.odd_entries.len();
        for odd in &walked.odd_entries {
            let folder = match &odd.folder {
                Some(folder) => self
                    .root
                    .folder_of(folder)
                    .and_then(|above| above.folder(&c_name(folder.name())?)),
                None => self.root.folder(c"."),
            };
            folder.and_then(|folder| self.trash.move_in(&folder, &odd.name)).map_err(clean())?;
        }
        let mut kept = BTreeMap::new();
        for (path, stamp) in walked.files {
            match (missing.get(&path), held.get(&path)) {
                (Some(wanted), Some(held)) if held.hash == wanted.hash && held.stamp == stamp => {
                    kept.insert(path.clone(), *held);
                    missing.remove(&path);
                }
                // Differs: it stays in `missing` and is overwritten.
                (Some(_), _) => {}
                (None, _) => {
                    removed += 1;
                    self.remove(&path).map_err(clean())?;
                }
            }
        }
        self.trash.empty().map_err(clean())?;
        Ok(CleanOutcome { kept, missing: missing.into_values().collect(), removed })
    }

    /// Removes a file, and its folders that became empty.
    fn remove(&self, path: &TreePath) -> std::io::Result<()> {
        self.root.folder_of(path)?.unlink(&c_name(path.name())?)?;
        let mut path = path.folder();
        while let Some(folder) = path {
            if !self.root.folder_of(&folder)?.remove_empty(&c_name(folder.name())?) {
                break;
            }
            path = folder.folder();
        }
        Ok(())
    }

    pub fn write(
        &self,
        files: Vec<MissingFile>,
        contents: &BTreeMap<ContentHash, Vec<u8>>,
    ) -> Result<Vec<(TreePath, ManifestEntry)>, Error> {
        let mut held = Vec::with_capacity(files.len());
        for MissingFile { path, hash, second, .. } in files {
            let content = contents.get(&hash).ok_or(Error::Corrupt { what: "content" })?;
            let written = self.root.make_folder_of(&path, &self.trash).and_then(|folder| {
                folder.write(&c_name(path.name())?, content, second, &self.trash)
            });
            let stamp = written.map_err(Error::disk("write a file"))?;
            held.push((path, ManifestEntry { hash, stamp, second }));
        }
        Ok(held)
    }
}

/// Removes a scratch folder. The tree goes through the trash, which copes with any depth and any
/// permissions.
pub(super) fn discard(root: &Path) -> std::io::Result<()> {
    let trash = root.join("trash");
    fs::create_dir_all(&trash)?;
    let trash = Trash::open(&trash)?;
    trash.move_in(&Folder::open(root)?, c"tree")?;
    trash.empty()?;
    fs::remove_dir_all(root)
}

impl From<FileEntry> for MissingFile {
    fn from(file: FileEntry) -> Self {
        let second = file.changed_at.as_second();
        Self { path: file.path, hash: file.hash, size: file.size, second }
    }
}

impl MissingFile {
    fn of(path: &TreePath, held: &ManifestEntry) -> Self {
        Self { path: path.clone(), hash: held.hash, size: held.stamp.size, second: held.second }
    }
}
