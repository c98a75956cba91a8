//! A folder as a tar stream, and back.
//!
//! The stream that comes back is hostile. Everything is opened beneath the folder, and no link of
//! the stream becomes a link that leads anywhere: a dangling one stands for it, which the workspace
//! reports as not stored. Long names are bounded, extended headers refused.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Read, Write},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Component, Path, PathBuf},
};

use bytes::{Buf as _, Bytes};
use cap_std::{ambient_authority, fs::Dir};
use holdfast_sandbox::{Input, Limit, Limits};
use rustix::fs::{FileType, Mode};
use tar::{Archive, Builder, Entry, EntryType, Header};
use tokio::sync::{mpsc, oneshot};

/// Depth beyond which a tree is over its limit, as on one machine.
const MAX_DEPTH: usize = 200;

/// Maximum length of a path in the stream, in bytes.
const MAX_PATH_LEN: u64 = 64 * 1024;

/// Files up to this size are compared before they are written: an unchanged one stays untouched.
const MAX_COMPARED: u64 = 8 << 20;

/// Target of the links that stand for links.
const LINK_TARGET: &str = ".not-stored";

/// Content of a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TreeSize {
    pub(crate) bytes: u64,
    /// Files and folders.
    pub(crate) entries: u64,
}

impl TreeSize {
    /// The size beyond which a command with these limits has written too much.
    pub(crate) const fn ceiling(self, limits: &Limits) -> Self {
        Self {
            bytes: self.bytes.saturating_add(limits.disk),
            entries: self.entries.saturating_add(limits.entries),
        }
    }
}

/// Tree as it was read from a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnpackOutcome {
    /// The folder has the pod's files.
    Same,
    /// The pod also has links or special files.
    WithoutSpecial,
    Over(Limit),
}

/// Writes the files and folders of `dir`.
pub(crate) fn pack(dir: &Path, to: impl Write) -> io::Result<()> {
    let mut builder = Builder::new(io::BufWriter::with_capacity(32 * 1024, to));
    builder.follow_symlinks(false);
    for_each_entry(dir, &mut |path, metadata| {
        if metadata.is_dir() {
            return builder.append_dir(path, dir.join(path));
        }
        let mut header = Header::new_gnu();
        header.set_metadata(metadata);
        builder.append_data(&mut header, path, fs::File::open(dir.join(path))?)
    })?;
    builder.into_inner()?.flush()
}

/// Size of `dir`, and a value that differs if a file of it was written since.
pub(crate) fn measure(dir: &Path) -> io::Result<(TreeSize, u64)> {
    let (mut hasher, mut size) = (DefaultHasher::new(), TreeSize::default());
    for_each_entry(dir, &mut |path, metadata| {
        size.entries += 1;
        path.hash(&mut hasher);
        if metadata.is_file() {
            size.bytes += metadata.len();
            let time = (metadata.mtime(), metadata.mtime_nsec(), metadata.ctime_nsec());
            (metadata.ino(), metadata.len(), time).hash(&mut hasher);
        }
        Ok(())
    })?;
    Ok((size, hasher.finish()))
}

/// Calls `visit` with the path and metadata of each file and folder, folders first. Nothing but
/// this process writes to the folder.
fn for_each_entry(
    dir: &Path,
    visit: &mut impl FnMut(&Path, &fs::Metadata) -> io::Result<()>,
) -> io::Result<()> {
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let entries: Result<Vec<_>, _> = fs::read_dir(dir.join(&folder))?.collect();
        let mut entries = entries?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, metadata) = (folder.join(entry.file_name()), entry.metadata()?);
            if metadata.is_dir() || metadata.is_file() {
                visit(&path, &metadata)?;
            }
            if metadata.is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(())
}

