//! Folders that a stranger may have rearranged.
//!
//! A command leaves what it likes in its folder: links that point outside, pipes, names that are
//! none, folders a thousand deep. So nothing here goes by a path: every step opens one name in a
//! folder that is open already, and never through a link.

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

const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

/// What tells whether a file was touched, without reading it.
///
/// The time of its last change cannot be set by a command, as that of its last writing can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    pub size: u64,
    inode: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The second in which the file was written last.
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

/// What stands under a name.
pub(super) enum Kind {
    Folder,
    File(Stamp),
    Link,
    Special,
}

impl Folder {
    /// Opens a folder by its path, which must be the runner's own.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(CWD, path, FOLDER, Mode::empty())?))
    }

    /// Opens a folder in this one.
    pub fn folder(&self, name: &CStr) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(&self.0, name, FOLDER, Mode::empty())?))
    }

    /// Opens the folder that a path's file is in.
    pub fn folder_of(&self, path: &TreePath) -> io::Result<Self> {
        let mut folder = self.folder(c".")?;
        let depth = path.parts().count() - 1;
        for part in path.parts().take(depth) {
            folder = folder.folder(&name(part)?)?;
        }
        Ok(folder)
    }

    /// Opens the folder that a path's file is to be in, and makes what is missing.
    ///
    /// What stands in the way and is no folder goes to the trash.
    pub fn make_folder_of(&self, path: &TreePath, trash: &Trash) -> io::Result<Self> {
        let mut folder = self.folder(c".")?;
        let depth = path.parts().count() - 1;
        for part in path.parts().take(depth) {
            let part = name(part)?;
            folder = match folder.folder(&part) {
                Ok(inner) => inner,
                Err(_missing_or_in_the_way) => {
                    trash.take(&folder, &part)?;
                    rustix::fs::mkdirat(&folder.0, part.as_c_str(), Mode::RWXU)?;
                    folder.folder(&part)?
                }
            };
        }
        Ok(folder)
    }

    /// The names in it, in no order.
    pub fn names(&self) -> io::Result<Vec<CString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// What stands under a name; `None` if nothing does.
    pub fn kind(&self, name: &CStr) -> io::Result<Option<Kind>> {
        let stat = match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File(Stamp::of(&stat)),
            FileType::Directory => Kind::Folder,
            FileType::Symlink => Kind::Link,
            _ => Kind::Special,
        }))
    }

    /// A file's content and its stamp, if it is a file and has no more bytes than that.
    pub fn read(&self, name: &CStr, most: u64) -> io::Result<Option<(Vec<u8>, Stamp)>> {
        // A pipe that has taken the file's place must not be waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.0, name, flags, Mode::empty())?);
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let mut content = Vec::new();
        file.take(most + 1).read_to_end(&mut content)?;
        Ok((content.len() as u64 <= most).then(|| (content, Stamp::of(&stat))))
    }

    /// Writes a file whole, as of that second, in the place of whatever has its name.
    ///
    /// A new file takes the old one's place, so that what else is called the same (a link made
    /// by a command) keeps what it says.
    pub fn write(
        &self,
        name: &CStr,
        content: &[u8],
        second: i64,
        trash: &Trash,
    ) -> io::Result<Stamp> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let new = trash.name();
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        let mut file = File::from(rustix::fs::openat(&trash.folder.0, &*new, flags, mode)?);
        file.write_all(content)?;
        let at = Timespec { tv_sec: second, tv_nsec: 0 };
        rustix::fs::futimens(&file, &Timestamps { last_access: at, last_modification: at })?;
        let there = rustix::fs::renameat(&trash.folder.0, &*new, &self.0, name);
        if there == Err(Errno::ISDIR) {
            trash.take(self, name)?;
            rustix::fs::renameat(&trash.folder.0, &*new, &self.0, name)?;
        } else {
            there?;
        }
        // Now, since taking its place has changed it.
        Ok(Stamp::of(&rustix::fs::fstat(&file)?))
    }

    /// Removes a file, and nothing else.
    pub fn unlink(&self, name: &CStr) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Err(Errno::NOENT) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a folder if nothing is in it, and says whether it is gone.
    pub fn remove_empty(&self, name: &CStr) -> bool {
        rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR).is_ok()
    }
}

/// A name for the system.
pub(super) fn name(part: &str) -> io::Result<CString> {
    CString::new(part).map_err(|_nul| io::ErrorKind::InvalidInput.into())
}

/// A folder of the runner's beside the tree, where things are made and where they end.
#[derive(Debug)]
pub(super) struct Trash {
    folder: Folder,
}

impl Trash {
    /// Opens the trash; it is on the disk of the tree.
    pub fn open(path: &Path) -> io::Result<Self> {
        let trash = Self { folder: Folder::open(path)? };
        trash.empty()?;
        Ok(trash)
    }

    /// A name that nothing has.
    fn name(&self) -> CString {
        // Hexadecimal digits: there is no NUL among them.
        CString::new(uuid::Uuid::now_v7().simple().to_string()).unwrap_or_default()
    }

    /// Takes whatever has that name, links themselves and not what they point to.
    pub fn take(&self, from: &Folder, name: &CStr) -> io::Result<()> {
        let rename = || rustix::fs::renameat(&from.0, name, &self.folder.0, &*self.name());
        match rename() {
            Err(Errno::NOENT) => Ok(()),
            // A folder that its maker may not write into cannot be moved.
            Err(Errno::ACCESS) if open_up(from, name)? => Ok(rename()?),
            moved => Ok(moved?),
        }
    }

    /// Removes all that is in it.
    ///
    /// Folders in folders are brought up here before they are looked into, so that a tree that is
    /// deeper than there is stack, or than there are files to open, is none the worse.
    pub fn empty(&self) -> io::Result<()> {
        loop {
            let names = self.folder.names()?;
            if names.is_empty() {
                return Ok(());
            }
            for name in names {
                match self.folder.kind(&name)? {
                    Some(Kind::Folder) => {
                        open_up(&self.folder, &name)?;
                        let inner = self.folder.folder(&name)?;
                        for below in inner.names()? {
                            match inner.kind(&below)? {
                                Some(Kind::Folder) => self.take(&inner, &below)?,
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

/// Lets its owner into a folder; says whether it is one.
fn open_up(parent: &Folder, name: &CStr) -> io::Result<bool> {
    if !matches!(parent.kind(name)?, Some(Kind::Folder)) {
        return Ok(false);
    }
    rustix::fs::chmodat(&parent.0, name, Mode::RWXU, AtFlags::empty())?;
    Ok(true)
}
