//! Access to folders whose contents are untrusted.
//!
//! A command can leave anything in its folder: links that point outside, pipes, names that are not
//! UTF-8, folders nested a thousand deep. So no code here opens a path: each step opens one name
//! relative to an open folder and never follows a link.

use std::{
    ffi::{CStr, CString},
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::OwnedFd,
    path::Path,
};

use holdfast_types::TreePath;
use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps},
    io::Errno,
};
use serde::{Deserialize, Serialize};

const FOLDER_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Names that are held in memory while a folder of any size is emptied.
const NAMES_PER_STEP: usize = 10_000;

#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

/// Metadata that changes whenever a file is changed, so that unchanged files need not be read.
///
/// A command can set the modification time (`written`), but not the change time (`changed`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileStamp {
    pub size: u64,
    inode: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// Modification time, in seconds since 1970.
    pub const fn second(&self) -> i64 {
        self.written.0
    }

    fn of(stat: &Stat) -> Self {
        let number = |n: i128| i64::try_from(n).unwrap_or(i64::MAX);
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            inode: stat.st_ino,
            written: (number(stat.st_mtime.into()), number(stat.st_mtime_nsec.into())),
            changed: (number(stat.st_ctime.into()), number(stat.st_ctime_nsec.into())),
        }
    }
}

/// Type of a folder entry.
pub(super) enum EntryKind {
    Folder,
    File(FileStamp),
    Link,
    Special,
}

impl Folder {
    /// Opens a folder by its path, which must be under the runner's control.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(CWD, path, FOLDER_FLAGS, Mode::empty())?))
    }

    pub fn folder(&self, name: &CStr) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(&self.0, name, FOLDER_FLAGS, Mode::empty())?))
    }

    /// Opens the parent folder of a path.
    pub fn folder_of(&self, path: &TreePath) -> io::Result<Self> {
        let mut folder = self.folder(c".")?;
        let depth = path.parts().count() - 1;
        for part in path.parts().take(depth) {
            folder = folder.folder(&c_name(part)?)?;
        }
        Ok(folder)
    }

    /// Opens the parent folder of a path and makes the folders that are missing.
    ///
    /// Entries in their place that are not folders are moved to the trash.
    pub fn make_folder_of(&self, path: &TreePath, trash: &Trash) -> io::Result<Self> {
        let mut folder = self.folder(c".")?;
        let depth = path.parts().count() - 1;
        for part in path.parts().take(depth) {
            let part = c_name(part)?;
            folder = match folder.folder(&part) {
                Ok(inner) => inner,
                Err(_missing_or_in_the_way) => {
                    trash.move_in(&folder, &part)?;
                    rustix::fs::mkdirat(&folder.0, part.as_c_str(), Mode::RWXU)?;
                    folder.folder(&part)?
                }
            };
        }
        Ok(folder)
    }

    /// Names of up to `most` entries, in no order.
    pub fn names(&self, most: usize) -> io::Result<Vec<CString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            if names.len() >= most {
                break;
            }
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Type of an entry; `None` if there is no such entry.
    pub fn kind(&self, name: &CStr) -> io::Result<Option<EntryKind>> {
        let stat = match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File(FileStamp::of(&stat)),
            FileType::Directory => EntryKind::Folder,
            FileType::Symlink => EntryKind::Link,
            _ => EntryKind::Special,
        }))
    }

    /// Reads a file and its stamp; `None` if it is not a regular file or has more than `most`
    /// bytes.
    pub fn read(&self, name: &CStr, most: u64) -> io::Result<Option<(Vec<u8>, FileStamp)>> {
        // `NONBLOCK`: a pipe in the file's place must not block us.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.0, name, flags, Mode::empty())?);
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let mut content = Vec::new();
        file.take(most + 1).read_to_end(&mut content)?;
        Ok((content.len() as u64 <= most).then(|| (content, FileStamp::of(&stat))))
    }

    /// Writes a file with the modification time `second`, in place of any entry of its name.
    ///
    /// The file is written anew and renamed into place, so that hard links to the old one keep its
    /// content.
    pub fn write(
        &self,
        name: &CStr,
        content: &[u8],
        second: i64,
        trash: &Trash,
    ) -> io::Result<FileStamp> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let new = trash.name();
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        let mut file = File::from(rustix::fs::openat(&trash.folder.0, &*new, flags, mode)?);
        file.write_all(content)?;
        let at = Timespec { tv_sec: second, tv_nsec: 0 };
        rustix::fs::futimens(&file, &Timestamps { last_access: at, last_modification: at })?;
        let there = rustix::fs::renameat(&trash.folder.0, &*new, &self.0, name);
        if there == Err(Errno::ISDIR) {
            trash.move_in(self, name)?;
            rustix::fs::renameat(&trash.folder.0, &*new, &self.0, name)?;
        } else {
            there?;
        }
        // Read the stamp last: the rename changes it.
        Ok(FileStamp::of(&rustix::fs::fstat(&file)?))
    }

    /// Removes an entry that is not a folder; no error if there is none.
    pub fn unlink(&self, name: &CStr) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Err(Errno::NOENT) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a folder if it is empty. Returns whether it was removed.
    pub fn remove_empty(&self, name: &CStr) -> bool {
        rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR).is_ok()
    }
}

