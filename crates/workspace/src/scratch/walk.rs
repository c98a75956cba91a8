//! Listing of a scratch folder.

use std::{collections::BTreeMap, ffi::CString};

use holdfast_types::TreePath;

use super::{
    Stray, StrayKind,
    folder::{Folder, Kind, Stamp, name},
};
use crate::Error;

/// Entries of a scratch folder.
#[derive(Default)]
pub(super) struct Walked {
    pub files: BTreeMap<TreePath, Stamp>,
    pub odd: Vec<Odd>,
    pub names: usize,
}

/// Entry that cannot be stored in a tree.
pub(super) struct Odd {
    pub folder: Option<TreePath>,
    pub name: CString,
    pub kind: StrayKind,
}

impl Odd {
    pub fn stray(&self) -> Stray {
        let name = self.name.to_string_lossy();
        let path = match &self.folder {
            Some(folder) => format!("{folder}/{name}"),
            None => name.into_owned(),
        };
        let clean = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        Stray { path: path.chars().map(clean).collect(), kind: self.kind }
    }
}

/// Lists a folder recursively. [`Error::Invalid`] if it has more than `most` entries.
pub(super) fn walk(root: &Folder, most: usize) -> Result<Walked, Error> {
    let mut walked = Walked::default();
    // Paths have a maximum length, which bounds the depth.
    let mut folders: Vec<Option<TreePath>> = vec![None];
    while let Some(folder) = folders.pop() {
        walk_one(root, folder.as_ref(), &mut walked, &mut folders)
            .map_err(Error::disk("look through a scratch folder"))?;
        if walked.names > most {
            return Err(Error::Invalid(format!(
                "the command left more than {most} files and folders: delete what is not \
                 needed, or work in a folder outside of the tree"
            )));
        }
    }
    Ok(walked)
}

fn walk_one(
    root: &Folder,
    at: Option<&TreePath>,
    walked: &mut Walked,
    folders: &mut Vec<Option<TreePath>>,
) -> std::io::Result<()> {
    let (above, own) = match at {
        None => (None, root.folder(c".")),
        Some(at) => {
            let above = root.folder_of(at)?;
            let own = above.folder(&name(at.name())?);
            (at.folder(), own)
        }
    };
    let names = own.and_then(|own| own.names().map(|names| (own, names)));
    let (own, names) = match (names, at) {
        (Ok(listed), _) => listed,
        (Err(error), Some(at)) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let name = name(at.name())?;
            walked.odd.push(Odd { folder: above, name, kind: StrayKind::Closed });
            return Ok(());
        }
        (Err(error), _) => return Err(error),
    };
    walked.names += names.len();
    for name in names {
        let path = name.to_str().ok().and_then(|name| match at {
            Some(at) => format!("{at}/{name}").parse().ok(),
            None => name.parse().ok(),
        });
        let path: Option<TreePath> = path;
        let kind = match (own.kind(&name)?, path) {
            (None, _) => continue,
            (Some(Kind::Link), _) => StrayKind::Link,
            (Some(Kind::Special), _) => StrayKind::Special,
            (Some(Kind::File(_) | Kind::Folder), None) => StrayKind::Name,
            (Some(Kind::File(stamp)), Some(path)) => {
                walked.files.insert(path, stamp);
                continue;
            }
            (Some(Kind::Folder), Some(path)) => {
                folders.push(Some(path));
                continue;
            }
        };
        walked.odd.push(Odd { folder: at.cloned(), name, kind });
    }
    Ok(())
}
