//! Files of the web console and of the documentation, embedded when they were built before this crate
//! (`make console`, `make docs`).

use std::{
    borrow::Cow,
    io::{self, Read as _},
};

use flate2::read::GzDecoder;

/// Page for a binary without the console.
pub const ABSENT_CONSOLE: &str = include_str!("absent.html");

/// Page for a binary without the documentation.
pub const ABSENT_BOOK: &str = include_str!("absent_book.html");

/// An embedded file.
#[derive(Debug)]
pub struct Asset {
    /// Path with `/`, without one at its beginning.
    path: &'static str,
    is_gzip: bool,
    /// Hash of the content, in hex.
    pub etag: &'static str,
    content: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

impl Asset {
    /// The content in gzip; `None` if it is stored as it is.
    #[must_use]
    pub fn gzip(&self) -> Option<&'static [u8]> {
        self.is_gzip.then_some(self.content)
    }

    /// The content as it is.
    ///
    /// # Errors
    ///
    /// If it cannot be decompressed, which is a defect of the build.
    pub fn plain(&self) -> io::Result<Cow<'static, [u8]>> {
        if !self.is_gzip {
            return Ok(self.content.into());
        }
        let mut plain = Vec::new();
        GzDecoder::new(self.content).read_to_end(&mut plain)?;
        Ok(plain.into())
    }
}

/// A folder of files, which is empty if it was not built before this crate.
#[derive(Debug)]
pub struct Folder(&'static [Asset]);

/// The web console.
pub static CONSOLE: Folder = Folder(CONSOLE_FILES);

/// The documentation.
pub static BOOK: Folder = Folder(BOOK_FILES);

impl Folder {
    /// Returns the file with this path.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<&'static Asset> {
        self.0.iter().find(|asset| asset.path == path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_file_can_be_read_as_it_was() {
        for folder in [&CONSOLE, &BOOK] {
            for asset in folder.0 {
                let plain = asset.plain().unwrap();

                assert!(std::ptr::eq(folder.find(asset.path).unwrap(), asset));
                assert_eq!(
                    asset.gzip().is_none(),
                    plain.as_ref() == asset.content,
                    "{}",
                    asset.path
                );
            }
            assert_eq!(folder.find("index.html").is_none(), folder.0.is_empty());
            assert!(folder.find("no-such-file.js").is_none());
        }
    }
}