/// Makes `dir` equal to the stream, up to `ceiling`. After an error or a limit, `dir` has some of
/// the stream's files.
pub(crate) fn unpack(dir: &Path, from: impl Read, ceiling: TreeSize) -> io::Result<UnpackOutcome> {
    let dir = Dir::open_ambient_dir(dir, ambient_authority())?;
    let mut unpacking =
        Unpacking { dir: &dir, seen: HashSet::new(), size: TreeSize::default(), is_same: true };
    let (mut name, mut link) = (None, None);
    let mut archive = Archive::new(from);
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        match entry.header().entry_type() {
            EntryType::GNULongName => name = Some(long_path(&mut entry)?),
            EntryType::GNULongLink => link = Some(long_path(&mut entry)?),
            EntryType::XHeader | EntryType::XGlobalHeader => {
                return Err(io::Error::other("`tar` of the image must write GNU archives"));
            }
            _ => {
                let path = name.take().map_or_else(|| entry.path().map(Into::into), Ok)?;
                let target: Option<PathBuf> = match link.take() {
                    Some(link) => Some(link),
                    None => entry.link_name()?.map(Into::into),
                };
                if let Some(limit) = unpacking.take(&path, target, &mut entry, ceiling)? {
                    return Ok(UnpackOutcome::Over(limit));
                }
            }
        }
    }
    unpacking.remove_others()?;
    // `tar` fills its last block.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(if unpacking.is_same { UnpackOutcome::Same } else { UnpackOutcome::WithoutSpecial })
}

fn long_path(entry: &mut Entry<'_, impl Read>) -> io::Result<PathBuf> {
    if entry.size() > MAX_PATH_LEN {
        return Err(io::Error::other("a path is too long"));
    }
    let mut path = Vec::new();
    entry.read_to_end(&mut path)?;
    let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
    Ok(OsStr::from_bytes(&path[..end]).into())
}

struct Unpacking<'a> {
    dir: &'a Dir,
    seen: HashSet<PathBuf>,
    size: TreeSize,
    is_same: bool,
}

impl Unpacking<'_> {
    /// Takes one entry. Returns the limit that it exceeds.
    fn take(
        &mut self,
        path: &Path,
        link: Option<PathBuf>,
        entry: &mut Entry<'_, impl Read>,
        ceiling: TreeSize,
    ) -> io::Result<Option<Limit>> {
        let Some(path) = inner_path(path)? else { return Ok(None) };
        self.size.entries += 1;
        self.size.bytes = self.size.bytes.saturating_add(entry.size());
        if self.size.entries > ceiling.entries {
            return Ok(Some(Limit::Entries));
        }
        if self.size.bytes > ceiling.bytes || path.components().count() > MAX_DEPTH {
            return Ok(Some(Limit::Disk));
        }
        match entry.header().entry_type() {
            EntryType::Directory => self.make_folder(&path)?,
            EntryType::Regular | EntryType::Continuous => self.write_file(&path, entry)?,
            EntryType::Link => {
                let target = link.as_deref().map(inner_path).transpose()?.flatten();
                let target = target.ok_or_else(|| io::Error::other("a hard link has no target"))?;
                if !self.seen.contains(&target) {
                    return Err(io::Error::other("a hard link comes before its target"));
                }
                let copied = self.copy_file(&target, &path)?;
                self.size.bytes = self.size.bytes.saturating_add(copied);
                if self.size.bytes > ceiling.bytes {
                    return Ok(Some(Limit::Disk));
                }
            }
            EntryType::Symlink => {
                self.remove(&path)?;
                self.dir.symlink(LINK_TARGET, &path)?;
                self.is_same = false;
            }
            _ => {
                self.remove(&path)?;
                self.make_pipe(&path)?;
                self.is_same = false;
            }
        }
        self.seen.insert(path);
        Ok(None)
    }

    /// Makes a file equal to another. Returns its size.
    fn copy_file(&self, from: &Path, to: &Path) -> io::Result<u64> {
        let size = self.dir.symlink_metadata(from)?.len();
        let old = self.dir.symlink_metadata(to).ok();
        let is_same_size = old.is_some_and(|old| old.is_file() && old.len() == size);
        if is_same_size && size <= MAX_COMPARED && self.dir.read(from)? == self.dir.read(to)? {
            return Ok(size);
        }
        self.remove(to)?;
        self.dir.copy(from, self.dir, to)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        if self.dir.symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
            return Ok(());
        }
        self.remove(path)?;
        self.dir.create_dir(path)
    }

    /// A file without content stands for all special files.
    fn make_pipe(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = (path.parent(), path.file_name().unwrap_or_default());
        let folder = match folder {
            Some(folder) if !folder.as_os_str().is_empty() => self.dir.open_dir(folder)?,
            _ => self.dir.try_clone()?,
        };
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::mknodat(&folder, name, FileType::Fifo, mode, 0)?)
    }

    fn write_file(&self, path: &Path, entry: &mut Entry<'_, impl Read>) -> io::Result<()> {
        let old = self.dir.symlink_metadata(path).ok();
        let is_same_size = old.is_some_and(|old| old.is_file() && old.len() == entry.size());
        if is_same_size && entry.size() <= MAX_COMPARED {
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            if self.dir.read(path)? == content {
                return Ok(());
            }
            self.remove(path)?;
            return self.dir.write(path, content);
        }
        self.remove(path)?;
        let mut file = self.dir.create(path)?;
        io::copy(entry, &mut file)?;
        Ok(())
    }

    /// Removes what is at a path, if anything is.
    fn remove(&self, path: &Path) -> io::Result<()> {
        match self.dir.symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => self.dir.remove_dir_all(path),
            Ok(_) => self.dir.remove_file(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes what the stream did not have.
    fn remove_others(&self) -> io::Result<()> {
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let entries = match folder.as_os_str().is_empty() {
                true => self.dir.entries()?,
                false => self.dir.read_dir(&folder)?,
            };
            for entry in entries {
                let entry = entry?;
                let path = folder.join(entry.file_name());
                if !self.seen.contains(&path) {
                    self.remove(&path)?;
                } else if entry.file_type()?.is_dir() {
                    folders.push(path);
                }
            }
        }
        Ok(())
    }
}

