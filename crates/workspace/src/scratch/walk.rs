//! Listing of a scratch folder.

use std::{collections::BTreeMap, ffi::CString};

use holdfast_types::TreePath;

use super::{
    UnstorableEntry, UnstorableReason,
    folder::{EntryKind, FileStamp, Folder, c_name},
};
use crate::Error;

/// Entries of a scratch folder.
#[derive(Default)]
pub(super) struct FolderListing {
    pub files: BTreeMap<TreePath, FileStamp>,
    pub odd_entries: Vec<OddEntry>,
    pub entry_count: usize,
}

/// Entry that cannot be stored in a tree.
pub(super) struct OddEntry {
    pub folder: Option<TreePath>,
    pub name: CString,
    pub kind: UnstorableReason,
}

impl OddEntry {
    pub fn stray(&self) -> UnstorableEntry {
        let name = self.name.to_string_lossy();
        let path = match &self.folder {
            Some(folder) => format!("{folder}/{name}"),
            None => name.into_owned(),
        };
        let clean = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        UnstorableEntry { path: path.chars().map(clean).collect(), kind: self.kind }
    }
}

/// Lists a folder recursively. Returns `None` if it has more than `most` entries.
pub(super) fn list_folder(root: &Folder, most: usize) -> Result<Option<FolderListing>, Error> {
    let mut walked = FolderListing::default();
    // Paths have a maximum length, which bounds the depth.
    let mut folders: Vec<Option<TreePath>> = vec![None];
    while let Some(folder) = folders.pop() {
        list_one(root, folder.as_ref(), most, &mut walked, &mut folders)
            .map_err(Error::disk("look through a scratch folder"))?;
        if walked.entry_count > most {
            return Ok(None);
        }
    }
    Ok(Some(walked))
}

fn list_one(
    root: &Folder,
    at: Option<&TreePath>,
    most: usize,
    walked: &mut FolderListing,
    folders: &mut Vec<Option<TreePath>>,
) -> std::io::Result<()> {
    let (above, own) = match at {
        None => (None, root.folder(c".")),
        Some(at) => {
            let above = root.folder_of(at)?;
            let own = above.folder(&c_name(at.name())?);
            (at.folder(), own)
        }
    };
    // One more than there is room for tells that there are too many.
    let room = most.saturating_sub(walked.entry_count).saturating_add(1);
    let names = own.and_then(|own| own.names(room).map(|names| (own, names)));
    let (own, names) = match (names, at) {
        (Ok(listed), _) => listed,
        (Err(error), Some(at)) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let name = c_name(at.name())?;
            walked.odd_entries.push(OddEntry {
                folder: above,
                name,
                kind: UnstorableReason::Unreadable,
            });
            return Ok(());
        }
        (Err(error), _) => return Err(error),
    };
    walked.entry_count += names.len();
    for name in names {
        let path = name.to_str().ok().and_then(|name| match at {
            Some(at) => format!("{at}/{name}").parse().ok(),
            None => name.parse().ok(),
        });
        let path: Option<TreePath> = path;
        let kind = match (own.kind(&name)?, path) {
            (None, _) => continue,
            (Some(EntryKind::Link), _) => UnstorableReason::Link,
            (Some(EntryKind::Special), _) => UnstorableReason::Special,
            (Some(EntryKind::File(_) | EntryKind::Folder), None) => UnstorableReason::InvalidName,
            (Some(EntryKind::File(stamp)), Some(path)) => {
                walked.files.insert(path, stamp);
                continue;
            }
            (Some(EntryKind::Folder), Some(path)) => {
                folders.push(Some(path));
                continue;
            }
        };
        walked.odd_entries.push(OddEntry { folder: at.cloned(), name, kind });
    }
    Ok(())
}
