//! Document and page text. The only file that uses the parsing library.
//!
//! Runs in the child only. The library panics on unexpected input: a caught panic costs one page. A
//! failure that cannot be caught ends the child.

use std::{
    cell::Cell,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use pdf_extract::{ConvertToFmt, Document as Pdf, Object, PlainTextOutput, output_doc_page};
use serde::{Deserialize, Serialize};

use crate::{Error, MAX_PAGES, MAX_TEXT_BYTES};

/// Maximum length of a title, in characters.
const MAX_TITLE_CHARS: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Title from the document's metadata; empty if it has none.
    pub title: String,
    /// Pages that have text or cannot be read; pages without text are left out.
    pub pages: Vec<Page>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Number of the page, from 1.
    pub number: u32,
    /// Text with line breaks; `None` if the page cannot be read.
    pub text: Option<String>,
}

pub fn read(content: &[u8]) -> Result<Document, Error> {
    let document = catch_unwind(|| Pdf::load_mem(content)).map_err(|_| Error::Broken)?;
    // A document with an empty user password is already decrypted here.
    let document = document.map_err(|_| load_error(content))?;
    if document.trailer.has(b"Encrypt") {
        return Err(Error::Encrypted);
    }
    let numbers: Vec<u32> = document.get_pages().into_keys().collect();
    match numbers.len() {
        0 => return Err(Error::Broken),
        have if have > MAX_PAGES => return Err(Error::ManyPages { have }),
        _ => {}
    }
    let left = Cell::new(MAX_TEXT_BYTES);
    let mut pages = Vec::new();
    for number in numbers {
        let mut text = String::new();
        let read = catch_unwind(AssertUnwindSafe(|| {
            let mut output = PlainTextOutput::new(BoundedWriter { text: &mut text, left: &left });
            output_doc_page(&document, &mut output, number)
        }));
        if left.get() == 0 {
            return Err(Error::MuchText);
        }
        let text = without_layout_whitespace(&text);
        // Text read before a page failed is kept: part of a page is better than nothing.
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

/// Classifies a load failure. The library reports a missing password in many ways, so the file is
/// searched for `/Encrypt`.
fn load_error(content: &[u8]) -> Error {
    let is_locked = content.windows(8).any(|eight| eight == b"/Encrypt");
    if is_locked { Error::Encrypted } else { Error::Broken }
}

/// Title from the document's `Info` dictionary.
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
    Some(words.join(" ").chars().filter(|c| !c.is_control()).take(MAX_TITLE_CHARS).collect())
}

/// Removes layout whitespace: spaces around lines, and more than one empty line in a row.
fn without_layout_whitespace(text: &str) -> String {
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

/// Writer that counts down the remaining bytes and fails when none are left.
struct BoundedWriter<'a> {
    text: &'a mut String,
    left: &'a Cell<usize>,
}

impl fmt::Write for BoundedWriter<'_> {
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

impl ConvertToFmt for BoundedWriter<'_> {
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
        assert_eq!(
            without_layout_whitespace("\n\n  Tea  \n\n\n\n How \r\nto\u{7} "),
            "Tea\n\nHow\nto"
        );
        assert_eq!(without_layout_whitespace(" \n "), "");
    }

    #[test]
    fn what_is_no_pdf_is_told_and_ends_nothing() {
        for broken in [&b""[..], b"%PDF-", b"%PDF-1.4 broken", b"hello", b"%PDF-1.4\n%%EOF"] {
            assert_eq!(read(broken), Err(Error::Broken));
        }
    }
}
