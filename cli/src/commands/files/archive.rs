//! Archives of files, as the gateway exports and imports them.
//!
//! Archives are untrusted: they are read as a stream, links and paths that lead out are refused, and
//! nothing is unpacked to the disk.

use std::{
    collections::BTreeMap,
    io::{self, Read as _},
};

use flate2::{Compression, GzBuilder, bufread::MultiGzDecoder};
use holdfast_types::TreePath;

use crate::error::Error;

/// Maximum size of an archive's contents, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// Files by their paths.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Reads a `.tar.gz`.
///
/// # Errors
///
/// If it is damaged or too large, or has links or paths that lead out.
pub fn read_archive(archive: &[u8]) -> Result<Files, Error> {
    let wrong = |error: io::Error| Error::Usage(format!("the archive cannot be read: {error}"));
    let stream = MultiGzDecoder::new(archive).take(MAX_BYTES);
    let mut archive = tar::Archive::new(stream);
    let mut files = Files::new();
    for entry in archive.entries().map_err(wrong)? {
        let mut entry = entry.map_err(wrong)?;
        let path = entry.path().map_err(wrong)?.to_string_lossy().into_owned();
        let path = path.trim_start_matches("./").trim_end_matches('/').to_owned();
        if entry.header().entry_type().is_dir() {
            continue;
        }
        if !entry.header().entry_type().is_file() || path.parse::<TreePath>().is_err() {
            return Err(Error::Usage(format!(
                "the archive has `{}`, which is no file within it: make it anew without links",
                crate::screen::plain(&path)
            )));
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(wrong)?;
        files.insert(path, content);
    }
    Ok(files)
}

/// Writes a `.tar.gz`; the same files give the same bytes.
pub fn write_archive(files: &Files) -> io::Result<Vec<u8>> {
    let gz = GzBuilder::new().mtime(0).operating_system(255);
    let mut archive = tar::Builder::new(gz.write(Vec::new(), Compression::default()));
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_mtime(0);
        archive.append_data(&mut header, path, content.as_slice())?;
    }
    archive.into_inner()?.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_with_a_link_or_a_path_that_leads_out_is_refused() {
        let archive = |kind: tar::EntryType, path: &str| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(0);
            header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_cksum();
            let mut archive = tar::Builder::new(Vec::new());
            archive.append(&header, io::empty()).unwrap();
            let tar = archive.into_inner().unwrap();
            let mut packed = Vec::new();
            let mut gz = GzBuilder::new().read(tar.as_slice(), Compression::fast());
            gz.read_to_end(&mut packed).unwrap();
            packed
        };

        assert!(read_archive(&archive(tar::EntryType::Regular, "a/b.md")).is_ok());
        for (kind, path) in [
            (tar::EntryType::Symlink, "a.md"),
            (tar::EntryType::Regular, "../a.md"),
            (tar::EntryType::Regular, "/a.md"),
        ] {
            let refused = read_archive(&archive(kind, path)).unwrap_err().to_string();
            assert!(refused.contains("no file within it"), "{path}: {refused}");
        }
        assert!(read_archive(b"no archive").is_err());
    }
}
