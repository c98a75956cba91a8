//! Paths as scripts and models write them, normalised to a path within the workspace.

use std::path::{Component, Path, PathBuf};

use crate::PathError;

/// Path of the workspace within the sandbox.
pub const MOUNT: &str = "/workspace";

/// Maximum length of a path, in bytes; Linux has the same limit.
const MAX_PATH_LEN: usize = 4096;

/// Path within a workspace: relative, without `..`, `.` or NUL.
///
/// The path may still lead through symlinks: it is opened beneath the workspace only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct WorkPath(PathBuf);

impl WorkPath {
    #[must_use]
    pub fn top() -> Self {
        Self::default()
    }

    /// Parses a path: relative to the workspace, or absolute and beneath [`MOUNT`].
    ///
    /// `..` is refused even if the result would be inside: its meaning depends on symlinks.
    ///
    /// # Errors
    ///
    /// If the path leads outside, holds a NUL, or is too long.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.contains('\0') || text.len() > MAX_PATH_LEN {
            return Err(PathError::NotAPath);
        }
        let path = Path::new(text);
        let path = match path.strip_prefix(MOUNT) {
            Ok(inside) => inside,
            Err(_) if path.is_absolute() => return Err(PathError::Outside),
            Err(_) => path,
        };
        let mut clean = PathBuf::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => clean.push(name),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(PathError::Outside);
                }
            }
        }
        Ok(Self(clean))
    }

    #[must_use]
    pub fn is_top(&self) -> bool {
        self.0.as_os_str().is_empty()
    }

    /// Returns the path relative to the workspace; `.` for the workspace itself.
    #[must_use]
    pub fn as_relative(&self) -> &Path {
        if self.is_top() { Path::new(".") } else { &self.0 }
    }

    /// Returns the absolute path within the sandbox.
    #[must_use]
    pub fn path_in_sandbox(&self) -> PathBuf {
        if self.is_top() { PathBuf::from(MOUNT) } else { Path::new(MOUNT).join(&self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_within_is_reduced_to_its_names() {
        for (text, is) in [
            ("a/b.txt", "a/b.txt"),
            ("./a//b/.", "a/b"),
            ("", "."),
            (".", "."),
            ("/workspace", "."),
            ("/workspace/a", "a"),
            ("a..b/...", "a..b/..."),
        ] {
            assert_eq!(WorkPath::parse(text).unwrap().as_relative(), Path::new(is), "{text}");
        }
        assert_eq!(WorkPath::top().path_in_sandbox(), Path::new("/workspace"));
        assert_eq!(WorkPath::parse("a").unwrap().path_in_sandbox(), Path::new("/workspace/a"));
    }

    #[test]
    fn a_path_that_leads_outside_is_refused() {
        for text in ["..", "../x", "a/../b", "a/../../b", "/etc/passwd", "/", "/workspacex", "//a"]
        {
            let error = WorkPath::parse(text).unwrap_err();
            assert_eq!(error.to_string(), "access denied: path is outside the workspace", "{text}");
        }
        assert!(matches!(WorkPath::parse("a\0b"), Err(PathError::NotAPath)));
        assert!(matches!(WorkPath::parse(&"a".repeat(5000)), Err(PathError::NotAPath)));
    }
}
