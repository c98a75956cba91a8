//! Files of a server on this machine: the only way in which commands write files whose names an agent
//! chose.
//!
//! **What can go wrong.** A path may leave the folder, or lead over a link. Git runs programs that the
//! configuration and the hooks of a repository name, and takes for a repository each folder `.git`,
//! and each folder with a file `HEAD` beside objects and refs. Such files are left out:
//! `repository_copy` makes repositories.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use holdfast_types::TreePath;

use crate::{error::Error, screen::Screen};

/// Folder that files of a server are written into.
#[derive(Debug)]
pub struct LocalFolder {
    root: PathBuf,
    left_out: usize,
}

impl LocalFolder {
    /// Makes a folder, or takes an empty one.
    ///
    /// # Errors
    ///
    /// If the folder has files already.
    pub fn create(root: &Path) -> Result<Self, Error> {
        if root.exists() && fs::read_dir(root)?.next().is_some() {
            let root = root.display();
            return Err(Error::Usage(format!("`{root}` has files already: give another folder")));
        }
        fs::create_dir_all(root)?;
        Ok(Self { root: root.to_owned(), left_out: 0 })
    }

    /// Writes a file, unless Git would take it for a part of a repository. Nothing is overwritten.
    /// Returns whether it was written.
    ///
    /// # Errors
    ///
    /// If the path is none within the folder, or the file is there.
    pub fn write(&mut self, path: &str, content: &[u8]) -> Result<bool, Error> {
        let path = path.parse::<TreePath>().map_err(|error| Error::Usage(error.to_string()))?;
        if path.within_git_database().is_some() || path.makes_bare_repository(content) {
            self.left_out += 1;
            return Ok(false);
        }
        let local = self.root.join(path.as_str());
        local.parent().map_or(Ok(()), fs::create_dir_all)?;
        let created = fs::OpenOptions::new().write(true).create_new(true).open(&local);
        let cannot = |error| Error::Usage(format!("cannot write `{}`: {error}", local.display()));
        created.map_err(cannot)?.write_all(content)?;
        Ok(true)
    }

    /// Tells the person about files that were left out.
    pub fn note_left_out(&self, screen: &Screen) -> Result<(), Error> {
        let left_out = match self.left_out {
            0 => return Ok(()),
            1 => "1 file within a Git repository was left out".to_owned(),
            count => format!("{count} files within Git repositories were left out"),
        };
        screen.note(&format!(
            "{left_out}: Git would run programs that such files name (docs/workspaces.md)"
        ))
    }
}

/// Returns a name that a server gave to a file: one part, not hidden.
///
/// # Errors
///
/// If the name has several parts or is hidden.
pub fn file_name(name: &str) -> Result<&str, Error> {
    let is_name = name.parse::<TreePath>().is_ok() && !name.contains('/') && !name.starts_with('.');
    match is_name {
        true => Ok(name),
        false => Err(Error::Usage(format!(
            "`{}` is no name of a file: give one",
            crate::screen::plain(name)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stay_in_the_folder_and_make_no_repository() {
        let dir = tempfile::tempdir().unwrap();
        let mut folder = LocalFolder::create(&dir.path().join("new")).unwrap();

        for path in ["../a", "/a", "a/../../b", "a\nb", "a\\b", ""] {
            assert!(folder.write(path, b"x").is_err(), "{path:?}");
        }
        for path in [".git/config", "a/.GIT/config", "git~1/config", ".g\u{200c}it/config"] {
            folder.write(path, b"[core]\n").unwrap();
        }
        folder.write("bare/HEAD", b"ref: refs/heads/main\n").unwrap();
        folder.write("docs/HEAD", b"how HTTP answers HEAD").unwrap();
        folder.write(".gitattributes", b"* text\n").unwrap();
        assert!(folder.write(".gitattributes", b"other").is_err());

        assert_eq!(folder.left_out, 5);
        let mut names: Vec<_> = fs::read_dir(&folder.root).unwrap().flatten().collect();
        names.sort_by_key(fs::DirEntry::file_name);
        let names: Vec<_> = names.iter().map(fs::DirEntry::file_name).collect();
        assert_eq!(names, [".gitattributes", "docs"]);
        assert!(LocalFolder::create(&folder.root).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut folder = LocalFolder::create(&dir.path().join("new")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("out"), folder.root.join("a")).unwrap();

        assert!(folder.write("a", b"x").is_err());
        assert!(!dir.path().join("out").exists());
    }

    #[test]
    fn a_name_of_a_server_is_one_visible_part() {
        assert!(file_name("main.agent.yaml").is_ok());
        for name in ["", ".bashrc", "../a", "a/b", "/etc/passwd", "a\nb"] {
            assert!(file_name(name).is_err(), "{name:?}");
        }
    }
}
