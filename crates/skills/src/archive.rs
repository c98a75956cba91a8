//! Safe extraction of downloads (spec SKL-010).
//!
//! Archives are untrusted. They are unpacked to memory only, and each entry is checked before its
//! content is read.
//!
//! **What can go wrong.** A path may leave the folder (`../`, `/`, a backslash). An entry may be a
//! link, or declare a small size and unpack to gigabytes. An archive may have a million entries: so
//! headers are counted before the archive is parsed. Two names may be equal on another system or
//! look equal to a person: so names are normalized, and must differ by more than case.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Cursor, Read},
};

use holdfast_types::TreePath;
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization as _;
use zip::{CompressionMethod, ZipArchive, read::ZipFile, result::ZipError};

use crate::{Error, Origin};

/// Signature of an entry's header in a ZIP's central directory.
const ENTRY_SIGNATURE: &[u8] = b"PK\x01\x02";
const SKILL_FILE: &str = "SKILL.md";

/// Limits of an archive's uncompressed contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum size of one file, in bytes. The limit of the target tree may be lower.
    pub file: u64,
    /// Maximum size of all files together, in bytes.
    pub total: u64,
    pub files: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { file: 5 << 20, total: 20 << 20, files: 500 }
    }
}

/// Skill as downloaded from a registry.
#[derive(Clone, PartialEq, Eq)]
pub enum Download {
    Zip(Vec<u8>),
    /// Paths below the skill's folder, and contents.
    Files(Vec<(String, Vec<u8>)>),
}

impl std::fmt::Debug for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Zip(bytes) => write!(f, "Zip({} bytes)", bytes.len()),
            Self::Files(files) => write!(f, "Files({})", files.len()),
        }
    }
}

/// Files by their paths below the skill's folder.
pub(crate) type UnpackedFiles = BTreeMap<TreePath, Vec<u8>>;

/// Unpacks a download; the error names an entry that is refused. The result has a `SKILL.md` at its
/// top.
pub(crate) fn unpack(download: Download, limits: &Limits) -> Result<UnpackedFiles, Error> {
    let mut taken = Extraction::new(limits);
    match download {
        Download::Zip(bytes) => unzip(bytes, &mut taken)?,
        Download::Files(files) => {
            for (path, content) in files {
                let Some(path) = taken.path(&path)? else { continue };
                taken.put(path, content)?;
            }
        }
    }
    strip_top_folder(taken.files)
}

fn archive_error(why: impl Into<String>) -> Error {
    Error::Archive(why.into())
}

fn unzip(bytes: Vec<u8>, taken: &mut Extraction<'_>) -> Result<(), Error> {
    // Folders have headers, too, and a nested archive contains some.
    let most = 4 * taken.limits.files + 1_000;
    if count_occurrences(&bytes, ENTRY_SIGNATURE) > most {
        return Err(archive_error(format!(
            "it has more than {most} entries, and {} files is the most",
            taken.limits.files
        )));
    }
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(zip_error)?;
    for at in 0..archive.len() {
        let entry = archive.by_index(at).map_err(zip_error)?;
        extract_entry(entry, taken)?;
    }
    Ok(())
}

fn extract_entry<R: Read + ?Sized>(
    mut entry: ZipFile<'_, R>,
    taken: &mut Extraction<'_>,
) -> Result<(), Error> {
    let name = std::str::from_utf8(entry.name_raw()).map(str::to_owned);
    let Ok(name) = name else {
        return Err(archive_error("an entry has a name that is not UTF-8: pack it again"));
    };
    let shown = crate::name::escape_untrusted(&name);
    // The file type is in the upper bits. Most archives leave it 0, which means a regular file.
    let kind = entry.unix_mode().unwrap_or_default() & 0o170_000;
    if entry.is_symlink() || !matches!(kind, 0 | 0o100_000 | 0o040_000) {
        return Err(archive_error(format!(
            "`{shown}` is a link or a device: pack only files and folders"
        )));
    }
    if entry.encrypted() {
        return Err(archive_error(format!("`{shown}` is encrypted: pack it without a password")));
    }
    if !matches!(entry.compression(), CompressionMethod::Stored | CompressionMethod::Deflated) {
        return Err(archive_error(format!("`{shown}` is packed in a rare way: use a usual ZIP")));
    }
    if name.ends_with('/') {
        // Folders are made with their files, but their paths are checked.
        if name != "./" {
            taken.path(name.trim_end_matches('/'))?;
        }
        return Ok(());
    }
    let Some(path) = taken.path(&name)? else { return Ok(()) };
    let most = taken.max_size_of(&path, entry.size())?;
    let mut content = Vec::new();
    // Read the actual content: its size may differ from the declared one.
    entry
        .by_ref()
        .take(most + 1)
        .read_to_end(&mut content)
        .map_err(|_| archive_error(format!("`{shown}` is damaged: download it again")))?;
    taken.put(path, content)
}

/// Files unpacked so far, and the limits.
struct Extraction<'a> {
    limits: &'a Limits,
    files: UnpackedFiles,
    /// Paths in lower case, to detect duplicates.
    keys: BTreeSet<String>,
    bytes: u64,
}

