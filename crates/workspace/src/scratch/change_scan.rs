//! Detection of the changes that a command made.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_types::TreePath;

use super::{
    ScratchChanges, UnstorableReason,
    folder::{FileStamp, c_name},
    manifest::ManifestEntry,
    scratch_dir::ScratchDir,
    walk::{OddEntry, list_folder},
};
use crate::{Base, ContentHash, Edit, Error};

pub(super) struct ScanResult {
    pub changes: ScratchChanges,
    pub found: BTreeMap<TreePath, Option<ManifestEntry>>,
    /// Files with a new stamp and the same content.
    pub restamped: Vec<(TreePath, FileStamp)>,
}

impl ScratchDir {
    /// Compares the folder with the manifest.
    pub fn scan_changes(
        &self,
        held: &BTreeMap<TreePath, ManifestEntry>,
    ) -> Result<ScanResult, Error> {
        let most = self.max_entries();
        let Some(mut walked) = list_folder(&self.root, most)? else {
            return Err(Error::Invalid(format!(
                "the command left more than {most} files and folders: delete what is not \
                 needed, or work in a folder outside of the tree"
            )));
        };
        let mut looked = ScanResult {
            changes: ScratchChanges { edits: Vec::new(), unstorable: Vec::new() },
            found: BTreeMap::new(),
            restamped: Vec::new(),
        };
        let mut room = self.limits.tree;
        for (path, stamp) in &walked.files {
            let before = held.get(path);
            if before.is_some_and(|held| held.stamp == *stamp) {
                continue;
            }
            match self.read(path, self.limits.file.min(room))? {
                Ok((content, stamp)) => {
                    let hash = ContentHash::of(&content);
                    if before.is_some_and(|held| held.hash == hash) {
                        looked.restamped.push((path.clone(), stamp));
                        continue;
                    }
                    room -= content.len() as u64;
                    let base = before.map_or(Base::Absent, |held| Base::Hash(held.hash));
                    looked.found.insert(
                        path.clone(),
                        Some(ManifestEntry { hash, stamp, second: stamp.second() }),
                    );
                    looked.changes.edits.push(Edit::Put { path: path.clone(), content, base });
                }
                Err(kind) => {
                    let name = c_name(path.name()).map_err(Error::disk("read a file"))?;
                    walked.odd_entries.push(OddEntry { folder: path.folder(), name, kind });
                }
            }
        }
        looked.changes.unstorable = walked.odd_entries.iter().map(OddEntry::stray).collect();
        looked.changes.unstorable.sort_by(|a, b| a.path.cmp(&b.path));
        let strays: BTreeSet<&str> =
            looked.changes.unstorable.iter().map(|stray| stray.path.as_str()).collect();
        for (path, held) in held {
            // A file that was replaced or hidden by a stray is not deleted from the tree.
            let hidden = strays.contains(path.as_str())
                || path.folders().any(|folder| strays.contains(folder));
            if !walked.files.contains_key(path) && !hidden {
                let base = Base::Hash(held.hash);
                looked.found.insert(path.clone(), None);
                looked.changes.edits.push(Edit::Delete { path: path.clone(), base });
            }
        }
        looked.changes.edits.sort_by(|a, b| a.path().cmp(b.path()));
        Ok(looked)
    }

    fn read(
        &self,
        path: &TreePath,
        most: u64,
    ) -> Result<Result<(Vec<u8>, FileStamp), UnstorableReason>, Error> {
        let read =
            self.root.folder_of(path).and_then(|folder| folder.read(&c_name(path.name())?, most));
        match read {
            Ok(Some(read)) => Ok(Ok(read)),
            Ok(None) => Ok(Err(UnstorableReason::Large)),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Ok(Err(UnstorableReason::Unreadable))
            }
            Err(error) => Err(Error::disk("read a file")(error)),
        }
    }
}
