//! ZIP archive of a document, with limits on what is unpacked.

use std::{
    collections::HashMap,
    io::{Cursor, Read as _},
};

use zip::{ZipArchive, result::ZipError};

use crate::{
    DocumentKind, Error, MAX_ENTRIES, MAX_UNPACKED_BYTES,
    xml::{self, Element, Step, Visitor, local},
};

pub struct Package<'a> {
    archive: ZipArchive<Cursor<&'a [u8]>>,
    pub kind: DocumentKind,
    /// Number of bytes that may still be unpacked.
    left: u64,
}

/// Reference from one part of an Office file to another, or to an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relationship {
    /// Last segment of the type's address, as in `slide`.
    pub kind: String,
    /// Path in the package, or an address.
    pub target: String,
    pub is_external: bool,
}

impl<'a> Package<'a> {
    pub fn open(content: &'a [u8]) -> Result<Self, Error> {
        let archive = ZipArchive::new(Cursor::new(content));
        let archive = archive.map_err(|_| Error::Damaged(DocumentKind::Office))?;
        if archive.len() > MAX_ENTRIES {
            return Err(Error::ManyEntries { have: archive.len() });
        }
        Ok(Self { archive, kind: DocumentKind::Office, left: MAX_UNPACKED_BYTES })
    }

    pub fn has(&self, name: &str) -> bool {
        self.archive.index_for_name(name).is_some()
    }

    pub fn names(&self) -> Vec<String> {
        self.archive.file_names().flatten().map(|name| name.into_owned()).collect()
    }

    /// Unpacks a part; `None` if there is no such part.
    pub fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let entry = match self.archive.by_name(name) {
            Ok(entry) => entry,
            Err(ZipError::FileNotFound) => return Ok(None),
            Err(ZipError::UnsupportedArchive(ZipError::PASSWORD_REQUIRED)) => {
                return Err(Error::Locked(self.kind));
            }
            Err(_) => return Err(Error::Damaged(self.kind)),
        };
        if entry.size() > self.left {
            return Err(Error::MuchUnpacked);
        }
        // The size that an archive declares may be wrong.
        let mut content = Vec::new();
        let read = entry.take(self.left + 1).read_to_end(&mut content);
        let size = u64::try_from(content.len()).unwrap_or(u64::MAX);
        self.left = self.left.checked_sub(size).ok_or(Error::MuchUnpacked)?;
        read.map_err(|_| Error::Damaged(self.kind))?;
        Ok(Some(content))
    }

    /// Unpacks a part without which there is no document.
    pub fn require(&mut self, name: &str) -> Result<Vec<u8>, Error> {
        self.read(name)?.ok_or(Error::Damaged(self.kind))
    }

    /// Unpacks all parts once, so that the limit is checked before another library unpacks them.
    pub fn check_size(&mut self) -> Result<(), Error> {
        for name in self.names() {
            self.read(&name)?;
        }
        Ok(())
    }

    /// Relationships of a part of an Office file, by their ids.
    pub fn relationships(&mut self, part: &str) -> Result<HashMap<String, Relationship>, Error> {
        let (folder, name) = part.rsplit_once('/').unwrap_or(("", part));
        let separator = if folder.is_empty() { "" } else { "/" };
        let content = self.read(&format!("{folder}{separator}_rels/{name}.rels"))?;
        let mut reader = Relationships { folder, by_id: HashMap::new() };
        if let Some(content) = content {
            xml::walk(&content, self.kind, &mut reader)?;
        }
        Ok(reader.by_id)
    }

    /// Title in the properties of an Office file; empty if it has none.
    pub fn title(&mut self, part: &str) -> Result<String, Error> {
        let Some(content) = self.read(part)? else { return Ok(String::new()) };
        element_text(&content, self.kind, "dc:title")
    }
}

/// Text of the first element with this name.
pub fn element_text(content: &[u8], kind: DocumentKind, name: &str) -> Result<String, Error> {
    struct Finder<'a> {
        name: &'a str,
        is_open: bool,
        text: Option<String>,
    }
    impl Visitor for Finder<'_> {
        fn start(&mut self, element: &Element<'_>) -> Result<Step, Error> {
            if element.name() == self.name && self.text.is_none() {
                self.is_open = true;
                self.text = Some(String::new());
            }
            Ok(Step::Enter)
        }

        fn end(&mut self, name: &str) -> Result<(), Error> {
            self.is_open &= name != self.name;
            Ok(())
        }

        fn text(&mut self, text: &str) {
            if let Some(title) = self.text.as_mut().filter(|_| self.is_open) {
                title.push_str(text);
            }
        }
    }
    let mut finder = Finder { name, is_open: false, text: None };
    xml::walk(content, kind, &mut finder)?;
    Ok(crate::writer::one_line(&finder.text.unwrap_or_default()))
}

struct Relationships<'a> {
    folder: &'a str,
    by_id: HashMap<String, Relationship>,
}

impl Visitor for Relationships<'_> {
    fn start(&mut self, element: &Element<'_>) -> Result<Step, Error> {
        if local(&element.name()) == "Relationship"
            && let (Some(id), Some(target)) = (element.attribute("Id"), element.attribute("Target"))
        {
            let kind = element.attribute("Type").unwrap_or_default();
            let is_external = element.attribute("TargetMode").as_deref() == Some("External");
            let relationship = Relationship {
                kind: kind.rsplit('/').next().unwrap_or_default().to_owned(),
                target: if is_external { target } else { resolve(self.folder, &target) },
                is_external,
            };
            self.by_id.insert(id, relationship);
        }
        Ok(Step::Enter)
    }

    fn end(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn text(&mut self, _: &str) {}
}

/// Path in an archive that a part in a folder refers to.
pub fn resolve(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = match target.starts_with('/') {
        true => Vec::new(),
        false => folder.split('/').filter(|part| !part.is_empty()).collect(),
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_resolved_within_the_archive() {
        for (folder, target, path) in [
            ("word", "footnotes.xml", "word/footnotes.xml"),
            ("ppt/slides", "../notesSlides/n1.xml", "ppt/notesSlides/n1.xml"),
            ("", "/xl/workbook.xml", "xl/workbook.xml"),
            ("a", "../../../etc/passwd", "etc/passwd"),
        ] {
            assert_eq!(resolve(folder, target), path);
        }
    }
}
