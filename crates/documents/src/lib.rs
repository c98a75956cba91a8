//! Text of files that people send: documents, mails, pages, and text in any encoding.
//!
//! Text and HTML are decoded in the calling process, in time and memory proportional to the file.
//! Documents come from untrusted sources, and the libraries that parse them panic on unexpected input
//! and bound neither time nor memory. So each document is read by a child process: this same program,
//! started with two arguments ([`run_document_reader`]) and an empty environment. The child lowers
//! its own limits, reads from stdin, answers in JSON and exits. The reader starts the child and kills
//! it when it takes too long. However the child fails, the caller gets an [`Error`].
//!
//! | module | contents |
//! |---|---|
//! | `file` | text of a file in any format |
//! | `format` | detection of a file's format |
//! | `encoding`, `code_page`, `plain` | text in any encoding; encodings by number; text and pages |
//! | `html`, `markdown` | text of HTML |
//! | `reader` | the parent's side: starting children, concurrency, timeouts |
//! | `child` | the child's side: limits, stdin, stdout |
//! | `archive`, `compound` | which document an archive or a compound file is; in the latter, each kind |
//! | `package`, `xml`, `writer` | parts of an archive; walk through XML; the text that is written |
//! | `word`, `sheets`, `slides`, `open_document`, `book`, `pdf`, `rtf`, `mail` | one kind of document each |

mod archive;
mod book;
mod child;
mod code_page;
mod compound;
mod encoding;
mod file;
mod format;
pub mod html;
pub mod mail;
mod markdown;
mod open_document;
mod package;
mod pdf;
mod plain;
mod reader;
mod rtf;
mod sheets;
mod slides;
mod word;
mod writer;
mod xml;

pub use child::run_document_reader;
pub use encoding::{DecodedText, TextEncoding, UnencodableChar, decode_text};
pub use file::ExtractedText;
pub use format::{DocumentFormat, DocumentKind, FileFormat, UnreadableKind};
pub use pdf::PageImage;
pub use reader::DocumentReader;

use serde::{Deserialize, Serialize};

/// Maximum number of pages of a PDF; longer ones are refused.
pub const MAX_PAGES: usize = 2000;

/// Maximum text of a document, in bytes; more is refused.
pub const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of entries of a document's ZIP archive.
pub const MAX_ENTRIES: usize = 10_000;

/// Maximum size of the unpacked parts of a document, in bytes.
pub const MAX_UNPACKED_BYTES: u64 = 128 * 1024 * 1024;

/// Maximum nesting of elements in a document's XML.
pub const MAX_XML_DEPTH: usize = 256;

/// Text of a document, as Markdown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    pub kind: DocumentKind,
    /// Title from the document's properties; empty if it has none.
    pub title: String,
    /// Text with headings, of pages, sheets and slides too; tables as rows of `a | b`.
    pub text: String,
}

/// Reason why a file has no text. The messages complete a sentence whose subject is the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Error {
    /// Not a PDF, or damaged beyond what the library repairs.
    #[error("is no PDF that can be read: print it to a new PDF, or give its text")]
    BrokenPdf,

    /// Not what its beginning says, or cut off.
    #[error("is a damaged {0}: open it in the program that made it, save it again, and give that")]
    Damaged(DocumentKind),

    #[error("is a {0} with a password: give it without one")]
    Locked(DocumentKind),

    /// Pages without text, such as a scan.
    #[error(
        "is a PDF without text, as a scan is: have its text recognised (OCR) first, or give its text"
    )]
    ScannedPdf,

    #[error("is a {0} without text: if it has images of text, give the text")]
    NoText(DocumentKind),

    /// A kind of file whose text is not extracted.
    #[error("{0}")]
    Unreadable(UnreadableKind),

    #[error("has {have} pages, and {MAX_PAGES} are the most: give it in parts")]
    ManyPages { have: usize },

    #[error("has more than {MAX_TEXT_BYTES} bytes of text: give it in parts")]
    MuchText,

    #[error(
        "has {have} files packed in it, and {MAX_ENTRIES} are the most: give it in parts, or as a PDF"
    )]
    ManyEntries { have: usize },

    #[error(
        "unpacks to more than {MAX_UNPACKED_BYTES} bytes: give it in parts, or without its images"
    )]
    MuchUnpacked,

    #[error(
        "has XML that is nested more than {MAX_XML_DEPTH} deep: open it in the program that made it, \
         save it again, and give that"
    )]
    DeepXml,

    /// The child exceeded its time or memory, or crashed.
    #[error("takes too much time or memory to read: give its text, or a simpler file")]
    Heavy,

    /// No child was free within the waiting time.
    #[error("cannot be read now, since other documents are being read: try again in a minute")]
    Busy,

    /// The child could not be started, or did not answer as expected.
    #[error("the reader of documents cannot be started")]
    NoReader,
}
