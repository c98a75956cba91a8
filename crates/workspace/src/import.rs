//! Import of an archive into a tree.
//!
//! Archives are untrusted. They are read as a stream and never unpacked to disk, and each entry is
//! checked before its content is read. Entries other than regular files and folders are refused,
//! and so are invalid paths. The tree's limits are checked against both the declared and the actual
//! sizes.

use std::{
    collections::BTreeMap,
    io::{self, BufReader, Read},
};

use flate2::bufread::MultiGzDecoder;
use holdfast_types::{AgentId, TenantId, TreePath};
use sha2::{Digest as _, Sha256};

use crate::{
    Base, ChangeAuthor, CommitOutcome, Edit, Error, Limits, Workspaces,
    commit::{FileOp, edits_digest, repeated_outcome},
    export::run_blocking,
    read::list_now,
    workspaces::lock_tree,
};

/// Treatment of existing files that are not in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportMode {
    Merge,
    Replace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportOutcome {
    pub committed: CommitOutcome,
    /// Number of files in the archive.
    pub files: usize,
    /// Total size of those files.
    pub bytes: u64,
}

/// Bytes of an entry beside its content: its header, another one for a long name, padding.
const MAX_ENTRY_OVERHEAD_BYTES: u64 = 4 << 10;
/// Bytes of a stream beside its entries: comments, end marker.
const MAX_STREAM_OVERHEAD_BYTES: u64 = 1 << 20;
/// Maximum number of characters of a refused entry's path in an error.
const MAX_SHOWN_PATH_CHARS: usize = 80;

impl Workspaces {
    /// Imports the files of a `.tar` or `.tar.gz` into a tree as one change, all or none.
    ///
    /// Folders are implied by their files; permissions, owners and times are not kept.
    /// `memory/things.sqlite` is stored as `memory/things.db` (spec C-55).
    ///
    /// # Errors
    ///
    /// [`Error::Archive`] names an entry that is refused, [`Error::Unreadable`] if the archive is
    /// damaged or of another format; also those of [`commit`](Self::commit).
    pub async fn import(
        &self,
        tenant: TenantId,
        agent: AgentId,
        by: &ChangeAuthor,
        archive: impl Read + Send + 'static,
        mode: ImportMode,
    ) -> Result<ImportOutcome, Error> {
        by.check()?;
        let limits = self.limits;
        let found = run_blocking(move || read_archive(archive, &limits)).await?;
        let files = found.len();
        let bytes = found.values().map(|content| content.len() as u64).sum();
        if found.is_empty() {
            return Err(Error::Invalid(
                "the archive has no file in it: pack the agent's files themselves".to_owned(),
            ));
        }
        let edits = found
            .into_iter()
            .map(|(path, content)| Edit::Put { path, content, base: Base::Any })
            .collect();
        let mut wanted = self.prepare_edits(edits).await?;
        let request = import_digest(mode, edits_digest(&wanted.ops));

        let mut tx = self.pools.tenant(tenant).await?;
        let tree = lock_tree(&mut tx, agent).await?;
        if let Some(committed) = repeated_outcome(&mut tx, agent, by, &request).await? {
            tx.finish_reading();
            return Ok(ImportOutcome { committed, files, bytes });
        }
        if mode == ImportMode::Replace {
            let mut gone = Vec::new();
            for file in list_now(&mut tx, agent, None).await? {
                if wanted.ops.binary_search_by(|op| op.path.cmp(&file.path)).is_err() {
                    gone.push(FileOp { path: file.path, after: None, base: Base::Any });
                }
            }
            wanted.ops.extend(gone);
        }
        let committed = self.write_commit(tx, tree, by, request, wanted).await?;
        Ok(ImportOutcome { committed, files, bytes })
    }
}

fn import_digest(mode: ImportMode, files: [u8; 32]) -> [u8; 32] {
    let mode: &[u8] = match mode {
        ImportMode::Merge => b"\0merge",
        ImportMode::Replace => b"\0replace",
    };
    let mut hasher = Sha256::new();
    hasher.update(mode);
    hasher.update(files);
    hasher.finalize().into()
}

/// Reads an archive, compressed or not.
fn read_archive(archive: impl Read, limits: &Limits) -> Result<BTreeMap<TreePath, Vec<u8>>, Error> {
    let mut archive = BufReader::new(archive);
    let is_gzip =
        io::BufRead::fill_buf(&mut archive).map_err(Error::Unreadable)?.starts_with(&[0x1f, 0x8b]);
    if is_gzip { read_tar(MultiGzDecoder::new(archive), limits) } else { read_tar(archive, limits) }
}

