//! What is in a download, if it is safe (spec SKL-010).
//!
//! An archive comes from outside, so nothing in it is believed. It is unpacked to memory and to
//! nowhere else, and each entry is looked at before its content is read.
//!
//! **What can go wrong.** A path may leave the folder (`../`, `/`, a backslash). An entry may be a
//! link, or say that it is small and unpack to gigabytes. There may be a million of them: so the
//! headers are counted before a reader makes anything of them. Two names may be one on another
//! system, or look like one to a person: so names are brought to one form, and must differ by
//! more than upper and lower case.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Cursor, Read},
};

use holdfast_types::TreePath;
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization as _;
use zip::{CompressionMethod, ZipArchive, read::ZipFile, result::ZipError};

use crate::{Error, Origin};

/// How the header of each entry begins in the list at a ZIP's end.
const HEADER: &[u8] = b"PK\x01\x02";
/// What each skill has.
const SKILL: &str = "SKILL.md";

/// How much an archive may hold, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The most bytes of one file. The tree that it goes to may take less.
    pub file: u64,
    /// The most bytes of all files together.
    pub total: u64,
    /// The most files.
    pub files: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { file: 5 << 20, total: 20 << 20, files: 500 }
    }
}

/// A skill as a registry gives it.
#[derive(Clone, PartialEq, Eq)]
pub enum Download {
    /// A ZIP.
    Zip(Vec<u8>),
    /// Files with their paths below the skill's folder.
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
pub(crate) type Unpacked = BTreeMap<TreePath, Vec<u8>>;

/// Unpacks a download, or says which entry is in the way. The result has a `SKILL.md` at its top.
pub(crate) fn unpack(download: Download, limits: &Limits) -> Result<Unpacked, Error> {
    let mut taken = Taken::new(limits);
    match download {
        Download::Zip(bytes) => unzip(bytes, &mut taken)?,
        Download::Files(files) => {
            for (path, content) in files {
                let Some(path) = taken.path(&path)? else { continue };
                taken.put(path, content)?;
            }
        }
    }
    at_the_top(taken.files)
}

fn refused(why: impl Into<String>) -> Error {
    Error::Archive(why.into())
}

fn unzip(bytes: Vec<u8>, taken: &mut Taken<'_>) -> Result<(), Error> {
    // Folders have headers too, and another archive within may have some.
    let most = 4 * taken.limits.files + 1_000;
    if count(&bytes, HEADER) > most {
        return Err(refused(format!(
            "it has more than {most} entries, and {} files is the most",
            taken.limits.files
        )));
    }
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(unreadable)?;
    for at in 0..archive.len() {
        let entry = archive.by_index(at).map_err(unreadable)?;
        take(entry, taken)?;
    }
    Ok(())
}

fn take<R: Read + ?Sized>(mut entry: ZipFile<'_, R>, taken: &mut Taken<'_>) -> Result<(), Error> {
    let name = std::str::from_utf8(entry.name_raw()).map(str::to_owned);
    let Ok(name) = name else {
        return Err(refused("an entry has a name that is not UTF-8: pack it again"));
    };
    let shown = crate::name::shown(&name);
    // What kind of file it is stands in the upper bits; most archives say nothing, and mean files.
    let kind = entry.unix_mode().unwrap_or_default() & 0o170_000;
    if entry.is_symlink() || !matches!(kind, 0 | 0o100_000 | 0o040_000) {
        return Err(refused(format!(
            "`{shown}` is a link or a device: pack only files and folders"
        )));
    }
    if entry.encrypted() {
        return Err(refused(format!("`{shown}` is encrypted: pack it without a password")));
    }
    if !matches!(entry.compression(), CompressionMethod::Stored | CompressionMethod::Deflated) {
        return Err(refused(format!("`{shown}` is packed in a rare way: use a usual ZIP")));
    }
    if name.ends_with('/') {
        // Its own files bring it; but where it leads is looked at.
        if name != "./" {
            taken.path(name.trim_end_matches('/'))?;
        }
        return Ok(());
    }
    let Some(path) = taken.path(&name)? else { return Ok(()) };
    let most = taken.room_for(&path, entry.size())?;
    let mut content = Vec::new();
    // What it turns out to have, whatever it said.
    entry
        .by_ref()
        .take(most + 1)
        .read_to_end(&mut content)
        .map_err(|_| refused(format!("`{shown}` is damaged: download it again")))?;
    taken.put(path, content)
}

/// What was taken, and how much may still be.
struct Taken<'a> {
    limits: &'a Limits,
    files: Unpacked,
    /// Names in the form in which none may be there twice.
    keys: BTreeSet<String>,
    bytes: u64,
}

