//! PDFs: their pages. Only this module uses the parsing library.
//!
//! Runs in the child only. The library panics on unexpected input: a caught panic costs one page. A
//! failure that cannot be caught ends the child.

mod scan;

use std::{
    cell::Cell,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use pdf_extract::{ConvertToFmt, Document as Pdf, Object, PlainTextOutput, output_doc_page};

pub use self::scan::{PageImage, scanned_pages};
use crate::{Document, DocumentKind, Error, MAX_PAGES, MAX_TEXT_BYTES};

/// Maximum length of a title, in characters.
const MAX_TITLE_CHARS: usize = 200;

/// Page that has text or cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Page {
    /// Number of the page, from 1.
    number: u32,
    /// Text with line breaks; `None` if the page cannot be read.
    text: Option<String>,
}

/// Loads a PDF that needs no password.
fn load(content: &[u8]) -> Result<Pdf, Error> {
    let document = catch_unwind(|| Pdf::load_mem(content)).map_err(|_| Error::BrokenPdf)?;
    // A document with an empty user password is already decrypted here.
    let document = document.map_err(|_| load_error(content))?;
    match document.trailer.has(b"Encrypt") {
        true => Err(Error::Locked(DocumentKind::Pdf)),
        false => Ok(document),
    }
}

pub fn read(content: &[u8]) -> Result<Document, Error> {
    let document = load(content)?;
    let numbers: Vec<u32> = document.get_pages().into_keys().collect();
    match numbers.len() {
        0 => return Err(Error::BrokenPdf),
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
        return Err(Error::ScannedPdf);
    }
    if pages.iter().all(|page| page.text.is_none()) {
        return Err(Error::BrokenPdf);
    }
    let title = catch_unwind(AssertUnwindSafe(|| title(&document))).ok().flatten();
    Ok(paged(&title.unwrap_or_default(), pages))
}

/// Puts each page under a heading with its number, so that hits show their page.
fn paged(title: &str, pages: Vec<Page>) -> Document {
    let first = pages.iter().filter_map(|page| page.text.as_deref()).next();
    let first = first.and_then(|text| text.lines().find(|line| !line.trim().is_empty()));
    let title = match title.trim() {
        "" => first.unwrap_or_default().to_owned(),
        title => title.to_owned(),
    };
    let mut text = String::new();
    for page in pages {
        let content = page.text.as_deref().unwrap_or("(this page cannot be read)");
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&format!("## Page {}\n\n{content}", page.number));
    }
    Document { kind: DocumentKind::Pdf, title, text }
}

/// Classifies a load failure. The library reports a missing password in many ways, so the file is
/// searched for `/Encrypt`.
fn load_error(content: &[u8]) -> Error {
    let is_locked = content.windows(8).any(|eight| eight == b"/Encrypt");
    if is_locked { Error::Locked(DocumentKind::Pdf) } else { Error::BrokenPdf }
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
    fn pages_stand_under_their_numbers_and_the_title_is_none_of_them() {
        let page = |number, text: Option<&str>| Page { number, text: text.map(str::to_owned) };

        let document = paged(" ", vec![page(2, Some("Tea\nBoil water.")), page(3, None)]);

        let text = "## Page 2\n\nTea\nBoil water.\n\n## Page 3\n\n(this page cannot be read)";
        assert_eq!((document.title.as_str(), document.text.as_str()), ("Tea", text));
    }

    #[test]
    fn what_is_no_pdf_is_told_and_ends_nothing() {
        for broken in [&b""[..], b"%PDF-", b"%PDF-1.4 broken", b"hello", b"%PDF-1.4\n%%EOF"] {
            assert_eq!(read(broken), Err(Error::BrokenPdf));
        }
    }
}
