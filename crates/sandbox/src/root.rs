//! Files of a workspace, for code outside the sandbox.
//!
//! Everything is opened beneath the workspace's directory, one name after the other, so that no
//! symlink leads out, whatever a running script puts there meanwhile (`openat2` with
//! `RESOLVE_BENEATH` where the kernel has it, cap-std's own walk else).
//!
//! **What can go wrong.** A script may turn a file into a pipe, which would block a reader forever:
//! files are opened without waiting, and only regular ones are read. These calls block: do not make
//! them on an async thread.

use std::{
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, File, Metadata, OpenOptions, OpenOptionsExt as _},
};

use crate::{PathError, WorkPath};

#[derive(Debug)]
pub struct Root(Dir);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Name; invalid UTF-8 is replaced by `�`.
    pub name: String,
    pub kind: EntryKind,
    /// Size in bytes; 0 unless it is a file.
    pub bytes: u64,
}

/// Kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    Directory,
    File,
    /// Symlink, which may lead outside the workspace.
    Symlink,
    /// Pipe, socket or device: never opened.
    Other,
}

impl EntryKind {
    fn of(metadata: &Metadata) -> Self {
        if metadata.is_dir() {
            Self::Directory
        } else if metadata.is_file() {
            Self::File
        } else if metadata.is_symlink() {
            Self::Symlink
        } else {
            Self::Other
        }
    }
}

impl Root {
    /// Opens a workspace. The caller is responsible for the choice of the directory.
    ///
    /// # Errors
    ///
    /// If there is no such directory.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, PathError> {
        Ok(Self(Dir::open_ambient_dir(dir, ambient_authority())?))
    }

    pub(crate) fn open_dir(&self, path: &WorkPath) -> Result<Dir, PathError> {
        Ok(self.0.open_dir(path.as_relative())?)
    }

    /// Reads a file of at most `most` bytes.
    ///
    /// # Errors
    ///
    /// If the path does not exist, is outside, is not a regular file, or the file is too large.
    pub fn read(&self, path: &WorkPath, most: u64) -> Result<Vec<u8>, PathError> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let file = self.0.open_with(path.as_relative(), &options)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(PathError::NotAFile);
        }
        let too_large = |bytes| PathError::TooLarge { bytes, most };
        if metadata.len() > most {
            return Err(too_large(metadata.len()));
        }
        // The file may grow while it is read.
        let mut bytes = Vec::new();
        file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if length > most { Err(too_large(length)) } else { Ok(bytes) }
    }

    /// Replaces a file atomically: readers see the old contents or the new ones.
    ///
    /// Follows a symlink within the workspace. Creates missing parent directories. Keeps the
    /// permissions of an existing file.
    ///
    /// # Errors
    ///
    /// If the path is a directory, is outside, or cannot be written.
    pub fn write(&self, path: &WorkPath, bytes: &[u8]) -> Result<(), PathError> {
        let target = self.target(path)?;
        let name = target.file_name().ok_or(PathError::Top)?;
        let above = match target.parent() {
            Some(above) if !above.as_os_str().is_empty() => {
                self.0.create_dir_all(above)?;
                self.0.open_dir(above)?
            }
            _ => self.0.try_clone()?,
        };
        let permissions = match above.symlink_metadata(name) {
            Ok(metadata) if metadata.is_dir() => return Err(PathError::NotAFile),
            Ok(metadata) if metadata.is_file() => Some(metadata.permissions()),
            Ok(_) | Err(_) => None,
        };
        let temporary = temporary_name();
        let written = write_new(&above, &temporary, bytes).and_then(|file| {
            if let Some(permissions) = permissions {
                file.set_permissions(permissions)?;
            }
            above.rename(&temporary, &above, name)
        });
        if written.is_err() {
            // The temporary file may not exist.
            let _not_there = above.remove_file(&temporary);
        }
        Ok(written?)
    }

    /// Resolves symlinks, as far as the path exists.
    fn target(&self, path: &WorkPath) -> Result<PathBuf, PathError> {
        match self.0.canonicalize(path.as_relative()) {
            Ok(target) => Ok(target),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(path.as_relative().to_owned())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Lists a directory, sorted by name.
    ///
    /// # Errors
    ///
    /// If the path does not exist, is outside, or is not a directory.
    pub fn list(&self, path: &WorkPath) -> Result<Vec<Entry>, PathError> {
        let mut entries = Vec::new();
        for entry in self.0.read_dir(path.as_relative())? {
            let entry = entry?;
            // The entry was deleted while we listed the folder.
            let Ok(metadata) = entry.metadata() else { continue };
            let kind = EntryKind::of(&metadata);
            entries.push(Entry {
                name: entry.file_name().to_string_lossy().into_owned(),
                kind,
                bytes: if kind == EntryKind::File { metadata.len() } else { 0 },
            });
        }
        entries.sort();
        Ok(entries)
    }

    /// Creates a directory and its parents.
    ///
    /// # Errors
    ///
    /// If a file is in the way, or the path is outside.
    pub fn make_dir(&self, path: &WorkPath) -> Result<(), PathError> {
        if path.is_top() {
            return Ok(());
        }
        Ok(self.0.create_dir_all(path.as_relative())?)
    }

    /// Removes a file, a symlink (not its target) or an empty directory.
    ///
    /// # Errors
    ///
    /// If the path does not exist, is outside, is the workspace itself, or is a directory that is
    /// not empty.
    pub fn remove(&self, path: &WorkPath) -> Result<(), PathError> {
        if path.is_top() {
            return Err(PathError::Top);
        }
        let path = path.as_relative();
        if self.0.symlink_metadata(path)?.is_dir() {
            Ok(self.0.remove_dir(path)?)
        } else {
            Ok(self.0.remove_file(path)?)
        }
    }
}

fn write_new(dir: &Dir, name: &str, bytes: &[u8]) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let mut file = dir.open_with(name, &options)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Returns a name that no other write of this process uses.
fn temporary_name() -> String {
    static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    format!(".holdfast-{}-{number}.tmp", std::process::id())
}
