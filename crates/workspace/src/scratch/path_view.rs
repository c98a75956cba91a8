//! View of a tree: the files that commands see, and their paths in the scratch folder.

use std::{fmt, sync::Arc};

use holdfast_types::{InvalidPath, TreePath};

use crate::{Edit, Error, FileEntry};

/// Mapping between the paths of a tree and those that commands see.
///
/// For every path, `tree_path` reverses `view_path`.
pub trait PathView: Send + Sync {
    /// Path of a file of the tree in the scratch folder; `None` if commands do not see it.
    fn view_path(&self, path: &TreePath) -> Option<TreePath>;

    /// Path in the tree of a file in the scratch folder.
    ///
    /// # Errors
    ///
    /// If the path in the tree is not valid.
    fn tree_path(&self, path: &TreePath) -> Result<TreePath, InvalidPath>;
}

/// View of a scratch folder; by default commands see all files under their own paths.
#[derive(Clone, Default)]
pub(super) struct ScratchView(Option<Arc<dyn PathView>>);

impl ScratchView {
    pub fn new(view: impl PathView + 'static) -> Self {
        Self(Some(Arc::new(view)))
    }

    /// Files that commands see, with their paths in the scratch folder.
    pub fn visible(&self, listed: Vec<FileEntry>) -> Vec<FileEntry> {
        let Some(view) = &self.0 else { return listed };
        let seen = listed.into_iter().filter_map(|file| {
            let path = view.view_path(&file.path)?;
            Some(FileEntry { path, ..file })
        });
        seen.collect()
    }

    /// Whether commands see a file of the tree.
    pub fn is_visible(&self, path: &TreePath) -> bool {
        self.0.as_ref().is_none_or(|view| view.view_path(path).is_some())
    }

    /// Whether a file of the scratch folder can be in the tree.
    pub fn is_storable(&self, path: &TreePath) -> bool {
        self.0.as_ref().is_none_or(|view| view.tree_path(path).is_ok())
    }

    /// Edits of the tree for edits of the scratch folder.
    pub fn tree_edits(&self, edits: Vec<Edit>) -> Result<Vec<Edit>, Error> {
        let Some(view) = &self.0 else { return Ok(edits) };
        let in_tree = |path: &TreePath| {
            view.tree_path(path).map_err(|error| Error::Invalid(error.to_string()))
        };
        let edits = edits.into_iter().map(|edit| {
            Ok(match edit {
                Edit::Put { path, content, base } => {
                    Edit::Put { path: in_tree(&path)?, content, base }
                }
                Edit::Delete { path, base } => Edit::Delete { path: in_tree(&path)?, base },
            })
        });
        edits.collect()
    }

    /// An error of a commit, with the path in the scratch folder.
    pub fn error(&self, error: Error) -> Error {
        match (error, &self.0) {
            (Error::Clash { path, clash, author, revision }, Some(view)) => {
                let path = view.view_path(&path).unwrap_or(path);
                Error::Clash { path, clash, author, revision }
            }
            (error, _) => error,
        }
    }
}

impl fmt::Debug for ScratchView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScratchView({})", if self.0.is_some() { ".." } else { "" })
    }
}