/// Converts a name for system calls.
pub(super) fn c_name(part: &str) -> io::Result<CString> {
    CString::new(part).map_err(|_nul| io::ErrorKind::InvalidInput.into())
}

/// Folder beside the tree for new files before they are moved into place, and for entries to
/// delete.
#[derive(Debug)]
pub(super) struct Trash {
    folder: Folder,
}

impl Trash {
    /// Opens and empties the trash. It must be on the same file system as the tree.
    pub fn open(path: &Path) -> io::Result<Self> {
        let trash = Self { folder: Folder::open(path)? };
        trash.empty()?;
        Ok(trash)
    }

    /// Unique name.
    fn name(&self) -> CString {
        // Cannot fail: hexadecimal digits contain no NUL.
        CString::new(uuid::Uuid::now_v7().simple().to_string()).unwrap_or_default()
    }

    /// Moves an entry here; a link itself, not its target.
    pub fn move_in(&self, from: &Folder, name: &CStr) -> io::Result<()> {
        let rename = || rustix::fs::renameat(&from.0, name, &self.folder.0, &*self.name());
        match rename() {
            Err(Errno::NOENT) => Ok(()),
            // A folder that is not writable cannot be moved.
            Err(Errno::ACCESS) if make_accessible(from, name)? => Ok(rename()?),
            moved => Ok(moved?),
        }
    }

    /// Moves all entries of a folder here, without looking into them. Returns their number.
    pub fn move_all_in(&self, from: &Folder) -> io::Result<usize> {
        let mut moved = 0;
        loop {
            let names = from.names(NAMES_PER_STEP)?;
            if names.is_empty() {
                return Ok(moved);
            }
            moved += names.len();
            for name in names {
                self.move_in(from, &name)?;
            }
        }
    }

    /// Deletes all entries.
    ///
    /// Nested folders are moved up to the trash before they are read, so that depth costs neither
    /// stack nor file descriptors.
    pub fn empty(&self) -> io::Result<()> {
        loop {
            let names = self.folder.names(NAMES_PER_STEP)?;
            if names.is_empty() {
                return Ok(());
            }
            for name in names {
                match self.folder.kind(&name)? {
                    Some(EntryKind::Folder) => {
                        make_accessible(&self.folder, &name)?;
                        let inner = self.folder.folder(&name)?;
                        for below in inner.names(NAMES_PER_STEP)? {
                            match inner.kind(&below)? {
                                Some(EntryKind::Folder) => self.move_in(&inner, &below)?,
                                _ => inner.unlink(&below)?,
                            }
                        }
                        self.folder.remove_empty(&name);
                    }
                    _ => self.folder.unlink(&name)?,
                }
            }
        }
    }
}

/// Gives the owner all permissions on a folder. Returns whether the entry is a folder.
fn make_accessible(parent: &Folder, name: &CStr) -> io::Result<bool> {
    if !matches!(parent.kind(name)?, Some(EntryKind::Folder)) {
        return Ok(false);
    }
    rustix::fs::chmodat(&parent.0, name, Mode::RWXU, AtFlags::empty())?;
    Ok(true)
}