fn read_tar(stream: impl Read, limits: &Limits) -> Result<BTreeMap<TreePath, Vec<u8>>, Error> {
    // Bounds the uncompressed size, whatever the compressed size is.
    let most = limits.tree
        + u64::from(limits.files) * MAX_ENTRY_OVERHEAD_BYTES
        + MAX_STREAM_OVERHEAD_BYTES;
    let mut archive = tar::Archive::new(LimitedReader { stream, left: most });
    let mut found = BTreeMap::new();
    let mut total = 0_u64;
    for entry in archive.entries().map_err(archive_error)? {
        let mut entry = entry.map_err(archive_error)?;
        let named = entry.path_bytes().into_owned();
        let refuse = |problem: String| Error::Archive { entry: shown_path(&named), problem };
        match entry.header().entry_type() {
            tar::EntryType::Regular | tar::EntryType::Continuous => {}
            // Comments on the whole archive, as written by `git archive`.
            tar::EntryType::XGlobalHeader => continue,
            tar::EntryType::Directory => {
                tree_path(&named, true).map_err(refuse)?;
                continue;
            }
            tar::EntryType::Symlink | tar::EntryType::Link => {
                return Err(refuse("is a link: put the file itself in its place".to_owned()));
            }
            tar::EntryType::Block | tar::EntryType::Char | tar::EntryType::Fifo => {
                return Err(refuse("is a device or a pipe: leave it out".to_owned()));
            }
            _ => return Err(refuse("is of a kind that is not taken: leave it out".to_owned())),
        }
        let Some(path) = tree_path(&named, false).map_err(refuse)? else {
            return Err(refuse("has no name: give it one".to_owned()));
        };
        let size = entry.size();
        limits.check_file(&path, size).map_err(|error| refuse(format!("is too large: {error}")))?;
        total += size;
        if total > limits.tree {
            return Err(refuse(format!(
                "is one too many: with it there are {total} bytes, and {} is the most: leave \
                 something out",
                limits.tree
            )));
        }
        if found.len() >= usize::try_from(limits.files).unwrap_or(usize::MAX) {
            return Err(refuse(format!(
                "is one too many: {} files is the most: leave something out",
                limits.files
            )));
        }
        let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        // Read the actual content: its size may differ from the declared one.
        entry.by_ref().take(limits.file + 1).read_to_end(&mut content).map_err(archive_error)?;
        if content.len() as u64 != size {
            return Err(refuse(format!(
                "says that it has {size} bytes and has {}: pack it again",
                content.len()
            )));
        }
        if found.insert(path, content).is_some() {
            return Err(refuse("is there twice: leave one out".to_owned()));
        }
    }
    // Read to the end: only there a gzip stream shows whether it is complete.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(archive_error)?;
    Ok(found)
}

/// Path of an entry in the tree; `None` for the root folder.
fn tree_path(named: &[u8], is_folder: bool) -> Result<Option<TreePath>, String> {
    let Ok(mut path) = std::str::from_utf8(named) else {
        return Err("has a name that is not UTF-8: rename it".to_owned());
    };
    // `tar -C folder .` writes such names.
    while let Some(rest) = path.strip_prefix("./") {
        path = rest;
    }
    if is_folder {
        path = path.strip_suffix('/').unwrap_or(path);
        if path.is_empty() || path == "." {
            return Ok(None);
        }
    }
    let path: TreePath = path.parse().map_err(|error| format!("cannot be taken: {error}"))?;
    match path.folder() {
        Some(folder) if folder.name() == "memory" && path.name() == "things.sqlite" => {
            Ok(format!("{folder}/things.db").parse().ok())
        }
        _ => Ok(Some(path)),
    }
}

fn shown_path(named: &[u8]) -> String {
    String::from_utf8_lossy(named)
        .chars()
        .take(MAX_SHOWN_PATH_CHARS)
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

fn archive_error(error: io::Error) -> Error {
    // `tar` wraps the errors of the stream.
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if inner.downcast_ref::<StreamTooLong>().is_some() {
            return Error::Invalid(
                "the archive unpacks to more than a tree may hold: leave something out".to_owned(),
            );
        }
        let wrapped = inner.downcast_ref::<io::Error>().and_then(|inner| inner.get_ref());
        cause = match wrapped {
            Some(wrapped) => Some(wrapped as &(dyn std::error::Error + 'static)),
            None => inner.source(),
        };
    }
    Error::Unreadable(error)
}

/// Reader that fails after a number of bytes.
struct LimitedReader<R> {
    stream: R,
    left: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("the stream is longer than it may be")]
struct StreamTooLong;

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.stream.read(into)?;
        self.left =
            self.left.checked_sub(got as u64).ok_or_else(|| io::Error::other(StreamTooLong))?;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_named_from_the_root_of_the_tree() {
        let path = |named: &str| tree_path(named.as_bytes(), false).unwrap().unwrap().to_string();

        assert_eq!(path("./SOUL.md"), "SOUL.md");
        assert_eq!(path("memory/things.sqlite"), "memory/things.db");
        assert_eq!(path("sub-agents/x/memory/things.sqlite"), "sub-agents/x/memory/things.db");
        assert_eq!(path("notes/things.sqlite"), "notes/things.sqlite");
        assert_eq!(tree_path(b"./", true), Ok(None));
        assert!(tree_path(b"../x", true).is_err());
        assert!(tree_path(b"\xff", false).is_err());
    }
}
