//! Filter of the files that commands must not see.

use std::{fmt, sync::Arc};

use holdfast_types::TreePath;

use crate::FileEntry;

type Rule = Arc<dyn Fn(&TreePath) -> bool + Send + Sync>;

/// Rule that says which files are hidden; by default none.
#[derive(Clone, Default)]
pub(super) struct FileFilter(Option<Rule>);

impl FileFilter {
    pub fn new(rule: impl Fn(&TreePath) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(rule)))
    }

    pub fn visible(&self, mut listed: Vec<FileEntry>) -> Vec<FileEntry> {
        if let Some(rule) = &self.0 {
            listed.retain(|file| !rule(&file.path));
        }
        listed
    }
}

impl fmt::Debug for FileFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hidden({})", if self.0.is_some() { ".." } else { "" })
    }
}
