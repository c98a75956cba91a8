//! Size limits of a tree.

use holdfast_types::TreePath;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Size limits of one agent's tree. It is meant for notes, skills and work products, not for large
/// files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum size of one file, in bytes.
    pub file: u64,
    /// Maximum size of all current files together, in bytes; history is not counted.
    pub tree: u64,
    /// Maximum number of current files.
    pub files: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { file: 1 << 20, tree: 64 << 20, files: 10_000 }
    }
}

impl Limits {
    /// Refuses a file that is too large.
    pub(crate) fn check_file(&self, path: &TreePath, bytes: u64) -> Result<(), Error> {
        if bytes > self.file {
            return Err(Error::FileTooLarge { path: path.clone(), bytes, limit: self.file });
        }
        Ok(())
    }

    /// Refuses a tree that grows beyond a limit. A tree that shrinks is never refused.
    pub(crate) fn check_tree(&self, before: TreeSize, after: TreeSize) -> Result<(), Error> {
        if after.files > before.files && after.files > i64::from(self.files) {
            return Err(Error::TooManyFiles { files: after.files, limit: self.files });
        }
        let limit = i64::try_from(self.tree).unwrap_or(i64::MAX);
        if after.bytes > before.bytes && after.bytes > limit {
            let over = after.bytes - limit;
            return Err(Error::TreeTooLarge { bytes: after.bytes, limit, over });
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeSize {
    pub files: i64,
    pub bytes: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_that_is_too_large_already_may_still_shrink() {
        let limits = Limits { file: 1, tree: 10, files: 2 };
        let size = |files, bytes| TreeSize { files, bytes };

        assert!(limits.check_tree(size(1, 1), size(2, 10)).is_ok());
        assert!(limits.check_tree(size(5, 50), size(4, 40)).is_ok());
        assert!(matches!(
            limits.check_tree(size(1, 1), size(2, 11)),
            Err(Error::TreeTooLarge { over: 1, .. })
        ));
        assert!(matches!(
            limits.check_tree(size(2, 5), size(3, 5)),
            Err(Error::TooManyFiles { files: 3, limit: 2 })
        ));
    }
}
