//! What a document is, and what its pages say: the only place that knows the library.
//!
//! Called in the child only. The library unwinds on what it does not expect, which costs the page
//! that it happens on; what it cannot be held back from otherwise, the child's limits end.

use std::{
    cell::Cell,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use pdf_extract::{ConvertToFmt, Document as Pdf, Object, PlainTextOutput, output_doc_page};
use serde::{Deserialize, Serialize};

use crate::{Error, MOST_PAGES, MOST_TEXT};

/// How long a title may be, in characters.
const LONGEST_TITLE: usize = 200;

/// What was read of a PDF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// What it calls itself; empty if it does not.
    pub title: String,
    /// Its pages that say something, or cannot be read.
    pub pages: Vec<Page>,
}

/// A page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// From 1.
    pub number: u32,
    /// What it says, line by line; `None` if it cannot be read.
    pub text: Option<String>,
}

/// Reads a document.
pub fn read(content: &[u8]) -> Result<Document, Error> {
    let document = catch_unwind(|| Pdf::load_mem(content)).map_err(|_| Error::Broken)?;
    // One that needs no password to be read is decrypted by now.
    let document = document.map_err(|_| closed(content))?;
    if document.trailer.has(b"Encrypt") {
        return Err(Error::Encrypted);
    }
    let numbers: Vec<u32> = document.get_pages().into_keys().collect();
    match numbers.len() {
        0 => return Err(Error::Broken),
        have if have > MOST_PAGES => return Err(Error::ManyPages { have }),
        _ => {}
    }
    let left = Cell::new(MOST_TEXT);
    let mut pages = Vec::new();
    for number in numbers {
        let mut text = String::new();
        let read = catch_unwind(AssertUnwindSafe(|| {
            let mut output = PlainTextOutput::new(Bounded { text: &mut text, left: &left });
            output_doc_page(&document, &mut output, number)
        }));
        if left.get() == 0 {
            return Err(Error::MuchText);
        }
        let text = tidied(&text);
        // What was read of a page before it ended is worth more than nothing.
        match (read, text.is_empty()) {
            (_, false) => pages.push(Page { number, text: Some(text) }),
            (Ok(Ok(())), true) => {}
            (_, true) => pages.push(Page { number, text: None }),
        }
    }
    if pages.is_empty() {
        return Err(Error::NoText);
    }
    if pages.iter().all(|page| page.text.is_none()) {
        return Err(Error::Broken);
    }
    let title = catch_unwind(AssertUnwindSafe(|| title(&document))).ok().flatten();
    Ok(Document { title: title.unwrap_or_default(), pages })
}

/// Why a document cannot be opened: the library has many words for a password that it lacks.
fn closed(content: &[u8]) -> Error {
    let is_locked = content.windows(8).any(|eight| eight == b"/Encrypt");
    if is_locked { Error::Encrypted } else { Error::Broken }
}

/// What the document's own information calls it.
fn title(document: &Pdf) -> Option<String> {
    let info = document.trailer.get(b"Info").ok()?;
    let (_, info) = document.dereference(info).ok()?;
    let title = info.as_dict().ok()?.get(b"Title").ok()?;
    let (_, title) = document.dereference(title).ok()?;
    let Object::String(bytes, _) = title else { return None };
    let title = match bytes.strip_prefix(&[0xfe, 0xff]) {
        Some(wide) => {
            let units = wide.chunks_exact(2).map(|two| u16::from_be_bytes([two[0], two[1]]));
            char::decode_utf16(units).map(|one| one.unwrap_or('\u{fffd}')).collect()
        }
        None => String::from_utf8_lossy(bytes).into_owned(),
    };
    let words: Vec<&str> = title.split_whitespace().collect();
    Some(words.join(" ").chars().filter(|c| !c.is_control()).take(LONGEST_TITLE).collect())
}

/// Without what layout leaves behind: spaces round lines, and gaps of more than one line.
fn tidied(text: &str) -> String {
    let mut tidied = String::with_capacity(text.len());
    let mut gap = false;
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() {
            gap = !tidied.is_empty();
            continue;
        }
        if !tidied.is_empty() {
            tidied.push_str(if gap { "\n\n" } else { "\n" });
        }
        gap = false;
        tidied.extend(line.chars().filter(|c| !c.is_control() || *c == '\t'));
    }
    tidied
}

/// Takes text until there is too much; nothing is left then.
struct Bounded<'a> {
    text: &'a mut String,
    left: &'a Cell<usize>,
}

impl fmt::Write for Bounded<'_> {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let left = self.left.get().saturating_sub(more.len());
        self.left.set(left);
        if left == 0 {
            return Err(fmt::Error);
        }
        self.text.push_str(more);
        Ok(())
    }
}

impl ConvertToFmt for Bounded<'_> {
    type Writer = Self;

    fn convert(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_and_what_layout_leaves_is_not() {
        assert_eq!(tidied("\n\n  Tea  \n\n\n\n How \r\nto\u{7} "), "Tea\n\nHow\nto");
        assert_eq!(tidied(" \n "), "");
    }

    #[test]
    fn what_is_no_pdf_is_told_and_ends_nothing() {
        for broken in [&b""[..], b"%PDF-", b"%PDF-1.4 broken", b"hello", b"%PDF-1.4\n%%EOF"] {
            assert_eq!(read(broken), Err(Error::Broken));
        }
    }
}