impl<'a> Taken<'a> {
    const fn new(limits: &'a Limits) -> Self {
        Self { limits, files: BTreeMap::new(), keys: BTreeSet::new(), bytes: 0 }
    }

    /// Where an entry goes; `None` if it is one of those that are left out.
    fn path(&self, named: &str) -> Result<Option<TreePath>, Error> {
        let shown = crate::name::shown(named);
        let mut named = named;
        while let Some(rest) = named.strip_prefix("./") {
            named = rest;
        }
        // One letter is written in two ways; what only looks like another one is refused.
        let composed: String = named.nfc().collect();
        if composed.nfkc().ne(composed.chars()) || holdfast_tools::clean(&composed) != composed {
            return Err(refused(format!(
                "`{shown}` has letters in its name that look like others: rename it"
            )));
        }
        let path: TreePath = composed
            .parse()
            .map_err(|error| refused(format!("`{shown}` cannot be taken: {error}")))?;
        // What a Mac adds, and what only an installation may write.
        let is_litter =
            path.parts().any(|part| part == "__MACOSX" || part == ".DS_Store" || part == ".git");
        Ok((!is_litter && path.name() != Origin::FILE).then_some(path))
    }

    /// How many bytes a file may have that says it has so many.
    fn room_for(&self, path: &TreePath, says: u64) -> Result<u64, Error> {
        if self.files.len() >= self.limits.files {
            return Err(refused(format!(
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
        refused(format!(
            "`{}` is too large: a file has {} bytes at most, and all together {}",
            crate::name::shown(path.as_str()),
            self.limits.file,
            self.limits.total
        ))
    }

    fn put(&mut self, path: TreePath, content: Vec<u8>) -> Result<(), Error> {
        let size = content.len() as u64;
        if size > self.room_for(&path, size)? {
            return Err(self.too_large(&path));
        }
        // For a file system that ignores case they would be one, as for most people who look.
        if !self.keys.insert(path.as_str().to_lowercase()) {
            return Err(refused(format!(
                "`{}` is there twice, but for upper and lower case: leave one out",
                crate::name::shown(path.as_str())
            )));
        }
        self.bytes += size;
        self.files.insert(path, content);
        Ok(())
    }
}

/// The same with `SKILL.md` at the top: archives of repositories have one folder around it all.
fn at_the_top(files: Unpacked) -> Result<Unpacked, Error> {
    let is_skill = |path: &TreePath| path.as_str().eq_ignore_ascii_case(SKILL);
    let around = if files.keys().any(is_skill) { None } else { only_folder(&files) };
    let mut found = Unpacked::new();
    for (path, content) in files {
        let inner: TreePath = match &around {
            None => path,
            Some(around) => match path.as_str().strip_prefix(around.as_str()) {
                Some(inner) => inner.trim_start_matches('/').parse()?,
                None => path,
            },
        };
        let inner = if is_skill(&inner) { SKILL.parse()? } else { inner };
        found.insert(inner, content);
    }
    // A file that is also a folder cannot be both.
    for path in found.keys() {
        if let Some(folder) = path.folders().find(|folder| is_file(&found, folder)) {
            let shown = crate::name::shown(folder);
            return Err(refused(format!("`{shown}` is a file and a folder: rename one")));
        }
    }
    if !found.keys().any(|path| path.as_str() == SKILL) {
        return Err(refused("it has no `SKILL.md` at its top: put one there"));
    }
    Ok(found)
}

fn is_file(files: &Unpacked, path: &str) -> bool {
    path.parse::<TreePath>().is_ok_and(|path| files.contains_key(&path))
}

/// The folder that all files are in, if it is one.
fn only_folder(files: &Unpacked) -> Option<String> {
    let first = files.keys().next()?.folders().next()?.to_owned();
    files.keys().all(|path| path.folders().next() == Some(&first)).then_some(first)
}

fn count(bytes: &[u8], mark: &[u8]) -> usize {
    bytes.windows(mark.len()).filter(|window| *window == mark).count()
}

fn unreadable(error: ZipError) -> Error {
    refused(match error {
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