impl<'a> Extraction<'a> {
    const fn new(limits: &'a Limits) -> Self {
        Self { limits, files: BTreeMap::new(), keys: BTreeSet::new(), bytes: 0 }
    }

    /// Path of an entry; `None` if the entry is left out.
    fn path(&self, named: &str) -> Result<Option<TreePath>, Error> {
        let shown = crate::name::escape_untrusted(named);
        let mut named = named;
        while let Some(rest) = named.strip_prefix("./") {
            named = rest;
        }
        // NFC makes equal letters equal. A name that NFKC would still change contains lookalikes.
        let composed: String = named.nfc().collect();
        if composed.nfkc().ne(composed.chars()) || holdfast_tools::clean(&composed) != composed {
            return Err(archive_error(format!(
                "`{shown}` has letters in its name that look like others: rename it"
            )));
        }
        let path: TreePath = composed
            .parse()
            .map_err(|error| archive_error(format!("`{shown}` cannot be taken: {error}")))?;
        // Files added by macOS or git, and the origin file, which only an installation may write.
        let is_litter = path.within_git_database().is_some()
            || path.parts().any(|part| part == "__MACOSX" || part == ".DS_Store");
        Ok((!is_litter && path.name() != Origin::FILE).then_some(path))
    }

    /// Maximum size of the next file, whose declared size is `says`.
    fn max_size_of(&self, path: &TreePath, says: u64) -> Result<u64, Error> {
        if self.files.len() >= self.limits.files {
            return Err(archive_error(format!(
                "it has more than {} files: leave something out",
                self.limits.files
            )));
        }
        let most = self.limits.file.min(self.limits.total.saturating_sub(self.bytes));
        if says > most {
            return Err(self.too_large(path));
        }
        Ok(most)
    }

    fn too_large(&self, path: &TreePath) -> Error {
        archive_error(format!(
            "`{}` is too large: a file has {} bytes at most, and all together {}",
            crate::name::escape_untrusted(path.as_str()),
            self.limits.file,
            self.limits.total
        ))
    }

    fn put(&mut self, path: TreePath, content: Vec<u8>) -> Result<(), Error> {
        // Litter of git, as its databases are.
        if path.makes_bare_repository(&content) {
            return Ok(());
        }
        let size = content.len() as u64;
        if size > self.max_size_of(&path, size)? {
            return Err(self.too_large(&path));
        }
        // Equal on a case-insensitive file system.
        if !self.keys.insert(path.as_str().to_lowercase()) {
            return Err(archive_error(format!(
                "`{}` is there twice, but for upper and lower case: leave one out",
                crate::name::escape_untrusted(path.as_str())
            )));
        }
        self.bytes += size;
        self.files.insert(path, content);
        Ok(())
    }
}

/// Strips the single top folder that archives of repositories have, so that `SKILL.md` is at the
/// top.
fn strip_top_folder(files: UnpackedFiles) -> Result<UnpackedFiles, Error> {
    let is_skill = |path: &TreePath| path.as_str().eq_ignore_ascii_case(SKILL_FILE);
    let around = if files.keys().any(is_skill) { None } else { only_folder(&files) };
    let mut found = UnpackedFiles::new();
    for (path, content) in files {
        let inner: TreePath = match &around {
            None => path,
            Some(around) => match path.as_str().strip_prefix(around.as_str()) {
                Some(inner) => inner.trim_start_matches('/').parse()?,
                None => path,
            },
        };
        let inner = if is_skill(&inner) { SKILL_FILE.parse()? } else { inner };
        found.insert(inner, content);
    }
    for path in found.keys() {
        if let Some(folder) = path.folders().find(|folder| is_file(&found, folder)) {
            let shown = crate::name::escape_untrusted(folder);
            return Err(archive_error(format!("`{shown}` is a file and a folder: rename one")));
        }
    }
    if !found.keys().any(|path| path.as_str() == SKILL_FILE) {
        return Err(archive_error("it has no `SKILL.md` at its top: put one there"));
    }
    Ok(found)
}

fn is_file(files: &UnpackedFiles, path: &str) -> bool {
    path.parse::<TreePath>().is_ok_and(|path| files.contains_key(&path))
}

/// Top folder that contains all files; `None` if there is none.
fn only_folder(files: &UnpackedFiles) -> Option<String> {
    let first = files.keys().next()?.folders().next()?.to_owned();
    files.keys().all(|path| path.folders().next() == Some(&first)).then_some(first)
}

fn count_occurrences(bytes: &[u8], mark: &[u8]) -> usize {
    bytes.windows(mark.len()).filter(|window| *window == mark).count()
}

fn zip_error(error: ZipError) -> Error {
    archive_error(match error {
        ZipError::UnsupportedArchive(_) | ZipError::CompressionMethodNotSupported(_) => {
            "it is packed in a way that is not read: use a usual ZIP"
        }
        _ => "it is no ZIP, or not a whole one: download it again",
    })
}

#[cfg(test)]
pub(crate) mod attack;
#[cfg(test)]
mod tests;