/// Path of an entry within the folder; `None` for the folder itself.
fn inner_path(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut inner = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => inner.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(io::Error::other("a path leads out of the workspace"));
            }
        }
    }
    Ok(Some(inner).filter(|path| !path.as_os_str().is_empty()))
}

/// Writes to a process in a pod, from a thread that may block.
pub(crate) struct ChannelWriter(pub(crate) mpsc::Sender<Input>);

impl Write for ChannelWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Nobody waits until they are written: the channel is bounded.
        let (written, _) = oneshot::channel();
        let input = Input { bytes: bytes.to_vec(), written };
        self.0.blocking_send(input).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads from a process in a pod, on a thread that may block.
pub(crate) struct ChannelReader {
    pub(crate) parts: mpsc::Receiver<Bytes>,
    pub(crate) part: Bytes,
}

impl Read for ChannelReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            match self.parts.blocking_recv() {
                Some(part) => self.part = part,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.part.len());
        self.part.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const WIDE: TreeSize = TreeSize { bytes: 1 << 20, entries: 100 };

    /// The tar stream that the image's `tar` makes of a folder.
    fn packed_by_tar(dir: &Path) -> Vec<u8> {
        let dir = dir.to_str().unwrap();
        let tar = std::process::Command::new("tar").args(["-C", dir, "-cf", "-", "."]).output();
        tar.unwrap().stdout
    }

    /// A stream with one entry of this path.
    fn entry(path: &str, kind: EntryType, content: &[u8]) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_size(content.len() as u64);
        header.set_entry_type(kind);
        header.set_cksum();
        let mut builder = Builder::new(Vec::new());
        builder.append(&header, content).unwrap();
        builder.into_inner().unwrap()
    }

    #[test]
    fn a_folder_comes_back_as_a_command_left_it() {
        let (pod, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let long = "n".repeat(200);
        fs::create_dir_all(pod.path().join("sub/deep")).unwrap();
        fs::create_dir(pod.path().join("was-file")).unwrap();
        fs::write(pod.path().join("same"), "same").unwrap();
        fs::write(pod.path().join("changed"), "two").unwrap();
        fs::write(pod.path().join("was-folder"), "file").unwrap();
        fs::write(pod.path().join(&long), "long").unwrap();
        fs::hard_link(pod.path().join("same"), pod.path().join("sub/twin")).unwrap();
        fs::create_dir_all(here.path().join("was-folder/x")).unwrap();
        fs::create_dir_all(here.path().join("gone/x")).unwrap();
        for (name, content) in
            [("same", "same"), ("changed", "one"), ("was-file", ""), ("gone/x/y", "z")]
        {
            fs::write(here.path().join(name), content).unwrap();
        }
        let before = fs::metadata(here.path().join("same")).unwrap();

        let stream = packed_by_tar(pod.path());
        assert_eq!(unpack(here.path(), &stream[..], WIDE).unwrap(), UnpackOutcome::Same);

        let read = |name: &str| fs::read_to_string(here.path().join(name)).unwrap();
        assert_eq!((read("changed"), read("was-folder")), ("two".to_owned(), "file".to_owned()));
        assert_eq!((read("sub/twin"), read(&long)), ("same".to_owned(), "long".to_owned()));
        assert!(here.path().join("was-file").is_dir() && here.path().join("sub/deep").is_dir());
        assert!(!here.path().join("gone").exists());
        let after = fs::metadata(here.path().join("same")).unwrap();
        assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));

        let mut stream = Vec::new();
        pack(here.path(), &mut stream).unwrap();
        assert_eq!(measure(here.path()).unwrap().0.entries, 8);
        let again = tempfile::tempdir().unwrap();
        unpack(again.path(), &stream[..], WIDE).unwrap();
        assert_eq!(fs::read_to_string(again.path().join(&long)).unwrap(), "long");
    }

    #[test]
    fn a_link_of_the_pod_leads_nowhere_and_nothing_is_written_through_it() {
        let dirs = tempfile::tempdir().unwrap();
        let (pod, here) = (dirs.path().join("pod"), dirs.path().join("here"));
        for dir in [&pod, &here] {
            fs::create_dir(dir).unwrap();
        }
        fs::write(dirs.path().join("secret"), "secret").unwrap();
        symlink("../secret", pod.join("link")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, pod.join("pipe"), FileType::Fifo, Mode::RUSR, 0)
            .unwrap();

        let stream = packed_by_tar(&pod);
        assert_eq!(unpack(&here, &stream[..], WIDE).unwrap(), UnpackOutcome::WithoutSpecial);
        assert_eq!(fs::read_link(here.join("link")).unwrap(), Path::new(LINK_TARGET));
        assert!(!fs::symlink_metadata(here.join("pipe")).unwrap().is_file());

        let mut through = entry("link", EntryType::Symlink, b"");
        through.truncate(512);
        through.extend(entry("link/file", EntryType::Regular, b"evil"));
        assert!(unpack(&here, &through[..], WIDE).is_err());
        assert!(!here.join(LINK_TARGET).exists());
        assert_eq!(fs::read_to_string(dirs.path().join("secret")).unwrap(), "secret");
    }

    #[test]
    fn a_stream_that_leads_out_is_refused() {
        let here = tempfile::tempdir().unwrap();
        for path in ["../out", "/tmp/holdfast-out", "a/../../out"] {
            let stream = entry(path, EntryType::Regular, b"evil");
            assert!(unpack(here.path(), &stream[..], WIDE).is_err(), "{path}");
        }
        let extended = entry("x", EntryType::XHeader, b"30 path=/tmp/holdfast-out\n");
        assert!(unpack(here.path(), &extended[..], WIDE).is_err());
        let long = entry("././@LongLink", EntryType::GNULongName, &vec![b'a'; 70_000]);
        assert!(unpack(here.path(), &long[..], WIDE).is_err());
    }

    #[test]
    fn too_much_is_noticed_before_it_is_written() {
        let (pod, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(pod.path().join("large"), vec![1; 2000]).unwrap();
        let small = TreeSize { bytes: 1000, entries: 100 };
        let stream = packed_by_tar(pod.path());
        assert_eq!(
            unpack(here.path(), &stream[..], small).unwrap(),
            UnpackOutcome::Over(Limit::Disk)
        );
        assert!(!here.path().join("large").exists());
        let few = TreeSize { bytes: 1 << 20, entries: 0 };
        assert_eq!(
            unpack(here.path(), &stream[..], few).unwrap(),
            UnpackOutcome::Over(Limit::Entries)
        );
    }
}
